"""Windows that follow a calendar: days, weeks, months or years of a time zone, whatever their length.

Period `i` starts at the first instant at which the zone's clocks show its first midnight *or later*. That one
rule covers a midnight that clocks skip (the start is the gap's end), one they show twice (the first), and a
whole day left out at the date line (its window is empty). Periods therefore tile time.
"""

from __future__ import annotations

import datetime as _dt
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import clamp
from tidegate.sdk.user_code.keywords import Keywords
from tidegate.sdk.user_code.validation import one_of, positive_count, put

Unit: TypeAlias = Literal["days", "weeks", "months", "years"]


@dataclass(frozen=True, slots=True)
class CalendarWindows(Keywords):
    """Windows of `n` calendar units of a time zone, counted from 1970-01-01 local (weeks from Monday 1970-01-05).

    `timezone` is an IANA name (or a `ZoneInfo`, whose name is kept). Written as
    `CalendarWindows.days(1, "Asia/Tokyo")`.
    BuildError for n < 1 or an unknown zone.
    """

    unit: Unit
    n: int = 1
    timezone: str = "UTC"
    kind: Literal["calendar"] = field(default="calendar", kw_only=True, repr=False)

    if TYPE_CHECKING:

        def __init__(self, unit: Unit, n: int = 1, timezone: str | _dt.tzinfo = "UTC") -> None: ...

    def __post_init__(self) -> None:
        one_of("CalendarWindows", "unit", self.unit, "days", "weeks", "months", "years")
        owner = f"CalendarWindows.{self.unit}"
        put(self, n=positive_count(owner, "n", self.n), timezone=_zone_name(owner, self.timezone))

    @staticmethod
    def days(n: int = 1, timezone: str | _dt.tzinfo = "UTC") -> CalendarWindows:
        """`n` days each, from local midnight."""
        return CalendarWindows("days", n, timezone)

    @staticmethod
    def weeks(n: int = 1, timezone: str | _dt.tzinfo = "UTC") -> CalendarWindows:
        """`n` weeks each, from Monday's midnight."""
        return CalendarWindows("weeks", n, timezone)

    @staticmethod
    def months(n: int = 1, timezone: str | _dt.tzinfo = "UTC") -> CalendarWindows:
        """`n` months each, from the first of a month; 3 are quarters."""
        return CalendarWindows("months", n, timezone)

    @staticmethod
    def years(n: int = 1, timezone: str | _dt.tzinfo = "UTC") -> CalendarWindows:
        """`n` years each, from January 1st."""
        return CalendarWindows("years", n, timezone)


