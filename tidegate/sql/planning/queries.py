"""Planning of queries: SELECT, set operations, and queries in parentheses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tidegate.sdk.data.columns import BIGINT, Schema
from tidegate.sdk.data.row import Row
from tidegate.sdk.data.schema import with_schema
from tidegate.sdk.errors import BuildError, SqlError, TypeCheckError
from tidegate.sdk.primitives import Flatten
from tidegate.sdk.relational.binding import bound_alike
from tidegate.sdk.relational.expressions import Call, Column, Literal, Tree
from tidegate.sql.planning.context import Context, Planner, field_name, with_tables
from tidegate.sql.planning.scope import Scope
from tidegate.sql.planning.selecting import made_distinct, selected, times_of
from tidegate.sql.planning.sorting import orderings, sorted_rows
from tidegate.sql.planning.subqueries import existence_of, scalar_of
from tidegate.sql.steps.relation import Named, Relation
from tidegate.sql.steps.rows import filtered, grouped, has_just, in_global_window, materialised, projected
from tidegate.sql.syntax.advice import JOIN_OF_WINDOWS
from tidegate.sql.syntax.nodes import read, shown

_SET_OPERATIONS: Final = ("Union", "Intersect", "Except")


def planned(node: Any, context: Context, outer: Scope | None = None) -> Relation:
    """The relation of a query; `outer` is the scope of the query around a subquery. Raises SqlError."""
    try:
        return _planned(node, context, outer)
    except SqlError:
        raise
    except BuildError as error:  # of a step of the query, which knows no place in the text
        raise context.refusal(str(error).partition("\n")[0], node) from None


def _planned(node: Any, context: Context, outer: Scope | None) -> Relation:
    match node.kind:
        case "Select":
            return selected(node, context, outer)
        case "Subquery":
            read(node, "Subquery", "this", context.source)
            return planned(node.this, context, outer)
        case kind if kind in _SET_OPERATIONS:
            return _set_operation(node, kind, context)
    raise context.refusal(f"{shown(node)} is no query: write SELECT … FROM …", node)


PLANNER: Final = Planner(planned, existence_of, scalar_of)


def _set_operation(node: Any, kind: str, context: Context) -> Relation:
    read(node, kind, "with_ this expression distinct order limit offset", context.source)
    context = with_tables(node, context)
    one, two = _aligned(planned(node.this, context), planned(node.expression, context), node, context)
    if kind == "Union":
        found = _united(one, two, node, context)
        if node.args.get("distinct"):
            found = made_distinct(found, node, context)
    elif not node.args.get("distinct"):
        raise context.refusal(f"{kind.upper()} ALL is not supported: write {kind.upper()}", node)
    else:
        found = _compared(one, two, kind, node, context)
    keys = []
    for each in orderings(node, context):
        at = each.output([column.name for column in found.columns], context.source)
        if at is None:
            raise context.refusal(f"{kind.upper()} is sorted by its columns", each.node)
        keys.append(replace(each, field=found.columns[at].field))
    return sorted_rows(found, keys, node, context)


def _aligned(one: Relation, two: Relation, node: Any, context: Context) -> tuple[Relation, Relation]:
    """Both relations with the fields of the first, cast to the types that they have in common."""
    lefts = [each for each in one.columns if not each.hidden]
    rights = [each for each in two.columns if not each.hidden]
    if len(lefts) != len(rights):
        raise context.refusal(f"one query has {len(lefts)} columns, and the other {len(rights)}", node)
    left_columns: dict[str, Tree] = {}
    right_columns: dict[str, Tree] = {}
    for left, right in zip(lefts, rights):
        a, b = one.schema.field(left.field), two.schema.field(right.field)
        assert a is not None
        assert b is not None
        both = Column(left.field, a.type, a.nullable), Column(right.field, b.type, b.nullable)
        try:
            first, second = bound_alike(both, "the columns")
        except TypeCheckError:
            message = f"the column {left.name} is of type {a.type} in one query, and of type {b.type} in the other"
            raise context.refusal(f"{message}: write CAST", node) from None
        name = field_name(left.name, left_columns)
        left_columns[name], right_columns[name] = first, second
    names = [Named("", each.name, name, each.role) for each, name in zip(lefts, left_columns)]
    same = [replace(each, role=each.role if each.role == other.role else None) for each, other in zip(names, rights)]
    made = []
    for relation, columns in ((one, left_columns), (two, right_columns)):
        relation = materialised(relation, {each.field: None for each in relation.columns}, context.labels("Windows"))
        rows = relation.rows
        if not has_just(relation, columns):
            rows = projected(rows, columns, context.labels("Columns"))
        made.append(replace(relation, rows=rows, columns=tuple(same), times=times_of(columns, relation)))
    return made[0], made[1]


def _united(one: Relation, two: Relation, node: Any, context: Context) -> Relation:
    from tidegate.sdk.windowing.strategy import compatible

    if compatible(one.rows.windowing, two.rows.windowing) is not None:
        for each in (one, two):
            if each.windows != "none" and not each.rows.is_bounded:
                raise context.refusal("both queries of a UNION have the same windows", node)
        one = in_global_window(one, context.labels("Rows of all windows"))
        two = in_global_window(two, context.labels("Rows of all windows"))
    fields = [replace(a, nullable=a.nullable or b.nullable) for a, b in zip(one.schema.fields, two.schema.fields)]
    made: Any = (one.rows, two.rows) | Flatten().with_label(context.labels("Union"))
    made.pipeline.retype(made, with_schema(Row, Schema(tuple(fields))))
    times = two.times if one.times is None else one.times if two.times is None else one.times & two.times
    return replace(one, rows=made, times=times)


def _instead(second_is_bounded: bool, excepts: bool) -> str:
    """What to write in place of EXCEPT or INTERSECT over a stream."""
    if second_is_bounded:
        return f"Write WHERE {'NOT ' if excepts else ''}EXISTS (SELECT …), with a condition for each column"
    join, kept = ("LEFT JOIN", ", and keep the rows WHERE r.window_start IS NULL") if excepts else ("JOIN", "")
    windows = f"a {join} of windows, {JOIN_OF_WINDOWS} AND …, for each column that is compared"
    return f"Write SELECT DISTINCT over {windows}{kept}"


def _compared(one: Relation, two: Relation, kind: str, node: Any, context: Context) -> Relation:
    """The distinct rows of the first query that the second one has, or that it doesn't have."""
    name = kind.upper()
    if not (one.rows.is_bounded and two.rows.is_bounded):
        raise context.refusal(
            f"{name} over an unbounded table would have to keep all rows for ever, which is not supported. "
            f"{_instead(two.rows.is_bounded, kind == 'Except')}",
            node,
        )
    one = in_global_window(one, context.labels("Rows of all windows"))
    two = in_global_window(two, context.labels("Rows of all windows"))
    fields = [each.field for each in one.columns]
    side = field_name("side", fields)
    sides = []
    for number, relation in enumerate((one, two)):
        columns: dict[str, Tree] = {field: Column(field) for field in fields}
        columns[side] = Literal(number, BIGINT)
        rows = projected(relation.rows, columns, context.labels(f"{name} side"))
        sides.append(replace(relation, rows=rows))
    both = _united(sides[0], sides[1], node, context)
    least, most = field_name("least", fields), field_name("most", fields)
    calls: dict[str, Tree] = {least: Call("min", (Column(side),)), most: Call("max", (Column(side),))}
    groups, _ = grouped(both.rows, {field: Column(field) for field in fields}, calls, context.labels(name))
    wanted = 1 if kind == "Intersect" else 0
    conditions = Call(
        "and",
        (
            Call("equal", (Column(least), Literal(0, BIGINT))),
            Call("equal", (Column(most), Literal(wanted, BIGINT))),
        ),
    )
    found = filtered(replace(one, rows=groups), conditions, context.labels(f"{name} rows"))
    rows = projected(found.rows, {field: Column(field) for field in fields}, context.labels("Columns"))
    return replace(found, rows=rows)
