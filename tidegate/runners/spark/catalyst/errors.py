"""Errors of expressions that Spark evaluates: found in its messages, and attributed to the step they belong to."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tidegate.sdk.relational.failures import ExpressionError

_CONDITIONS: Final = {
    "BINARY_ARITHMETIC_OVERFLOW": "ARITHMETIC_OVERFLOW",
    "INTERVAL_ARITHMETIC_OVERFLOW": "ARITHMETIC_OVERFLOW",
    "ARITHMETIC_OVERFLOW": "ARITHMETIC_OVERFLOW",
    "DIVIDE_BY_ZERO": "DIVIDE_BY_ZERO",
    "REMAINDER_BY_ZERO": "REMAINDER_BY_ZERO",
    "CAST_INVALID_INPUT": "CAST_INVALID_INPUT",
    "CAST_OVERFLOW": "CAST_OVERFLOW",
    "DATETIME_OVERFLOW": "DATETIME_OVERFLOW",
    "INVALID_INDEX_OF_ZERO": "INVALID_INDEX_OF_ZERO",
    "INVALID_ARRAY_INDEX": "INVALID_ARRAY_INDEX",
    "INVALID_COLUMN_VALUE": "INVALID_COLUMN_VALUE",
    "NUMERIC_VALUE_OUT_OF_RANGE": "NUMERIC_VALUE_OUT_OF_RANGE",
    "NUMERIC_OUT_OF_SUPPORTED_RANGE": "NUMERIC_VALUE_OUT_OF_RANGE",
}
"""Spark's names of errors, with subclasses after a dot, and those of expressions."""

_FOUND: Final = re.compile(rf"\[({'|'.join(_CONDITIONS)})(?:\.\w+)?\] ?([^\n]*)")
_PAST_LONG: Final = re.compile(r"ArithmeticException: (?:long|integer) overflow")
_FIRST_SENTENCE: Final = re.compile(r".*?[^.\d](?=\. |\.$| SQLSTATE)")

_MESSAGES: Final[dict[str, Callable[[str], str]]] = {
    "ARITHMETIC_OVERFLOW": lambda said: f"the result is out of range for its type ({said})",
    "DIVIDE_BY_ZERO": lambda said: "division by 0; nullif(divisor, 0) makes the quotient NULL",
    "REMAINDER_BY_ZERO": lambda said: "remainder by 0; nullif(divisor, 0) makes the remainder NULL",
}


def expression_error(text: str) -> ExpressionError | None:
    """The error of an expression in one of Spark's messages; None if it is about something else."""
    found = _FOUND.search(text)
    if found is None:
        if _PAST_LONG.search(text):
            return ExpressionError("DATETIME_OVERFLOW", "the result is outside the years 1 to 9999")
        return None
    condition = _CONDITIONS[found[1]]
    sentence = _FIRST_SENTENCE.match(found[2])
    said = sentence[0] if sentence else found[2]
    return ExpressionError(condition, _MESSAGES.get(condition, str)(said))
