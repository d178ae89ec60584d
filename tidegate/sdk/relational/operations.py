"""The table of operations: for each its signatures, its rule for NULL, and whether it can fail.

The meaning of every operation is that of Spark in ANSI mode and UTC. An operation is in the table only if each back end
has it, and if a test compares it with Spark in values and errors.

A signature is written `bigint bigint -> bigint`. `T` stands for one comparable type, the same in all its places; `any`
for a type of its own in each place; `T*`, the last parameter, for any number of arguments; and `string!` for a literal.
An argument may be cast implicitly: a bigint to decimal or double, a decimal to double, a date to timestamp, and NULL to
any type. There is no implicit cast between strings and other types. `decimal` stands for decimals of any digits, those
of the result following from them (`decimal_types`); a signature with it needs an argument that is one. `array`, `map`
and `struct`, which are first parameters, stand for those of any parts; `item` for the type of the array's items, `key`
and `value` for those of the map's keys and values, and `field` for that of the struct's field that the literal names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Nulls: TypeAlias = Literal["strict", "never", "own"]
"""Strict: NULL exactly if an argument is NULL. Never: not NULL. Own: the operation has a rule of its own."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a signature: a type, `T` or `any`; `literal` if its argument has to be a literal."""

    type: str
    literal: bool = False
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of an operation's parameters and of its result."""

    parameters: tuple[Parameter, ...]
    result: str

    @property
    def takes(self) -> str:
        """The types of its arguments for a message: `bigint, literal bigint`, or `T, T, …`."""
        shown = (("literal " if each.literal else "") + each.type for each in self.parameters if not each.repeated)
        more = ["…"] if any(each.repeated for each in self.parameters) else []
        return ", ".join([*shown, *more]) or "nothing"


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the table.

    `fails`: it may raise an error for arguments of the right types. `last_first`: its arguments are evaluated from the
    last to the first. `rounded`: back ends may differ in the last digits. `of_window`: its value is that of the
    element's window.
    """

    name: str
    signatures: tuple[Signature, ...]
    summary: str
    nulls: Nulls = "strict"
    fails: bool = False
    last_first: bool = False
    rounded: bool = False
    aggregate: bool = False
    of_window: bool = False


COMPARABLE: Final = ("boolean", "bigint", "decimal", "double", "string", "date", "timestamp", "interval", "binary")
"""The types that `T` stands for."""


def _parameter(word: str) -> Parameter:
    return Parameter(word.rstrip("!*"), literal="!" in word, repeated=word.endswith("*"))


def _signature(text: str) -> Signature:
    parameters, _, result = text.partition("->")
    return Signature(tuple(map(_parameter, parameters.split())), result.strip())


def _row(
    name: str,
    signatures: str,
    summary: str,
    nulls: Nulls = "strict",
    *,
    fails: bool = False,
    last_first: bool = False,
    rounded: bool = False,
    aggregate: bool = False,
    of_window: bool = False,
) -> Operation:
    made = tuple(map(_signature, signatures.split(",")))
    return Operation(name, made, summary, nulls, fails, last_first, rounded, aggregate, of_window)


_NUMBERS: Final = "bigint bigint -> bigint, decimal decimal -> decimal, double double -> double"
_NUMBER: Final = "bigint -> bigint, decimal -> decimal, double -> double"

_ROWS: Final = (
    # arithmetic
    _row(
        "add",
        f"{_NUMBERS}, timestamp interval -> timestamp, interval interval -> interval",
        "The sum; an error outside the range of the type.",
        fails=True,
    ),
    _row(
        "subtract",
        f"{_NUMBERS}, timestamp timestamp -> interval, timestamp interval -> timestamp, interval interval -> interval",
        "The difference; an error outside the range of the type.",
        fails=True,
    ),
    _row("multiply", _NUMBERS, "The product; an error outside the range of the type.", fails=True),
    _row(
        "divide",
        "decimal decimal -> decimal, double double -> double",
        "The quotient, which of two bigints is a double; an error for a divisor of 0.",
        fails=True,
        last_first=True,
    ),
    _row(
        "div",
        "bigint bigint -> bigint",
        "The quotient without its fraction, truncated towards 0; an error for a divisor of 0.",
        fails=True,
        last_first=True,
    ),
    _row(
        "remainder",
        _NUMBERS,
        "The remainder of the truncated quotient, with the sign of the dividend; an error for a divisor of 0.",
        fails=True,
        last_first=True,
    ),
    _row("negate", _NUMBER, "The number with the other sign.", fails=True),
    _row("abs", _NUMBER, "The number without its sign.", fails=True),
    _row(
        "floor",
        "bigint -> bigint, decimal -> decimal, double -> bigint",
        "The greatest whole number that is not greater; 0 for NaN.",
        fails=True,
    ),
    _row(
        "ceil",
        "bigint -> bigint, decimal -> decimal, double -> bigint",
        "The least whole number that is not less; 0 for NaN.",
        fails=True,
    ),
    _row(
        "round",
        "bigint bigint! -> bigint, decimal bigint! -> decimal, double bigint! -> double",
        "The number rounded to that number of decimal digits; a half is rounded away from 0.",
        fails=True,
    ),
    _row("sqrt", "double -> double", "The square root; NaN for a negative number."),
    _row("exp", "double -> double", "The exponential.", rounded=True),
    _row("ln", "double -> double", "The natural logarithm; NULL for 0 and negative numbers.", "own", rounded=True),
    _row("power", "double double -> double", "The first number to the power of the second.", rounded=True),
    # comparison
    _row("equal", "T T -> boolean", "Whether both are equal: NaN equals NaN, and -0.0 equals 0.0."),
    _row("not_equal", "T T -> boolean", "Whether both differ."),
    _row("less", "T T -> boolean", "Whether the first is less: false before true, and NaN after all other doubles."),
    _row("less_or_equal", "T T -> boolean", "Whether the first is less, or both are equal."),
    _row("greater", "T T -> boolean", "Whether the first is greater."),
    _row("greater_or_equal", "T T -> boolean", "Whether the first is greater, or both are equal."),
    _row("not_distinct", "T T -> boolean", "Whether both are equal or both NULL; never NULL itself.", "never"),
    _row(
        "is_in",
        "T T!* -> boolean",
        "Whether the first equals one of the literals; if not, NULL if the first or one of them is NULL.",
        "own",
    ),
    _row("greatest", "T T T* -> T", "The greatest argument that is not NULL; NULL if all are.", "own"),
    _row("least", "T T T* -> T", "The least argument that is not NULL; NULL if all are.", "own"),
    # logic and NULL
    _row("and", "boolean boolean -> boolean", "False if one is false, else NULL if one is NULL, else true.", "own"),
    _row("or", "boolean boolean -> boolean", "True if one is true, else NULL if one is NULL, else false.", "own"),
    _row("not", "boolean -> boolean", "The negation; NULL for NULL."),
    _row("is_null", "any -> boolean", "Whether it is NULL.", "never"),
    _row("is_nan", "double -> boolean", "Whether it is NaN; false for NULL.", "never"),
    _row("coalesce", "T T* -> T", "The first argument that is not NULL; NULL if all are.", "own"),
    # arrays, maps, structs
    _row(
        "part",
        "array bigint -> item, map key -> value, struct string! -> field",
        "The item at an index from 0, an error outside the array; the value of a key, NULL without it; a field.",
        "own",
        fails=True,
    ),
    _row("size", "array -> bigint, map -> bigint", "The number of items or keys."),
    _row(
        "array_contains",
        "array item -> boolean",
        "Whether the second is an item of the first; if not, NULL if an item is NULL.",
        "own",
    ),
    # strings
    _row("length", "string -> bigint", "The number of code points."),
    _row("upper", "string -> string", "The string in upper case."),
    _row("lower", "string -> string", "The string in lower case."),
    _row("concat", "string string string* -> string", "The strings one after another."),
    _row(
        "substring",
        "string bigint bigint -> string",
        "That many code points from a position: 1 is the first, -1 the last.",
    ),
    _row("trim", "string -> string", "The string without spaces at both ends."),
    _row("ltrim", "string -> string", "The string without spaces at its beginning."),
    _row("rtrim", "string -> string", "The string without spaces at its end."),
    _row("replace", "string string string -> string", "The string with the third in place of each second."),
    _row("position", "string string -> bigint", "Where the second first occurs in the first, counted from 1; else 0."),
    _row("contains", "string string -> boolean", "Whether the second occurs in the first."),
    _row("starts_with", "string string -> boolean", "Whether the first begins with the second."),
    _row("ends_with", "string string -> boolean", "Whether the first ends with the second."),
    _row(
        "like",
        "string string! -> boolean",
        "Whether the pattern matches all of it: `%` any text, `_` a code point, `\\` escapes either.",
    ),
    _row("reverse", "string -> string", "The code points in reverse order."),
    _row(
        "split_part",
        "string string bigint -> string",
        "That part of the first between the seconds: 1 is the first part, -1 the last; empty if there are fewer.",
        fails=True,
    ),
    _row(
        "regexp_extract",
        "string string! bigint! -> string",
        "What a group of the first match of the regular expression is, 0 being all of it; empty without one.",
    ),
    # dates and times
    _row("year", "date -> bigint, timestamp -> bigint", "The year."),
    _row("quarter", "date -> bigint, timestamp -> bigint", "The quarter of the year, from 1."),
    _row("month", "date -> bigint, timestamp -> bigint", "The month, from 1."),
    _row("day", "date -> bigint, timestamp -> bigint", "The day of the month."),
    _row("day_of_week", "date -> bigint, timestamp -> bigint", "The day of the week: 1 is Sunday, 7 Saturday."),
    _row("day_of_year", "date -> bigint, timestamp -> bigint", "The day of the year, from 1."),
    _row("hour", "timestamp -> bigint", "The hour in UTC."),
    _row("minute", "timestamp -> bigint", "The minute."),
    _row("second", "timestamp -> bigint", "The whole second."),
    _row(
        "date_trunc",
        "string! timestamp -> timestamp",
        "The beginning of the year, quarter, month, week, day, hour, minute or second.",
    ),
    _row(
        "date_format", "timestamp string! -> string", "The instant in UTC, written by a pattern such as `yyyy-MM-dd`."
    ),
    _row(
        "add_months",
        "date bigint -> date",
        "The date that many months later, or the last day of a shorter month.",
        fails=True,
    ),
    _row("add_days", "date bigint -> date", "The date that many days later.", fails=True),
    _row("days_between", "date date -> bigint", "The number of days from the second date to the first."),
    _row("unix_micros", "timestamp -> bigint", "The microseconds since 1970."),
    _row("timestamp_micros", "bigint -> timestamp", "The instant that many microseconds after 1970.", fails=True),
    # windows
    _row("window_start", "-> timestamp", "The first instant of the element's window.", "never", of_window=True),
    _row("window_end", "-> timestamp", "The end of the element's window, which is not in it.", "never", of_window=True),
    _row("window_time", "-> timestamp", "The last instant of the element's window.", "never", of_window=True),
    # aggregates
    _row("count", "-> bigint, any -> bigint", "The number of rows, or of values.", "never", aggregate=True),
    _row("count_distinct", "T -> bigint", "The number of different values.", "never", aggregate=True),
    _row(
        "sum",
        _NUMBER,
        "The sum of the values; an error outside the range of the type.",
        "own",
        fails=True,
        rounded=True,
        aggregate=True,
    ),
    _row(
        "avg",
        "bigint -> double, decimal -> decimal, double -> double",
        "The mean.",
        "own",
        fails=True,
        rounded=True,
        aggregate=True,
    ),
    _row(
        "sum_distinct",
        _NUMBER,
        "The sum of the different values; an error outside the range of the type.",
        "own",
        fails=True,
        rounded=True,
        aggregate=True,
    ),
    _row(
        "avg_distinct",
        "bigint -> double, decimal -> decimal, double -> double",
        "The mean of the different values.",
        "own",
        fails=True,
        rounded=True,
        aggregate=True,
    ),
    _row("min", "T -> T", "The least value.", "own", aggregate=True),
    _row("max", "T -> T", "The greatest value.", "own", aggregate=True),
    _row("bool_and", "boolean -> boolean", "Whether all values are true.", "own", aggregate=True),
    _row("bool_or", "boolean -> boolean", "Whether some value is true.", "own", aggregate=True),
)

OPERATIONS: Final[dict[str, Operation]] = {row.name: row for row in _ROWS}
"""The operations by name. Values of all aggregates are those that are not NULL."""

TRUNCATING: Final = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
"""The units of `date_trunc`."""

CASTS: Final[dict[tuple[str, str], bool]] = {
    ("bigint", "decimal"): True,
    ("bigint", "double"): False,
    ("bigint", "string"): False,
    ("bigint", "boolean"): False,
    ("bigint", "timestamp"): True,
    ("decimal", "bigint"): True,
    ("decimal", "decimal"): True,
    ("decimal", "double"): False,
    ("decimal", "string"): False,
    ("decimal", "boolean"): False,
    ("decimal", "timestamp"): True,
    ("double", "bigint"): True,
    ("double", "decimal"): True,
    ("double", "string"): False,
    ("double", "boolean"): False,
    ("double", "timestamp"): True,
    ("boolean", "bigint"): False,
    ("boolean", "decimal"): True,
    ("boolean", "double"): False,
    ("boolean", "string"): False,
    ("string", "bigint"): True,
    ("string", "decimal"): True,
    ("string", "double"): True,
    ("string", "boolean"): True,
    ("string", "date"): True,
    ("string", "timestamp"): True,
    ("string", "binary"): False,
    ("date", "string"): False,
    ("date", "timestamp"): False,
    ("timestamp", "date"): False,
    ("timestamp", "string"): False,
    ("timestamp", "bigint"): False,
    ("timestamp", "decimal"): True,
    ("timestamp", "double"): False,
}
"""The casts between different types, and whether they may fail. Those to decimals fail for too few digits."""

NULLING: Final = frozenset({("double", "decimal")})
"""The casts that give NULL for some values."""

IMPLICIT: Final = frozenset({("bigint", "decimal"), ("bigint", "double"), ("decimal", "double"), ("date", "timestamp")})
"""The casts that are inserted where a parameter's type asks for them."""
