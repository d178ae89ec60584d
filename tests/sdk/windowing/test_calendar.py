from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sdk.errors import BuildError
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.windowing.assignment import single_window
from tidegate.sdk.windowing.calendar import CalendarWindows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ZONES = [
    "UTC",
    "Europe/Paris",
    "America/New_York",
    "America/Havana",  # clocks go back at midnight, which occurs twice
    "America/Asuncion",  # midnight skipped in spring
    "America/St_Johns",  # clocks changed at 00:01, back over midnight
    "America/Toronto",  # 1919: clocks jumped from 23:30 to 00:30
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Pacific/Apia",  # skipped 2011-12-30
    "Africa/Casablanca",
]


def instant(text: str, zone: str = "UTC") -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)) - EPOCH) // timedelta(microseconds=1)


def local(micros: int, zone: str) -> str:
    return (EPOCH + timedelta(microseconds=micros)).astimezone(ZoneInfo(zone)).replace(tzinfo=None).isoformat()


def window_of(assigner: CalendarWindows, ts: int) -> tuple[int, int]:
    window = single_window(assigner)
    assert window is not None
    return window(ts)


@pytest.mark.parametrize(
    ("assigner", "time", "start", "end"),
    [
        (CalendarWindows.days(), "1970-01-01T05:00", "1970-01-01", "1970-01-02"),
        (CalendarWindows.days(3), "1969-12-31T05:00", "1969-12-29", "1970-01-01"),
        (CalendarWindows.weeks(), "1970-01-04T23:59", "1969-12-29", "1970-01-05"),
        (CalendarWindows.weeks(), "1970-01-05", "1970-01-05", "1970-01-12"),
        (CalendarWindows.weeks(2), "1970-01-13", "1970-01-05", "1970-01-19"),
        (CalendarWindows.months(), "2024-02-29T12:00", "2024-02-01", "2024-03-01"),
        (CalendarWindows.months(3), "2023-12-31", "2023-10-01", "2024-01-01"),
        (CalendarWindows.months(5), "1969-12-31", "1969-08-01", "1970-01-01"),
        (CalendarWindows.years(), "2024-07-01", "2024-01-01", "2025-01-01"),
        (CalendarWindows.years(4), "1969-07-01", "1966-01-01", "1970-01-01"),
        (CalendarWindows.years(100), "2024-01-01", "1970-01-01", "2070-01-01"),
    ],
)
def test_periods_are_counted_from_1970(assigner: CalendarWindows, time: str, start: str, end: str) -> None:
    assert window_of(assigner, instant(time)) == (instant(start), instant(end))


def test_the_length_of_a_day_depends_on_the_time_zone() -> None:
    hours = [
        (end - start) / 3_600e6
        for day in ("2024-03-30", "2024-03-31", "2024-10-27")
        for start, end in [window_of(CalendarWindows.days(1, "Europe/Paris"), instant(f"{day}T12:00", "Europe/Paris"))]
    ]
    assert hours == [24, 23, 25]


def test_a_start_in_a_gap_is_the_end_of_the_gap() -> None:
    day = CalendarWindows.days(1, "America/Asuncion")
    start, _ = window_of(day, instant("2023-10-01T12:00", "America/Asuncion"))
    assert local(start, "America/Asuncion") == "2023-10-01T01:00:00"
    # This gap starts at 23:30 and includes midnight.
    start, _ = window_of(CalendarWindows.days(1, "America/Toronto"), instant("1919-03-31T12:00", "America/Toronto"))
    assert local(start, "America/Toronto") == "1919-03-31T00:30:00"
    assert local(start - 1, "America/Toronto") == "1919-03-30T23:29:59.999999"


def test_a_midnight_that_occurs_twice_starts_the_day_the_first_time() -> None:
    start, end = window_of(CalendarWindows.days(1, "America/Havana"), instant("2023-11-05T12:00", "America/Havana"))
    assert local(start, "America/Havana") == "2023-11-05T00:00:00"
    assert (end - start) / 3_600e6 == 25
    # Clocks that go back across midnight show the old date again, but the new day has begun.
    start, _ = window_of(CalendarWindows.days(1, "America/St_Johns"), instant("2006-10-29T12:00", "America/St_Johns"))
    second_midnight = start + 30 * 60 * 1_000_000
    assert local(second_midnight, "America/St_Johns").startswith("2006-10-28T23:")
    assert window_of(CalendarWindows.days(1, "America/St_Johns"), second_midnight)[0] == start


