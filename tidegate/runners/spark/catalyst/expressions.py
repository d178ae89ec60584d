"""The Spark SQL of each operation, literal and cast. Spark parses the text into Catalyst expressions.

Values and errors are those of the operations' Python in a session in ANSI mode and UTC. Where Spark goes further, the
text refuses what Python refuses: dates and instants outside the years 1 to 9999.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from tidegate.sdk.data.columns import BIGINT, VOID, ArrayType, ColumnType, DecimalType, MapType, StructType, is_scalar
from tidegate.sdk.relational.binding import may_fail
from tidegate.sdk.relational.expressions import Call, Case, Cast, Column, Literal, Tree, parts
from tidegate.sdk.relational.operations import NULLING, OPERATIONS

START: Final = "tidegate: start"
END: Final = "tidegate: end"
"""The columns that have the bounds of a row's window, in microseconds since 1970."""

_TEXTS: Final[dict[str, str]] = {
    "add": "({0} + {1})",
    "subtract": "({0} - {1})",
    "multiply": "({0} * {1})",
    "divide": "({0} / {1})",
    "div": "({0} DIV {1})",
    "remainder": "({0} % {1})",
    "negate": "(- {0})",
    "abs": "abs({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "round": "round({0}, {1})",
    "sqrt": "sqrt({0})",
    "exp": "exp({0})",
    "ln": "ln({0})",
    "power": "power({0}, {1})",
    "equal": "({0} = {1})",
    "not_equal": "({0} <> {1})",
    "less": "({0} < {1})",
    "less_or_equal": "({0} <= {1})",
    "greater": "({0} > {1})",
    "greater_or_equal": "({0} >= {1})",
    "not_distinct": "({0} <=> {1})",
    "greatest": "greatest({*})",
    "least": "least({*})",
    "and": "({0} AND {1})",
    "or": "({0} OR {1})",
    "not": "(NOT {0})",
    "is_null": "({0} IS NULL)",
    "is_nan": "isnan({0})",
    "coalesce": "coalesce({*})",
    "length": "CAST(char_length({0}) AS BIGINT)",
    "concat": "concat({*})",
    "trim": "trim({0})",
    "ltrim": "ltrim({0})",
    "rtrim": "rtrim({0})",
    "replace": "replace({0}, {1}, {2})",
    "position": "CAST(instr({0}, {1}) AS BIGINT)",
    "contains": "contains({0}, {1})",
    "starts_with": "startswith({0}, {1})",
    "ends_with": "endswith({0}, {1})",
    "like": "({0} LIKE {1})",
    "reverse": "reverse({0})",
    "size": "CAST(size({0}) AS BIGINT)",
    "array_contains": "array_contains({0}, {1})",
    "date_format": "date_format({0}, {1})",
    "year": "CAST(year({0}) AS BIGINT)",
    "quarter": "CAST(quarter({0}) AS BIGINT)",
    "month": "CAST(month({0}) AS BIGINT)",
    "day": "CAST(day({0}) AS BIGINT)",
    "day_of_week": "CAST(dayofweek({0}) AS BIGINT)",
    "day_of_year": "CAST(dayofyear({0}) AS BIGINT)",
    "hour": "CAST(hour({0}) AS BIGINT)",
    "minute": "CAST(minute({0}) AS BIGINT)",
    "second": "CAST(second({0}) AS BIGINT)",
    "date_trunc": "date_trunc({0}, {1})",
    "days_between": "CAST(datediff({0}, {1}) AS BIGINT)",
    "unix_micros": "unix_micros({0})",
    "timestamp_micros": "timestamp_micros({0})",
    "window_start": f"timestamp_micros(`{START}`)",
    "window_end": f"timestamp_micros(`{END}`)",
    "window_time": f"timestamp_micros(`{END}` - 1L)",
    "count_distinct": "count(DISTINCT {0})",
    "sum": "sum({0})",
    "sum_distinct": "sum(DISTINCT {0})",
    "min": "min({0})",
    "max": "max({0})",
    "bool_and": "bool_and({0})",
    "bool_or": "bool_or({0})",
}
"""The text of each operation that is a template: `{0}`, `{1}`, … are its arguments, `{*}` all of them."""


