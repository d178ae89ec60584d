"""Binding of casts, dates, times and intervals to trees of expressions."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any, Final

from tidegate.sdk.data.columns import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    STRING,
    TIMESTAMP,
    ColumnType,
    type_named,
)
from tidegate.sdk.relational.expressions import Cast, Literal, Tree, text
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.operations import TRUNCATING
from tidegate.sdk.relational.python.casts import string_to_date, string_to_timestamp
from tidegate.sql.syntax.handlers import HANDLERS, Names, call, reads, tree_of
from tidegate.sql.syntax.nodes import read, shown
from tidegate.sql.syntax.parse_tree import word_of
from tidegate.sql.syntax.table_functions import UNITS
from tidegate.sql.syntax.text import SqlText

_TYPES: Final[dict[str, ColumnType]] = {
    "BOOLEAN": BOOLEAN,
    "BIGINT": BIGINT,
    "DOUBLE": DOUBLE,
    "VARCHAR": STRING,
    "TEXT": STRING,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPTZ": TIMESTAMP,
    "TIMESTAMPLTZ": TIMESTAMP,
}


def type_of(node: Any, source: SqlText) -> ColumnType:
    """The type that a node names, `BIGINT` or `VARCHAR`. Raises SqlError for one that columns don't have."""
    name = str(getattr(node.this, "name", node.this))
    if name != "USERDEFINED":  # a name that sqlglot doesn't know
        read(node, "DataType", "this expressions", source)
    if name in ("DECIMAL", "NUMERIC"):
        return _decimal(node, source)
    found = _TYPES.get(name)
    if found is None:
        advice = {"INT": "write BIGINT", "SMALLINT": "write BIGINT", "TINYINT": "write BIGINT"}.get(
            name, "write DOUBLE" if name == "FLOAT" else f"the types are {', '.join(_TYPES)}, DECIMAL(p, s)"
        )
        raise source.refusal(f"the type {shown(node)} is not supported: {advice}", node)
    if node.expressions:
        raise source.refusal(f"the type {shown(node)} is not supported: write {str(found).upper()}", node)
    return found


def _decimal(node: Any, source: SqlText) -> ColumnType:
    """DECIMAL(p, s); without digits ten of them, none after the point."""
    given = [read(each, "DataTypeParam", "this", source).this for each in node.expressions]
    try:
        precision, scale = (*(int(str(each.this)) for each in given), *(10, 0)[len(given) :])
        return type_named(f"decimal({precision},{scale})")
    except ValueError:
        message = (
            f"the type {shown(node)} has no such digits: DECIMAL(p, s) has p of them, at most 38, and s after the point"
        )
        raise source.refusal(message, node) from None


@reads("Cast", args="this to")
def _cast(node: Any, names: Names) -> Tree:
    to = type_of(node.args["to"], names.source)
    operand = tree_of(node.this, names)
    match operand:
        case Literal(value=str(text)) if to in (DATE, TIMESTAMP):
            return _instant(text, to, node, names)
    return Cast(operand, to)


def _instant(text: str, type: ColumnType, node: Any, names: Names) -> Literal:
    try:
        return Literal(string_to_date(text) if type == DATE else string_to_timestamp(text), type)
    except ExpressionError as error:
        raise names.source.refusal(error.message, node) from None


def is_interval(node: Any) -> bool:
    return bool(node.kind == "Interval")


@reads("Interval", args="this unit")
def _interval(node: Any, names: Names) -> Tree:
    number, unit = _amount(node, names)
    if unit not in UNITS:
        message = f"{shown(node)}: months and years differ in length, so they can only be added to a date"
        raise names.source.refusal(message, node)
    try:
        return Literal(datetime.timedelta(microseconds=round(number * UNITS[unit])), INTERVAL)
    except OverflowError:
        raise names.source.refusal(f"{shown(node)} is too long", node) from None


_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def _amount(node: Any, names: Names) -> tuple[float, str]:
    """The number and unit of an interval."""
    HANDLERS.function(node, names.source)  # checks the arguments
    unit = word_of(node.args.get("unit")).upper().removesuffix("S")
    value = tree_of(node.this, names)
    if isinstance(value, Literal) and isinstance(value.value, (int, float, Decimal)):
        number = float(value.value)
    else:
        try:
            number = float(str(value.value)) if isinstance(value, Literal) else float("nan")
        except ValueError:
            number = float("nan")
    if not math.isfinite(number) or unit not in (*UNITS, *_MONTHS):
        raise names.source.refusal(f"{shown(node)} is no interval: write INTERVAL '10' MINUTES", node)
    return number, unit


