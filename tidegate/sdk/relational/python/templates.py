"""The Python of each operation and cast: a template for its operands, or a function that is called with them.

A template mentions each operand `{0}`, `{1}`, … once, since an operand may be any expression. Operands are not NULL,
except those of operations whose rule for NULL is their own; those of an operation that
evaluates the last one first come in reverse order. `{t}` is a variable of the template's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidegate.sdk.data.columns import ColumnType
from tidegate.sdk.relational.python import casts, numbers, strings, times
from tidegate.sdk.relational.python.decimals import decimal_cast, decimal_operation
from tidegate.sdk.relational.python.values import fits_bigint


@dataclass(frozen=True, slots=True)
class Called:
    """A function, called with the operands under a name that no other function has in generated code."""

    name: str
    function: Callable[..., Any]


Template: TypeAlias = str | Called


def _bigint(operation: str) -> str:
    """A template whose result is checked to have 64 bits."""
    return f"({{t}} if {fits_bigint(f'({{t}} := {operation})', '{t}')} else out_of_range({{t}}))"


def _call(function: Callable[..., Any]) -> Called:
    return Called(function.__name__, function)


def _compared(plain: str, doubles: Template) -> dict[str, Template]:
    """Comparisons of doubles differ from Python's because of NaN."""
    return {"double": doubles, "*": plain}


_TEMPLATES: Final[dict[str, dict[str, Template]]] = {
    "add": {
        "bigint": _bigint("{0} + {1}"),
        "double": "({0} + {1})",
        "timestamp": _call(times.later),
        "interval": _call(times.sum_of_intervals),
    },
    "subtract": {
        "bigint": _bigint("{0} - {1}"),
        "double": "({0} - {1})",
        "timestamp timestamp": "({0} - {1})",
        "timestamp interval": _call(times.earlier),
        "interval": _call(times.difference_of_intervals),
    },
    "multiply": {"bigint": _bigint("{0} * {1}"), "double": "({0} * {1})"},
    "divide": {"*": _call(numbers.divide)},
    "div": {"*": _call(numbers.div)},
    "remainder": {"bigint": _call(numbers.remainder), "double": _call(numbers.remainder_of_doubles)},
    "negate": {"bigint": _bigint("-{0}"), "double": "(-{0})"},
    "abs": {"bigint": _bigint("abs({0})"), "double": "abs({0})"},
    "floor": {"bigint": "{0}", "double": _call(numbers.floor)},
    "ceil": {"bigint": "{0}", "double": _call(numbers.ceil)},
    "round": {"bigint": _call(numbers.round_bigint), "*": _call(numbers.round_half_up)},
    "sqrt": {"*": _call(numbers.sqrt)},
    "exp": {"*": _call(numbers.exp)},
    "ln": {"*": _call(numbers.ln)},
    "power": {"*": _call(numbers.power)},
    "equal": _compared("({0} == {1})", _call(numbers.equal)),
    "not_equal": _compared("({0} != {1})", "(not equal({0}, {1}))"),
    "less": _compared("({0} < {1})", _call(numbers.less)),
    "less_or_equal": _compared("({0} <= {1})", _call(numbers.less_or_equal)),
    "greater": _compared("({0} > {1})", "(not less_or_equal({0}, {1}))"),
    "greater_or_equal": _compared("({0} >= {1})", "(not less({0}, {1}))"),
    "not_distinct": _compared("({0} == {1})", _call(numbers.not_distinct)),
    "greatest": {"*": _call(numbers.greatest)},
    "least": {"*": _call(numbers.least)},
    "not": {"*": "(not {0})"},
    "is_null": {"*": "({0} is None)"},
    "is_nan": {"*": "(({t} := {0}) != {t})"},
    "length": {"*": "len({0})"},
    "upper": {"*": _call(strings.upper)},
    "lower": {"*": _call(strings.lower)},
    "substring": {"*": _call(strings.substring)},
    "trim": {"*": _call(strings.trim)},
    "ltrim": {"*": _call(strings.ltrim)},
    "rtrim": {"*": _call(strings.rtrim)},
    "replace": {"*": _call(strings.replace)},
    "position": {"*": _call(strings.position)},
    "contains": {"*": "({1} in {0})"},
    "starts_with": {"*": "{0}.startswith({1})"},
    "ends_with": {"*": "{0}.endswith({1})"},
    "split_part": {"*": _call(strings.split_part)},
    "reverse": {"*": _call(strings.reverse)},
    "year": {"*": "{0}.year"},
    "quarter": {"*": _call(times.quarter)},
    "month": {"*": "{0}.month"},
    "day": {"*": "{0}.day"},
    "day_of_week": {"*": _call(times.day_of_week)},
    "day_of_year": {"*": _call(times.day_of_year)},
    "hour": {"*": "{0}.hour"},
    "minute": {"*": "{0}.minute"},
    "second": {"*": "{0}.second"},
    "date_trunc": {"*": _call(times.date_trunc)},
    "add_months": {"*": _call(times.add_months)},
    "add_days": {"*": _call(times.add_days)},
    "days_between": {"*": _call(times.days_between)},
    "unix_micros": {"*": _call(times.unix_micros)},
    "timestamp_micros": {"*": _call(times.timestamp_micros)},
    "window_start": {"*": _call(times.window_start)},
    "window_end": {"*": _call(times.window_end)},
    "window_time": {"*": _call(times.window_time)},
}

