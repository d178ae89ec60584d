"""The types of decimals: that of a literal, that which two have in common, and those of operations' results.

They are those of Spark in ANSI mode, which follows SQL Server: a result has as many digits as it needs, at most 38; if
it needs more, digits after the point are given up, but for six.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from tidegate.sdk.data.columns import BIGINT, MAX_PRECISION, ColumnType, DecimalType

OF_BIGINT: Final = DecimalType(20, 0)
"""The decimals that every bigint is one of."""

_LEAST_SCALE: Final = 6


def decimal_of(value: int | Decimal) -> DecimalType | None:
    """The type of a literal: as many digits as it is written with; None if they are too many, or it isn't finite."""
    _, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        return None
    whole = max(len(digits) + exponent, 0)
    scale = max(-exponent, 0)
    precision = max(whole + scale, 1)
    return DecimalType(precision, scale) if precision <= MAX_PRECISION else None


def common_decimal(one: DecimalType, two: DecimalType) -> DecimalType:
    """The type that values of both are converted to, which keeps digits before the point rather than after it."""
    whole, scale = max(one.whole_digits, two.whole_digits), max(one.scale, two.scale)
    return DecimalType(min(whole + scale, MAX_PRECISION), max(0, min(scale, MAX_PRECISION - whole)))


def decimal_cast_fails(given: ColumnType, to: DecimalType) -> bool:
    """Whether a cast to decimals may fail."""
    match given:
        case DecimalType():
            # Rounding may add a digit before the point.
            return to.whole_digits < given.whole_digits + (to.scale < given.scale)
        case _ if given.kind == "bigint":
            return to.whole_digits < 19
        case _ if given.kind == "boolean":
            return to.whole_digits < 1
    return True


def operation_fails(operation: str, types: Sequence[ColumnType], result: DecimalType) -> bool:
    """Whether an operation with a decimal result may be an error."""
    of = [each for each in types if isinstance(each, DecimalType)]
    match operation:
        case "add" | "subtract":
            one, two = of
            fewer = result.whole_digits <= max(one.whole_digits, two.whole_digits)
            return fewer or result.scale < max(one.scale, two.scale)
        case "multiply":
            one, two = of
            return result.scale < one.scale + two.scale or result.precision <= one.precision + two.precision
        case "round":
            return result.whole_digits <= of[0].whole_digits
    return operation in ("divide", "remainder", "sum", "avg", "sum_distinct", "avg_distinct")


def result_type(operation: str, types: Sequence[ColumnType], digits: int = 0) -> DecimalType:
    """The type of an operation on decimals. `digits` is the literal of `round`."""
    one, *others = [each for each in types if isinstance(each, DecimalType)]
    two = others[0] if others else one
    scale = max(one.scale, two.scale)
    match operation:
        case "add" | "subtract":
            return _adjusted(max(one.whole_digits, two.whole_digits) + scale + 1, scale)
        case "multiply":
            return _adjusted(one.precision + two.precision + 1, one.scale + two.scale)
        case "divide":
            scale = max(_LEAST_SCALE, one.scale + two.precision + 1)
            return _adjusted(one.whole_digits + two.scale + scale, scale)
        case "remainder":
            return _adjusted(min(one.whole_digits, two.whole_digits) + scale, scale)
        case "floor" | "ceil":
            return one if one.scale == 0 else _bounded(one.whole_digits + 1, 0)
        case "round":
            kept = max(0, min(one.scale, digits))
            return _bounded(max(one.whole_digits + 1 + kept, 1 - digits), kept)
        case "sum" | "sum_distinct":
            return _bounded(one.precision + 10, one.scale)
        case "avg" | "avg_distinct":
            return _bounded(one.precision + 4, one.scale + 4)
        case _:  # the number itself, or with another sign
            return one


def as_decimal_type(type: ColumnType, value: object = None) -> DecimalType | None:
    """The decimals that values of a number's type are converted to; for a literal `value`, those with its digits."""
    match type:
        case DecimalType():
            return type
        case _ if type == BIGINT:
            return decimal_of(value) if isinstance(value, int) else OF_BIGINT
    return None


def _bounded(precision: int, scale: int) -> DecimalType:
    return DecimalType(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def _adjusted(precision: int, scale: int) -> DecimalType:
    """The type, or if it has too many digits, one with fewer after the point."""
    if precision <= MAX_PRECISION:
        return DecimalType(precision, scale)
    kept = max(MAX_PRECISION - (precision - scale), min(scale, _LEAST_SCALE))
    return DecimalType(MAX_PRECISION, kept)
