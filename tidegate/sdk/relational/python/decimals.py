"""Operations, casts and aggregates of decimals, exactly as Spark computes them in ANSI mode.

A value of `decimal(p,s)` is a Decimal with the exponent -s and at most p digits; zero has no sign.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import cache
from typing import Any, Final, NoReturn

from tidegate.sdk.data.columns import ColumnType, DecimalType
from tidegate.sdk.errors import shorten
from tidegate.sdk.relational.decimal_types import operation_fails
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.python.numbers import divide_by_zero, remainder_by_zero
from tidegate.sdk.relational.python.times import timestamp_micros, unix_micros
from tidegate.sdk.relational.python.values import GREATEST, LEAST, refuse_value

_EXPONENT: Final = 10**9
EXACT: Final = Context(160, ROUND_HALF_UP, -_EXPONENT, _EXPONENT, traps=[InvalidOperation])
"""Digits enough for every product, remainder and sum, and for a quotient whose rounding they don't change."""


def out_of_range(value: Decimal | int, type: DecimalType) -> NoReturn:
    """Refuse a value with more digits than its type has."""
    raise ExpressionError("NUMERIC_VALUE_OUT_OF_RANGE", f"{value:f} has too many digits for {type}")


@dataclass(frozen=True, slots=True)
class Fit:
    """Gives a number the scale of a type, a half being rounded away from 0; an error if it has too many digits."""

    type: DecimalType
    digits: Context
    last: Decimal
    zero: Decimal

    def __call__(self, value: Decimal) -> Decimal:
        try:
            return self.digits.quantize(value, self.last) or self.zero
        except InvalidOperation:
            out_of_range(value, self.type)


@cache
def fit(type: DecimalType) -> Fit:
    """The function that makes values of a type."""
    digits = Context(type.precision, ROUND_HALF_UP, -_EXPONENT, _EXPONENT, traps=[InvalidOperation])
    return Fit(type, digits, Decimal(1).scaleb(-type.scale), Decimal(0).scaleb(-type.scale))


# -- operations: from the types of the operands and the result to a function


def _sum(of: Callable[[Decimal, Decimal], Decimal]) -> Callable[..., Callable[..., Decimal]]:
    def make(result: DecimalType, one: DecimalType, two: DecimalType) -> Callable[..., Decimal]:
        if not operation_fails("add", (one, two), result):
            return of  # the sum has the exponent of its type, and never too many digits
        fitted = fit(result)
        return lambda a, b: fitted(of(a, b))

    return make


def _product(result: DecimalType, one: DecimalType, two: DecimalType) -> Callable[..., Decimal]:
    multiply, fitted = EXACT.multiply, fit(result)
    if not operation_fails("multiply", (one, two), result):
        zero = fitted.zero
        return lambda a, b: multiply(a, b) or zero
    return lambda a, b: fitted(multiply(a, b))


# The divisor comes first, since it is evaluated first.


def _division(result: DecimalType, one: DecimalType, two: DecimalType) -> Callable[..., Decimal]:
    fitted = fit(result)

    def divide(b: Decimal, a: Decimal) -> Decimal:
        return fitted(EXACT.divide(a, b)) if b else divide_by_zero()

    return divide


def _remainder(result: DecimalType, one: DecimalType, two: DecimalType) -> Callable[..., Decimal]:
    fitted, rest = fit(result), EXACT.remainder

    def remainder(b: Decimal, a: Decimal) -> Decimal:
        return fitted(rest(a, b)) if b else remainder_by_zero()

    return remainder


def _to_whole(rounding: str) -> Callable[..., Callable[..., Decimal]]:
    def make(result: DecimalType, one: DecimalType) -> Callable[..., Decimal]:
        fitted, one_ = fit(result), Decimal(1)
        context = Context(80, rounding, -_EXPONENT, _EXPONENT, traps=[InvalidOperation])
        return lambda a: fitted(context.quantize(a, one_))

    return make


def _round(result: DecimalType, one: DecimalType, digits: ColumnType) -> Callable[..., Decimal]:
    fitted = fit(result)

    def round(value: Decimal, digits: int) -> Decimal:
        kept = min(digits, one.scale)
        if -kept > one.whole_digits:
            return fitted.zero
        return fitted(EXACT.quantize(value, Decimal(1).scaleb(-kept)))

    return round


_OPERATIONS: Final[dict[str, Callable[..., Callable[..., Any]]]] = {
    "add": _sum(EXACT.add),
    "subtract": _sum(EXACT.subtract),
    "multiply": _product,
    "divide": _division,
    "remainder": _remainder,
    "negate": lambda result, one: EXACT.minus,
    "abs": lambda result, one: EXACT.abs,
    "floor": _to_whole(ROUND_FLOOR),
    "ceil": _to_whole(ROUND_CEILING),
    "round": _round,
}


