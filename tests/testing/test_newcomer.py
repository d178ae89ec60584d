"""A newcomer's first test file passes, and the output of a failing one is enough to find the fault."""

from __future__ import annotations

from pathlib import Path

from tests.support.pytest_subprocess import run_pytest

PASSES = """\
import tidegate as tg
from tidegate.testing import TestStream, assert_that, equal_to, equal_to_per_window

def test_words_are_counted(pipeline):
    words = pipeline | tg.Create(["a b", "b"]) | tg.FlatMap(str.split)
    assert_that(words | tg.CombinePerElement(len), equal_to([("a", 1), ("b", 2)]))

def test_clicks_are_counted_by_the_minute(pipeline):
    clicks = pipeline | TestStream().add_elements([tg.TimestampedValue(("ann", 1), 61)]).advance_watermark_to(120)
    counts = clicks | tg.WindowInto(tg.FixedWindows(60)) | tg.CombinePerKey(sum)
    assert_that(counts, equal_to_per_window({(60, 120): [("ann", 1)]}))
"""

FAILS = """\
import tidegate as tg
from tidegate.testing import assert_that, equal_to

def total(prices):
    return prices | tg.CombinePerKey(sum)

def test_totals(pipeline):
    prices = pipeline | tg.Create([("pear", 2), ("plum", 3), ("pear", 4)])
    assert_that(total(prices), equal_to([("pear", 7), ("plum", 3), ("fig", 1)]))
"""

RAISES = """\
import tidegate as tg
from tidegate.testing import assert_that, equal_to

def price(line):
    return int(line.split()[1])

def test_prices(pipeline):
    assert_that(pipeline | tg.Create(["pear 2", "plum three"]) | tg.Map(price), equal_to([2, 3]))
"""


def test_a_first_test_file_of_ten_lines_passes(tmp_path: Path) -> None:
    assert len([line for line in PASSES.splitlines() if line]) <= 10
    code, printed = run_pytest(tmp_path, PASSES)
    assert code == 0, printed
    assert "2 passed" in printed


def test_the_output_of_a_failing_test_shows_the_assertion_and_the_difference(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, FAILS)
    assert code == 1
    output = [line.rstrip() for line in printed.splitlines()]
    assert '>       assert_that(total(prices), equal_to([("pear", 7), ("plum", 3), ("fig", 1)]))' in output
    message = [line[1:].strip() for line in output if line.startswith("E ")]
    assert message == [
        f"AssertionError: 'CombinePerKey(sum)' fails the assertion at {tmp_path / 'test_mine.py'}:9",
        "expected 3 elements, found 2, 1 matching",
        "missing (expected, not found):",
        "('pear', 7)",
        "('fig', 1)",
        "unexpected (found, not expected):",
        "('pear', 6)",
    ]
    assert "asserting.py" not in printed
    assert "1 failed" in printed


def test_an_error_in_a_function_of_the_user_names_step_line_and_element(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, RAISES)
    assert code == 1
    assert "ValueError: invalid literal for int() with base 10: 'three'" in printed
    assert f"in step 'Map(price)', applied at {tmp_path / 'test_mine.py'}:8" in printed
    assert "element: 'plum three'" in printed
