"""Event time: whole microseconds since 1970, and the ends of time.

Inside the engine a time is a plain `int`; `Timestamp` and `Duration` are what authors see.
"""

from __future__ import annotations

import datetime as _dt
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import total_ordering
from typing import Any, Final, TypeAlias, overload

MIN_MICROS: Final = -(2**63)
MAX_MICROS: Final = 2**63 - 1
SECOND: Final = 1_000_000
_COLUMN: Final = 64
"""How many values are worth an array."""
_EPOCH: Final = _dt.datetime(1970, 1, 1, tzinfo=_dt.UTC)
_MICROSECOND: Final = _dt.timedelta(microseconds=1)


_new: Final = object.__new__
_set: Final = object.__setattr__


class _Micros:
    """A count of microseconds; what `Timestamp` and `Duration` share."""

    __slots__ = ("micros",)
    micros: int

    def __init__(self, seconds: int | float = 0, micros: int = 0) -> None:
        object.__setattr__(self, "micros", clamp(_from_seconds(seconds) + micros))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} can't be changed")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.micros == self.micros

    def __lt__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.micros < other.micros

    def __hash__(self) -> int:
        return hash(self.micros)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (0, self.micros)

    def seconds(self) -> float:
        """The same in seconds."""
        return self.micros / SECOND

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


@total_ordering
class Timestamp(_Micros):
    """An instant: microseconds since 1970-01-01 UTC, `Timestamp(seconds, micros)`."""

    __slots__ = ()

    @staticmethod
    def of(value: TimestampLike) -> Timestamp:
        """Any of the accepted forms as a Timestamp; ValueError for a naive datetime, TypeError for the rest."""
        return value if isinstance(value, Timestamp) else Timestamp(micros=timestamp_micros(value))

    @staticmethod
    def of_micros(micros: int) -> Timestamp:
        """From microseconds that are within the ends of time, unchecked; the engine's way."""
        made = _new(Timestamp)
        _set(made, "micros", micros)
        return made

    def to_utc_datetime(self) -> _dt.datetime:
        """An aware datetime; OverflowError outside years 1 to 9999."""
        return _EPOCH + _dt.timedelta(microseconds=self.micros)

    def __add__(self, other: DurationLike) -> Timestamp:
        return Timestamp(micros=self.micros + duration_micros(other))

    @overload
    def __sub__(self, other: Timestamp) -> Duration: ...
    @overload
    def __sub__(self, other: DurationLike) -> Timestamp: ...
    def __sub__(self, other: Timestamp | DurationLike) -> Timestamp | Duration:
        if isinstance(other, Timestamp):
            return Duration(micros=self.micros - other.micros)
        return Timestamp(micros=self.micros - duration_micros(other))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        """In JSON: an ISO instant, or microseconds where the calendar ends."""
        return _in_json(cls, _instant_text, _instant_of_text)

    def __repr__(self) -> str:
        return f"Timestamp({format_micros(self.micros)})"

    def __str__(self) -> str:
        return format_micros(self.micros)

    def __format__(self, spec: str) -> str:
        """`f"{timestamp:%Y-%m-%d}"`, in UTC, as a datetime does; other formats are those of the text.

        A time outside the calendar, such as the ends of time, has no date: it is always written as `str` does.
        """
        if "%" not in spec:
            return super().__format__(spec)
        try:
            return self.to_utc_datetime().strftime(spec)
        except OverflowError:
            return str(self)


@total_ordering
class Duration(_Micros):
    """A length of time in microseconds, `Duration(seconds, micros)`; may be negative."""

    __slots__ = ()

    @staticmethod
    def of(value: DurationLike) -> Duration:
        """Any of the accepted forms as a Duration; TypeError for the rest."""
        return value if isinstance(value, Duration) else Duration(micros=duration_micros(value))

    def __add__(self, other: DurationLike) -> Duration:
        return Duration(micros=self.micros + duration_micros(other))

    def __sub__(self, other: DurationLike) -> Duration:
        return Duration(micros=self.micros - duration_micros(other))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> object:
        """In JSON: seconds as `10s` or `0.25s`."""
        return _in_json(cls, lambda micros: f"{_decimal(micros)}s", _length_of_text)

    def __repr__(self) -> str:
        return f"Duration({self})"

    def __str__(self) -> str:
        return f"{_decimal(self.micros)}s"


