"""Names of files by destination and window: what a template takes, and what data may not make of it."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.io.output_names import Addressing, NameTemplate, checked_segments, zone_of
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
def test_a_window_is_written_by_its_edges_and_format(prefix: str, name: str) -> None:
    assert filled(prefix, SECOND_DAY) == name


def test_fractions_of_a_second_show() -> None:
    assert filled("{window}", IntervalWindow(0.25, 1)) == "19700101T000000.250000Z-19700101T000001Z"


def test_a_zone_says_when_the_day_begins() -> None:
    start = datetime(2023, 11, 14, tzinfo=ZoneInfo("Europe/Berlin"))
    day = IntervalWindow(start, start + timedelta(days=1))
    assert filled("{window:%Y-%m-%d %H:%M}", day, "Europe/Berlin") == "2023-11-14 00:00"
    assert filled("{window.start}", day, "Europe/Berlin") == "20231114T000000+0100"
    assert filled("{window:%Y-%m-%d %H:%M}", day) == "2023-11-13 23:00"


def test_the_global_window_and_the_ends_of_time_have_names() -> None:
    assert filled("{window}/{window:%Y}", GlobalWindow()) == "global/global"
    assert filled("{window}", IntervalWindow(tg.MIN_TIMESTAMP, 0)) == "min-19700101T000000Z"


@pytest.mark.parametrize("prefix", ["{window.middle}", "{destination:%Y}", "{destination.end}"])
def test_a_placeholder_that_there_is_not_is_refused(prefix: str) -> None:
    with pytest.raises(BuildError, match="is not a placeholder; those are"):
        NameTemplate.of(prefix)


@pytest.mark.parametrize(
    ("prefix", "near"),
    [
        ("o9/{windo:%Y}", "Did you mean {window}?"),
        ("{Window.start}", "Did you mean {window}?"),
        ("{dest}", "Did you mean {destination}?"),
        ("out/{other}", r"%H%M}. A literal brace is written {{"),
        ("{window!r}", r"%H%M}. A literal brace is written {{"),
    ],
)
def test_a_misspelt_placeholder_is_refused_with_the_nearest_name(prefix: str, near: str) -> None:
    with pytest.raises(BuildError, match=r"is not a placeholder; those are \{destination\}, \{window\}") as caught:
        NameTemplate.of(prefix)
    assert near in str(caught.value)
    assert str(caught.value).endswith("A literal brace is written {{")


@pytest.mark.parametrize(
    ("prefix", "what"),
    [
        ("{window:%Q}", "%Q"),
        ("{window.end:%Y-%E}", "%E"),
        ("{window:%Y%}", "a single % at the end"),
    ],
)
def test_a_format_that_not_every_platform_knows_is_refused(prefix: str, what: str) -> None:
    with pytest.raises(BuildError) as caught:
        NameTemplate.of(prefix)
    assert f"{prefix}: strftime does not support {what} on every platform" in str(caught.value)


def test_the_folder_of_a_template_has_single_braces() -> None:
    assert NameTemplate.of("{{a}}/{window}/b").fixed_folder == "{a}"


@pytest.mark.parametrize("text", ["", "/etc", "a//b", "..", "a/../b", ".", "a/", "a\nb", "a\0b", ".tidegate-run/x"])
def test_data_can_not_lead_out_of_the_folder(text: str) -> None:
    with pytest.raises(ValueError, match="so it can't be part of a file's name"):
        checked_segments(text, "destination")


@given(st.text(max_size=12))
def test_what_is_accepted_stays_below_its_folder(text: str) -> None:
    import posixpath

    try:
        checked_segments(text, "destination")
    except ValueError:
        return
    assert posixpath.normpath(f"out/{text}/part") == f"out/{text}/part"


@pytest.mark.parametrize("value", [None, True, 1.5, b"x", ["x"]])
def test_a_destination_is_a_text_or_a_whole_number(value: Any) -> None:
    made = Addressing(NameTemplate.of("{destination}"), lambda _: value, None)
    with pytest.raises(TypeError, match="as a destination: it must be a str, or an int"):
        made.address("x", None)


def test_a_truth_value_is_no_number_even_after_its_equal() -> None:
    made = Addressing(NameTemplate.of("{destination}"), lambda value: value, None)  # type: ignore[arg-type, return-value]
    assert made.address(1, None) == ("1",)
    with pytest.raises(TypeError, match="returned True as a destination"):
        made.address(True, None)


def test_equal_addresses_are_one_object_and_travel_as_such() -> None:
    made = Addressing(NameTemplate.of("{destination}/{window}"), len, None)
    assert made.address("ab", SECOND_DAY) is made.address("cd", SECOND_DAY)
    assert pickle.loads(pickle.dumps(made)).address("ab", SECOND_DAY) == made.address("ab", SECOND_DAY)


def test_a_time_zone_that_there_is_not_is_refused() -> None:
    with pytest.raises(BuildError, match="Test: there is no time zone 'Mars/Base'"):
        zone_of("Mars/Base", "Test")
