"""SELECT: from its tables and conditions to the rows that it emits, one step for each operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidegate.sdk.data.columns import BOOLEAN, VOID, Field
from tidegate.sdk.relational.expressions import Call, Column, Tree
from tidegate.sql.planning.aggregating import Aggregation, aggregated, is_aggregated
from tidegate.sql.planning.body import Body, Item
from tidegate.sql.planning.context import Context, check_bounded, field_name, with_tables
from tidegate.sql.planning.from_clause import join_sources, sources_of
from tidegate.sql.planning.ranking import is_row_number, ranked
from tidegate.sql.planning.scope import Scope, fields_of, outer_fields
from tidegate.sql.planning.sorting import Ordering, orderings, sorted_rows
from tidegate.sql.planning.sources import last_that_pads_all, types_of, visible_columns
from tidegate.sql.planning.subquery_joins import attached, filtered_by
from tidegate.sql.steps.relation import Named, Relation
from tidegate.sql.steps.rows import distinct, filtered, has_just, in_global_window, materialised, projected
from tidegate.sql.steps.user_functions import Computed, with_results
from tidegate.sql.syntax.expressions import tree_of
from tidegate.sql.syntax.nodes import read, shown
from tidegate.sql.syntax.trees import conjuncts, implied

ARGUMENTS = "with_ expressions from_ joins where group having distinct order limit offset"
"""The arguments of a SELECT that are read."""


def selected(node: Any, context: Context, outer: Scope | None = None) -> Relation:
    """The relation of a SELECT. Raises SqlError if it reads columns of an outer query where it can't."""
    body = body_of(node, context, outer)
    items = items_of(body)
    if body.correlated:
        raise context.refusal("this query may not depend on the query around it", node)
    return finished(body, items)


def body_of(node: Any, context: Context, outer: Scope | None) -> Body:
    """The tables and conditions of a SELECT, bound."""
    read(node, "Select", ARGUMENTS, context.source)
    context = with_tables(node, context)
    sources = sources_of(node, context)
    body: Body

    def user_function(scope: Scope, call: Any, name: str, arguments: tuple[Tree, ...]) -> Tree:
        function = context.user_functions.get(name.lower())
        if function is None:
            known = ", ".join(context.user_functions) or "none"
            message = f"there is no function {name}; functions={{…}} of tg.Sql has {known}"
            raise context.refusal(message, call)
        known_call = next(
            (each for each in body.calls if each.function is function and each.arguments == arguments), None
        )
        if known_call is None:
            made = field_name(name.lower(), scope.types)
            known_call = Computed(made, function, arguments)
            body.calls.append(known_call)
            scope.types[made] = Field(made, function.type)
        return Column(known_call.field)

    scope = Scope(
        context.source,
        visible_columns(sources),
        types_of(sources),
        context.parameters,
        context.used,
        lambda query, within: context.planner.scalar(query, context, within),
        user_function,
        context.user_functions,
        outer,
    )
    body = Body(node, context, scope, sources)
    where = node.args.get("where")
    if where is not None:
        _add_conditions(body, read(where, "Where", "this", context.source).this)
    for number, source in enumerate(sources):
        _add_on(body, number, source)
    return body


def _parts(node: Any) -> list[Any]:
    """The conditions that AND connects."""
    match node.kind:
        case "And":
            return [*_parts(node.this), *_parts(node.expression)]
        case "Paren":
            inner = _parts(node.this)
            return inner if len(inner) > 1 else [node]
        case _:
            return [node]


def _add_conditions(body: Body, node: Any) -> None:
    for part in _parts(node):
        existence = body.context.planner.existence(part, body.context, body.scope)
        if existence is not None:
            body.existences.append(existence)
            continue
        tree = condition_of(part, body.scope)
        for each in conjuncts(tree):
            if outer_fields(each):
                body.correlated.append(each)
            elif _is_late(body, each):
                body.late_conditions.append(each)
            else:
                body.conditions += [other for other in implied(each) if other not in body.conditions]
                body.conditions.append(each)


def _is_late(body: Body, tree: Tree) -> bool:
    """Whether a condition reads values that are computed once the tables are joined."""
    later = {each.field for each in body.scope.scalars} | {each.field for each in body.calls}
    return bool(later & fields_of([tree]).keys())