def calendar_window(assigner: CalendarWindows) -> Callable[[int], tuple[int, int]]:
    """The function from an instant to the bounds of its window, all in microseconds since 1970 UTC."""
    zone = _zone(assigner.timezone)
    period_of, first_day = _periods(assigner.unit, assigner.n)
    start = lru_cache(maxsize=4096)(lambda period: _first_instant(zone, first_day(period) * _DAY))
    last = (0, 0)

    def window(instant: int) -> tuple[int, int]:
        nonlocal last
        # Consecutive elements mostly share a window, and looking a zone's offset up costs a microsecond.
        known = last
        if known[0] <= instant < known[1]:
            return known
        period = period_of((instant + _offset(zone, instant)) // _DAY)
        # When clocks go back over midnight they show the old date again, but the next period has begun.
        while instant >= start(period + 1):
            period += 1
        last = found = clamp(start(period)), clamp(start(period + 1))
        return found

    return window


_DAY: Final = 86_400_000_000
_EPOCH: Final = _dt.datetime(1970, 1, 1)
_EPOCH_DAY: Final = _EPOCH.toordinal()
_FIRST_MONDAY: Final = 4  # 1970-01-05, as a day since 1970-01-01
# The Gregorian calendar, weekdays included, and the zones' yearly rules repeat every 400 years. `datetime` knows
# the years 1 to 9999; instants outside are looked up whole cycles nearer.
_CYCLE_DAYS: Final = 146_097
_CYCLE_MONTHS: Final = 4_800
_CYCLE: Final = _CYCLE_DAYS * _DAY
_LOW: Final = (_dt.date(2, 1, 1).toordinal() - _EPOCH_DAY) * _DAY
_HIGH: Final = (_dt.date(9999, 1, 1).toordinal() - _EPOCH_DAY) * _DAY


def _periods(unit: Unit, n: int) -> tuple[Callable[[int], int], Callable[[int], int]]:
    """From a local day (since 1970-01-01) to its period's number, and from that to the period's first day."""
    match unit:
        case "days":
            return lambda day: day // n, lambda period: period * n
        case "weeks":
            return lambda day: (day - _FIRST_MONDAY) // (7 * n), lambda period: _FIRST_MONDAY + period * 7 * n
        case "months":
            return lambda day: _month(day) // n, lambda period: _first_of_month(period * n)
        case "years":
            return lambda day: _month(day) // (12 * n), lambda period: _first_of_month(period * 12 * n)


def _month(day: int) -> int:
    """The month, counted from January 1970, of a day counted from 1970-01-01."""
    cycles, day = divmod(day, _CYCLE_DAYS)
    date = _dt.date.fromordinal(_EPOCH_DAY + day)
    return cycles * _CYCLE_MONTHS + (date.year - 1970) * 12 + date.month - 1


def _first_of_month(month: int) -> int:
    cycles, month = divmod(month, _CYCLE_MONTHS)
    return cycles * _CYCLE_DAYS + _dt.date(1970 + month // 12, month % 12 + 1, 1).toordinal() - _EPOCH_DAY


def _offset(zone: _dt.tzinfo, instant: int) -> int:
    """The zone's offset from UTC at an instant, in microseconds."""
    utc = (_EPOCH + _dt.timedelta(microseconds=_in_range(instant))).replace(tzinfo=_dt.UTC)
    return _micros(utc.astimezone(zone).utcoffset())


def _first_instant(zone: _dt.tzinfo, local: int) -> int:
    """The first instant at which the zone's clocks show `local` (microseconds since 1970-01-01 local) or later."""
    clock = (_EPOCH + _dt.timedelta(microseconds=_in_range(local))).replace(tzinfo=zone)
    before, after = _micros(clock.utcoffset()), _micros(clock.replace(fold=1).utcoffset())
    if after <= before:  # shown once, or twice: then fold=0 is the first time (PEP 495)
        return local - before
    early, late = local - after, local - before  # skipped: clocks jump somewhere in (early, late]
    while late - early > 1:
        middle = (early + late) // 2
        if middle + _offset(zone, middle) >= local:
            late = middle
        else:
            early = middle
    return late


def _in_range(micros: int) -> int:
    if micros < _LOW:
        return micros + ((_LOW - micros - 1) // _CYCLE + 1) * _CYCLE
    if micros >= _HIGH:
        return micros - ((micros - _HIGH) // _CYCLE + 1) * _CYCLE
    return micros


def _micros(offset: _dt.timedelta | None) -> int:
    assert offset is not None  # a zone of ours always knows
    return offset // _dt.timedelta(microseconds=1)


def _zone(name: str) -> _dt.tzinfo:
    if name == "UTC":  # needs no time zone data
        return _dt.UTC
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def _zone_name(owner: str, timezone: object) -> str:
    name = "UTC" if timezone is _dt.UTC else getattr(timezone, "key", timezone)
    if not isinstance(name, str):
        raise BuildError(
            f"{owner}: timezone must be the name of a zone, such as 'Europe/Paris', not {shorten(timezone)}"
        )
    try:
        _zone(name)
    # ZoneInfo raises KeyError for an unknown name, ValueError or OSError for one that is no file of its data.
    except (KeyError, ValueError, OSError) as error:
        raise BuildError(
            f"{owner}: no time zone named {shorten(name)}. Give an IANA name such as 'Europe/Paris'; "
            f"where the system has no time zone data, install the tzdata package"
        ) from error
    return name
