"""Binding of functions and aggregates to trees of expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidegate.sdk.data.columns import BIGINT, BOOLEAN, VOID
from tidegate.sdk.relational.expressions import Case, Literal, Tree
from tidegate.sql.syntax.handlers import HANDLERS, Names, call, reads, tree_of
from tidegate.sql.syntax.nodes import read, shown

_FUNCTIONS: Final = {
    "Abs": "abs",
    "Ceil": "ceil",
    "Sqrt": "sqrt",
    "Exp": "exp",
    "Ln": "ln",
    "IsNan": "is_nan",
    "ArraySize": "size",
    "Length": "length",
    "Upper": "upper",
    "Lower": "lower",
    "Reverse": "reverse",
    "Year": "year",
    "Quarter": "quarter",
    "Month": "month",
    "Day": "day",
    "DayOfMonth": "day",
    "DayOfWeek": "day_of_week",
    "DayOfYear": "day_of_year",
    "Hour": "hour",
    "Minute": "minute",
    "Second": "second",
    "UnixMicros": "unix_micros",
}


@reads(*_FUNCTIONS, args="this")
def _function(node: Any, names: Names) -> Tree:
    return call(_FUNCTIONS[node.kind], tree_of(node.this, names))


_OF_TWO: Final = {
    "StartsWith": "starts_with",
    "EndsWith": "ends_with",
    "Contains": "contains",
    "ArrayContains": "array_contains",
}


@reads(*_OF_TWO, args="this expression")
def _of_two(node: Any, names: Names) -> Tree:
    return call(_OF_TWO[node.kind], tree_of(node.this, names), tree_of(node.expression, names))


@reads("StrPosition", args="this substr")
def _position(node: Any, names: Names) -> Tree:
    return call("position", tree_of(node.this, names), tree_of(node.args["substr"], names))


@reads("Round", args="this decimals")
def _round(node: Any, names: Names) -> Tree:
    digits = node.args.get("decimals")
    return call("round", tree_of(node.this, names), Literal(0, BIGINT) if digits is None else tree_of(digits, names))


@reads("Coalesce", args="this expressions")
def _of_many(node: Any, names: Names) -> Tree:
    return call(node.kind.lower(), tree_of(node.this, names), *[tree_of(each, names) for each in node.expressions])


@reads("Greatest", "Least", args="this expressions ignore_nulls")
def _extreme(node: Any, names: Names) -> Tree:
    if "ignore_nulls" in node.declared and not node.args.get("ignore_nulls"):
        raise names.source.refusal(f"{shown(node)}: NULLs are left out, as Spark does it", node)
    return _of_many(node, names)


@reads("Concat", args="expressions safe")
def _concat(node: Any, names: Names) -> Tree:
    return call("concat", *[tree_of(each, names) for each in node.expressions])


@reads("DPipe", args="this expression safe")
def _concat_operator(node: Any, names: Names) -> Tree:
    return call("concat", tree_of(node.this, names), tree_of(node.expression, names))


@reads("Substring", args="this start length")
def _substring(node: Any, names: Names) -> Tree:
    length = node.args.get("length")
    return call(
        "substring",
        tree_of(node.this, names),
        tree_of(node.args["start"], names),
        Literal(2**31 - 1, BIGINT) if length is None else tree_of(length, names),
    )


@reads("Trim", args="this position")
def _trim(node: Any, names: Names) -> Tree:
    side = str(node.args.get("position") or "BOTH").upper()
    return call({"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "trim"), tree_of(node.this, names))


@reads("Replace", args="this expression replacement")
def _replace(node: Any, names: Names) -> Tree:
    parts = (node.this, node.expression, node.args.get("replacement"))
    if parts[2] is None:
        raise names.source.refusal("REPLACE takes a string, what to replace in it, and the replacement", node)
    return call("replace", *[tree_of(each, names) for each in parts])


@reads("SplitPart", args="this delimiter part_index")
def _split_part(node: Any, names: Names) -> Tree:
    parts = [node.args.get(name) for name in ("this", "delimiter", "part_index")]
    if None in parts:
        raise names.source.refusal("SPLIT_PART takes a string, a separator and a number", node)
    return call("split_part", *[tree_of(each, names) for each in parts])


@reads("RegexpExtract", args="this expression position")
def _regexp_extract(node: Any, names: Names) -> Tree:
    group = node.args.get("position")  # sqlglot's name for the third argument, which is the group in Spark and Flink
    return call(
        "regexp_extract",
        tree_of(node.this, names),
        tree_of(node.expression, names),
        Literal(1, BIGINT) if group is None else tree_of(group, names),
    )


_OF_SOME_DIALECTS: Final = {
    "DATE_FORMAT": "date_format",
    "CARDINALITY": "size",
    "SIZE": "size",
    "TIMESTAMP_MICROS": "timestamp_micros",
}
"""Functions that sqlglot knows in other dialects only."""


@reads("Anonymous", args="this expressions")
def _anonymous(node: Any, names: Names) -> Tree:
    arguments = tuple(tree_of(each, names) for each in node.expressions)
    name = str(node.this)
    operation = _OF_SOME_DIALECTS.get(name.upper())
    if operation is not None and not names.has_function(name):
        return call(operation, *arguments)
    return names.call(node, name, arguments)


# -- aggregates

_AGGREGATES: Final = {
    "Sum": "sum",
    "Avg": "avg",
    "Min": "min",
    "Max": "max",
    "LogicalAnd": "bool_and",
    "LogicalOr": "bool_or",
}


@reads("Count", args="this big_int")
def _count(node: Any, names: Names) -> Tree:
    return _aggregate(node, names, None)


@reads(*_AGGREGATES, args="this")
def _aggregated(node: Any, names: Names) -> Tree:
    return _aggregate(node, names, None)


@reads("CountIf")
def _count_if(node: Any, names: Names) -> Tree:
    return call("count", Case(((tree_of(node.this, names), Literal(True, BOOLEAN)),), Literal(None, VOID)))


@reads("Filter", args="this expression")
def _filtered(node: Any, names: Names) -> Tree:
    HANDLERS.function(node.this, names.source)  # checks the arguments
    if node.this.kind not in ("Count", *_AGGREGATES):
        raise names.source.refusal(f"{shown(node.this)} takes no FILTER: it is no aggregate", node)
    condition = read(node.expression, "Where", "this", names.source).this
    return _aggregate(node.this, names, tree_of(condition, names))


def _aggregate(node: Any, names: Names, condition: Tree | None) -> Tree:
    """An aggregate over the rows for which a condition is true."""
    kind, argument = node.kind, node.args.get("this")
    if argument is None or argument.kind == "Star":
        if kind != "Count":
            raise names.source.refusal(f"{shown(node)} needs a column", node)
        return call("count") if condition is None else call("count", _where(condition, Literal(True, BOOLEAN)))
    operation = "count" if kind == "Count" else _AGGREGATES[kind]
    if argument.kind == "Distinct":
        read(argument, "Distinct", "expressions", names.source)
        argument = _only(argument.expressions, node, names)
        operation = _DISTINCT.get(operation, operation)
    value = tree_of(argument, names)
    return call(operation, value if condition is None else _where(condition, value))


_DISTINCT: Final = {"count": "count_distinct", "sum": "sum_distinct", "avg": "avg_distinct"}
"""The aggregates that equal values change."""


def _where(condition: Tree, value: Tree) -> Tree:
    return Case(((condition, value),), Literal(None, VOID))


def _only(nodes: Sequence[Any], node: Any, names: Names) -> Any:
    if len(nodes) != 1:
        raise names.source.refusal(f"{shown(node)}: DISTINCT takes one column", node)
    return nodes[0]
