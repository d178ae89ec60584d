from __future__ import annotations

import math
import pickle
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sdk.data.timestamps import element_column, element_micros
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.time import (
    MAX_MICROS,
    MAX_TIMESTAMP,
    MIN_MICROS,
    MIN_TIMESTAMP,
    Duration,
    Timestamp,
    clamp,
    duration_micros,
    format_micros,
    timestamp_micros,
)


def test_all_forms_of_an_instant_are_the_same_microseconds() -> None:
    paris = timezone(timedelta(hours=2))
    forms: list[Any] = [86400, 86400.0, Timestamp(86400), datetime(1970, 1, 2, tzinfo=UTC)]
    forms.append(datetime(1970, 1, 2, 2, tzinfo=paris))
    assert {timestamp_micros(form) for form in forms} == {86_400_000_000}
    assert {Timestamp.of(form) for form in forms} == {Timestamp(86400)}


def test_seconds_are_rounded_to_the_nearest_microsecond() -> None:
    assert timestamp_micros(1.0000004) == 1_000_000
    assert timestamp_micros(1.0000006) == 1_000_001
    assert duration_micros(-0.0000006) == -1


def test_all_forms_of_a_duration_are_the_same_microseconds() -> None:
    assert (
        duration_micros(1.5) == duration_micros(timedelta(seconds=1.5)) == duration_micros(Duration(1.5)) == 1_500_000
    )


@pytest.mark.parametrize("value", [True, "10", None, timedelta(1)])
def test_an_invalid_instant_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="timestamp"):
        timestamp_micros(value)


@pytest.mark.parametrize("value", [False, "10", None, datetime(1970, 1, 1, tzinfo=UTC), Timestamp(1)])
def test_an_invalid_duration_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="duration"):
        duration_micros(value)


def test_a_naive_datetime_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        timestamp_micros(datetime(2024, 1, 1))
    with pytest.raises(ValueError, match="NaN"):
        timestamp_micros(float("nan"))


@pytest.mark.parametrize("value", [float("inf"), 1e300, 1e308, 10**40])
def test_times_saturate_at_the_minimum_and_maximum(value: Any) -> None:
    assert timestamp_micros(value) == duration_micros(value) == MAX_MICROS
    assert timestamp_micros(-value) == duration_micros(-value) == MIN_MICROS
    assert Timestamp(value) == MAX_TIMESTAMP
    assert MIN_TIMESTAMP - 5 == MIN_TIMESTAMP
    assert MAX_TIMESTAMP + 5 == MAX_TIMESTAMP


def test_the_longest_timedelta_saturates() -> None:
    assert duration_micros(timedelta.max) == MAX_MICROS


@given(st.integers(), st.integers())
def test_clamping_keeps_order(a: int, b: int) -> None:
    assert MIN_MICROS <= clamp(a) <= MAX_MICROS
    assert a > b or clamp(a) <= clamp(b)


def test_times_are_hashable_immutable_values() -> None:
    assert Timestamp(1) == Timestamp(micros=1_000_000)
    assert Timestamp(1) != Duration(1)
    assert Timestamp(1) < Timestamp(2) <= Timestamp(2)
    assert len({Timestamp(1), Timestamp(1.0)}) == 1
    assert pickle.loads(pickle.dumps(Timestamp(1.5))) == Timestamp(1.5)
    with pytest.raises(AttributeError, match="can't be changed"):
        Timestamp(1).micros = 5
    with pytest.raises(TypeError):
        _ = Timestamp(1) < Duration(1)


def test_instants_and_durations_can_be_added_and_subtracted() -> None:
    assert Timestamp(5) + 2 == Timestamp(7)
    assert Timestamp(5) - timedelta(seconds=2) == Timestamp(3)
    assert Timestamp(5) - Timestamp(2) == Duration(3)
    assert Duration(5) - 7 == Duration(-2)
    assert Timestamp(1.5).seconds() == 1.5
    assert Timestamp(0).to_utc_datetime() == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("minute", [60, 60.0, timedelta(minutes=1), Duration(60)])
def test_durations_are_compared_with_all_forms_of_a_duration(minute: Any) -> None:
    shorter, equal, longer = Timestamp(159) - Timestamp(100), Duration(60), Duration(60, 1)
    assert [d < minute for d in (shorter, equal, longer)] == [True, False, False]
    assert [d <= minute for d in (shorter, equal, longer)] == [True, True, False]
    assert [d > minute for d in (shorter, equal, longer)] == [False, False, True]
    assert [d >= minute for d in (shorter, equal, longer)] == [False, True, True]
    assert [minute <= d for d in (shorter, equal, longer)] == [False, True, True]


@pytest.mark.parametrize("other", [True, "60", None, Timestamp(60)])
def test_a_duration_cannot_be_compared_with_other_values(other: Any) -> None:
    with pytest.raises(TypeError, match="not supported between instances of"):
        _ = Duration(60) <= other


def test_a_duration_equals_only_durations() -> None:
    assert Duration(60) == Duration(micros=60_000_000)
    assert {Duration(60): "a duration", 60: "a number"}[60] == "a number"


