"""FROM: the tables of a query, their windows, and the order in which they are joined."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate.sdk.data.columns import TIMESTAMP, UNKNOWN
from tidegate.sdk.errors import BuildError
from tidegate.sdk.primitives import WindowInto
from tidegate.sdk.relational.expressions import Call, Column, Tree
from tidegate.sdk.relational.relations import JoinKind as Kind
from tidegate.sql.planning.context import Context
from tidegate.sql.planning.intervals import time_bounds
from tidegate.sql.planning.scope import fields_of
from tidegate.sql.planning.sources import Source, last_that_pads_all, name_fields, streams_first, visible_columns
from tidegate.sql.planning.window_equations import settle_windows
from tidegate.sql.steps.joining import joined
from tidegate.sql.steps.relation import Relation
from tidegate.sql.steps.rows import filtered, in_global_window, materialised, projected, stamped, window_columns
from tidegate.sql.syntax.advice import JOIN_OF_WINDOWS, for_kind
from tidegate.sql.syntax.nodes import read, shown
from tidegate.sql.syntax.table_functions import PREFIX, TableFunction


def sources_of(node: Any, context: Context) -> list[Source]:
    """The tables of a query, in their order."""
    clause = node.args.get("from_")
    if clause is None:
        raise context.refusal("the query has no FROM: a query reads a table", node)
    read(clause, "From", "this", context.source)
    found = [Source(clause.this, _table(clause.this, context), "inner")]
    for join in node.args.get("joins") or ():
        read(join, "Join", "this side kind on using", context.source)
        relation = _table(join.this, context)
        using = tuple(each.name for each in join.args.get("using") or ())
        found.append(Source(join.this, relation, _kind(join, context), join.args.get("on"), using))
    _check_commas(node.args.get("joins") or (), found, context)
    aliases = [each.alias.lower() for each in found]
    for at, alias in enumerate(aliases):
        if alias in aliases[:at]:
            message = (
                f"two tables have the name {alias}: write … AS another_name"
                if alias
                else "two queries of FROM have no name: write (SELECT …) AS name"
            )
            raise context.refusal(message, found[at].node)
    name_fields(found)
    return found


def _check_commas(joins: Sequence[Any], sources: Sequence[Source], context: Context) -> None:
    """Raise SqlError for a comma before a RIGHT or FULL JOIN, which SQL joins first, and this planner in its order."""
    for number, join in enumerate(joins, 1):
        bare = not any(join.args.get(name) for name in ("side", "kind", "on", "using"))
        if bare and any(each.kind in ("right", "full") for each in sources[number + 1 :]):
            raise context.refusal("a comma before a RIGHT or FULL JOIN is not supported: write CROSS JOIN", join)


_KINDS: Final[dict[tuple[str, str], Kind]] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("", "CROSS"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
    ("LEFT", "SEMI"): "semi",
    ("LEFT", "ANTI"): "anti",
}


def _kind(join: Any, context: Context) -> Kind:
    given = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
    found = _KINDS.get(given)
    if found is None or found in ("semi", "anti"):
        raise context.refusal(f"{shown(join)}: this kind of join is not supported. For semi joins write EXISTS", join)
    return found


def _table(node: Any, context: Context) -> Relation:
    match node.kind:
        case "Table":
            return _named_table(node, context)
        case "Subquery":
            read(node, "Subquery", "this alias", context.source)
            relation = context.planner.plan(node.this, context, None)
            if not node.alias:
                return relation
            return _aliased(relation, node, context)
    raise context.refusal(f"{shown(node)} is no table and no query{for_kind(node.kind)}", node)


def _named_table(node: Any, context: Context) -> Relation:
    read(node, "Table", "this alias", context.source)
    function = context.functions.get(node.name) if node.name.startswith(PREFIX) else None
    name = node.name if function is None else function.table
    relation = context.table(name)
    if relation is None:
        from tidegate.sdk.user_code.keywords import near

        known = list(context.tables)
        meant = near(name, known)
        advice = f". Did you mean {meant}?" if meant else ""
        raise context.refusal(f"there is no table {name}; there are {', '.join(known) or 'none'}{advice}", node)
    if function is not None:
        relation = _windowed(relation.called(name), function, node, context)
    return _aliased(relation.called(name), node, context)


_EMPTY_CLAUSE: Final = re.compile(r"(?:LIMIT|OFFSET|GROUP|ORDER)\s*(?:[;)]|$)", re.IGNORECASE)
"""A word that sqlglot takes for the name of the table before it, though it begins a clause of which nothing follows."""
_AS: Final = re.compile(r"\bAS\s*$", re.IGNORECASE)


def _aliased(relation: Relation, node: Any, context: Context) -> Relation:
    alias = node.args.get("alias")
    if alias is None:
        return relation
    read(alias, "TableAlias", "this columns", context.source)
    at, text = alias.this.start if alias.name else None, context.source.text
    if at is not None and _EMPTY_CLAUSE.match(text, at) and not _AS.search(text, 0, at):
        message = f"{alias.name} begins a clause, and nothing follows it: leave it out, or write AS before a name"
        raise context.refusal(message, alias)
    relation = relation.called(alias.name) if alias.name else relation
    names = [each.name for each in alias.args.get("columns") or ()]
    if not names:
        return relation
    shown_columns = [each for each in relation.columns if not each.hidden]
    if len(names) != len(shown_columns):
        raise context.refusal(f"{shown(alias)} names {len(names)} columns, and there are {len(shown_columns)}", node)
    return replace(relation, columns=tuple(replace(one, name=name) for one, name in zip(shown_columns, names)))


def _windowed(relation: Relation, function: TableFunction, node: Any, context: Context) -> Relation:
    """The rows in the windows of a table function."""
    source = context.source
    relation = in_global_window(relation, context.labels(f"{function.name} rows of {function.table}"))
    found = [each for each in relation.columns if each.name.lower() == function.column.lower()]
    if not found:
        names = ", ".join(each.name for each in relation.columns)
        message = f"{function.table} has no column {function.column}; it has {names}"
        raise source.error(message, function.start)
    time = found[0]
    known = relation.schema.field(time.field)
    if known is None or known.type != TIMESTAMP:
        type = "of an unknown type" if known is None or known.type == UNKNOWN else f"of type {known.type}"
        message = f"DESCRIPTOR({function.column}) has to be a timestamp, and the column is {type}"
        raise source.error(message, function.start)
    if not relation.can_be_time(time.field):
        raise source.error(f"DESCRIPTOR({function.column}): {_BEHIND}", function.start)
    partition = []
    for name in function.partition:
        column = next((each for each in relation.columns if each.name.lower() == name.lower()), None)
        if column is None:
            raise source.error(f"{function.table} has no column {name}", function.start)
        partition.append(column.field)
    rows = stamped(relation.rows, time.field, context.labels(f"Time of {function.table}"))
    lateness = context.allowed_lateness
    try:
        into = WindowInto(
            function.assigner, allowed_lateness=lateness, name=context.labels(f"{function.name} {function.table}")
        )
        rows = rows | into
    except BuildError as error:
        raise source.error(f"{function.name}: {error}", function.start) from None
    # Hidden columns are the bounds of windows that the rows were in before: those of the function take their place.
    own = tuple(each for each in relation.columns if not (each.virtual or each.hidden) and each.role is None)
    taken = [each.field for each in relation.columns]
    columns = (*own, *window_columns(function.table, taken, hidden=False))
    session = function.name == "SESSION"
    return Relation(
        rows, columns, "session" if session else "function", tuple(partition), times=frozenset((time.field,))
    )


_BEHIND: Final = (
    "rows of this stream may have later timestamps than this column, so they would be lost behind the watermark: rows "
    "of groups have the end of their window, and those joined within an interval the later time of both. Take the "
    "column that was their time before, or window_time; or join them in windows"
)


# -- joining the sources


def join_sources(
    sources: Sequence[Source], conditions: list[Tree], ons: Mapping[int, list[Tree]], needed: set[str], context: Context
) -> Relation:
    """The rows of all tables, joined. Conditions of WHERE that are applied on the way are removed from `conditions`.

    `ons` has the conditions of the outer join with each source, and of each inner join that a RIGHT or FULL JOIN
    follows: that join pads rows, so what selects rows before it isn't what WHERE selects after it. Conditions that
    read one table are applied before it is joined, and tables are joined in their order, but for bounded ones before a
    stream, and for one that no equality joins with those before it.
    """
    if len(sources) == 1:
        relation = replace(sources[0].relation, columns=tuple(visible_columns(sources)))
        return _filter_all(relation, conditions, set(sources[0].own), sources[0].alias, context)
    sources = streams_first(sources)
    settle_windows(sources, conditions, ons, context)
    pads_all = last_that_pads_all(sources)
    current: Prepared | None = None
    have: set[str] = set()
    rest = list(enumerate(sources))
    while rest:
        at = _next(rest, have, conditions) if rest[0][0] >= pads_all else 0
        number, source = rest.pop(at)
        inner = source.kind == "inner"
        on = ons.get(number, [])
        usable = [] if not inner else conditions if number >= pads_all else on
        right = _prepared(source, needed, usable, context)
        if current is None:
            current, have = right, set(source.own)
            continue
        relation = _join(current, right, source, have, on, usable, context)
        have |= source.own
        if inner or number >= pads_all:
            waiting = usable if inner else conditions
            relation = _filter_all(relation, waiting, have, source.alias, context)
        current = Prepared(relation, {}, "")
    assert current is not None
    return current.relation


def _next(rest: Sequence[tuple[int, Source]], have: set[str], conditions: Sequence[Tree]) -> int:
    """Which table is joined next: the first, unless another inner one is joined by an equality and the first isn't."""
    if not have:
        return 0
    for at, (_, source) in enumerate(rest):
        if source.kind != "inner":
            return 0
        if any(_equality(each, have, set(source.own)) for each in conditions):
            return at
    return 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """One side of a join. `own` gives the fields of its rows by their names in the joined rows, where they aren't under
    these yet; `label` is the step that would put them there."""

    relation: Relation
    own: Mapping[str, str]
    label: str

    def renamed(self, context: Context) -> Relation:
        """The rows with just the fields that the query needs, under their names in the joined rows."""
        if not self.own:
            return self.relation
        columns = {name: Column(own) for name, own in self.own.items()}
        return replace(self.relation, rows=projected(self.relation.rows, columns, context.labels(self.label)))


