"""Operations on strings, by code points, exactly as Spark computes them."""

from __future__ import annotations

import re
from collections.abc import Callable

from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.regular_expressions import translated


def upper(s: str) -> str:
    return s.upper()


def lower(s: str) -> str:
    return s.lower()


def substring(s: str, start: int, length: int) -> str:
    """`length` code points from `start`: 1 and 0 are the first, -1 is the last. A start before the first takes as much
    off the length."""
    start, length = _as_int(start), _as_int(length)
    first = start - 1 if start > 0 else len(s) + start if start < 0 else 0
    end = first + length
    if end > 2**31 - 1:
        end = 2**31 - 1
    elif end < -(2**31):
        end = -(2**31)
    return s[max(first, 0) : max(end, 0)]


def _as_int(n: int) -> int:
    """The nearest int of 32 bits, which is what Spark takes positions and lengths as."""
    return min(max(n, -(2**31)), 2**31 - 1)


def trim(s: str) -> str:
    return s.strip(" ")


def ltrim(s: str) -> str:
    return s.lstrip(" ")


def rtrim(s: str) -> str:
    return s.rstrip(" ")


def replace(s: str, old: str, new: str) -> str:
    """An empty `old` is nowhere; Python finds it everywhere."""
    return s.replace(old, new) if old else s


def position(s: str, part: str) -> int:
    return s.find(part) + 1


def reverse(s: str) -> str:
    return s[::-1]


def split_part(s: str, separator: str, part: int) -> str:
    """An empty separator divides nothing."""
    if part == 0:
        raise ExpressionError("INVALID_INDEX_OF_ZERO", "the first part has the number 1")
    parts = s.split(separator) if separator else [s]
    at = part - 1 if part > 0 else len(parts) + part
    return parts[at] if 0 <= at < len(parts) else ""


def regexp_extractor(pattern: str, group: int) -> Callable[[str], str]:
    """The function that returns a group of the first match, or an empty string."""
    search = re.compile(translated(pattern).text).search

    def extracted(s: str) -> str:
        found = search(s)
        return "" if found is None else found[group] or ""

    return extracted


def like_pattern(pattern: str) -> re.Pattern[str]:
    """The regular expression of a LIKE pattern; binding has checked that each backslash escapes a character."""
    made: list[str] = []
    characters = iter(pattern)
    for character in characters:
        match character:
            case "%":
                made.append(".*")
            case "_":
                made.append(".")
            case "\\":
                made.append(re.escape(next(characters)))
            case _:
                made.append(re.escape(character))
    return re.compile("".join(made), re.DOTALL)
