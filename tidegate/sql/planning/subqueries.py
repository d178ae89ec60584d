"""Subqueries: EXISTS and IN as semi and anti joins, and queries used as values as outer joins.

A subquery that depends on the query around it is joined by the equalities between both; EXISTS may have other
conditions as well. NULL in a NOT IN follows SQL: it is true of no row if the subquery has a NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tidegate.sdk.data.columns import BIGINT, Field
from tidegate.sdk.errors import BuildError
from tidegate.sdk.primitives import Map
from tidegate.sdk.relational.binding import bound_aggregate, is_aggregate
from tidegate.sdk.relational.expressions import Call, Cast, Column, Literal, Tree, column_names, mapped
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.operations import OPERATIONS
from tidegate.sdk.relational.relations import JoinKind as Kind
from tidegate.sql.planning.aggregating import Aggregation, aggregated, is_aggregated
from tidegate.sql.planning.body import Body, Item
from tidegate.sql.planning.context import Context, field_name
from tidegate.sql.planning.scope import OUTER, Scope, fields_of
from tidegate.sql.planning.selecting import body_of, finished, items_of, joined_rows
from tidegate.sql.planning.subquery_joins import Existence, without_outer
from tidegate.sql.steps.relation import Relation, Scalar
from tidegate.sql.steps.rows import grouped
from tidegate.sql.syntax.advice import JOIN_OF_WINDOWS
from tidegate.sql.syntax.expressions import tree_of
from tidegate.sql.syntax.nodes import read, shown


def existence_of(node: Any, context: Context, scope: Scope) -> Existence | None:
    """The condition that EXISTS, IN or their negation states; None for another node."""
    negated, inner = False, node
    while inner.kind in ("Not", "Paren"):
        negated ^= inner.kind == "Not"
        inner = inner.this
    kind: Kind = "anti" if negated else "semi"
    match inner.kind:
        case "Exists":
            read(inner, "Exists", "this", context.source)
            return _exists(inner, kind, context, scope)
        case "In" if inner.args.get("query") is not None:
            read(inner, "In", "this query", context.source)
            return _in(inner, kind, context, scope)
        case _:
            return None


def _query_of(node: Any, context: Context) -> Any:
    """The query in parentheses."""
    while node.kind == "Subquery":
        node = read(node, "Subquery", "this", context.source).this
    return node


def _exists(node: Any, kind: Kind, context: Context, scope: Scope) -> Existence:
    query = _query_of(node.this, context)
    if query.kind != "Select":
        return Existence(node, kind, _bounded(context.planner.plan(query, context, None), node, context), ())
    body = body_of(query, context, scope)
    items = items_of(body)
    if is_aggregated(query, items) and not query.args.get("group") and not query.args.get("having"):
        raise context.refusal("an aggregate without GROUP BY always has a row, so EXISTS is always true", node)
    if not body.correlated:
        return Existence(node, kind, _bounded(finished(body, items), node, context), ())
    if is_aggregated(query, items):
        raise context.refusal("a subquery that depends on the query around it can't be grouped here", node)
    _check_uncut(query, context)
    for item in items:
        if item.column is None:
            body.scope.tree(item.node)
    keys, rest = _correlation(body.correlated)
    inner = [name for tree in body.correlated for name in fields_of([tree]) if not name.startswith(OUTER)]
    relation = joined_rows(body, dict.fromkeys(inner))
    return Existence(node, kind, _bounded(relation, node, context), keys, rest)


def _check_uncut(query: Any, context: Context) -> None:
    """Raise SqlError for a part of a correlated subquery that would choose among its rows for each outer row."""
    for part in ("limit", "offset", "order"):
        if (clause := query.args.get(part)) is not None:
            message = f"{clause.kind.upper()} is not supported in a subquery that depends on the query around it"
            raise context.refusal(message, clause)
    if (given := query.args.get("distinct")) is not None:
        read(given, "Distinct", "", context.source)


def _in(node: Any, kind: Kind, context: Context, scope: Scope) -> Existence:
    query = _query_of(node.args["query"], context)
    left = scope.tree(node.this)
    if fields_of([left]) & dict.fromkeys(each.field for each in scope.scalars).keys():
        raise context.refusal("a query used as a value can't stand before IN (SELECT …): join it in FROM", node)
    if query.kind != "Select":
        relation = context.planner.plan(query, context, None)
        return _membership(node, kind, left, relation, context)
    body = body_of(query, context, scope)
    items = items_of(body)
    if not body.correlated:
        return _membership(node, kind, left, finished(body, items), context)
    if is_aggregated(query, items) or len(items) != 1:
        message = (
            "a subquery that depends on the query around it has one column and can't be grouped here: write EXISTS"
        )
        raise context.refusal(message, node)
    _check_uncut(query, context)
    value = body.scope.tree(items[0].node)
    keys, rest = _correlation(body.correlated)
    if kind == "anti" and (left.nullable or value.nullable):
        message = "NOT IN over values that may be NULL, in a subquery that depends on the query around it: write "
        raise context.refusal(message + "NOT EXISTS", node)
    inner = fields_of([value]) | dict.fromkeys(
        name for tree in body.correlated for name in fields_of([tree]) if not name.startswith(OUTER)
    )
    relation = _bounded(joined_rows(body, inner), node, context)
    return Existence(node, kind, relation, ((left, value), *keys), rest)


def _membership(node: Any, kind: Kind, left: Tree, relation: Relation, context: Context) -> Existence:
    columns = [each for each in relation.columns if not each.hidden]
    if len(columns) != 1:
        raise context.refusal(f"IN takes a query of one column, and this one has {len(columns)}", node)
    known = relation.schema.field(columns[0].field)
    null_aware = kind == "anti" and (left.nullable or known is None or known.nullable)
    relation = _bounded(relation, node, context)
    return Existence(node, kind, relation, ((left, Column(columns[0].field)),), (), null_aware)


def _bounded(relation: Relation, node: Any, context: Context) -> Relation:
    if not relation.rows.is_bounded:
        raise context.refusal(
            "this subquery reads an unbounded table, whose rows would have to be kept for ever. Join the stream with "
            f"the table around the subquery, if that is bounded; else join windows, {JOIN_OF_WINDOWS}",
            node,
        )
    if relation.windows != "none":
        message = "the rows of this subquery are divided into windows: here it has to read a table that isn't"
        raise context.refusal(message, node)
    return relation


def _correlation(trees: Sequence[Tree]) -> tuple[tuple[tuple[Tree, Tree], ...], tuple[Tree, ...]]:
    """The equalities of outer and inner expressions, with the outer fields' own names, and the other conditions."""
    keys, rest = [], []
    for tree in trees:
        match tree:
            case Call(operation="equal", arguments=(one, two)) if _side(one) != _side(two) and "both" not in (
                _side(one),
                _side(two),
            ):
                outer, inner = (one, two) if _side(one) == "outer" else (two, one)
                keys.append((without_outer(outer), inner))
            case _:
                rest.append(tree)
    return tuple(keys), tuple(rest)