def _as_int(tree: Tree, text: str, most: int) -> str:
    """A bigint as an int of Spark, of at most `most` and at least `-most - 1`."""
    match tree:
        case Literal(value=int(value)):
            return f"({min(max(value, -most - 1), most)})"
        case _:
            # Not a NULL for the first branch: Spark would push a constant operand beside it into the branches, and not
            # compute the constant, which may fail, for rows without a number.
            return f"CAST(IF({text} IS NULL, {text}, greatest(least({text}, {most}L), {-most - 1}L)) AS INT)"


_MAX_INT: Final = 2**31 - 1
_MONTHS: Final = 240_000
_DAYS: Final = 8_000_000
"""More than there are between the years 1 and 9999, and few enough for Spark to compute with."""


def _substring(call: Call, text: Sequence[str]) -> str:
    start, length = (_as_int(call.arguments[k], text[k], _MAX_INT) for k in (1, 2))
    return f"substring({text[0]}, {start}, {length})"


def _add_months(call: Call, text: Sequence[str]) -> str:
    return f"add_months({text[0]}, {_as_int(call.arguments[1], text[1], _MONTHS)})"


def _add_days(call: Call, text: Sequence[str]) -> str:
    return f"date_add({text[0]}, {_as_int(call.arguments[1], text[1], _DAYS)})"


def _split_part(call: Call, text: Sequence[str]) -> str:
    return f"split_part({text[0]}, {text[1]}, {_as_int(call.arguments[2], text[2], _MAX_INT)})"


def _regexp_extract(call: Call, text: Sequence[str]) -> str:
    return f"regexp_extract({text[0]}, {text[1]}, {_as_int(call.arguments[2], text[2], _MAX_INT)})"


def _upper_or_lower(call: Call, text: Sequence[str]) -> str:
    match call.arguments:
        case (Call(operation="upper" | "lower"),):  # Spark would compute the outer one alone, but lower(upper(ß)) is ss
            return f"{call.operation}(concat({text[0]}, ''))"
        case _:
            return f"{call.operation}({text[0]})"


def _is_in(call: Call, text: Sequence[str]) -> str:
    if str(call.arguments[0].type) == "double":  # a long list is a set of Java's, in which the zeros differ
        text = [f"({each} + 0.0D)" for each in text]
    return f"({text[0]} IN ({', '.join(text[1:])}))"


def _count(call: Call, text: Sequence[str]) -> str:
    return f"count({text[0] if text else 1})"


def _avg(call: Call, text: Sequence[str]) -> str:
    """Spark would add bigints as doubles, and lose those that a greater one hides until it is subtracted again."""
    (x,) = text
    if call.arguments[0].type != BIGINT:
        return f"avg({x})"
    # The sums of the upper and of the lower halves are whole numbers that doubles have, but for gigantic ones.
    upper, lower = f"sum(CAST(shiftright({x}, 32) AS DOUBLE))", f"sum(CAST({x} & 4294967295L AS DOUBLE))"
    return f"(({upper} * 4294967296D + {lower}) / count({x}))"


def _avg_distinct(call: Call, text: Sequence[str]) -> str:
    (x,) = text
    if call.arguments[0].type != BIGINT:
        return f"avg(DISTINCT {x})"
    exact = f"CAST({x} AS DECIMAL(38, 0))"
    return f"(CAST(sum(DISTINCT {exact}) AS DOUBLE) / count(DISTINCT {exact}))"


def _part(call: Call, text: Sequence[str]) -> str:
    of, key = call.arguments
    match of.type:
        case StructType():
            assert isinstance(key, Literal)
            return f"({text[0]}).{quoted(str(key.value))}"
        case ArrayType():
            return f"{text[0]}[{_as_int(key, text[1], _MAX_INT)}]"
        case _:
            return f"{text[0]}[{text[1]}]"


def _round(call: Call, text: Sequence[str]) -> str:
    digits = call.arguments[1]
    assert isinstance(digits, Literal)
    return f"round({text[0]}, {digits.value})"


_SPECIAL: Final[dict[str, Callable[[Call, Sequence[str]], str]]] = {
    "substring": _substring,
    "split_part": _split_part,
    "regexp_extract": _regexp_extract,
    "add_months": _add_months,
    "add_days": _add_days,
    "upper": _upper_or_lower,
    "lower": _upper_or_lower,
    "is_in": _is_in,
    "count": _count,
    "avg": _avg,
    "avg_distinct": _avg_distinct,
    "part": _part,
    "round": _round,
}