def test_times_have_readable_texts() -> None:
    assert repr(Timestamp(0)) == "Timestamp(1970-01-01T00:00:00Z)"
    assert format_micros(MIN_MICROS) == "-inf"
    assert format_micros(MAX_MICROS) == "+inf"
    assert format_micros(MAX_MICROS - 10) == f"{MAX_MICROS - 10}µs"
    assert repr(Duration(1_234_567.25)) == "Duration(1234567.25s)"
    assert repr(Duration(micros=-1)) == "Duration(-0.000001s)"
    assert repr(Duration(10)) == "Duration(10s)"


@pytest.mark.filterwarnings("ignore:the timestamp .* is in seconds")
@given(st.lists(st.one_of(st.floats(-1e13, 1e13), st.integers(-(10**13), 10**13)), min_size=1))
def test_a_column_of_timestamps_is_converted_like_single_ones(values: list[float]) -> None:
    def one_by_one() -> list[int]:
        return [element_micros(value) for value in values]

    try:
        expected = one_by_one()
    except ValueError:
        with pytest.raises(ValueError, match="end of time"):
            element_column(list(values))
    else:
        assert element_column(list(values)) == (expected, (min(expected), max(expected)))


def test_a_column_with_an_invalid_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"nan|NaN"):
        element_column([1.0, math.nan, 2.0])
    with pytest.raises(TypeError):
        element_column([1.0, "2"])


HALVES = st.builds(
    lambda whole, part: (whole + part) / 1e6, st.integers(-(10**15), 10**15), st.sampled_from([0, 0.25, 0.5])
)


@pytest.mark.filterwarnings("ignore:the timestamp .* is in seconds")
@given(st.lists(st.one_of(HALVES, st.floats(-1e13, 1e13)), min_size=1, max_size=80))
def test_a_long_column_of_floats_is_rounded_by_numpy_like_single_ones(floats: list[float]) -> None:
    pytest.importorskip("numpy")
    values = floats * (128 // len(floats) + 1)
    try:
        expected = [element_micros(value) for value in values]
    except ValueError:
        with pytest.raises(ValueError, match="end of time"):
            element_column(values)
    else:
        found, span = element_column(values)
        assert list(found) == expected
        assert span == (min(expected), max(expected))
        assert set(map(type, (*found, *span))) == {int}


@pytest.mark.parametrize("invalid", [math.nan, math.inf])
def test_a_long_column_with_an_invalid_time_is_refused(invalid: float) -> None:
    pytest.importorskip("numpy")
    with pytest.raises(ValueError, match=r"nan|NaN|end of time"):
        element_column([1.5] * 100 + [invalid])


@given(
    st.one_of(
        HALVES,
        st.floats(-1e13, 1e13),
        st.integers(-(10**13), 10**13),
        st.integers(MIN_MICROS, MAX_MICROS - 1).map(lambda micros: Timestamp(micros=micros)),
        st.datetimes(timezones=st.just(UTC)),
    )
)
@pytest.mark.filterwarnings("ignore:the timestamp .* is in seconds")
def test_a_timestamped_value_is_at_the_nearest_microsecond(timestamp: Any) -> None:
    try:
        expected = element_micros(timestamp)
    except ValueError:
        with pytest.raises(ValueError, match="end of time"):
            TimestampedValue(None, timestamp)
    else:
        stamped = TimestampedValue(None, timestamp)
        assert stamped.micros == expected
        assert type(stamped.micros) is int
        assert pickle.loads(pickle.dumps(stamped)) == stamped


@pytest.mark.parametrize("invalid", [math.nan, math.inf, True, "1", None])
def test_a_timestamped_value_refuses_an_invalid_time(invalid: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        TimestampedValue(None, invalid)


def test_a_timestamped_value_has_a_timestamp() -> None:
    assert TimestampedValue("a", 1.5).timestamp == Timestamp(1.5)


@pytest.mark.parametrize("kind", [Timestamp, Duration])
@pytest.mark.parametrize("invalid", ["2024-01-01", None, [1], datetime(2024, 1, 1, tzinfo=UTC)])
def test_an_invalid_number_of_seconds_is_refused_with_the_valid_ones(kind: Any, invalid: Any) -> None:
    with pytest.raises(TypeError, match=rf"seconds must be a number, not {type(invalid).__name__}: Timestamp\.of"):
        kind(invalid)


def test_times_are_formatted_for_people() -> None:
    timestamp = Timestamp(1.5)
    assert f"{timestamp}" == str(timestamp) == "1970-01-01T00:00:01.500000Z"
    assert repr(timestamp) == "Timestamp(1970-01-01T00:00:01.500000Z)"
    assert f"{timestamp:%Y-%m-%d %H:%M}" == "1970-01-01 00:00"
    assert f"{Timestamp(5):>22}" == "  1970-01-01T00:00:05Z"
    assert f"{MIN_TIMESTAMP} {MAX_TIMESTAMP:%Y}" == "-inf +inf"
    assert f"{Duration(90)} {Duration(-0.25):>7}" == "90s  -0.25s"
    assert repr(Duration(90)) == "Duration(90s)"
