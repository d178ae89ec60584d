"""File names by destination and window: the placeholders of a template, and the values it refuses."""

from __future__ import annotations

import pickle
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.io.output_names import Addressing, NameTemplate, PartitionAddressing, checked_segments, zone_of
from tidegate.io.partitions import Partitioning
from tidegate.sdk.errors import BuildError
from tidegate.sdk.windowing.window import GlobalWindow, IntervalWindow

DAY = 86_400
SECOND_DAY = IntervalWindow(DAY, 2 * DAY)


def filled(prefix: str, window: Any, zone: str = "UTC") -> str:
    template = NameTemplate.of(prefix)
    return template.filled(Addressing(template, None, zone_of(zone, "Test")).address("x", window))


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("out/{window}", "out/19700102T000000Z-19700103T000000Z"),
        ("out/{window:%Y-%m-%d}/part", "out/1970-01-02/part"),
        ("{window.start:%Y/%m/%d}-{window.end:%d}", "1970/01/02-03"),
        ("{window.end}", "19700103T000000Z"),
        ("out/{{other}}", "out/{other}"),
        ("{{{window:%Y}}}/{{window}}", "{1970}/{window}"),
        ("out/{}-{1}-{ a}-}", "out/{}-{1}-{ a}-}"),
        ("{window:%Y%%Q-%-d}", "1970%Q-2"),
    ],
)
def test_a_window_is_formatted_by_its_start_and_end(prefix: str, name: str) -> None:
    assert filled(prefix, SECOND_DAY) == name


def test_fractions_of_a_second_are_part_of_the_name() -> None:
    assert filled("{window}", IntervalWindow(0.25, 1)) == "19700101T000000.250000Z-19700101T000001Z"


def test_windows_are_formatted_in_the_time_zone() -> None:
    start = datetime(2023, 11, 14, tzinfo=ZoneInfo("Europe/Berlin"))
    day = IntervalWindow(start, start + timedelta(days=1))
    assert filled("{window:%Y-%m-%d %H:%M}", day, "Europe/Berlin") == "2023-11-14 00:00"
    assert filled("{window.start}", day, "Europe/Berlin") == "20231114T000000+0100"
    assert filled("{window:%Y-%m-%d %H:%M}", day) == "2023-11-13 23:00"


def test_the_global_window_and_the_minimum_timestamp_have_names() -> None:
    assert filled("{window}/part", GlobalWindow()) == "global/part"
    assert filled("{window}", IntervalWindow(tg.MIN_TIMESTAMP, 0)) == "min-19700101T000000Z"


class Always(tg.WindowAssigner):
    """Assigns the global window, which can't be known when the pipeline is built."""

    def assign(self, timestamp: tg.Timestamp, element: Any) -> list[tg.BoundedWindow]:
        return [GlobalWindow()]


@pytest.mark.parametrize("placeholder", ["{window:%H}", "{window.start}", "{window.end:%H%M}"])
def test_a_time_of_the_global_window_is_refused(tmp_path: Path, placeholder: str) -> None:
    path = f"{tmp_path}/{placeholder}/part"
    for of, write, element in (("WriteToText", tg.io.WriteToText, "x"), ("WriteToCsv", tg.io.WriteToCsv, tg.Row(a=1))):
        with pytest.raises(BuildError) as raised:
            _ = tg.Pipeline() | tg.Create([element]) | write(path)
        assert str(raised.value).startswith(
            f"{of}: {path!r} has {placeholder}, a time of the element's window, and the elements are in the global "
            "window, which has none: apply tg.WindowInto(...) before"
        )
    pipeline = tg.Pipeline()
    _ = pipeline | tg.Create(["x"]) | tg.WindowInto(Always()) | tg.io.WriteToText(path)
    with pytest.raises(tg.UserCodeError, match=f"the global window has no time for {re.escape(placeholder)} in the na"):
        pipeline.run()


@pytest.mark.parametrize("prefix", ["{window.middle}", "{destination:%Y}", "{destination.end}"])
def test_an_unknown_placeholder_is_refused(prefix: str) -> None:
    with pytest.raises(BuildError, match="is not a placeholder; those are"):
        NameTemplate.of(prefix)


@pytest.mark.parametrize(
    ("prefix", "hint"),
    [
        ("o9/{windo:%Y}", "Did you mean {window}?"),
        ("{Window.start}", "Did you mean {window}?"),
        ("{dest}", "Did you mean {destination}?"),
        ("out/{other}", r"%H%M}. A literal brace is written {{"),
        ("{window!r}", r"%H%M}. A literal brace is written {{"),
    ],
)
def test_a_misspelt_placeholder_is_refused_with_the_most_similar_name(prefix: str, hint: str) -> None:
    with pytest.raises(BuildError, match=r"is not a placeholder; those are \{destination\}, \{window\}") as caught:
        NameTemplate.of(prefix)
    assert hint in str(caught.value)
    assert str(caught.value).endswith("A literal brace is written {{")