OPERATIONS_OF_SPARK: Final = frozenset((*_TEXTS, *_SPECIAL))
"""The operations that have a text."""

_LEAVES_THE_CALENDAR: Final = frozenset({"add", "subtract", "add_months", "add_days", "timestamp_micros"}) | {
    "window_start",
    "window_end",
    "window_time",
}
"""The operations whose result may be outside the years 1 to 9999 if it is a date or a timestamp."""


def spark_type(type: ColumnType) -> str:
    """The name of a type in Spark."""
    match type:
        case ArrayType(element=element):
            return f"array<{spark_type(element)}>"
        case MapType(key=key, value=value):
            return f"map<{spark_type(key)},{spark_type(value)}>"
        case StructType(fields=fields):
            return f"struct<{','.join(f'{quoted(each.name)}:{spark_type(each.type)}' for each in fields)}>"
    return "interval day to second" if str(type) == "interval" else str(type)


def has_spark_type(type: ColumnType) -> bool:
    """Whether Spark has a type: scalars, and what is made of such."""
    match type:
        case ArrayType(element=element):
            return has_spark_type(element)
        case MapType(key=key, value=value):
            return has_spark_type(key) and has_spark_type(value)
        case StructType(fields=fields):
            names = {each.name.lower() for each in fields}
            return len(names) == len(fields) > 0 and all(has_spark_type(each.type) for each in fields)
    return is_scalar(type)


def sql(tree: Tree, name: Callable[[Column], str] | None = None) -> str:
    """The text of a bound tree, of the tree's type. `name` gives the text of a column: its quoted name by default."""
    match tree:
        case Column():
            return quoted(tree.name) if name is None else name(tree)
        case Literal():
            return literal(tree)
        case Cast(operand=operand, type=type):
            return f"CAST({sql(operand, name)} AS {spark_type(type)})"
        case Case(branches=branches, otherwise=otherwise):
            whens = " ".join(f"WHEN {sql(condition, name)} THEN {sql(value, name)}" for condition, value in branches)
            return f"CASE {whens} ELSE {sql(otherwise, name)} END"
        case Call(operation=operation, arguments=arguments, type=type):
            texts = [_in_place(tree, k, sql(each, name), name) for k, each in enumerate(arguments)]
            if operation in _SPECIAL:
                text = _SPECIAL[operation](tree, texts)
            else:
                template = _TEXTS[operation]
                text = template.replace("{*}", ", ".join(texts)) if "{*}" in template else template.format(*texts)
            return _in_calendar(text, str(type), "DATETIME_OVERFLOW") if _may_leave_the_calendar(tree) else text


def _in_calendar(text: str, type: str, condition: str) -> str:
    """A date or timestamp that is refused outside the years 1 to 9999.

    Not with BETWEEN, whose operand Spark computes in a projection of its own, for all rows.
    """
    refused = f"CAST(raise_error('[{condition}] the result is outside the years 1 to 9999') AS {type})"
    return f"IF(abs(year({text}) - 5000) > 4999, {refused}, {text})"


def _may_leave_the_calendar(call: Call) -> bool:
    return call.operation in _LEAVES_THE_CALENDAR and str(call.type) in ("date", "timestamp")


def _in_place(call: Call, k: int, text: str, name: Callable[[Column], str] | None) -> str:
    """An operand, which Spark computes only for rows where those before it are not NULL, if it may fail.

    Spark does so by itself, unless a part of the operand occurs more than once: then it is computed once, before all
    others (subexpression elimination), but for parts in a branch of a conditional.
    """
    tests = [f"{sql(each, name)} IS NOT NULL" for each in _nulls_before(call, k)]
    return f"IF({' AND '.join(dict.fromkeys(tests))}, {text}, NULL)" if tests else text


def _nulls_before(call: Call, k: int) -> list[Tree]:
    """Parts of which one is NULL if an operand that is evaluated before another one, which may fail, is NULL."""
    operation = OPERATIONS[call.operation]
    if not may_fail(call.arguments[k]) or not (operation.nulls == "strict" or call.operation in _ON_PARTS):
        return []
    before = call.arguments[:k:-1] if operation.last_first else call.arguments[:k]
    return [part for each in before for part in _nulls_of(each)]


_ON_PARTS: Final = ("part", "array_contains")
"""Operations with a NULL rule of their own that, as strict ones, evaluate nothing after a NULL."""