def shifted(value: Tree, interval: Any, sign: int, names: Names) -> Tree:
    """A date or timestamp, moved by an interval."""
    number, unit = _amount(interval, names)
    is_date = names.type_of(value) == DATE
    days = {"DAY": 1, "WEEK": 7}.get(unit)
    if unit in _MONTHS or (days and is_date):
        count = number * _MONTHS.get(unit, days or 0) * sign
        if count != int(count):
            raise names.source.refusal(f"{shown(interval)} is no whole number", interval)
        if isinstance(value, Literal) and isinstance(value.value, datetime.date):
            try:
                return _moved(value, int(count), unit in _MONTHS)
            except (ValueError, OverflowError):
                message = f"{shown(interval)} moves {value.value} out of the years 1 to 9999"
                raise names.source.refusal(message, interval) from None
        if not is_date and names.type_of(value) == TIMESTAMP:
            advice = "write CAST(… AS DATE), which leaves the time of day out, or an interval of DAYs"
            raise names.source.refusal(
                f"{shown(interval)} moves dates, and {text(value)} is a timestamp: {advice}", interval
            )
        return call("add_months" if unit in _MONTHS else "add_days", value, Literal(int(count), BIGINT))
    return call("add" if sign > 0 else "subtract", value, tree_of(interval, names))


def _moved(value: Literal, count: int, months: bool) -> Tree:
    """A constant date, moved by months or days."""
    given = value.value
    if type(given) is not datetime.date:
        return call("add_months" if months else "add_days", value, Literal(count, BIGINT))
    if not months:
        return Literal(given + datetime.timedelta(days=count), DATE)
    year, month = divmod(given.year * 12 + given.month - 1 + count, 12)
    for day in range(given.day, 27, -1):
        try:
            return Literal(datetime.date(year, month + 1, day), DATE)
        except ValueError:
            continue
    return Literal(datetime.date(year, month + 1, given.day), DATE)


@reads("DateAdd", "DateSub", args="this expression")
def _date_moved(node: Any, names: Names) -> Tree:
    sign = 1 if node.kind == "DateAdd" else -1
    if is_interval(node.expression):
        return shifted(tree_of(node.this, names), node.expression, sign, names)
    days = tree_of(node.expression, names)
    return call("add_days", tree_of(node.this, names), days if sign > 0 else call("negate", days))


@reads("AddMonths", args="this expression")
def _months_added(node: Any, names: Names) -> Tree:
    return call("add_months", tree_of(node.this, names), tree_of(node.expression, names))


@reads("DateDiff", args="this expression")
def _days_between(node: Any, names: Names) -> Tree:
    return call("days_between", tree_of(node.this, names), tree_of(node.expression, names))


_PARTS: Final = {
    "YEAR": "year",
    "QUARTER": "quarter",
    "MONTH": "month",
    "DAY": "day",
    "DAYOFWEEK": "day_of_week",
    "DOW": "day_of_week",
    "DAYOFYEAR": "day_of_year",
    "DOY": "day_of_year",
    "HOUR": "hour",
    "MINUTE": "minute",
    "SECOND": "second",
}


@reads("Extract", args="this expression")
def _extract(node: Any, names: Names) -> Tree:
    part = word_of(node.this).upper()
    if part not in _PARTS:
        raise names.source.refusal(f"{shown(node)}: EXTRACT takes one of {', '.join(_PARTS)}", node)
    return call(_PARTS[part], tree_of(node.expression, names))


@reads("TimestampTrunc", "DateTrunc", args="this unit")
def _truncated(node: Any, names: Names) -> Tree:
    return _truncation(node, node.args["unit"], names)


@reads("Floor", args="this to")
def _floor(node: Any, names: Names) -> Tree:
    unit = node.args.get("to")  # FLOOR(at TO DAY), as Flink writes it
    if unit is None:
        return call("floor", tree_of(node.this, names))
    return _truncation(node, unit, names)


def _truncation(node: Any, given: Any, names: Names) -> Tree:
    unit = word_of(given).lower()
    if unit not in TRUNCATING:
        units = ", ".join(TRUNCATING).upper()
        raise names.source.refusal(f"{shown(node)}: the unit is one of {units}, and no column", node)
    return call("date_trunc", Literal(unit, STRING), tree_of(node.this, names))
