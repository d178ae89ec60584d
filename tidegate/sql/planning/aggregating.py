"""GROUP BY, HAVING and aggregates: groups of rows in their windows, and expressions over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeGuard

from tidegate.sdk.data.columns import BOOLEAN, TIMESTAMP, VOID, Field, Schema
from tidegate.sdk.data.schema import schema_of
from tidegate.sdk.errors import BuildError, SqlError
from tidegate.sdk.relational.binding import Input, bound, is_aggregate
from tidegate.sdk.relational.expressions import Call, Column, Tree, mapped, walk
from tidegate.sdk.windowing.assigners import FixedWindows, SlidingWindows
from tidegate.sql.planning.body import Body, Item
from tidegate.sql.planning.context import Context, check_bounded, field_name
from tidegate.sql.planning.scope import Scope, fields_of
from tidegate.sql.planning.sorting import Ordering, numbered
from tidegate.sql.planning.subquery_joins import attached
from tidegate.sql.steps.relation import Named, Relation
from tidegate.sql.steps.rows import filtered, grouped, has_just, in_global_window, materialised, projected
from tidegate.sql.syntax.expressions import tree_of
from tidegate.sql.syntax.nodes import read, shown
from tidegate.sql.syntax.trees import substituted

_AGGREGATES = frozenset(("Count", "CountIf", "Sum", "Avg", "Min", "Max", "LogicalAnd", "LogicalOr"))


def is_aggregated(node: Any, items: Sequence[Item]) -> bool:
    """Whether a SELECT has groups: GROUP BY, HAVING, or an aggregate among its columns."""
    if node.args.get("group") is not None or node.args.get("having") is not None:
        return True
    return any(item.column is None and _has_aggregate(item.node) for item in items)


def _has_aggregate(node: Any) -> bool:
    if node.kind in _AGGREGATES:
        return True
    if node.kind in ("Select", "Window", "Subquery"):
        return False
    return any(map(_has_aggregate, node.children()))


@dataclass(slots=True)
class Aggregation:
    """A SELECT with groups. Its `items` have trees in which aggregates stand."""

    body: Body
    items: Sequence[Item]
    order: list[Ordering]
    keys: dict[str, Tree] = field(default_factory=dict)
    calls: dict[str, Tree] = field(default_factory=dict)


def aggregated(plan: Aggregation, rows: Callable[[dict[str, None]], Relation]) -> Relation:
    """The rows of the groups, with the columns of the SELECT. `rows` gives the rows to group, with certain fields."""
    body = plan.body
    node, context, scope = body.node, body.context, body.scope
    having_node = node.args.get("having")
    having = None if having_node is None else tree_of(read(having_node, "Having", "this", context.source).this, scope)
    order = []
    for each in plan.order:
        at = each.output([item.name for item in plan.items], context.source)
        if at is not None:
            order.append(replace(each, field=plan.items[at].field))
        else:
            order.append(replace(each, tree=tree_of(each.node, scope)))
    plan.order = order
    for each in _group(node, context):
        meant = _meant(each, plan, context)
        scope.tree(meant)  # checks it
        taken = [*plan.keys, *(other.field for other in scope.scalars)]
        plan.keys[field_name(_named(each, plan, scope), taken)] = tree_of(meant, scope)
    outputs = [item.value for item in plan.items] + ([] if having is None else [having])
    outputs += [each.tree for each in order if each.tree is not None]
    _name_calls(plan, outputs, scope)
    arguments = [part for call in plan.calls.values() if isinstance(call, Call) for part in call.arguments]
    later = _scalars_after(plan, outputs, scope)
    scope.scalars[:] = [each for each in scope.scalars if each not in later]
    relation = rows(fields_of([*plan.keys.values(), *arguments]))
    relation, windows = _windowed(plan, relation, node, context)
    made, late = _grouped(plan, relation, windows, node, context)
    if late is not None:
        context.late.found.append(late)
    if later and any(each.keys for each in later):
        raise context.refusal("a subquery in HAVING or among aggregates can't depend on the query around it", node)
    result = attached(made, later, context)
    return _outputs(plan, result, having, having_node, context, later)


def _group(node: Any, context: Context) -> list[Any]:
    group = node.args.get("group")
    if group is None:
        return []
    found = list(read(group, "Group", "expressions", context.source).expressions)
    if not found:
        raise context.refusal("GROUP BY needs at least one column or expression", node)
    return found


def _meant(node: Any, plan: Aggregation, context: Context) -> Any:
    """The expression that an element of GROUP BY means: a number is a column of SELECT, and so may be a name."""
    at = numbered(node, "GROUP BY", len(plan.items), context.source)
    if at is not None:
        return plan.items[at].node
    if node.kind == "Column" and not node.table and plan.body.scope.named(node) is None:
        for item in plan.items:
            if item.name.lower() == node.name.lower():
                return item.node
    return node


def _named(node: Any, plan: Aggregation, scope: Scope) -> str:
    """The name of the field of a key: that of its column, or of the column of SELECT that is equal to it."""
    meant = _meant(node, plan, plan.body.context)
    if meant.kind == "Column":
        found = scope.named(meant)
        return found.field if found is not None else str(meant.name)
    return next((item.field for item in plan.items if item.node.means_same(meant)), "key")


def _name_calls(plan: Aggregation, outputs: Sequence[Tree], scope: Scope) -> None:
    """Give each aggregate a field: the name of the column of SELECT that it is, or that of the aggregate."""
    names = {item.tree: item.field for item in plan.items}
    for tree in outputs:
        for each in walk(tree):
            if is_aggregate(each) and isinstance(each, Call) and each not in plan.calls.values():
                taken = [*plan.keys, *plan.calls, *(other.field for other in scope.scalars)]
                plan.calls[field_name(names.get(each, each.operation), taken)] = each


def _scalars_after(plan: Aggregation, outputs: Sequence[Tree], scope: Scope) -> list[Any]:
    """The subqueries whose values are needed only beside aggregates."""
    inside = fields_of([*plan.keys.values(), *plan.calls.values(), *plan.body.late_conditions])
    return [each for each in scope.scalars if each.field not in inside and each.field in fields_of(outputs)]


def _windowed(plan: Aggregation, relation: Relation, node: Any, context: Context) -> tuple[Relation, list[Named]]:
    """The rows in the windows in which they are grouped, and the keys that are bounds of these windows."""
    roles = {each.field: each for each in relation.columns if each.role is not None}
    bounds = [roles[tree.name] for tree in plan.keys.values() if isinstance(tree, Column) and tree.name in roles]
    if relation.windows == "none":
        check_bounded(relation, "an aggregate", node, context)
        return relation, []
    if relation.windows == "author":
        return relation, bounds
    kinds = {each.role for each in bounds}
    assigner = relation.rows.windowing.assigner
    one_is_enough = isinstance(assigner, (FixedWindows, SlidingWindows)) and bool(kinds)
    if {"window_start", "window_end"} <= kinds or one_is_enough:
        return relation, bounds
    if relation.windows == "session":
        raise context.refusal("a session is grouped by its columns, window_start and window_end", node)
    if not relation.rows.is_bounded:
        raise context.refusal(
            "this aggregate combines rows of all windows, so every row would update its results, which is not "
            "supported: add window_start and window_end to GROUP BY",
            node,
        )
    moved = in_global_window(relation, context.labels("Rows of all windows"))
    return moved, []


def _grouped(
    plan: Aggregation, relation: Relation, bounds: Sequence[Named], node: Any, context: Context
) -> tuple[Relation, Any]:
    roles = {each.field: each for each in bounds}
    bounded = {each.field: each.role for each in bounds}
    keys = {
        name: tree
        for name, tree in plan.keys.items()
        if not (isinstance(tree, Column) and tree.name in roles and roles[tree.name].virtual)
    }
    if relation.windows == "session":
        fields = {tree.name if isinstance(tree, Column) else "" for tree in keys.values()}
        if fields != set(relation.partition):
            wanted = ", ".join(relation.partition) or "no column"
            raise context.refusal(
                f"SESSION has PARTITION BY {wanted}, so its rows are grouped by that, window_start and window_end", node
            )
    every = [*keys.values(), *[part for call in plan.calls.values() for part in getattr(call, "arguments", ())]]
    relation = materialised(relation, fields_of(every), context.labels("Windows"))
    calls = dict(plan.calls)
    if keys and not calls:
        calls[field_name("n", plan.keys)] = Call("count", ())
    label = context.labels(f"GroupBy {', '.join(keys) or 'all'}")
    try:
        if not keys and not calls:
            raise context.refusal("a query grouped by its window alone needs an aggregate, such as COUNT(*)", node)
        rows, late = grouped(
            relation.rows, keys, calls, label, context.late.tag if relation.windows != "none" else None
        )
    except SqlError:
        raise
    except BuildError as error:
        raise context.refusal(str(error).partition("\n")[0], node) from None
    columns = [Named("", name, name, _role(tree, bounded)) for name, tree in keys.items()]
    columns += [
        Named("", name, name, roles[tree.name].role, virtual=True)
        for name, tree in plan.keys.items()
        if name not in keys and isinstance(tree, Column)
    ]
    known = [Named("", each.name, each.name) for each in _fields(rows) if each.name in plan.calls]
    # Sessions have merged, so that their bounds are those of any other windows from here on.
    windows = "function" if relation.windows == "session" else relation.windows
    return Relation(rows, (*columns, *known), windows), late


def _fields(rows: Any) -> Sequence[Field]:
    schema = schema_of(rows.element_type)
    return () if schema is None else schema.fields


def _outputs(
    plan: Aggregation, relation: Relation, having: Tree | None, having_node: Any, context: Context, scalars: Any
) -> Relation:
    """HAVING, and the columns of SELECT and ORDER BY over keys and aggregates."""
    # Keys and aggregates may have the names of columns that aren't grouped, so they are marked until these are refused.
    marked = {f"{_GROUPED}{name}": name for name in (*plan.keys, *plan.calls)}
    replacements = {tree: Column(f"{_GROUPED}{name}") for name, tree in (*plan.keys.items(), *plan.calls.items())}
    virtual = tuple(Field(each.field, TIMESTAMP, False) for each in relation.columns if each.virtual)
    input = Input(Schema((*_fields(relation.rows), *virtual)))
    known = {*marked, *(each.field for each in scalars)}

    def over_groups(tree: Tree, node: Any) -> Tree:
        made = substituted(tree, replacements)
        for name in fields_of([made]):
            if name not in known:
                raise context.refusal(
                    f"{shown(_column_of(node, name, plan))} has many values in a group: aggregate it, or add it to "
                    "GROUP BY",
                    _column_of(node, name, plan),
                )
        made = mapped(made, lambda each: Column(marked[each.name]) if _is_marked(each) else None)
        try:
            return bound(made, input)
        except BuildError as error:
            raise context.refusal(str(error), node) from None

    if having is not None:
        condition = over_groups(having, having_node.this)
        if condition.type not in (BOOLEAN, VOID):
            raise context.refusal(f"HAVING takes a condition, not a value of type {condition.type}", having_node)
        relation = materialised(relation, fields_of([condition]), context.labels("Windows"))
        relation = filtered(relation, condition, context.labels("Having"))
    columns: dict[str, Tree] = {item.field: over_groups(item.value, item.node) for item in plan.items}
    for number, key in enumerate(plan.order):
        if key.tree is not None:
            name = field_name(f"order_{number + 1}", columns)
            columns[name] = over_groups(key.tree, key.node)
            plan.order[number] = replace(key, field=name)
    relation = materialised(relation, fields_of(list(columns.values())), context.labels("Windows"))
    roles = {each.field: each.role for each in relation.columns}
    named = tuple(Named("", item.name, item.field, _role(columns[item.field], roles)) for item in plan.items)
    if has_just(relation, columns):
        return replace(relation, columns=named)
    return replace(relation, rows=projected(relation.rows, columns, context.labels("Select")), columns=named)


_GROUPED: Final = "grouped."


def _is_marked(tree: Tree) -> TypeGuard[Column]:
    return isinstance(tree, Column) and tree.name.startswith(_GROUPED)


def _role(tree: Tree, roles: Any) -> Any:
    return roles.get(tree.name) if isinstance(tree, Column) else None


def _column_of(node: Any, name: str, plan: Aggregation) -> Any:
    for each in node.find_all("Column"):
        found = plan.body.scope.named(each)
        if found is not None and found.field == name:
            return each
    return node
