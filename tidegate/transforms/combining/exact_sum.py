"""The sum of numbers, rounded once, so that it doesn't depend on the order of additions."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite
from typing import Final

from tidegate.sdk.authoring.combine import CombineFn

_EXPONENT: Final = 1074
"""The least positive float is 2 to the power of minus this."""


class ExactSumFn(CombineFn[float, tuple[int, float], float]):
    """The sum of numbers, rounded once: it depends neither on their order nor on how they are divided.

    Finite floats are whole multiples of 2 to the power -1074, and are added as such; infinities and NaN apart.
    Other numbers, such as Decimal("0.1"), are refused by a TypeError.
    """

    def create_accumulator(self) -> tuple[int, float]:
        return 0, 0.0

    def add_input(self, accumulator: tuple[int, float], element: float) -> tuple[int, float]:
        finite, rest = accumulator
        if isinstance(element, float) and not isfinite(element):
            return finite, rest + element
        numerator, denominator = element.as_integer_ratio()
        if denominator & (denominator - 1) or denominator >> (_EXPONENT + 1):
            raise TypeError(
                f"ExactSum adds floats and whole numbers, and {element!r} is no whole multiple of 2 to the power "
                f"-{_EXPONENT}: convert it, as in tg.Map(float)"
            )
        return finite + (numerator << (_EXPONENT + 1 - denominator.bit_length())), rest

    def merge_accumulators(self, accumulators: Iterable[tuple[int, float]]) -> tuple[int, float]:
        finite, rest = zip(*accumulators, strict=True)
        return sum(finite), sum(rest)

    def extract_output(self, accumulator: tuple[int, float]) -> float:
        finite, rest = accumulator
        if rest:  # an infinity, or NaN
            return rest
        try:
            return finite / (1 << _EXPONENT)
        except OverflowError:
            return inf if finite > 0 else -inf