TimestampLike: TypeAlias = Timestamp | int | float | _dt.datetime
DurationLike: TypeAlias = Duration | int | float | _dt.timedelta


def timestamp_micros(value: TimestampLike) -> int:
    """Microseconds since 1970 of a `Timestamp`, a number of seconds, or an aware `datetime`."""
    match value:
        case Timestamp():
            return value.micros
        case bool():
            raise TypeError("a bool is not a timestamp")
        case int() | float():
            return clamp(_from_seconds(value))
        case _dt.datetime():
            if value.tzinfo is None:
                raise ValueError(f"{value!r} has no time zone: give it one, e.g. .replace(tzinfo=timezone.utc)")
            return (value - _EPOCH) // _MICROSECOND
    raise TypeError(f"a timestamp is seconds, an aware datetime or a Timestamp, not {type(value).__name__}")


def element_micros(value: TimestampLike) -> int:
    """As `timestamp_micros`, of a timestamp that an element can have; ValueError for the end of time.

    Warns, once for each line, of a number of seconds that must be meant as milliseconds.
    """
    micros = timestamp_micros(value)
    if value.__class__ is int or value.__class__ is float:
        look_at_unit(value)
    if micros == MAX_MICROS:
        raise ValueError(f"{value!r} is the end of time, where no element can be: stamp it before that")
    return micros


FAR_FUTURE: Final = 1e11
"""Seconds since 1970, in the year 5138. A greater number is looked at, since as milliseconds it is later than 1973."""

_suspected: Final[set[tuple[str, int]]] = set()


def look_at_unit(seconds: int | float) -> None:
    """Warn, once for each line, of a number of seconds that must be meant as milliseconds."""
    if not FAR_FUTURE <= seconds < float("inf"):
        return
    unit, factor = ("milliseconds", 1e3) if seconds < 1e14 else ("microseconds", 1e6)
    if seconds >= 1e17:
        unit, factor = "nanoseconds", 1e9
    if seconds * 1e6 >= MAX_MICROS:
        raise ValueError(
            f"{seconds!r} seconds are past the end of time; if they are {unit}, divide them by {factor:,.0f}"
        )
    _warn_once(
        f"the timestamp {seconds!r} is in seconds, and so in the year {1970 + int(seconds / 31_556_952)}; "
        f"if it is in {unit}, divide it by {factor:,.0f}"
    )


_LONG_AGO: Final = 1e8
_LATELY: Final = 1e15
"""Seconds that are in 1973, and microseconds that are in 2001."""


def look_at_delay(seconds: int | float, now: int) -> None:
    """Warn, once for each line, of an instant that must be meant as so many seconds from `now` (µs)."""
    if 0 < seconds < _LONG_AGO and now > _LATELY:
        _warn_once(
            f"the instant {seconds!r} is {seconds!r} s after 1970, so a timer that is set to it fires at once. To wait "
            f"for {seconds!r} s add them to an instant, such as a parameter timestamp=tg.DoFn.TimestampParam, or "
            "now=tg.DoFn.ProcessingTimeParam"
        )


def _warn_once(message: str) -> None:
    """Warn at the author's line, if that has not been done before."""
    from tidegate.sdk.user_code.user_fn import caller
    from tidegate.sdk.user_code.validation import warn

    where = caller()
    if (where.file, where.line) not in _suspected:
        _suspected.add((where.file, where.line))
        warn(message, where)


def element_column(values: list[Any]) -> tuple[Sequence[int], tuple[int, int]]:
    """`element_micros` of each of some values, of which there is at least one, and the least and the greatest of them;
    seconds as plain numbers, surely within the ends of time, take a short way.

    With numpy at hand they are an `array`, since many steps need to know no more than the span.
    """
    kinds = list(map(type, values))
    if kinds.count(float) == len(values):
        np = numpy_at_hand() if len(values) >= _COLUMN else None
        if np is not None:
            seconds = np.fromiter(values, np.float64, len(values))
            first, last = float(seconds.min()), float(seconds.max())
            if first > -9e12 and last < FAR_FUTURE:
                micros = np.rint(seconds * 1e6).astype(np.int64)  # halves to even, as `round`
                return array("q", micros.tobytes()), (round(first * 1e6), round(last * 1e6))
        elif (first := min(values)) > -9e12 and (last := max(values)) < FAR_FUTURE:
            # as `round`, which has to look for the method
            return [(value * 1e6).__round__() for value in values], (round(first * 1e6), round(last * 1e6))
    elif kinds.count(int) == len(values):
        first, last = min(values), max(values)
        if first > -9_000_000_000_000 and last < FAR_FUTURE:
            return [value * SECOND for value in values], (first * SECOND, last * SECOND)
    found = list(map(element_micros, values))
    return found, (min(found), max(found))


