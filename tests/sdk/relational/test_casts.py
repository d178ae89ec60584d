"""Strings as timestamps and dates: what Spark gave for each in ANSI mode and UTC, unless it says otherwise."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

import tidegate as tg
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.python.casts import string_to_date, string_to_timestamp

AT = datetime(2024, 2, 29, 12, 34, 56, tzinfo=UTC)
DAY = datetime(2024, 2, 29, tzinfo=UTC)

TIMESTAMPS = {
    "2024-02-29 12:34:56.123456": AT.replace(microsecond=123456),
    "2024-02-29T12:34:56.1234567Z": AT.replace(microsecond=123456),
    " 2024-02-29 ": DAY,
    "+2024-02-29": DAY,
    "2024-2-9 1:2:3": datetime(2024, 2, 9, 1, 2, 3, tzinfo=UTC),
    "2024": datetime(2024, 1, 1, tzinfo=UTC),
    "2024-02": datetime(2024, 2, 1, tzinfo=UTC),
    "0999-02-28": datetime(999, 2, 28, tzinfo=UTC),
    "2024-02-29 12": AT.replace(minute=0, second=0),
    "2024-02-29 12:3": AT.replace(minute=3, second=0),
    "2024-02-29 12:34:5": AT.replace(second=5),
    "2024-02-29 12:34:56.": AT,
    "2024-02-29 12:34:56 ": AT,
    **{
        f"2024-02-29 12:34:56{zone}": AT
        for zone in ("Z", " Z", "\x1fZ", "UTC", " UTC", " GMT", " UT", " GMT0", "-00:00", ".0Z", ".000000123456789Z")
    },
    **{
        f"2024-02-29 12:34:56{zone}": AT.replace(hour=11)
        for zone in ("+01:00", " +01:00", "+1:00", "+01", "+1", "+0100", "+01:0", " UTC+1", " UTC+01:00")
    },
    "2024-02-29 12:34:56+1:2": AT.replace(hour=11, minute=32),
    "2024-02-29 12:34:56+01:00:30": AT.replace(hour=11, second=26),
    "2024-02-29 12:34:56 GMT-01:30": AT.replace(hour=14, minute=4),
    "2024-02-29 12:34:56+18:00": AT.replace(day=28, hour=18),
}

NO_TIMESTAMPS = (
    *("", "2024-02-30", "2024-02-29 24:00:00", "2024-02-29 12:", "2024-02-29t12:34:56", "2024-02-29  12:34:56"),
    *("2024-02-29 12:34:60", "2024-02-29 12:60:00", "999-02-28", "2024-002-9", "\u00a02024-02-09", "2024-02-29T"),
    *("2024-02-29Z", "2024-02-29 Z", "2024-02-29 12:34Z"),
    *(f"2024-02-29 12:34:56{zone}" for zone in ("+19:00", " utc", " z", "+01:", " +1:2:3", "+011:00", " UTC+25")),
    *(
        f"2024-02-29 12:34:56{zone}"
        for zone in (" UTC0", " XYZ", "+18:01", "+01:60", "+01:0030", "+0100:30", "\u2003Z")
    ),
)

OURS = ("12:34:56", "2024-02-29 12:34:56 Europe/Zurich", "2024-02-29 12:34:56 CST", "now")
"""What is an error in Tidegate alone: Spark knows zones by name, and takes the day of the run for a missing one."""


@pytest.mark.parametrize("text", TIMESTAMPS)
def test_a_string_is_the_timestamp_that_it_is_to_spark(text: str) -> None:
    assert string_to_timestamp(text) == TIMESTAMPS[text]


@pytest.mark.parametrize("text", [*NO_TIMESTAMPS, *OURS])
def test_a_string_that_is_no_timestamp_is_an_error(text: str) -> None:
    with pytest.raises(ExpressionError, match="CAST_INVALID_INPUT"):
        string_to_timestamp(text)


@pytest.mark.parametrize("text", ["10000-01-01", "0000-01-01", "-2024-01-01", "0001-01-01 00:00:00+01:00"])
def test_what_is_outside_the_years_of_python_is_an_error(text: str) -> None:
    with pytest.raises(ExpressionError, match="DATETIME_OVERFLOW"):
        string_to_timestamp(text)


@pytest.mark.parametrize("text", ["2024-02-29", "+2024-2-29", "2024-02-29 x", "02024-02-29T"])
def test_a_string_is_the_date_that_it_is_to_spark(text: str) -> None:
    assert string_to_date(text) == date(2024, 2, 29)


def test_instants_are_seconds_since_1970_in_casts() -> None:
    before = datetime(1969, 12, 31, 23, 59, 59, 500000, UTC)
    at = tg.col("at", datetime)
    columns: dict[str, Any] = {
        "whole": at.cast(int),
        "double": at.cast(float),
        "decimal": at.cast("decimal(20,2)").cast(str),
        "again": at.cast("decimal(20,6)").cast("timestamp"),
        "seconds": tg.lit(-1.0000005).cast("timestamp"),
        "day": tg.lit(86400).cast("timestamp"),
    }
    rows = tg.Pipeline() | tg.Create([tg.Row(at=before)]) | tg.Select(**columns)
    second = datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert rows.collect() == [(-1, -0.5, "-0.50", before, second, datetime(1970, 1, 2, tzinfo=UTC))]


def test_a_string_that_is_no_timestamp_fails_the_run() -> None:
    rows = tg.Pipeline() | tg.Create([tg.Row(s="12:34")]) | tg.Select(at=tg.col("s", str).cast("timestamp"))
    with pytest.raises(
        tg.UserCodeError, match=r"(?s)CAST_INVALID_INPUT.*'12:34' can't be cast to timestamp: write it as"
    ):
        rows.collect()