def _prepared(source: Source, needed: set[str], conditions: list[Tree], context: Context) -> Prepared:
    """The table, filtered, with the fields that the query needs; its columns have their fields in the joined rows."""
    relation = materialised(
        source.relation,
        {own: None for own, name in source.fields.items() if name in needed},
        context.labels(f"Windows of {source.alias}"),
    )
    physical = {each.field for each in relation.columns if not each.virtual}
    kept = {
        name: Column(own) for own, name in source.fields.items() if own in physical and (name in needed or name == own)
    }
    wanted = {name: tree for name, tree in kept.items() if name in needed} or dict(list(kept.items())[:1])
    mine = set(source.own)
    own_of = {name: own for own, name in source.fields.items()}
    for condition in [each for each in conditions if fields_of([each]).keys() <= mine and fields_of([each])]:
        conditions.remove(condition)
        label = context.labels(f"Where {source.alias}")
        relation = filtered(relation, renamed(condition, own_of), label)
    columns = tuple(
        replace(each, field=source.fields[each.field])
        for each in relation.columns
        if each.virtual or source.fields[each.field] in wanted
    )
    relation = replace(relation, columns=columns, times=_renamed_times(relation, source.fields))
    return Prepared(relation, {name: tree.name for name, tree in wanted.items()}, f"Columns of {source.alias}")


