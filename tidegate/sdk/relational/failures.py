"""The error of an expression whose value doesn't exist: an overflow, a division by 0, a string that is no number."""

from __future__ import annotations


class ExpressionError(ArithmeticError):
    """An expression has no value for an element.

    `condition` is the name that Spark gives to the error: ARITHMETIC_OVERFLOW, DIVIDE_BY_ZERO, REMAINDER_BY_ZERO,
    NUMERIC_VALUE_OUT_OF_RANGE, CAST_INVALID_INPUT, CAST_OVERFLOW, DATETIME_OVERFLOW, INVALID_INDEX_OF_ZERO,
    INVALID_ARRAY_INDEX, or INVALID_COLUMN_VALUE for a value that is not of its column's type.
    """

    def __init__(self, condition: str, message: str) -> None:
        super().__init__(f"[{condition}] {message}")
        self.condition = condition
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        return ExpressionError, (self.condition, self.message)