def decimal_operation(operation: str, types: tuple[ColumnType, ...], result: ColumnType) -> Callable[..., Any] | None:
    """The function of an operation on operands of these types; None for one that is that of other types, too."""
    if not types or not isinstance(types[0], DecimalType) or operation not in _OPERATIONS:
        return None
    return _OPERATIONS[operation](result, *types)


# -- casts

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d{1,10}))?")
_SPACE: Final = "".join(map(chr, range(33)))


def from_string(fitted: Fit) -> Callable[[str], Decimal]:
    """What Java reads as a decimal number."""

    def cast(text: str) -> Decimal:
        trimmed = text.strip(_SPACE)
        found = _NUMBER.fullmatch(trimmed)
        if found is None or abs(int(found[1] or 0)) >= 2**31 or max(trimmed) >= "\U00010000":
            raise ExpressionError("CAST_INVALID_INPUT", f"{shorten(text)} can't be cast to {fitted.type}")
        value = Decimal(trimmed)
        if value and value.adjusted() >= 38:
            raise ExpressionError("NUMERIC_VALUE_OUT_OF_RANGE", f"{value} has too many digits for {fitted.type}")
        return fitted(value)

    return cast


def from_double(fitted: Fit) -> Callable[[float], Decimal | None]:
    """The shortest decimal that reads as the double; NULL for NaN and infinities."""

    def cast(x: float) -> Decimal | None:
        return fitted(Decimal(repr(x))) if math.isfinite(x) else None

    return cast


def to_bigint(value: Decimal) -> int:
    """Truncated towards 0."""
    whole = int(value)
    if not LEAST <= whole <= GREATEST:
        raise ExpressionError("CAST_OVERFLOW", f"{value} is out of range for bigint")
    return whole


def to_string(value: Decimal) -> str:
    """All digits of the scale, without an exponent."""
    return f"{value:f}"


def decimal_cast(given: ColumnType, to: ColumnType) -> Callable[[Any], Any] | None:
    """The function of a cast from or to decimals; None for one between other types."""
    if isinstance(to, DecimalType):
        fitted = fit(to)
        match given.kind:
            case "string":
                return from_string(fitted)
            case "double":
                return from_double(fitted)
            case "decimal":
                return fitted
            case "timestamp":
                return lambda at: fitted(Decimal(unix_micros(at)).scaleb(-6))
            case _:  # bigint, boolean
                return lambda number: fitted(Decimal(number))
    return _FROM_DECIMAL[to.kind] if isinstance(given, DecimalType) else None


_FROM_DECIMAL: Final[dict[str, Callable[[Any], Any]]] = {
    "bigint": to_bigint,
    "double": float,
    "string": to_string,
    "boolean": bool,
    "timestamp": lambda seconds: timestamp_micros(int(seconds.scaleb(6, EXACT))),
}


# -- values of columns


_TOO_MANY: Final = ": it has more digits. Say how many the field has: Annotated[Decimal, 'decimal(20,4)']"


def as_decimal(type: DecimalType) -> Callable[[Any, str], Decimal]:
    """The function that takes a column's value as one of the type; it refuses one with more digits."""
    fitted = fit(type)

    def checked(value: Any, name: str) -> Decimal:
        if not isinstance(value, Decimal) or not value.is_finite():
            refuse_value(value, name, str(type))
        try:
            found = fitted.digits.quantize(value, fitted.last) or fitted.zero
        except InvalidOperation:
            found = None
        return found if found is not None and found == value else refuse_value(value, name, str(type), _TOO_MANY)

    return checked


# -- aggregates


def exact_sum(values: Iterable[Decimal]) -> Decimal | None:
    """The sum without rounding; None of no values."""
    total: Decimal | None = None
    for value in values:
        total = value if total is None else EXACT.add(total, value)
    return total


def sum_of(type: DecimalType) -> Callable[[Decimal | None], Decimal | None]:
    """The function that makes a sum of the type; an error for one with too many digits, whatever the order of its
    addends."""
    fitted = fit(type)

    def result(total: Decimal | None) -> Decimal | None:
        if total is None:
            return None
        try:
            return fitted(total)
        except ExpressionError as error:
            raise ExpressionError("ARITHMETIC_OVERFLOW", error.message) from None

    return result


def average_of(type: DecimalType, sums: DecimalType) -> Callable[[Decimal | None, int], Decimal | None]:
    """The function that makes a mean of a sum, which has to be of the type `sums`, and a count."""
    whole, fitted = sum_of(sums), fit(type)

    def result(total: Decimal | None, count: int) -> Decimal | None:
        found = whole(total)
        return None if found is None else fitted(EXACT.divide(found, Decimal(count)))

    return result