def _renamed_times(relation: Relation, names: Mapping[str, str]) -> frozenset[str] | None:
    """The times of a relation under the names of its fields in the joined rows."""
    return None if relation.times is None else frozenset(names[each] for each in relation.times if each in names)


def _join(
    one: Prepared,
    two: Prepared,
    source: Source,
    have: set[str],
    on: Sequence[Tree],
    conditions: list[Tree],
    context: Context,
) -> Relation:
    left, right = one.relation, two.relation
    own, outer = set(source.own), source.kind != "inner"
    keys: list[tuple[Tree, Tree]] = []
    rest: list[Tree] = []
    for each in on if outer else [each for each in conditions if fields_of([each]).keys() <= have | own]:
        pair = _equality(each, have, own)
        if pair is not None:
            keys.append(pair)
            if not outer:
                conditions.remove(each)
        elif outer:
            rest.append(each)
    label = context.labels(f"Join {source.alias}")
    columns = (*left.columns, *right.columns)
    windows = left.windows if left.windows != "none" else right.windows
    bounded = left.rows.is_bounded and right.rows.is_bounded
    looked_up = right.rows.is_bounded and right.windows == "none" and source.kind in ("inner", "left")
    if not bounded and not looked_up and left.windows == right.windows == "none":
        return _on_time(one.renamed(context), two.renamed(context), source, keys, conditions, rest, label, context)
    residual = _all(rest)
    try:
        rows = joined(left.rows, right.rows, source.kind, keys, residual, label, own=(one.own, two.own))
    except BuildError as error:
        raise context.refusal(f"this join is not possible: {error}", source.node) from None
    times = left.times
    if times is None:
        times = frozenset(each.field for each in left.columns)
    return Relation(rows, columns, windows, times=times if looked_up else frozenset())


