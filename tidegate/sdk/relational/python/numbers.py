"""Operations on numbers and logic, exactly as Spark computes them in ANSI mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NoReturn

from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.python.values import GREATEST


def out_of_range(value: int) -> NoReturn:
    """Refuse a result that bigint can't represent."""
    raise ExpressionError("ARITHMETIC_OVERFLOW", f"{value} is out of range for bigint, which has 64 bits")


def divide_by_zero() -> NoReturn:
    """Refuse a division by 0."""
    raise ExpressionError("DIVIDE_BY_ZERO", "division by 0; nullif(divisor, 0) makes the quotient NULL")


def remainder_by_zero() -> NoReturn:
    """Refuse a remainder by 0."""
    raise ExpressionError("REMAINDER_BY_ZERO", "remainder by 0; nullif(divisor, 0) makes the remainder NULL")


# The divisor comes first, since it is evaluated first.


def divide(b: float, a: float) -> float:
    if b == 0.0:
        divide_by_zero()
    return a / b


def div(b: int, a: int) -> int:
    """The quotient truncated towards 0; Python's is rounded down."""
    if b == 0:
        divide_by_zero()
    quotient = abs(a) // abs(b)
    if (a < 0) != (b < 0):
        return -quotient
    return quotient if quotient <= GREATEST else out_of_range(quotient)


def remainder(b: int, a: int) -> int:
    """The remainder with the sign of the dividend; Python's has that of the divisor."""
    if b == 0:
        remainder_by_zero()
    found = abs(a) % abs(b)
    return -found if a < 0 else found


def remainder_of_doubles(b: float, a: float) -> float:
    if b == 0.0:
        remainder_by_zero()
    if math.isinf(a):
        return math.nan
    return math.fmod(a, b)


def floor(x: float) -> int:
    return 0 if x != x else _whole(x, math.floor)


def ceil(x: float) -> int:
    return 0 if x != x else _whole(x, math.ceil)


def _whole(x: float, rounded: Callable[[float], int]) -> int:
    """Refuses what bigint can't represent, 2.0**63 too, which a cast to bigint makes the greatest bigint."""
    if not -9223372036854775808.0 <= x < 9223372036854775808.0:
        raise ExpressionError("ARITHMETIC_OVERFLOW", f"{x} is out of range for bigint, which has 64 bits")
    return rounded(x)


def round_half_up(x: float, digits: int) -> float:
    """Rounds the shortest decimal that reads as this double, a half away from 0."""
    if not math.isfinite(x):
        return x
    # `+ 0.0` because the decimal that Spark rounds has no negative zero.
    return float(Decimal(repr(x)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, _WIDE)) + 0.0


def round_bigint(x: int, digits: int) -> int:
    """Rounds to tens for -1, a half away from 0."""
    if digits >= 0:
        return x
    unit: int = 10 ** min(-digits, 20)
    found = (abs(x) + unit // 2) // unit * unit
    found = -found if x < 0 else found
    return found if -GREATEST - 1 <= found <= GREATEST else out_of_range(found)


def _wide_context() -> Any:
    from decimal import Context

    return Context(prec=1000, Emax=10**6, Emin=-(10**6))


_WIDE = _wide_context()


def sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0.0 else math.nan


def exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def ln(x: float) -> float | None:
    """NULL for 0 and negative numbers."""
    if x <= 0.0:
        return None
    return math.log(x)


def power(x: float, y: float) -> float:
    """As Java's Math.pow, which has no errors."""
    if y != y or x != x:
        return 1.0 if y == 0.0 else math.nan
    if math.isinf(y) and abs(x) == 1.0:
        return math.nan
    try:
        return math.pow(x, y)
    except OverflowError:
        odd = math.isfinite(y) and y == math.floor(y) and math.fmod(y, 2.0) != 0.0
        return -math.inf if x < 0.0 and odd else math.inf
    except ValueError:
        if x == 0.0:  # to a negative power
            odd = math.isfinite(y) and y == math.floor(y) and math.fmod(y, 2.0) != 0.0
            return math.copysign(math.inf, x) if odd else math.inf
        return math.nan


# -- comparisons of doubles: NaN equals NaN, and is greater than all other doubles


def equal(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def less(a: float, b: float) -> bool:
    return a < b or (b != b and a == a)


def less_or_equal(a: float, b: float) -> bool:
    return a <= b or b != b


def not_distinct(a: Any, b: Any) -> bool:
    return a is b or (a is not None and b is not None and (a == b or (a != a and b != b)))


def is_in(value: Any, values: frozenset[Any], has_null: bool) -> bool | None:
    """`values` are those that are not NULL; NaN is among them as None."""
    if value is None:
        return None
    if (value if value == value else None) in values:
        return True
    return None if has_null else False


def greatest(*values: Any) -> Any:
    found = None
    for value in values:
        if value is not None and (found is None or less(found, value)):
            found = value
    return found


def least(*values: Any) -> Any:
    found = None
    for value in values:
        if value is not None and (found is None or less(value, found)):
            found = value
    return found