def _nulls_of(tree: Tree) -> list[Tree]:
    """The smallest parts of an expression which is NULL exactly if one of them is."""
    match tree:
        case _ if not tree.nullable:
            return []
        case Cast(operand=operand, type=type) if (operand.type.kind, type.kind) not in NULLING:
            return _nulls_of(operand)
        case Call(operation=name, arguments=arguments) if OPERATIONS[name].nulls == "strict":
            order = arguments[::-1] if OPERATIONS[name].last_first else arguments
            return [part for each in order for part in _nulls_of(each)]
        case _:
            return [tree]


_TO_INSTANTS: Final = ("string", "bigint", "decimal", "double")
_OTHER_CASTS: Final = frozenset({("string", "date"), *((of, "timestamp") for of in _TO_INSTANTS)})
"""The casts with which Spark goes beyond the years 1 to 9999, or reads texts that have no date or a zone by name."""

_DEEPEST: Final = 5
"""How many of the operations that repeat their text may be inside each other."""


def fits(tree: Tree) -> bool:
    """Whether Spark computes a bound tree: its types and operations, and how often its text repeats itself."""
    return _repeats(tree) <= _DEEPEST


def _repeats(tree: Tree) -> int:
    if tree.type != VOID and not has_spark_type(tree.type):
        return _DEEPEST + 1
    inner = max(map(_repeats, parts(tree)), default=0)
    match tree:
        case Call(operation=operation) if operation not in OPERATIONS_OF_SPARK:
            return _DEEPEST + 1
        case Call(operation=operation):
            repeats = operation in ("substring", "split_part", "add_months", "add_days")
            repeats |= operation == "part" and not isinstance(tree.arguments[1], Literal)
            before = (each for k in range(len(tree.arguments)) for each in _nulls_before(tree, k))
            repeats |= not all(isinstance(each, Column) for each in before)
            return inner + repeats + _may_leave_the_calendar(tree)
        case Call(operation="round", arguments=(_, Literal(value=int(digits)))) if abs(digits) > _MAX_INT:
            return _DEEPEST + 1
        case Cast(operand=operand, type=type) if (operand.type.kind, type.kind) in _OTHER_CASTS:
            return _DEEPEST + 1
        case _:
            return inner


# -- names and literals


def quoted(name: str) -> str:
    """The name of a column, as one identifier whatever its characters are."""
    return "`" + name.replace("`", "``") + "`"


def literal(tree: Literal) -> str:
    """The text of a constant."""
    value, type = tree.value, spark_type(tree.type)
    if value is None:
        return "NULL" if type == "void" else f"CAST(NULL AS {type})"
    if isinstance(tree.type, DecimalType):
        return f"CAST({value:f}BD AS {type})"
    return _LITERALS[str(tree.type)](value)


def _bigint(value: int) -> str:
    if value == -(2**63):
        return f"CAST('{value}' AS BIGINT)"
    return f"({value}L)" if value < 0 else f"{value}L"


def _double(value: float) -> str:
    if not math.isfinite(value):
        return f"CAST('{value}' AS DOUBLE)"
    return f"({value!r}D)" if math.copysign(1.0, value) < 0 else f"{value!r}D"


def _string(value: str) -> str:
    """A string as it is if no way of reading literals could change it, nor a variable's value, else as its bytes."""
    if value.isascii() and value.isprintable() and not set(value) & set("'\\$"):
        return f"'{value}'"
    return f"CAST({_binary(value.encode())} AS STRING)"


def _binary(value: bytes) -> str:
    return f"X'{value.hex()}'"


def _timestamp(value: datetime.datetime) -> str:
    at = value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
    return f"TIMESTAMP '{at}Z'"


def _interval(value: datetime.timedelta) -> str:
    seconds, micros = divmod(abs(value) // datetime.timedelta(microseconds=1), 10**6)
    days, seconds = divmod(seconds, 86_400)
    sign = "-" if value < datetime.timedelta(0) else ""
    time = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    return f"INTERVAL '{sign}{days} {time}' DAY TO SECOND"


_LITERALS: Final[dict[str, Callable[[Any], str]]] = {
    "boolean": lambda value: str(value).upper(),
    "bigint": _bigint,
    "double": _double,
    "string": _string,
    "binary": _binary,
    "date": lambda value: f"DATE '{value.isoformat()}'",
    "timestamp": _timestamp,
    "interval": _interval,
}