def condition_of(node: Any, scope: Scope) -> Tree:
    """The tree of a condition. Raises SqlError if it is no boolean."""
    tree = scope.tree(node)
    if tree.type not in (BOOLEAN, VOID):
        raise scope.source.refusal(f"{shown(node)} is a condition, and of type {tree.type}", node)
    return tree


def _add_on(body: Body, number: int, source: Any) -> None:
    trees: list[Tree] = []
    if source.on is not None:
        scalars = len(body.scope.scalars)
        for part in _parts(source.on):
            for each in conjuncts(condition_of(part, body.scope)):
                trees += [other for other in implied(each) if other not in trees]
                trees.append(each)
        if len(body.scope.scalars) > scalars or any(map(outer_fields, trees)) or _is_late_any(body, trees):
            message = (
                "ON takes conditions on the joined tables, without subqueries and functions of yours: write them in "
                "WHERE, or make columns of their results in FROM (SELECT …)"
            )
            raise body.context.refusal(message, source.on)
    elif source.kind != "inner" and not source.using:
        raise body.context.refusal(f"a {source.kind.upper()} JOIN needs ON or USING", source.node)
    for name in source.using:
        trees.append(_using(body, number, name))
    if source.kind == "inner" and number >= last_that_pads_all(body.sources):
        body.conditions += trees
    else:
        if source.using and source.kind not in ("inner", "left"):
            raise body.context.refusal("USING is supported in inner and left joins: write ON", source.node)
        known = {name for each in body.sources[: number + 1] for name in each.own}
        if not fields_of(trees).keys() <= known:
            raise body.context.refusal("ON takes columns of the tables up to its own: write WHERE", source.on)
        body.ons[number] = trees


def _is_late_any(body: Body, trees: Sequence[Tree]) -> bool:
    return any(_is_late(body, each) for each in trees)


def _using(body: Body, number: int, name: str) -> Tree:
    source = body.sources[number]
    mine = [each for each in source.relation.columns if each.name.lower() == name.lower()]
    before = [
        (other, each)
        for other in body.sources[:number]
        for each in other.relation.columns
        if each.name.lower() == name.lower() and name.lower() not in {used.lower() for used in other.using}
    ]
    if len(mine) != 1 or len(before) != 1:
        raise body.context.refusal(f"USING ({name}): both sides need one column of this name", source.node)
    other, theirs = before[0]
    return Call("equal", (Column(other.fields[theirs.field]), Column(source.fields[mine[0].field])))


# -- the columns of a SELECT


def items_of(body: Body) -> list[Item]:
    """The columns that a SELECT emits, with `*` expanded."""
    found: list[Item] = []
    for node in body.node.expressions:
        if _is_star(node):
            found += [
                Item(each.name, field_name(each.name, [other.field for other in found]), node, each)
                for each in _starred(body, node)
            ]
            continue
        inner, name = node, ""
        if node.kind == "Alias":
            read(node, "Alias", "this alias", body.context.source)
            inner, name = node.this, node.alias
        column = body.scope.named(inner) if inner.kind == "Column" else None
        name = name or (inner.name if inner.kind == "Column" else _name_of(inner, len(found)))
        made = field_name(name, [other.field for other in found])
        found.append(Item(name, made, inner, column))
    return found


def _is_star(node: Any) -> bool:
    return bool(node.kind == "Star" or (node.kind == "Column" and node.this.kind == "Star"))


def _starred(body: Body, node: Any) -> list[Named]:
    star = node if node.kind == "Star" else node.this
    read(star, "Star", "", body.context.source)
    table = "" if star is node else node.table.lower()
    found = [each for each in body.scope.columns if not each.hidden]
    if table:  # with its columns of USING, which * leaves out
        own = [(source, each) for source in body.sources for each in source.relation.columns]
        found = [
            replace(each, field=source.fields[each.field])
            for source, each in own
            if not each.hidden and each.table.lower() == table
        ]
    if not found:
        raise body.context.refusal(f"{shown(node)}: there is no table {node.table}", node)
    return found