def _on_time(
    left: Relation,
    right: Relation,
    source: Source,
    keys: list[tuple[Tree, Tree]],
    conditions: list[Tree],
    on: Sequence[Tree],
    label: str,
    context: Context,
) -> Relation:
    """The join of streams by an interval of time, which the conditions have to give."""
    given = conditions if source.kind == "inner" else on
    found = time_bounds(given, left, right)
    if found is None and left.rows.is_bounded and source.kind in ("inner", "right"):
        kind = "RIGHT JOIN" if source.kind == "right" else "JOIN"
        message = (
            "a stream looks up rows of one bounded table at a time: join the tables before it in FROM (SELECT …) AS t, "
            f"and write t {kind} stream, or put the stream first"
        )
        raise context.refusal(message, source.node)
    if found is None and left.rows.is_bounded != right.rows.is_bounded:
        message = (
            f"this {source.kind.upper()} JOIN would have to keep rows of the bounded table until the stream ends, "
            "which is not supported. Write JOIN, or stream LEFT JOIN table: rows of the table are looked up then"
        )
        raise context.refusal(message, source.node)
    if found is None:
        kind = "" if source.kind == "inner" else f" {source.kind.upper()}"
        raise context.refusal(
            f"a regular{kind} JOIN of unbounded tables would have to keep all their rows for ever, and to update its "
            f"results, which is not supported. Join windows, {JOIN_OF_WINDOWS}, or rows whose times are near: ON … AND "
            "r.time BETWEEN l.time - INTERVAL '1' HOUR AND l.time + INTERVAL '1' HOUR",
            source.node,
        )
    if not left.can_be_time(found.left) or not right.can_be_time(found.right):
        raise context.refusal(f"a join within an interval: {_BEHIND}", source.node)
    one = stamped(left.rows, found.left, context.labels(f"{label} left time"))
    two = stamped(right.rows, found.right, context.labels(f"{label} right time"))
    residual = list(found.conditions)
    if source.kind == "inner":
        for each in found.conditions:
            conditions.remove(each)
    else:
        residual += [each for each in on if each not in found.conditions]
    within = found.lower.micros, found.upper.micros
    rows = joined(one, two, source.kind, keys, _all(residual), label, within)
    return Relation(rows, (*left.columns, *right.columns))


def _all(conditions: Sequence[Tree]) -> Tree | None:
    found: Tree | None = None
    for each in conditions:
        found = each if found is None else Call("and", (found, each))
    return found


def _filter_all(relation: Relation, conditions: list[Tree], have: set[str], alias: str, context: Context) -> Relation:
    """The relation filtered by the conditions that read only fields in `have`, which are removed from the list."""
    now = [each for each in conditions if fields_of([each]).keys() <= have]
    if not now:
        return relation
    for each in now:
        conditions.remove(each)
    relation = materialised(relation, fields_of(now), context.labels(f"Windows of {alias}"))
    condition = _all(now)
    assert condition is not None
    return filtered(relation, condition, context.labels("Where"))


def _equality(tree: Tree, left: set[str], right: set[str]) -> tuple[Tree, Tree] | None:
    """Both sides of an equality between expressions over left and over right fields, in this order."""
    match tree:
        case Call(operation="equal", arguments=(one, two)):
            ones, twos = fields_of([one]).keys(), fields_of([two]).keys()
            if ones and twos and ones <= left and twos <= right:
                return one, two
            if ones and twos and ones <= right and twos <= left:
                return two, one
    return None


def renamed(tree: Tree, names: Mapping[str, str]) -> Tree:
    """The tree with other names of columns."""
    from tidegate.sql.syntax.trees import substituted

    return substituted(tree, {Column(old): Column(new) for old, new in names.items()}, by_name=True)
