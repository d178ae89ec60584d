"""`tg.fn`: the operations that have no operator, and the aggregates.

A string that is the first argument is the name of a column, and any other string is a literal: `tg.fn.sum("price")` is
`tg.fn.sum(tg.col("price"))`, and `tg.fn.coalesce("city", "unknown")` has a literal. All strings given to `concat` are
literals, and both given to `days_between` are columns.
"""

from __future__ import annotations

from typing import Any

from tidegate.sdk.data.columns import VOID
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.relational.authoring import Expression, When, col, literal, tree_of
from tidegate.sdk.relational.expressions import Call, Case, Literal, Tree
from tidegate.sdk.relational.operations import TRUNCATING


def when(condition: Any, value: Any) -> When:
    """CASE: the value if the condition is true; see `When.when` and `When.otherwise` for the other branches."""
    return When(((tree_of(condition), tree_of(value)),))


def coalesce(*values: Any) -> Expression:
    """The first value that is not NULL; later ones are not evaluated."""
    return _some("coalesce", 1, values)


def nullif(value: Any, other: Any) -> Expression:
    """NULL if both are equal, else the value."""
    tree = _column(value)
    return Expression(Case(((Call("equal", (tree, tree_of(other))), Literal(None, VOID)),), tree))


def greatest(*values: Any) -> Expression:
    """The greatest value that is not NULL; NaN is greater than all other doubles."""
    return _some("greatest", 2, values)


def least(*values: Any) -> Expression:
    """The least value that is not NULL."""
    return _some("least", 2, values)


def is_nan(value: Any) -> Expression:
    """Whether a double is NaN; false for NULL."""
    return _of("is_nan", value)


# -- numbers


def div(dividend: Any, divisor: Any) -> Expression:
    """The quotient of two bigints without its fraction, truncated towards 0; an error for a divisor of 0."""
    return _of("div", dividend, divisor)


def floor(number: Any) -> Expression:
    """The greatest whole number that is not greater, as a bigint."""
    return _of("floor", number)


def ceil(number: Any) -> Expression:
    """The least whole number that is not less, as a bigint."""
    return _of("ceil", number)


def round(number: Any, digits: int = 0) -> Expression:
    """A double rounded to that number of decimal digits (tens for -1); a half is rounded away from 0."""
    return _of("round", number, digits)


def sqrt(number: Any) -> Expression:
    """The square root; NaN for a negative number."""
    return _of("sqrt", number)


def exp(number: Any) -> Expression:
    """The exponential."""
    return _of("exp", number)


def ln(number: Any) -> Expression:
    """The natural logarithm; NULL for 0 and for negative numbers."""
    return _of("ln", number)


def power(base: Any, exponent: Any) -> Expression:
    """The base to the power of the exponent, as a double."""
    return _of("power", base, exponent)


# -- strings


def length(string: Any) -> Expression:
    """The number of code points."""
    return _of("length", string)


def upper(string: Any) -> Expression:
    """The string in upper case."""
    return _of("upper", string)


def lower(string: Any) -> Expression:
    """The string in lower case."""
    return _of("lower", string)


def concat(*strings: Any) -> Expression:
    """The strings one after another; NULL if one is NULL. A `str` is a literal."""
    if len(strings) < 2:
        raise BuildError("tg.fn.concat takes at least two strings")
    return Expression(Call("concat", tuple(map(tree_of, strings))))


def substring(string: Any, start: Any, length: Any = 2**31 - 1) -> Expression:
    """`length` code points from `start`: 1 is the first, -1 the last."""
    return _of("substring", string, start, length)


def trim(string: Any) -> Expression:
    """The string without spaces at both ends."""
    return _of("trim", string)


def ltrim(string: Any) -> Expression:
    """The string without spaces at its beginning."""
    return _of("ltrim", string)


def rtrim(string: Any) -> Expression:
    """The string without spaces at its end."""
    return _of("rtrim", string)


