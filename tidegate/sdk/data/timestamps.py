"""Converting the timestamps of elements, single ones or columns, to integer microseconds.

The most common mistake is a number in the wrong unit, so a value that is implausible in seconds causes a warning.

>>> element_micros(1.5)
1500000
>>> element_column([1, 2, 0])
([1000000, 2000000, 0], (0, 2000000))
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any, Final

from tidegate.sdk.time import MAX_MICROS, SECOND, TimestampLike, timestamp_micros
from tidegate.sdk.user_code.frames import caller
from tidegate.sdk.user_code.validation import warn

FAR_FUTURE: Final = 1e11
"""Seconds since 1970, in the year 5138. A greater number is probably in milliseconds, and then later than 1973."""

_LONG_AGO: Final = 1e8
"""Seconds since 1970, in the year 1973."""

_RECENT: Final = 1e15
"""Microseconds since 1970, in the year 2001."""

_MIN_ARRAY: Final = 64
"""The least number of values for which an array is worth its overhead."""

_warned: Final[set[tuple[str, int]]] = set()
"""The lines of the author's code, as file and line, that have been warned about."""


def element_micros(value: TimestampLike) -> int:
    """Convert the timestamp of an element as `timestamp_micros` does; ValueError for the end of time.

    Warns, once for each line of the author's code, about a number of seconds that is probably in milliseconds.
    """
    micros = timestamp_micros(value)
    if value.__class__ is int or value.__class__ is float:
        warn_about_unit(value)
    if micros == MAX_MICROS:
        raise ValueError(f"{value!r} is the end of time, which no element may have: use an earlier timestamp")
    return micros


def element_column(values: list[Any]) -> tuple[Sequence[int], tuple[int, int]]:
    """Apply `element_micros` to each of at least one value; return the column and its least and greatest value.

    Plain numbers that are well within the ends of time take a fast path. If numpy is loaded, the column is an `array`,
    because many steps need no more of it than its least and greatest value.
    """
    kinds = list(map(type, values))
    if kinds.count(float) == len(values):
        np = loaded_numpy() if len(values) >= _MIN_ARRAY else None
        if np is not None:
            seconds = np.fromiter(values, np.float64, len(values))
            first, last = float(seconds.min()), float(seconds.max())
            if first > -9e12 and last < FAR_FUTURE:
                micros = np.rint(seconds * 1e6).astype(np.int64)  # rounds half to even, as `round` does
                return array("q", micros.tobytes()), (round(first * 1e6), round(last * 1e6))
        elif (first := min(values)) > -9e12 and (last := max(values)) < FAR_FUTURE:
            # faster than `round(x)`, which looks this method up
            return [(value * 1e6).__round__() for value in values], (round(first * 1e6), round(last * 1e6))
    elif kinds.count(int) == len(values):
        first, last = min(values), max(values)
        if first > -9_000_000_000_000 and last < FAR_FUTURE:
            return [value * SECOND for value in values], (first * SECOND, last * SECOND)
    found = list(map(element_micros, values))
    return found, (min(found), max(found))


def loaded_numpy() -> Any:
    """Return numpy if it has been imported, else None: using it here is not worth its import."""
    found = sys.modules.get("numpy")
    return found if hasattr(found, "rint") else None  # another thread may be in the middle of importing it


def warn_about_unit(seconds: int | float) -> None:
    """Warn, once for each line of the author's code, about seconds that are probably milliseconds or smaller units."""
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


def warn_about_delay(seconds: int | float, now: int) -> None:
    """Warn, once for each line of the author's code, about an instant that is probably a delay from `now` (µs)."""
    if 0 < seconds < _LONG_AGO and now > _RECENT:
        _warn_once(
            f"the instant {seconds!r} is {seconds!r} s after 1970, so a timer that is set to it fires at once. To wait "
            f"for {seconds!r} s add them to an instant, such as a parameter timestamp=tg.DoFn.TimestampParam, or "
            "now=tg.DoFn.ProcessingTimeParam"
        )


def _warn_once(message: str) -> None:
    where = caller()
    if (where.file, where.line) not in _warned:
        _warned.add((where.file, where.line))
        warn(message, where)
