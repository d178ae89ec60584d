"""Casts, exactly as Spark computes them in ANSI mode."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from typing import NoReturn

from tidegate.sdk.errors import shorten
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.python.times import timestamp_micros, unix_micros
from tidegate.sdk.relational.python.values import GREATEST, LEAST, UTC

_SPACE = "".join(map(chr, range(33))) + "\x7f"
"""The characters that are trimmed before a string is read as a number: white space and control characters of ASCII."""


def _invalid(value: str, type: str, advice: str = "") -> NoReturn:
    raise ExpressionError("CAST_INVALID_INPUT", f"{shorten(value)} can't be cast to {type}{advice}")


def double_to_bigint(x: float) -> int:
    """Truncated towards 0. 2.0**63, the double nearest to the greatest bigint, becomes that."""
    if not -9223372036854775808.0 <= x <= 9223372036854775808.0:  # also for NaN
        raise ExpressionError("CAST_OVERFLOW", f"{x} is out of range for bigint")
    return min(int(x), GREATEST)


def double_to_string(x: float) -> str:
    """As Java writes doubles."""
    if x != x:
        return "NaN"
    if math.isinf(x):
        return "Infinity" if x > 0 else "-Infinity"
    if x == 0.0:
        return "-0.0" if math.copysign(1.0, x) < 0 else "0.0"
    if 1e-3 <= abs(x) < 1e7:
        return repr(x)
    negative, digits, exponent = Decimal(repr(x)).as_tuple()
    shown = "".join(map(str, digits))
    power = len(shown) + int(exponent) - 1
    return f"{'-' if negative else ''}{shown[0]}.{shown[1:].rstrip('0') or '0'}E{power}"


def boolean_to_string(b: bool) -> str:
    return "true" if b else "false"


def timestamp_to_string(at: datetime.datetime) -> str:
    text = f"{at.year:04d}-{at.month:02d}-{at.day:02d} {at.hour:02d}:{at.minute:02d}:{at.second:02d}"
    return f"{text}.{at.microsecond:06d}".rstrip("0") if at.microsecond else text


def date_to_timestamp(date: datetime.date) -> datetime.datetime:
    return datetime.datetime(date.year, date.month, date.day, tzinfo=UTC)


_INTEGER = re.compile(r"[+-]?[0-9]+")


def string_to_bigint(s: str) -> int:
    trimmed = s.strip(_SPACE)
    if not _INTEGER.fullmatch(trimmed):
        _invalid(s, "bigint")
    found = int(trimmed) if len(trimmed) < 4000 else GREATEST + 1
    if not LEAST <= found <= GREATEST:
        _invalid(s, "bigint")
    return found


_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+[dDfF]?")
_SPECIAL = {
    "inf": math.inf,
    "+inf": math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
    "nan": math.nan,
}


def string_to_double(s: str) -> float:
    """What Java reads as a double, and the names of the special values in any case."""
    trimmed = s.strip("".join(map(chr, range(33))))
    if found := _DOUBLE.fullmatch(trimmed):
        return float(found[1])
    if trimmed in ("+NaN", "-NaN"):
        return math.nan
    if trimmed.lower() in _SPECIAL:
        return _SPECIAL[trimmed.lower()]
    if _HEXADECIMAL.fullmatch(trimmed):
        try:
            return float.fromhex(trimmed.rstrip("dDfF") if trimmed[-1] in "dDfF" else trimmed)
        except OverflowError:
            return -math.inf if trimmed.startswith("-") else math.inf
    _invalid(s, "double")


_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})


def string_to_boolean(s: str) -> bool:
    lower = s.strip(_SPACE).lower()
    if lower in _TRUE:
        return True
    if lower in _FALSE:
        return False
    _invalid(s, "boolean")


_DATE = re.compile(r"([+-]?[0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)


def string_to_date(s: str) -> datetime.date:
    """`yyyy`, `yyyy-[m]m` or `yyyy-[m]m-[d]d`; after the day, a space or `T` may begin anything."""
    found = _DATE.fullmatch(s.strip(_SPACE))
    if found is None:
        _invalid(s, "date")
    year, month, day = int(found[1]), int(found[2] or 1), int(found[3] or 1)
    if not 1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31:
        _out_of_years(s)
    try:
        return datetime.date(year, month, day)
    except ValueError:
        _invalid(s, "date")


def _out_of_years(value: object) -> NoReturn:
    raise ExpressionError("DATETIME_OVERFLOW", f"{shorten(value)} is outside the years 1 to 9999")


_TIMESTAMP = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?[\x00-\x20]*([^\x00-\x20].*)?)?)?)?)?)?"
)
_ZONE = re.compile(
    r"Z|GMT0|(?:UTC|GMT|UT)?(?:([+-])(?:([0-9]{1,2})(?::([0-9]{1,2}))?|([0-9]{2})(:?)([0-9]{2})(?:\5([0-9]{2}))?))?"
)


def string_to_timestamp(s: str) -> datetime.datetime:
    """A date as of `string_to_date`, then perhaps a time after a space or `T`, and after its seconds an offset.

    Further digits of the fraction are left out. A zone is UTC or an offset: others, which Spark knows by name, and
    times without a date, which are today's to Spark, are errors.
    """
    found = _TIMESTAMP.fullmatch(s.strip(_SPACE))
    zone = None if found is None else _ZONE.fullmatch(found[8] or "Z")
    if found is None or zone is None:
        _invalid(s, "timestamp", ": write it as 2024-02-29 12:30:59.5+01:00, with UTC or an offset as its zone")
    year, month, day, hour, minute, second = (int(found[k] or (k < 4)) for k in range(1, 7))
    sign, hours, minutes, hours_of_two, _, minutes_of_two, seconds = zone.groups()
    offset = 3600 * int(hours or hours_of_two or 0) + 60 * int(minutes or minutes_of_two or 0) + int(seconds or 0)
    if not 1 <= year <= 9999:
        _out_of_years(s)
    if offset > 18 * 3600 or int(minutes or minutes_of_two or 0) > 59 or int(seconds or 0) > 59:
        _invalid(s, "timestamp")
    try:
        at = datetime.datetime(year, month, day, hour, minute, second, int((found[7] or "")[:6].ljust(6, "0")), UTC)
    except ValueError:
        _invalid(s, "timestamp")
    try:
        return at - datetime.timedelta(seconds=-offset if sign == "-" else offset)
    except OverflowError:
        _out_of_years(s)


def timestamp_to_bigint(at: datetime.datetime) -> int:
    """The whole seconds since 1970, rounded down."""
    return unix_micros(at) // 1_000_000


def timestamp_to_double(at: datetime.datetime) -> float:
    """The seconds since 1970."""
    return unix_micros(at) / 1e6


def bigint_to_timestamp(seconds: int) -> datetime.datetime:
    """The instant that many seconds after 1970."""
    return timestamp_micros(seconds * 1_000_000)


def double_to_timestamp(seconds: float) -> datetime.datetime:
    """The instant that many seconds after 1970, its microseconds truncated towards 1970."""
    if not math.isfinite(seconds):
        raise ExpressionError("CAST_INVALID_INPUT", f"{seconds} can't be cast to timestamp")
    return timestamp_micros(double_to_bigint(seconds * 1e6))