PRINTED: Final = frozenset(
    {"and", "or", "coalesce", "is_in", "like", "concat", "date_format", "regexp_extract"}
    | {"part", "size", "array_contains"}
)
"""The operations that the printer writes itself."""

_CASTS: Final[dict[tuple[str, str], Template]] = {
    ("bigint", "double"): "float({0})",
    ("bigint", "string"): "str({0})",
    ("bigint", "boolean"): "({0} != 0)",
    ("double", "bigint"): _call(casts.double_to_bigint),
    ("double", "string"): _call(casts.double_to_string),
    ("double", "boolean"): "({0} != 0.0)",
    ("boolean", "bigint"): "int({0})",
    ("boolean", "double"): "float({0})",
    ("boolean", "string"): _call(casts.boolean_to_string),
    ("string", "bigint"): _call(casts.string_to_bigint),
    ("string", "double"): _call(casts.string_to_double),
    ("string", "boolean"): _call(casts.string_to_boolean),
    ("string", "date"): _call(casts.string_to_date),
    ("date", "string"): "{0}.isoformat()",
    ("date", "timestamp"): _call(casts.date_to_timestamp),
    ("timestamp", "date"): "{0}.date()",
    ("timestamp", "string"): _call(casts.timestamp_to_string),
    ("timestamp", "bigint"): _call(casts.timestamp_to_bigint),
    ("timestamp", "double"): _call(casts.timestamp_to_double),
    ("string", "timestamp"): _call(casts.string_to_timestamp),
    ("string", "binary"): "{0}.encode()",
    ("bigint", "timestamp"): _call(casts.bigint_to_timestamp),
    ("double", "timestamp"): _call(casts.double_to_timestamp),
}

ENVIRONMENT: Final[dict[str, Any]] = {
    "out_of_range": numbers.out_of_range,
    "equal": numbers.equal,
    "less": numbers.less,
    "less_or_equal": numbers.less_or_equal,
}
"""The functions that templates name in their text."""


def template_of(operation: str, types: tuple[ColumnType, ...], result: ColumnType) -> Template:
    """The template of an operation for operands of these types, with a result of that type."""
    function = decimal_operation(operation, types, result)
    if function is not None:
        return Called(_name(operation, *types, result), function)
    templates = _TEMPLATES[operation]
    names = [each.kind for each in types]
    for key in (" ".join(names), *names[:1], "*"):
        if key in templates:
            return templates[key]
    raise KeyError(f"{operation} of {' '.join(names)}")


def cast_template(given: ColumnType, to: ColumnType) -> Template:
    """The template of a cast."""
    function = decimal_cast(given, to)
    return _CASTS[given.kind, to.kind] if function is None else Called(_name("cast", given, to), function)


def _name(operation: str, *types: ColumnType) -> str:
    """A name of Python for an operation on types with parameters: `add_decimal_10_2_decimal_5_0`."""
    return "_".join([operation, *re.findall(r"\w+", " ".join(map(str, types)))])