def replace(string: Any, old: Any, new: Any = "") -> Expression:
    """The string with `new` in place of each `old`."""
    return _of("replace", string, old, new)


def position(string: Any, part: Any) -> Expression:
    """Where `part` first occurs in the string, counted from 1; 0 if it does not."""
    return _of("position", string, part)


def contains(string: Any, part: Any) -> Expression:
    """Whether `part` occurs in the string."""
    return _of("contains", string, part)


def starts_with(string: Any, part: Any) -> Expression:
    """Whether the string begins with `part`."""
    return _of("starts_with", string, part)


def ends_with(string: Any, part: Any) -> Expression:
    """Whether the string ends with `part`."""
    return _of("ends_with", string, part)


def reverse(string: Any) -> Expression:
    """The code points in reverse order."""
    return _of("reverse", string)


def split_part(string: Any, separator: Any, part: Any) -> Expression:
    """One of the parts of the string between separators: 1 is the first, -1 the last; "" if there are fewer."""
    return _of("split_part", string, separator, part)


def regexp_extract(string: Any, pattern: str, group: int = 1) -> Expression:
    """A group of the first match of a regular expression, 0 being all that matches; "" without a match.

    The pattern has the syntax that Java and Python share. Raises BuildError for a pattern that means different things,
    such as one with look-around or a back-reference.
    """
    return Expression(Call("regexp_extract", (_column(string), literal(pattern), literal(group))))


# -- arrays and maps


def size(value: Any) -> Expression:
    """The number of items of an array, or of keys of a map."""
    return _of("size", value)


def array_contains(array: Any, item: Any) -> Expression:
    """Whether an array has an item; NULL if it has not, but has NULLs."""
    return _of("array_contains", array, item)


# -- dates and times


def year(at: Any) -> Expression:
    """The year of a date or an instant in UTC."""
    return _of("year", at)


def quarter(at: Any) -> Expression:
    """The quarter of the year, from 1."""
    return _of("quarter", at)


def month(at: Any) -> Expression:
    """The month, from 1."""
    return _of("month", at)


def day(at: Any) -> Expression:
    """The day of the month."""
    return _of("day", at)


def day_of_week(at: Any) -> Expression:
    """The day of the week: 1 is Sunday, 7 is Saturday."""
    return _of("day_of_week", at)


def day_of_year(at: Any) -> Expression:
    """The day of the year, from 1."""
    return _of("day_of_year", at)


def hour(at: Any) -> Expression:
    """The hour of an instant in UTC."""
    return _of("hour", at)


def minute(at: Any) -> Expression:
    """The minute of an instant."""
    return _of("minute", at)


def second(at: Any) -> Expression:
    """The whole second of an instant."""
    return _of("second", at)


def date_trunc(unit: str, at: Any) -> Expression:
    """The beginning of the unit that an instant is in: "year", "quarter", "month", "week" (from Monday), "day", "hour",
    "minute" or "second"."""
    if unit not in TRUNCATING:
        raise BuildError(f"tg.fn.date_trunc: the unit is one of {', '.join(TRUNCATING)}, not {shorten(unit)}")
    return Expression(Call("date_trunc", (literal(unit), _column(at))))


def date_format(at: Any, pattern: str) -> Expression:
    """An instant in UTC as a string: `yyyy`, `MM`, `dd`, `HH`, `mm`, `ss`, `SSS` stand for its parts, as in Java.

    Letters that stand for themselves are in single quotes. Raises BuildError for other letters.
    """
    return Expression(Call("date_format", (_column(at), literal(pattern))))


def add_months(date: Any, months: Any) -> Expression:
    """The date that many months later, or the last day of a month that is shorter."""
    return _of("add_months", date, months)


def add_days(date: Any, days: Any) -> Expression:
    """The date that many days later."""
    return _of("add_days", date, days)


def days_between(end: Any, start: Any) -> Expression:
    """The number of days from the date `start` to the date `end`."""
    return Expression(Call("days_between", (_column(end), _column(start))))