def test_a_day_that_the_time_zone_skipped_has_no_window() -> None:
    day = CalendarWindows.days(1, "Pacific/Apia")
    before = window_of(day, instant("2011-12-29T12:00", "Pacific/Apia"))
    after = window_of(day, instant("2011-12-31T12:00", "Pacific/Apia"))
    assert before[1] == after[0]
    assert local(before[1] - 1, "Pacific/Apia").startswith("2011-12-29")
    assert local(after[0], "Pacific/Apia") == "2011-12-31T00:00:00"


def changes(zone: str) -> list[int]:
    """The instants, to the second, at which the zone's offset changes between 1900 and 2040."""
    tz, found = ZoneInfo(zone), []
    times = [datetime(1900, 1, 1, tzinfo=UTC) + timedelta(days=10 * n) for n in range(5110)]
    for early, late in pairwise(times):
        if early.astimezone(tz).utcoffset() != late.astimezone(tz).utcoffset():
            low, high = early, late
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // 2
                if middle.astimezone(tz).utcoffset() == early.astimezone(tz).utcoffset():
                    low = middle
                else:
                    high = middle
            found.append((high - EPOCH) // timedelta(microseconds=1))
    return found or [0]


CHANGES = {zone: changes(zone) for zone in ZONES}
ASSIGNERS = [CalendarWindows.days, CalendarWindows.weeks, CalendarWindows.months, CalendarWindows.years]


@given(
    data=st.data(),
    zone=st.sampled_from(ZONES),
    make=st.sampled_from(ASSIGNERS),
    n=st.integers(1, 5),
)
def test_windows_tile_time_around_every_change_of_clocks(data: Any, zone: str, make: Any, n: int) -> None:
    assigner = make(n, zone)
    window = single_window(assigner)
    assert window is not None
    day = 86_400_000_000
    ts = data.draw(st.sampled_from(CHANGES[zone])) + data.draw(st.integers(-2 * day, 2 * day))
    start, end = window(ts)
    assert start <= ts < end
    assert window_of(assigner, start) == window_of(assigner, end - 1) == (start, end)
    assert window_of(assigner, end)[0] == end
    assert window_of(assigner, start - 1)[1] == start
    # A window starts at the first instant whose local time is midnight or later; before it, local time is earlier.
    assert local(start - 1, zone) < local(start, zone) or local(start, zone)[11:] == "00:00:00"


@given(ts=st.integers(MIN_MICROS, MAX_MICROS - 2), zone=st.sampled_from(ZONES), make=st.sampled_from(ASSIGNERS))
def test_windows_tile_time_beyond_the_range_of_datetime(ts: int, zone: str, make: Any) -> None:
    window = single_window(make(1, zone))
    assert window is not None
    start, end = window(ts)
    assert start <= ts < end
    if start > MIN_MICROS and end < MAX_MICROS:
        assert window(end)[0] == end
        assert window(start - 1)[1] == start


@given(stamps=st.lists(st.integers(-(10**15), 10**16), min_size=2), zone=st.sampled_from(ZONES))
def test_a_window_does_not_depend_on_previous_elements(stamps: list[int], zone: str) -> None:
    window = single_window(CalendarWindows.months(1, zone))
    assert window is not None
    assert [window(ts) for ts in stamps] == [window_of(CalendarWindows.months(1, zone), ts) for ts in stamps]


def test_a_time_zone_is_given_by_name_or_as_an_object() -> None:
    assert CalendarWindows.days(1, ZoneInfo("Asia/Tokyo")) == CalendarWindows.days(1, "Asia/Tokyo")
    assert CalendarWindows.days(1, UTC) == CalendarWindows.days()
    assert CalendarWindows("days", 2, "Asia/Tokyo").timezone == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CalendarWindows.days(0), "CalendarWindows.days: n must be a whole number of at least 1, not 0"),
        (lambda: CalendarWindows.months(1.5), "CalendarWindows.months: n must be a whole number"),  # type: ignore[arg-type]
        (lambda: CalendarWindows.days(1, "Mars/Olympus"), "no time zone named 'Mars/Olympus'"),
        (lambda: CalendarWindows.days(1, "../etc/passwd"), "no time zone named"),
        (lambda: CalendarWindows.days(1, timedelta(hours=1)), "timezone must be the name of a zone"),  # type: ignore[arg-type]
        (lambda: CalendarWindows("eons"), "unit must be 'days' or 'weeks' or 'months' or 'years', not 'eons'"),  # type: ignore[arg-type]
    ],
)
def test_invalid_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        make()