def _name_of(node: Any, at: int) -> str:
    """The name of a column without AS: that of its function, as in PostgreSQL."""
    match node.kind:
        case "Filter" | "Paren" | "Cast":
            return _name_of(node.this, at)
        case "Column":
            return str(node.name)
        case "Anonymous":
            return str(node.this).lower()
    return node.function_name or f"column{at + 1}"


# -- from the tables to the result


def joined_rows(body: Body, needed: dict[str, None], bounds: Collection[str] = ()) -> Relation:
    """The rows of the tables, joined and filtered by WHERE; they have the fields in `needed`.

    Those in `bounds` are read only as keys by which a single table is grouped. Raises SqlError for other bounds of
    sessions, which aren't known before rows are grouped.
    """
    context, scope = body.context, body.scope
    later = [*body.late_conditions]
    existing = [tree for each in body.existences for tree in each.left_trees]
    scalar_keys = [outer for each in scope.scalars for outer, _ in each.keys]
    arguments = [tree for each in body.calls for tree in each.arguments]
    read_here = fields_of([*later, *existing, *scalar_keys, *arguments, *body.conditions])
    for trees in body.ons.values():
        read_here |= fields_of(trees)
    fields = needed | read_here
    _check_sessions(body, read_here.keys() | (needed.keys() - bounds if len(body.sources) == 1 else needed.keys()))
    relation = join_sources(body.sources, body.conditions, body.ons, set(fields), context)
    assert not body.conditions, body.conditions
    if body.calls:
        reads = fields_of(arguments)
        relation = materialised(relation, reads, context.labels("Windows"))
        label = context.labels(f"Call {', '.join(dict.fromkeys(each.field for each in body.calls))}")
        relation = replace(relation, rows=with_results(relation.rows, body.calls, label))
    for each in body.existences:
        relation = filtered_by(relation, each, context)
    in_where = [each for each in scope.scalars if each.field in fields_of(later)]
    relation = attached(relation, in_where, context)
    for tree in later:
        relation = materialised(relation, fields_of([tree]), context.labels("Windows"))
        relation = filtered(relation, tree, context.labels("Where"))
    rest = [each for each in scope.scalars if each not in in_where]
    return attached(relation, rest, context)


def _check_sessions(body: Body, fields: Collection[str]) -> None:
    """Raise SqlError if some of the fields are bounds of sessions, which grow until rows are grouped."""
    for source in body.sources:
        if source.relation.windows != "session":
            continue
        bounds = {source.fields[each.field] for each in source.relation.columns if each.virtual}
        if not bounds & set(fields):
            continue
        names = [each.field for each in body.scope.columns if each.field in bounds]
        places = [body.node.args.get("where"), body.node]
        columns = (each for place in places if place is not None for each in place.find_all("Column"))
        used = next((each for each in columns if each.name.lower() in names), body.node)
        own = {each.field: each.name for each in source.relation.columns}
        keys = ", ".join([*(own[each] for each in source.relation.partition), "window_start", "window_end"])
        raise body.context.refusal(
            f"the bounds of a session are known once its rows are grouped: write GROUP BY {keys}, conditions on them "
            "in HAVING, and joins and other columns in a query around",
            used,
        )


def finished(body: Body, items: list[Item]) -> Relation:
    """The relation of a SELECT whose columns are known: grouped, ranked, projected, made distinct, sorted and cut."""
    node, context, scope = body.node, body.context, body.scope
    order = orderings(node, context)
    if is_aggregated(node, items):
        for each in (*(item.node for item in items), *(each.node for each in order)):
            if (ranking := next(filter(is_row_number, each.find_all("Window")), None)) is not None:
                message = (
                    "a query with groups can't number them: write it in FROM (SELECT …), and ROW_NUMBER() around it"
                )
                raise context.refusal(message, ranking)
        for item in items:
            item.tree = tree_of(item.node, scope) if item.column is None else Column(item.column.field)
        plan = Aggregation(body, items, order)
        relation = aggregated(plan, lambda needed: joined_rows(body, needed, _just_keys(plan)))
        return _ended(body, relation, items, plan.order)
    rank = [item for item in items if item.column is None and is_row_number(item.node)]
    for item in items:
        if item in rank:
            continue
        item.tree = (
            scope.tree(item.node) if item.column is None else scope.checked(item.node, Column(item.column.field))
        )
        _check_outer(item.tree, item.node, context)
    trees: list[Tree] = [item.tree for item in items if item.tree is not None]
    keys = [_order_tree(each, items, scope) for each in order]
    trees += [each.tree for each in keys if each.tree is not None]
    ranks = [ranked(item.node, context, scope) for item in rank]
    for each in ranks:
        trees += each.trees
    relation = joined_rows(body, fields_of(trees))
    fields: list[str] = []
    for item, each in zip(rank, ranks):
        relation = each.applied(relation, field_name(item.field, (*scope.types, *fields)))
        fields.append(relation.columns[-1].field)
        item.tree = Column(relation.columns[-1].field)
    return _ended(body, _projected(relation, items, keys, context), items, keys)


