"""Patterns of dates: the letters of Java's that expressions know, as functions from an instant to a string."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Final

_PARTS: Final = re.compile(r"([a-zA-Z])\1*|'((?:[^']|'')*)'|([^a-zA-Z'\[\]{}#])")

_FORMATS: Final = {
    "yyyy": "{0.year:04}",
    "MM": "{0.month:02}",
    "M": "{0.month}",
    "dd": "{0.day:02}",
    "d": "{0.day}",
    "HH": "{0.hour:02}",
    "H": "{0.hour}",
    "mm": "{0.minute:02}",
    "m": "{0.minute}",
    "ss": "{0.second:02}",
    "s": "{0.second}",
    "SSS": "{1:.3}",
    "SSSSSS": "{1}",
}

LETTERS: Final = tuple(_FORMATS)
"""The letters that a pattern may have: fractions of a second are cut, not rounded."""


def format_of(pattern: str) -> str:
    """The pattern as one of `str.format`, for an instant and its microseconds as six digits. Raises ValueError."""
    parts, at = [], 0
    while at < len(pattern):
        found = _PARTS.match(pattern, at)
        if found is None:
            raise ValueError(f"{pattern[at]!r} has to be in quotes, which have to be closed")
        if found[1]:
            if found[0] not in _FORMATS:
                raise ValueError(f"{found[0]} is not supported; there are {', '.join(LETTERS)}")
            parts.append(_FORMATS[found[0]])
        else:
            text = found[3] or found[2].replace("''", "'") or "'"
            parts.append(text.replace("{", "{{").replace("}", "}}"))
        at = found.end()
    return "".join(parts)


def formatter(pattern: str) -> Callable[[datetime.datetime], str]:
    """The function that writes instants by a pattern. Raises ValueError."""
    write = format_of(pattern).format
    if "SSS" not in pattern:
        return write
    return lambda at: write(at, f"{at.microsecond:06}")