def numpy_at_hand() -> Any:
    """numpy, where something has imported it; None elsewhere: what it makes quicker is not worth importing it."""
    found = sys.modules.get("numpy")
    return found if hasattr(found, "rint") else None  # another thread may be importing it just now


def duration_micros(value: DurationLike) -> int:
    """Microseconds of a `Duration`, a number of seconds, or a `timedelta`."""
    match value:
        case Duration():
            return value.micros
        case bool():
            raise TypeError("a bool is not a duration")
        case int() | float():
            return clamp(_from_seconds(value))
        case _dt.timedelta():
            return clamp(value // _MICROSECOND)
    raise TypeError(f"a duration is seconds, a timedelta or a Duration, not {type(value).__name__}")


def clamp(micros: int) -> int:
    """Within the ends of time: bounds saturate (SEMANTICS, Time)."""
    return MIN_MICROS if micros < MIN_MICROS else MAX_MICROS if micros > MAX_MICROS else micros


def format_micros(micros: int) -> str:
    """For people: an ISO instant, or the end of time it is."""
    if micros == MIN_MICROS:
        return "-inf"
    if micros >= MAX_MICROS - 1:
        return "+inf"
    try:
        return (_EPOCH + _dt.timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{micros}µs"


def _decimal(micros: int) -> str:
    whole, part = divmod(abs(micros), SECOND)
    return f"{'-' if micros < 0 else ''}{whole}" + (f".{part:06d}".rstrip("0") if part else "")


def _in_json(cls: type[_Micros], write: Callable[[int], str | int], read: Callable[[object], int]) -> object:
    """How JSON holds a time: pydantic's schema for `cls`, from the functions that write and read its microseconds."""
    from pydantic_core import core_schema

    def made(value: object) -> _Micros:
        if isinstance(value, cls):
            return value
        micros = read(value)
        if not MIN_MICROS <= micros <= MAX_MICROS:
            raise ValueError(f"{value!r} is beyond the ends of time")
        return cls(micros=micros)

    return core_schema.no_info_plain_validator_function(
        made, serialization=core_schema.plain_serializer_function_ser_schema(lambda value: write(value.micros))
    )


def _instant_text(micros: int) -> str | int:
    try:
        return (_EPOCH + _dt.timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return micros


def _instant_of_text(value: object) -> int:
    match value:
        case bool():
            pass
        case int():
            return value
        case str() if value.endswith("Z"):
            return (_dt.datetime.fromisoformat(value) - _EPOCH) // _MICROSECOND
    raise ValueError(f"an instant is written '2025-01-31T12:00:00Z', or as microseconds, not {value!r}")


def _length_of_text(value: object) -> int:
    if isinstance(value, str) and value.endswith("s"):
        sign = -1 if value.startswith("-") else 1
        whole, _, part = value.removeprefix("-")[:-1].partition(".")
        if whole.isdecimal() and len(part) <= 6 and (part.isdecimal() or "." not in value):
            return sign * (int(whole) * SECOND + int(part.ljust(6, "0")))
    raise ValueError(f"a duration is written '10s' or '0.25s', not {value!r}")


def _from_seconds(seconds: int | float) -> int:
    if isinstance(seconds, int):
        return seconds * SECOND
    if not isinstance(seconds, float) and not hasattr(seconds, "__float__"):
        raise TypeError(
            f"a number of seconds is wanted, not {type(seconds).__name__}: Timestamp.of(...) and Duration.of(...) take "
            "other forms, too, such as Timestamp.of(datetime.fromisoformat('2024-01-01T00:00:00+00:00'))"
        )
    if seconds != seconds:
        raise ValueError("NaN is not a time")
    micros = seconds * SECOND
    if micros in (float("inf"), float("-inf")):
        return MAX_MICROS if micros > 0 else MIN_MICROS
    return round(micros)


MIN_TIMESTAMP: Final = Timestamp(micros=MIN_MICROS)
MAX_TIMESTAMP: Final = Timestamp(micros=MAX_MICROS)