def _side(tree: Tree) -> str:
    names = fields_of([tree])
    outer = [name for name in names if name.startswith(OUTER)]
    if not outer:
        return "inner" if names else "both"
    return "outer" if len(outer) == len(names) else "both"


# -- queries used as values


def scalar_of(node: Any, context: Context, scope: Scope) -> Scalar:
    """The value of a query. Raises SqlError unless it has one column, and at most one row for each outer row."""
    query = _query_of(node, context)
    field = field_name("value", scope.types)
    if query.kind != "Select":
        return _single(context.planner.plan(query, context, None), field, node, context)
    body = body_of(query, context, scope)
    items = items_of(body)
    if not body.correlated:
        is_one = is_aggregated(query, items) and query.args.get("group") is None
        relation = _bounded(finished(body, items), node, context)
        if not is_one:
            return _single(relation, field, node, context)
        known = _only_column(relation, node, context)
        return Scalar(relation, known.name, Field(field, known.type, True))
    return _correlated(body, items, field, node, context)


def _only_column(relation: Relation, node: Any, context: Context) -> Field:
    columns = [each for each in relation.columns if not each.hidden]
    known = relation.schema.field(columns[0].field) if len(columns) == 1 else None
    if known is None:
        raise context.refusal(f"a query used as a value has one column, and this one has {len(columns)}", node)
    return known


