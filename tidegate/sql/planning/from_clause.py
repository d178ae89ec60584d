"""FROM: the tables of a query, their windows, and the order in which they are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.sdk.data.columns import TIMESTAMP, UNKNOWN, Field
from tidegate.sdk.errors import BuildError
from tidegate.sdk.primitives import WindowInto
from tidegate.sdk.relational.expressions import Call, Column, Tree
from tidegate.sdk.relational.relations import JoinKind as Kind
from tidegate.sql.planning.context import Context, field_name
from tidegate.sql.planning.intervals import time_bounds
from tidegate.sql.planning.scope import fields_of
from tidegate.sql.steps.joining import joined
from tidegate.sql.steps.relation import ROLES, Named, Relation
from tidegate.sql.steps.rows import filtered, in_global_window, materialised, projected, stamped, window_columns
from tidegate.sql.syntax.nodes import read, shown
from tidegate.sql.syntax.table_functions import PREFIX, TableFunction


@dataclass(slots=True)
class Source:
    """A table of FROM. `relation` has its columns under its alias; `fields` gives the field in the joined rows, by its
    own field. `on` are the conditions of its join, and `using` the columns that it names."""

    node: Any
    relation: Relation
    kind: Kind
    on: Any = None
    using: tuple[str, ...] = ()
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def alias(self) -> str:
        """The name of the table in the query."""
        return self.relation.columns[0].table if self.relation.columns else ""

    @property
    def own(self) -> frozenset[str]:
        """The fields of the joined rows that are from here."""
        return frozenset(self.fields.values())


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
            raise context.refusal(f"two tables have the name {alias}: write … AS another_name", found[at].node)
    _name_fields(found)
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
    match type(node).__name__:
        case "Table":
            return _named_table(node, context)
        case "Subquery":
            read(node, "Subquery", "this alias", context.source)
            relation = context.planner.plan(node.this, context, None)
            if not node.alias:
                return relation
            return _aliased(relation, node, context)
    raise context.refusal(f"{shown(node)} is no table and no query", node)


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


def _aliased(relation: Relation, node: Any, context: Context) -> Relation:
    alias = node.args.get("alias")
    if alias is None:
        return relation
    read(alias, "TableAlias", "this columns", context.source)
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
    own = tuple(each for each in relation.columns if not each.virtual and each.role is None)
    taken = [each.field for each in own]
    columns = (*own, *window_columns(function.table, taken, hidden=False))
    session = function.name == "SESSION"
    return Relation(rows, columns, "session" if session else "function", tuple(partition))


def _name_fields(sources: Sequence[Source]) -> None:
    """Give every column a field of its own in the joined rows; a single table keeps its fields."""
    if len(sources) == 1:
        sources[0].fields = {each.field: each.field for each in sources[0].relation.columns}
        return
    names = [each.field for source in sources for each in source.relation.columns]
    taken: set[str] = set()
    for source in sources:
        for column in source.relation.columns:
            if column.field in source.fields:
                continue
            wanted = column.field if names.count(column.field) == 1 else f"{source.alias}_{column.field}"
            found = field_name(wanted, taken)
            taken.add(found)
            source.fields[column.field] = found


def visible_columns(sources: Sequence[Source]) -> list[Named]:
    """The columns that expressions of the query can name. A column that joins with USING is that of the first table."""
    found: list[Named] = []
    for source in sources:
        merged = {name.lower() for name in source.using}
        for each in source.relation.columns:
            named = replace(each, field=source.fields[each.field])
            if each.name.lower() in merged:
                continue
            found.append(named)
    return found


def types_of(sources: Sequence[Source]) -> dict[str, Field]:
    """The types of the fields of the joined rows."""
    found: dict[str, Field] = {}
    for source in sources:
        if source.kind in ("right", "full"):
            found = {name: replace(each, nullable=True) for name, each in found.items()}
        padded = source.kind in ("left", "full")
        schema = source.relation.schema
        for own, name in source.fields.items():
            known = schema.field(own) or Field(own, UNKNOWN)
            found[name] = Field(name, known.type, known.nullable or padded)
    return found


# -- joining the sources


def join_sources(
    sources: Sequence[Source], conditions: list[Tree], ons: Mapping[int, list[Tree]], needed: set[str], context: Context
) -> Relation:
    """The rows of all tables, joined. Conditions of WHERE that are applied on the way are removed from `conditions`.

    `ons` has the conditions of the outer join with each source, and of each inner join that a RIGHT or FULL JOIN
    follows: that join pads rows, so what selects rows before it isn't what WHERE selects after it. Conditions that
    read one table are applied before it is joined, and tables are joined in their order, but for one that no equality
    joins with those before it.
    """
    if len(sources) == 1:
        relation = replace(sources[0].relation, columns=tuple(visible_columns(sources)))
        return _filter_all(relation, conditions, set(sources[0].own), sources[0].alias, context)
    _settle_windows(sources, conditions, ons, context)
    pads_all = last_that_pads_all(sources)
    current: Relation | None = None
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
        current = _join(current, right, source, have, on, usable, context)
        have |= source.own
        if inner or number >= pads_all:
            waiting = usable if inner else conditions
            current = _filter_all(current, waiting, have, source.alias, context)
    assert current is not None
    return current


def last_that_pads_all(sources: Sequence[Source]) -> int:
    """The number of the last RIGHT or FULL JOIN, 0 without one: WHERE is applied from there on."""
    return max((k for k, each in enumerate(sources) if each.kind in ("right", "full")), default=0)


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


def _prepared(source: Source, needed: set[str], conditions: list[Tree], context: Context) -> Relation:
    """The table with the fields that the query needs, under their names in the joined rows, filtered."""
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
    rows = projected(relation.rows, wanted, context.labels(f"Columns of {source.alias}"))
    columns = tuple(
        replace(each, field=source.fields[each.field])
        for each in relation.columns
        if each.virtual or source.fields[each.field] in wanted
    )
    return replace(relation, rows=rows, columns=columns)


def _join(
    left: Relation,
    right: Relation,
    source: Source,
    have: set[str],
    on: Sequence[Tree],
    conditions: list[Tree],
    context: Context,
) -> Relation:
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
        return _on_time(left, right, source, keys, conditions, rest, label, context)
    residual = _all(rest)
    try:
        rows = joined(left.rows, right.rows, source.kind, keys, residual, label)
    except BuildError as error:
        raise context.refusal(f"this join is not possible: {error}", source.node) from None
    return Relation(rows, columns, windows)


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
    if found is None:
        kind = "" if source.kind == "inner" else f" {source.kind.upper()}"
        raise context.refusal(
            f"a regular{kind} JOIN of unbounded tables would have to keep all their rows for ever, and to update its "
            "results, which is not supported. Join windows, by TABLE(TUMBLE(…)) of both tables and ON l.window_start = "
            "r.window_start AND l.window_end = r.window_end, or rows whose times are near: ON … AND "
            "r.time BETWEEN l.time - INTERVAL '1' HOUR AND l.time + INTERVAL '1' HOUR",
            source.node,
        )
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


# -- windows of joined tables


def _settle_windows(
    sources: Sequence[Source], conditions: list[Tree], ons: Mapping[int, list[Tree]], context: Context
) -> None:
    """Let tables whose windows the conditions equate be joined in their windows, and move others to the global one.

    The equations are removed: rows of one window have its bounds.
    """
    roles = {source.fields[c.field]: (k, c.role) for k, source in enumerate(sources) for c in source.relation.columns}
    equal: dict[str, list[set[int]]] = {role: [{k} for k in range(len(sources))] for role in ROLES}
    found: list[tuple[list[Tree], Tree]] = []
    for number, trees in [(None, conditions), *ons.items()]:
        for tree in trees:
            match tree:
                case Call(operation="equal", arguments=(Column(name=one), Column(name=two))):
                    (a, first), (b, second) = roles.get(one, (-1, None)), roles.get(two, (-1, None))
                    if first is None or first != second or a == b or not _selects(sources, number, (a, b)):
                        continue
                    found.append((trees, tree))
                    groups = equal[first]
                    together = {k for each in groups if a in each or b in each for k in each}
                    equal[first] = [each for each in groups if not each & together] + [together]
    windowed = [k for k, each in enumerate(sources) if each.relation.windows != "none"]
    in_windows = bool(found) and all(
        any(set(windowed) <= group for group in equal[role]) for role in ("window_start", "window_end")
    )
    only_one = len(windowed) == 1 and _can_stay(sources, windowed[0])
    if in_windows:
        for trees, tree in found:
            trees.remove(tree)
        return
    if only_one or all(sources[k].relation.windows == "author" for k in windowed):
        return
    for k in windowed:
        relation = sources[k].relation
        if not relation.rows.is_bounded:
            raise context.refusal(
                "this join of windows would have to update its results: add ON l.window_start = r.window_start AND "
                "l.window_end = r.window_end",
                sources[k].node,
            )
        if relation.windows == "session":
            raise context.refusal("sessions are joined after they are grouped: write a subquery", sources[k].node)
        sources[k].relation = in_global_window(relation, context.labels(f"Rows of {sources[k].alias}"))


def _selects(sources: Sequence[Source], number: int | None, pair: tuple[int, int]) -> bool:
    """Whether an equation of two tables' windows, of WHERE or of the join with a number, keeps just rows of one window.

    It doesn't if it finds rows that a join has padded with NULLs, or if it is of an outer join with a third table.
    """
    if number is not None and sources[number].kind != "inner" and number not in pair:
        return False
    before = len(sources) if number is None else number
    for k in pair:
        padded = sources[k].kind in ("left", "full") or any(
            each.kind in ("right", "full") for each in sources[k + 1 : before]
        )
        if k != number and padded:
            return False
    return True


def _can_stay(sources: Sequence[Source], at: int) -> bool:
    """Whether the only windowed table keeps its windows: it is the first, and others are looked up for its rows."""
    others = [each for k, each in enumerate(sources) if k != at]
    return at == 0 and all(each.relation.rows.is_bounded and each.kind in ("inner", "left") for each in others)
