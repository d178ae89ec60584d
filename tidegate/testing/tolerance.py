"""Tolerances of `assert_that(near=…)`: expected floats that equal every number close to them."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

from tidegate.sdk.errors import BuildError, shorten
from tidegate.testing.matchers import Contains, EqualTo, EqualToPerWindow, Matcher


class Near:
    """A float that equals the numbers that differ from it by at most `by`, and if it is NaN, NaN."""

    __slots__ = ("by", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: float, by: float) -> None:
        self.value = value
        self.by = by

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Real):
            return NotImplemented
        number = float(other)
        same = number == self.value or (number != number and self.value != self.value)
        return same or abs(number - self.value) <= self.by

    def __repr__(self) -> str:
        return f"{self.value!r} ± {self.by:g}"


def with_tolerance(matcher: Matcher, by: float) -> Matcher:
    """The matcher with a tolerance for the floats that it expects; BuildError if it doesn't list elements."""
    if not isinstance(by, int | float) or not by >= 0:
        raise BuildError(f"near is a distance of at least 0, not {shorten(by)}")
    match matcher:
        case EqualTo() | Contains() | EqualToPerWindow():
            return replace(matcher, expected=near(matcher.expected, by))
        case _:
            raise BuildError("near goes with equal_to, contains and equal_to_per_window, which list the elements")


def near(expected: Any, by: float) -> Any:
    """The value with a `Near` for each float, also inside tuples, lists and dicts."""
    match expected:
        case float():
            return Near(expected, by)
        case tuple() if type(expected) is tuple:
            return tuple(near(item, by) for item in expected)
        case list():
            return [near(item, by) for item in expected]
        case dict():
            return {key: near(item, by) for key, item in expected.items()}
        case _:
            return expected