def _single(relation: Relation, field: str, node: Any, context: Context) -> Scalar:
    """The value of a query of at most one row; more are an error when the pipeline runs."""
    relation = _bounded(relation, node, context)
    known = _only_column(relation, node, context)
    label = context.labels("Value")
    calls: dict[str, Tree] = {"value": Call("max", (Column(known.name),)), "rows": Call("count", ())}
    totals, _ = grouped(relation.rows, {}, calls, f"{label} and count")
    rows = totals | Map(only_row, shown(node), name=label).with_output_types(totals.element_type)
    return Scalar(replace(relation, rows=rows), "value", Field(field, known.type, True))


def only_row(row: Any, query: str) -> Any:
    """The row, unless it counts more than one row of a query used as a value."""
    if row.rows > 1:
        raise ExpressionError(
            "SCALAR_SUBQUERY_TOO_MANY_ROWS", f"the query {query} is used as a value: it has many rows"
        )
    return row


def _correlated(body: Any, items: Any, field: str, node: Any, context: Context) -> Scalar:
    query = body.node
    keys, rest = _correlation(body.correlated)
    if not is_aggregated(query, items) or query.args.get("group") or query.args.get("having") or len(items) != 1:
        message = "a query used as a value that depends on the query around it has one column, an aggregate"
        raise context.refusal(message, node)
    _check_uncut(query, context)
    if rest:
        message = "a query used as a value is connected with the query around it by equalities only"
        raise context.refusal(message, node)
    value = items[0]
    value.tree = tree_of(value.node, body.scope)
    if any(name.startswith(OUTER) for name in fields_of([value.value])):
        message = (
            "a query used as a value may name columns of the query around it only in its WHERE: compute with them "
            "outside of it"
        )
        raise context.refusal(message, value.node)
    if_none = _value_of_no_rows(body, value)
    every = [value]
    plan = Aggregation(body, every, [])
    for number, (_, inner) in enumerate(keys):
        name = field_name(f"key_{number + 1}", [value.field, *plan.keys])
        plan.keys[name] = inner
        every.append(Item(name, name, query, None, inner))
    relation = aggregated(plan, lambda needed: _bounded(joined_rows(body, needed), node, context))
    known = relation.schema.field(value.field)
    assert known is not None
    pairs = tuple((outer, name) for (outer, _), name in zip(keys, plan.keys))
    return Scalar(relation, value.field, Field(field, known.type, True), pairs, if_none)


def _value_of_no_rows(body: Body, value: Item) -> Tree | None:
    """What an expression over aggregates gives for no rows; None if it is NULL. Raises SqlError if it isn't known.

    The value takes the place of a missing row by COALESCE, so it is refused where an existing row may have NULL.
    """
    inner = {each.field: Column(each.field, each.type.type, each.type.nullable) for each in body.scope.scalars}
    try:
        tree = bound_aggregate(value.value, body.scope.input, inner)
    except BuildError as error:
        raise body.context.refusal(str(error), value.node) from None
    if _is_null_of_no_rows(tree):
        return None
    made = mapped(tree, _aggregate_of_no_rows)
    if tree.nullable or column_names(made):
        message = (
            f"{shown(value.node)} may be NULL, and is another value where the subquery has no rows: write COALESCE"
        )
        raise body.context.refusal(f"{message}(…, value) around it", value.node)
    return made


def _is_null_of_no_rows(tree: Tree) -> bool:
    """Whether an expression over aggregates is certainly NULL if they have no rows."""
    match tree:
        case Call(operation=operation) if is_aggregate(tree):
            return operation not in _COUNTS
        case Call(operation=operation, arguments=arguments):
            return OPERATIONS[operation].nulls == "strict" and any(map(_is_null_of_no_rows, arguments))
        case Cast(operand=operand):
            return _is_null_of_no_rows(operand)
        case _:
            return False


def _aggregate_of_no_rows(tree: Tree) -> Tree | None:
    match tree:
        case Call(operation=operation, type=type) if is_aggregate(tree):
            return Literal(0, BIGINT) if operation in _COUNTS else Literal(None, type)
        case _:
            return None


_COUNTS: Final = ("count", "count_distinct")