def _just_keys(plan: Aggregation) -> set[str]:
    """The fields that GROUP BY names, and that no expression or aggregate reads."""
    keys = [each for each in plan.keys.values() if isinstance(each, Column)]
    read_inside = [each for each in plan.keys.values() if not isinstance(each, Column)] + list(plan.calls.values())
    return fields_of(keys).keys() - fields_of(read_inside).keys()


def _check_outer(tree: Tree, node: Any, context: Context) -> None:
    if outer_fields(tree):
        raise context.refusal(f"{shown(node)}: a column of the outer query can only stand in WHERE here", node)


def _order_tree(order: Ordering, items: Sequence[Item], scope: Scope) -> Ordering:
    """The ordering by a column of the result, if it names one, else by an expression over the tables."""
    at = order.output([item.name for item in items], scope.source)
    if at is not None:
        return replace(order, field=items[at].field)
    return replace(order, tree=scope.tree(order.node))


def _projected(relation: Relation, items: Sequence[Item], keys: list[Ordering], context: Context) -> Relation:
    """The relation with the columns of the items, and with further fields by which it is sorted."""
    columns = {item.field: item.tree for item in items if item.tree is not None}
    for number, key in enumerate(keys):
        if key.tree is not None:
            name = field_name(f"order_{number + 1}", columns)
            columns[name] = key.tree
            keys[number] = replace(key, field=name)
    relation = materialised(relation, fields_of(list(columns.values())), context.labels("Windows"))
    by_field = {each.field: each for each in relation.columns}
    named = []
    for item in items:
        source = by_field.get(item.tree.name) if isinstance(item.tree, Column) else None
        role = source.role if source is not None and relation.windows in ("function", "session") else None
        named.append(Named("", item.name, item.field, role))
    times = times_of(columns, relation)
    if has_just(relation, columns):
        return replace(relation, columns=tuple(named), partition=(), times=times)
    rows = projected(relation.rows, columns, context.labels("Select"))
    return Relation(rows, tuple(named), relation.windows, times=times)


def times_of(columns: Mapping[str, Tree], relation: Relation) -> frozenset[str] | None:
    """Which of the columns computed of a relation's rows may become their timestamps; see `Relation.times`."""
    if relation.times is None:
        return None
    copies = {name: tree.name for name, tree in columns.items() if isinstance(tree, Column)}
    return frozenset(name for name, field in copies.items() if relation.can_be_time(field))


def _ended(body: Body, relation: Relation, items: Sequence[Item], keys: Sequence[Ordering]) -> Relation:
    """The relation made distinct, sorted and cut."""
    node, context = body.node, body.context
    if (given := node.args.get("distinct")) is not None:
        read(given, "Distinct", "", context.source)
        if any(key.tree is not None for key in keys):
            raise context.refusal("SELECT DISTINCT is sorted by columns that it selects", node)
        relation = made_distinct(relation, node, context)
    return sorted_rows(relation, keys, node, context)


def made_distinct(relation: Relation, node: Any, context: Context) -> Relation:
    """Each row once, in its window if the window's bounds are among its columns, or if the author made the windows."""
    roles = {each.role for each in relation.columns}
    if relation.windows != "author" and not {"window_start", "window_end"} <= roles:
        if not relation.rows.is_bounded:
            check_bounded(replace(relation, windows="none"), "DISTINCT", node, context)
        relation = in_global_window(relation, context.labels("Rows of all windows"))
    return distinct(relation, context.labels("Distinct"))
