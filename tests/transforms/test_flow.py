"""Partition, Tee, Distinct, BatchElements and LogElements."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.runners.direct.runner import DirectRunner
from tidegate.sdk.windowing.window import GLOBAL_WINDOW
from tidegate.transforms.flow import Batching


@settings(max_examples=25)
@given(st.lists(st.integers()), st.integers(1, 5))
def test_each_element_goes_to_its_partition(elements: list[int], n: int) -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        parts = p | tg.Create(elements) | tg.Partition(lambda x, n: x % n, n)
        assert len(parts) == n
        return {str(i): part for i, part in enumerate(parts)}

    found = collect(build)
    for i in range(n):
        assert found.values(str(i)) == [x for x in elements if x % n == i]


def test_partitions_have_the_type_of_the_input_and_take_extra_arguments() -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        low, high = p | tg.Create([1, 5]) | tg.Partition(lambda x, n, limit: x > limit, 2, limit=3)
        assert low.element_type is high.element_type is int
        return {"low": low, "high": high}

    found = collect(build)
    assert (found.values("low"), found.values("high")) == ([1], [5])


@pytest.mark.parametrize("number", [-1, 2, None, 0.5, "1"])
def test_the_error_of_an_invalid_partition_names_the_element(number: Any) -> None:
    p = tg.Pipeline()
    _ = p | tg.Create(["elephant"]) | tg.Partition(lambda x, n: number, 2)
    message = f"<lambda> returned partition {number!r} for 'elephant': it must be an integer from 0 to 1"
    with pytest.raises(tg.UserCodeError, match=re.escape(message)) as failed:
        p.run()
    assert failed.value.step == "Partition(<lambda>)"


def test_the_number_of_partitions_must_be_positive() -> None:
    with pytest.raises(tg.BuildError, match="Partition: n must be a whole number of at least 1, not 0"):
        tg.Partition(lambda x, n: 0, 0)


def test_a_tee_applies_side_branches_and_returns_its_input(tmp_path: Path) -> None:
    seen: dict[str, tg.PCollection[Any]] = {}

    def side(pcoll: tg.PCollection[int]) -> None:
        seen["side"] = pcoll | tg.Map(lambda x: 2 * x)

    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        pcoll = p | tg.Create([1, 2])
        after = pcoll | tg.Tee(side, tg.Map(str))
        assert after is pcoll
        return {"after": after, **seen}

    found = collect(build)
    assert found.values("after") == [1, 2]
    assert found.values("side") == [2, 4]
    with pytest.raises(tg.BuildError, match="at least one transform"):
        tg.Tee()


@settings(max_examples=25)
@given(st.lists(st.one_of(st.integers(0, 4), st.sampled_from([1.0, True, "a", (1, 2)]))))
def test_distinct_compares_elements_by_equality(elements: list[Any]) -> None:
    found = collect(lambda p: {"out": p | tg.Create(elements) | tg.Distinct()}).values("out")
    assert found == list(dict.fromkeys(elements))


def test_distinct_applies_to_each_window() -> None:
    elements = [tg.TimestampedValue("a", 1), tg.TimestampedValue("a", 2), tg.TimestampedValue("a", 11)]
    found = collect(lambda p: {"out": p | tg.Create(elements) | tg.WindowInto(tg.FixedWindows(10)) | tg.Distinct()})
    assert [(seen.value, seen.window.start.seconds()) for seen in found.seen["out"]] == [("a", 0), ("a", 10)]


@settings(max_examples=25)
@given(st.lists(st.integers(), max_size=60), st.integers(1, 9), st.integers(1, 20), st.integers(1, 50))
def test_batches_contain_every_element_in_order(elements: list[int], min_size: int, max_size: int, block: int) -> None:
    min_size = min(min_size, max_size)
    batches = collect(
        lambda p: {"out": p | tg.Create(elements) | tg.BatchElements(min_size, max_size)},
        DirectRunner(block_size=block),
    ).values("out")
    assert [x for batch in batches for x in batch] == elements
    assert all(1 <= len(batch) <= max_size for batch in batches)


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 20))
def test_batches_of_a_bundle_are_full_except_the_last_two(n: int, min_size: int, max_size: int) -> None:
    min_size = min(min_size, max_size)
    batching = Batching(min_size, max_size)
    batching.start_bundle()
    batches = [b.value for x in range(n) for b in batching.process(x, GLOBAL_WINDOW) or ()]
    batches += [b.value for b in batching.finish_bundle()]
    assert [x for batch in batches for x in batch] == list(range(n))
    assert all(len(batch) == max_size for batch in batches[:-2])
    if n >= min_size and 2 * min_size <= max_size + 1:
        assert all(len(batch) >= min_size for batch in batches)


def test_a_batch_is_in_one_window_with_the_timestamp_of_its_end() -> None:
    elements = [tg.TimestampedValue(x, x) for x in (1, 11, 2, 12, 3)]
    found = collect(
        lambda p: {"out": p | tg.Create(elements) | tg.WindowInto(tg.FixedWindows(10)) | tg.BatchElements(1, 100)}
    )
    assert [(seen.value, seen.window.start.seconds(), seen.micros) for seen in found.seen["out"]] == [
        ([1, 2, 3], 0, 9_999_999),
        ([11, 12], 10, 19_999_999),
    ]


def test_invalid_batch_sizes_are_refused() -> None:
    with pytest.raises(tg.BuildError, match=re.escape("min_batch_size (5) is above max_batch_size (4)")):
        tg.BatchElements(5, 4)
    with pytest.raises(tg.BuildError, match="max_batch_size must be a whole number of at least 1"):
        tg.BatchElements(1, 0)


def test_log_elements_prints_elements(capsys: pytest.CaptureFixture[str]) -> None:
    elements = [tg.TimestampedValue("a", 0)]
    found = collect(lambda p: {"out": p | tg.Create(elements) | tg.LogElements("> ", with_timestamp=True)})
    assert found.values("out") == ["a"]
    assert capsys.readouterr().out == "> a, timestamp=Timestamp(1970-01-01T00:00:00Z)\n"


def test_log_elements_logs_with_a_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tidegate.elements"):
        collect(lambda p: {"out": p | tg.Create([1, 2]) | tg.LogElements("n=", level=logging.INFO)})
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("INFO", "n=1"), ("INFO", "n=2")]


def test_log_elements_includes_the_window_and_pane(capsys: pytest.CaptureFixture[str]) -> None:
    elements = [tg.TimestampedValue("a", 3)]
    collect(
        lambda p: {
            "out": p
            | tg.Create(elements)
            | tg.WindowInto(tg.FixedWindows(10))
            | tg.LogElements(with_window=True, with_pane=True)
        }
    )
    line = capsys.readouterr().out
    assert line.startswith("a, window=")
    assert "1970-01-01T00:00:00" in line
    assert ", pane=<no pane>" in line
