"""Operations on dates, instants in UTC and intervals, exactly as Spark computes them, within the years 1 to 9999."""

from __future__ import annotations

import datetime
from calendar import monthrange
from typing import NoReturn

from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.python.values import GREATEST_INTERVAL, LEAST_INTERVAL, UTC
from tidegate.sdk.time import Timestamp
from tidegate.sdk.windowing.window import BoundedWindow

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


def _outside() -> NoReturn:
    raise ExpressionError("DATETIME_OVERFLOW", "the result is outside the years 1 to 9999")


def later(at: datetime.datetime, interval: datetime.timedelta) -> datetime.datetime:
    try:
        return at + interval
    except OverflowError:
        _outside()


def earlier(at: datetime.datetime, interval: datetime.timedelta) -> datetime.datetime:
    try:
        return at - interval
    except OverflowError:
        _outside()


def sum_of_intervals(a: datetime.timedelta, b: datetime.timedelta) -> datetime.timedelta:
    return _checked(a + b)


def difference_of_intervals(a: datetime.timedelta, b: datetime.timedelta) -> datetime.timedelta:
    return _checked(a - b)


def _checked(interval: datetime.timedelta) -> datetime.timedelta:
    if LEAST_INTERVAL <= interval <= GREATEST_INTERVAL:
        return interval
    raise ExpressionError("ARITHMETIC_OVERFLOW", f"{interval} is out of range for interval")


def quarter(at: datetime.date) -> int:
    return (at.month + 2) // 3


def day_of_week(at: datetime.date) -> int:
    """1 is Sunday."""
    return at.isoweekday() % 7 + 1


def day_of_year(at: datetime.date) -> int:
    return at.timetuple().tm_yday


def date_trunc(unit: str, at: datetime.datetime) -> datetime.datetime:
    match unit:
        case "second":
            return at.replace(microsecond=0)
        case "minute":
            return at.replace(second=0, microsecond=0)
        case "hour":
            return at.replace(minute=0, second=0, microsecond=0)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    match unit:
        case "week":
            return day - datetime.timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            return day.replace(month=1, day=1)
    return day


def add_months(date: datetime.date, months: int) -> datetime.date:
    year, month = divmod(date.year * 12 + date.month - 1 + months, 12)
    if not datetime.MINYEAR <= year <= datetime.MAXYEAR:
        _outside()
    return datetime.date(year, month + 1, min(date.day, monthrange(year, month + 1)[1]))


def add_days(date: datetime.date, days: int) -> datetime.date:
    try:
        return date + datetime.timedelta(days=days)
    except OverflowError:
        _outside()


def days_between(end: datetime.date, start: datetime.date) -> int:
    return end.toordinal() - start.toordinal()


def unix_micros(at: datetime.datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def timestamp_micros(micros: int) -> datetime.datetime:
    try:
        return _EPOCH + datetime.timedelta(microseconds=micros)
    except OverflowError:
        _outside()


def window_start(window: BoundedWindow) -> datetime.datetime:
    """The first instant of a window."""
    start: Timestamp | None = getattr(window, "start", None)
    if start is None:
        raise ExpressionError("INVALID_COLUMN_VALUE", f"a window of type {type(window).__name__} has no start")
    return _instant(start)


def window_end(window: BoundedWindow) -> datetime.datetime:
    """The end of a window."""
    return _instant(window.end)


def window_time(window: BoundedWindow) -> datetime.datetime:
    """The last instant of a window."""
    return _instant(window.max_timestamp())


def _instant(at: Timestamp) -> datetime.datetime:
    try:
        return at.to_utc_datetime()
    except OverflowError:
        _outside()
