"""Event time: integer microseconds since 1970, between a least and a greatest timestamp, the ends of time.

The engine represents a time as a plain `int`; authors use `Timestamp` and `Duration`.

>>> Timestamp(60) - Timestamp(0), Timestamp(0) + 90
(Duration(60s), Timestamp(1970-01-01T00:01:30Z))
>>> MAX_TIMESTAMP + 1 == MAX_TIMESTAMP
True
"""

from __future__ import annotations

import datetime as _dt
from collections.abc import Callable
from functools import total_ordering
from typing import Final, TypeAlias, overload

MIN_MICROS: Final = -(2**63)
MAX_MICROS: Final = 2**63 - 1
SECOND: Final = 1_000_000
EPOCH: Final = _dt.datetime(1970, 1, 1, tzinfo=_dt.UTC)
_MICROSECOND: Final = _dt.timedelta(microseconds=1)


_new: Final = object.__new__
_set: Final = object.__setattr__


class _Micros:
    """A count of microseconds: the base of `Timestamp` and `Duration`."""

    __slots__ = ("micros",)
    micros: int

    def __init__(self, seconds: int | float = 0, micros: int = 0) -> None:
        object.__setattr__(self, "micros", clamp(_from_seconds(seconds) + micros))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} can't be changed")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.micros == self.micros

    def __hash__(self) -> int:
        return hash(self.micros)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (0, self.micros)

    def seconds(self) -> float:
        """The value in seconds."""
        return self.micros / SECOND

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)


@total_ordering
class Timestamp(_Micros):
    """An instant: microseconds since 1970-01-01 UTC, `Timestamp(seconds, micros)`.

    `timestamp + 60` and `timestamp - 60` are instants a minute away; a timedelta or a Duration may replace the number
    of seconds. The difference of two instants is a `Duration`. Instants can be compared only with instants.
    """

    __slots__ = ()

    @staticmethod
    def of(value: TimestampLike) -> Timestamp:
        """Convert any of the accepted forms; ValueError for a naive datetime, TypeError for other types."""
        return value if isinstance(value, Timestamp) else Timestamp(micros=timestamp_micros(value))

    @staticmethod
    def of_micros(micros: int) -> Timestamp:
        """A Timestamp from microseconds that are known to be within the ends of time; the engine's fast path."""
        made = _new(Timestamp)
        _set(made, "micros", micros)
        return made

    def __lt__(self, other: object) -> bool:
        if type(other) is not Timestamp:
            return NotImplemented
        return self.micros < other.micros

    def to_utc_datetime(self) -> _dt.datetime:
        """An aware datetime; OverflowError outside years 1 to 9999."""
        return EPOCH + _dt.timedelta(microseconds=self.micros)

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
        """In JSON: an ISO instant, or microseconds for instants outside the calendar."""
        return _in_json(cls, _instant_text, _instant_of_text)

    def __repr__(self) -> str:
        return f"Timestamp({format_micros(self.micros)})"

    def __str__(self) -> str:
        return format_micros(self.micros)

    def __format__(self, spec: str) -> str:
        """Formats with `%`, such as `f"{timestamp:%Y-%m-%d}"`, are those of a UTC datetime, others those of `str`.

        An instant outside the calendar, such as the ends of time, has no date: it is formatted like its `str`.
        """
        if "%" not in spec:
            return super().__format__(spec)
        try:
            return self.to_utc_datetime().strftime(spec)
        except OverflowError:
            return str(self)


class Duration(_Micros):
    """A length of time in microseconds, `Duration(seconds, micros)`; may be negative.

    `+`, `-`, `<`, `<=`, `>` and `>=` take a Duration, a number of seconds or a timedelta: `at - since <= 60` is true
    within a minute. `==` is true only for equal Durations, because a Duration and a number are different keys.
    `duration.seconds()` is the number of seconds.
    """

    __slots__ = ()

    @staticmethod
    def of(value: DurationLike) -> Duration:
        """Convert any of the accepted forms; TypeError for other types."""
        return value if isinstance(value, Duration) else Duration(micros=duration_micros(value))

    def __add__(self, other: DurationLike) -> Duration:
        return Duration(micros=self.micros + duration_micros(other))

    def __sub__(self, other: DurationLike) -> Duration:
        return Duration(micros=self.micros - duration_micros(other))

    def __lt__(self, other: DurationLike) -> bool:
        return self.micros < duration_micros(other) if _is_length(other) else NotImplemented

    def __le__(self, other: DurationLike) -> bool:
        return self.micros <= duration_micros(other) if _is_length(other) else NotImplemented

    def __gt__(self, other: DurationLike) -> bool:
        return self.micros > duration_micros(other) if _is_length(other) else NotImplemented

    def __ge__(self, other: DurationLike) -> bool:
        return self.micros >= duration_micros(other) if _is_length(other) else NotImplemented

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
            return (value - EPOCH) // _MICROSECOND
    hint = ": datetime.fromisoformat(text) reads one from text" if isinstance(value, str) else ""
    raise TypeError(f"a timestamp is seconds, an aware datetime or a Timestamp, not {type(value).__name__}{hint}")


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


def _is_length(value: object) -> bool:
    return isinstance(value, (Duration, int, float, _dt.timedelta)) and not isinstance(value, bool)


def clamp(micros: int) -> int:
    """The nearest value within the ends of time: arithmetic on times saturates (SEMANTICS, Time)."""
    return MIN_MICROS if micros < MIN_MICROS else MAX_MICROS if micros > MAX_MICROS else micros


def format_micros(micros: int) -> str:
    """For messages: an ISO instant, or `-inf` and `+inf` at the ends of time."""
    if micros == MIN_MICROS:
        return "-inf"
    if micros >= MAX_MICROS - 1:
        return "+inf"
    try:
        return (EPOCH + _dt.timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{micros}µs"


def _decimal(micros: int) -> str:
    whole, part = divmod(abs(micros), SECOND)
    return f"{'-' if micros < 0 else ''}{whole}" + (f".{part:06d}".rstrip("0") if part else "")


def _in_json(cls: type[_Micros], write: Callable[[int], str | int], read: Callable[[object], int]) -> object:
    """Pydantic's schema for `cls`, from the functions that write its microseconds to JSON and read them from it."""
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
        return (EPOCH + _dt.timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return micros


def _instant_of_text(value: object) -> int:
    match value:
        case bool():
            pass
        case int():
            return value
        case str() if value.endswith("Z"):
            return (_dt.datetime.fromisoformat(value) - EPOCH) // _MICROSECOND
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
            f"seconds must be a number, not {type(seconds).__name__}: Timestamp.of(...) and Duration.of(...) take "
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