@pytest.mark.parametrize(
    ("prefix", "directive"),
    [
        ("{window:%Q}", "%Q"),
        ("{window.end:%Y-%E}", "%E"),
        ("{window:%Y%}", "a single % at the end"),
    ],
)
def test_a_format_that_is_not_portable_is_refused(prefix: str, directive: str) -> None:
    with pytest.raises(BuildError) as caught:
        NameTemplate.of(prefix)
    assert f"{prefix}: strftime does not support {directive} on every platform" in str(caught.value)


def test_escaped_braces_are_single_in_the_folder_of_a_template() -> None:
    assert NameTemplate.of("{{a}}/{window}/b").fixed_folder == "{a}"


@pytest.mark.parametrize("text", ["", "/etc", "a//b", "..", "a/../b", ".", "a/", "a\nb", "a\0b", ".tidegate-run/x"])
def test_a_value_cannot_lead_out_of_the_folder(text: str) -> None:
    with pytest.raises(ValueError, match="so it can't be part of a file's name"):
        checked_segments(text, "destination")


@given(st.text(max_size=12))
def test_an_accepted_value_names_a_path_below_its_folder(text: str) -> None:
    import posixpath

    try:
        checked_segments(text, "destination")
    except ValueError:
        return
    assert posixpath.normpath(f"out/{text}/part") == f"out/{text}/part"


@pytest.mark.parametrize("value", [None, True, 1.5, b"x", ["x"]])
def test_a_destination_must_be_a_string_or_an_integer(value: Any) -> None:
    addressing = Addressing(NameTemplate.of("{destination}"), lambda _: value, None)
    with pytest.raises(TypeError, match="as a destination: it must be a str, or an int"):
        addressing.address("x", None)


def test_true_is_refused_even_after_the_equal_number_one() -> None:
    addressing = Addressing(NameTemplate.of("{destination}"), lambda value: value, None)  # type: ignore[arg-type, return-value]
    assert addressing.address(1, None) == ("1",)
    with pytest.raises(TypeError, match="returned True as a destination"):
        addressing.address(True, None)


def test_equal_addresses_are_one_object_and_survive_pickling() -> None:
    addressing = Addressing(NameTemplate.of("{destination}/{window}"), len, None)
    assert addressing.address("ab", SECOND_DAY) is addressing.address("cd", SECOND_DAY)
    assert pickle.loads(pickle.dumps(addressing)).address("ab", SECOND_DAY) == addressing.address("ab", SECOND_DAY)


@pytest.mark.parametrize(("ending", "longest"), [(39, 216), (0, 255)])
def test_a_name_that_is_too_long_for_a_file_is_refused_with_its_element(ending: int, longest: int) -> None:
    template = NameTemplate.of("out/{destination}")
    addressing = Addressing(template, str, None, ending)
    assert addressing.address("x" * longest, None) == ("x" * longest,)
    copy = pickle.loads(pickle.dumps(addressing))
    with pytest.raises(ValueError, match=rf"a file can't be called 'xx+…: that has {longest + 1} bytes, .* 255"):
        copy.address("x" * (longest + 1), None)
    with pytest.raises(ValueError, match="that has 402 bytes"):
        addressing.address("é" * 201, None)
    with pytest.raises(ValueError, match=r"a file can't be called 'x.ud800': '.ud800' is no character"):
        addressing.address("x\ud800", None)
    on_s3 = Addressing(NameTemplate.of("s3://out/{destination}"), str, None, ending)
    assert on_s3.address("é" * 300, None) == ("é" * 300,)


@pytest.mark.parametrize(("suffix", "fits"), [("", True), (".text", False)])
def test_the_rest_of_the_name_counts_for_whether_a_file_may_have_it(suffix: str, fits: bool, tmp_path: Path) -> None:
    prefix = tmp_path / ("x" * 231)
    write = tg.io.WriteToText(prefix, suffix, num_shards=1, shard_name_template="")
    if fits:
        with tg.Pipeline(options=[]) as p:
            _ = p | tg.Create(["a"]) | write
        assert prefix.read_text() == "a\n"
    else:
        with pytest.raises(BuildError, match="that has 231 bytes, and names have at most 255, of which 29 are for"):
            _ = tg.Pipeline(options=[]) | tg.Create(["a"]) | write


def test_a_partition_whose_folder_would_have_too_long_a_name_is_refused() -> None:
    by_key = PartitionAddressing(NameTemplate.of("out/{partition}/x"), None, None, Partitioning(("k",)))
    assert by_key.address({"k": "x" * 253}, None) == ("k=" + "x" * 253,)
    with pytest.raises(ValueError, match=r"a folder can't be called 'k=xx+…: that has 256 bytes, and"):
        by_key.address({"k": "x" * 254}, None)


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(BuildError, match="Test: there is no time zone 'Mars/Base'"):
        zone_of("Mars/Base", "Test")