def unix_micros(at: Any) -> Expression:
    """The microseconds from 1970 to an instant."""
    return _of("unix_micros", at)


def timestamp_micros(micros: Any) -> Expression:
    """The instant that many microseconds after 1970."""
    return _of("timestamp_micros", micros)


# -- windows


def window_start() -> Expression:
    """The first instant of the element's window. Refused for elements in the global window."""
    return Expression(Call("window_start", ()), "window_start")


def window_end() -> Expression:
    """The end of the element's window, the first instant that is not in it."""
    return Expression(Call("window_end", ()), "window_end")


def window_time() -> Expression:
    """The last instant of the element's window, a microsecond before its end."""
    return Expression(Call("window_time", ()), "window_time")


# -- aggregates


def count(value: Any = None) -> Expression:
    """The number of values that are not NULL; without a value, the number of rows."""
    return Expression(Call("count", ())) if value is None else _of("count", value)


def count_distinct(value: Any) -> Expression:
    """The number of different values that are not NULL."""
    return _of("count_distinct", value)


def sum_distinct(value: Any) -> Expression:
    """The sum of the different values; NULL if there is none, and an error if it is out of range for bigint."""
    return _of("sum_distinct", value)


def avg_distinct(value: Any) -> Expression:
    """The mean of the different values as a double; NULL if there is none."""
    return _of("avg_distinct", value)


def sum(value: Any) -> Expression:
    """The sum of the values; NULL if there is none, and an error if it is out of range for bigint."""
    return _of("sum", value)


def avg(value: Any) -> Expression:
    """The mean of the values as a double; NULL if there is none."""
    return _of("avg", value)


def min(value: Any) -> Expression:
    """The least value; NULL if there is none."""
    return _of("min", value)


def max(value: Any) -> Expression:
    """The greatest value; NULL if there is none."""
    return _of("max", value)


def bool_and(value: Any) -> Expression:
    """Whether all values are true; NULL if there is none."""
    return _of("bool_and", value)


def bool_or(value: Any) -> Expression:
    """Whether a value is true; NULL if there is none."""
    return _of("bool_or", value)


__all__ = [
    "when",
    "coalesce",
    "nullif",
    "greatest",
    "least",
    "is_nan",
    "div",
    "floor",
    "ceil",
    "round",
    "sqrt",
    "exp",
    "ln",
    "power",
    "length",
    "upper",
    "lower",
    "concat",
    "substring",
    "trim",
    "ltrim",
    "rtrim",
    "replace",
    "position",
    "contains",
    "starts_with",
    "ends_with",
    "reverse",
    "split_part",
    "regexp_extract",
    "size",
    "array_contains",
    "year",
    "quarter",
    "month",
    "day",
    "day_of_week",
    "day_of_year",
    "hour",
    "minute",
    "second",
    "date_trunc",
    "date_format",
    "add_months",
    "add_days",
    "days_between",
    "unix_micros",
    "timestamp_micros",
    "window_start",
    "window_end",
    "window_time",
    "count",
    "count_distinct",
    "sum_distinct",
    "avg_distinct",
    "sum",
    "avg",
    "min",
    "max",
    "bool_and",
    "bool_or",
]


def _column(value: Any) -> Tree:
    """A string as the name of a column, any other value as an expression or a literal."""
    return col(value).tree if isinstance(value, str) else tree_of(value)


def _of(operation: str, first: Any, *others: Any) -> Expression:
    """A call whose first argument, if it is a string, names a column."""
    return Expression(Call(operation, (_column(first), *map(tree_of, others))))


def _some(operation: str, least: int, values: tuple[Any, ...]) -> Expression:
    if len(values) < least:
        raise BuildError(f"tg.fn.{operation} takes at least {'one value' if least == 1 else 'two values'}")
    return Expression(Call(operation, (_column(values[0]), *map(tree_of, values[1:]))))
