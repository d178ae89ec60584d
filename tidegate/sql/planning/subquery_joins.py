"""Joins of rows with subqueries: semi and anti joins for EXISTS and IN, outer joins for queries used as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.sdk.data.columns import BIGINT
from tidegate.sdk.data.schema import schema_of
from tidegate.sdk.relational.expressions import Call, Column, Literal, Tree
from tidegate.sdk.relational.relations import JoinKind as Kind
from tidegate.sql.planning.context import Context, field_name
from tidegate.sql.planning.scope import OUTER, fields_of, outer_fields
from tidegate.sql.steps.joining import joined
from tidegate.sql.steps.relation import Relation, Scalar
from tidegate.sql.steps.rows import filtered, grouped, materialised, projected
from tidegate.sql.syntax.trees import substituted


@dataclass(frozen=True, slots=True)
class Existence:
    """A condition on whether a subquery has rows for a row: `keys` equal, and `residual` true.

    Trees over the outer row have its fields, those over the subquery's rows the fields of `relation`, and in the
    residual the outer fields have the prefix of outer columns. `null_aware`: a NULL in the key decides, as in NOT IN.
    """

    node: Any
    kind: Kind
    relation: Relation
    keys: tuple[tuple[Tree, Tree], ...]
    residual: tuple[Tree, ...] = ()
    null_aware: bool = False

    @property
    def left_trees(self) -> list[Tree]:
        """Trees over the fields of the outer row that the condition reads."""
        return [left for left, _ in self.keys] + [
            Column(name.removeprefix(OUTER)) for tree in self.residual for name in outer_fields(tree)
        ]


def without_outer(tree: Tree) -> Tree:
    """The tree with the fields of the outer row under their own names."""
    names: dict[Tree, Tree] = {Column(name): Column(name.removeprefix(OUTER)) for name in outer_fields(tree)}
    return substituted(tree, names, by_name=True)


def filtered_by(relation: Relation, existence: Existence, context: Context) -> Relation:
    """The rows for which the condition holds."""
    label = context.labels("Exists" if existence.kind == "semi" else "Not exists")
    relation = materialised(relation, fields_of(existence.left_trees), context.labels("Windows"))
    if existence.null_aware:
        relation = _without_nulls(relation, existence, label, context)
    left = schema_of(relation.rows.element_type)
    taken = set(left.names if left is not None else ())
    wanted = fields_of([right for _, right in existence.keys]) | {
        name: None for tree in existence.residual for name in fields_of([tree]) if not name.startswith(OUTER)
    }
    names: dict[str, str] = {}
    for name in wanted or dict.fromkeys(existence.relation.schema.names[:1]):
        names[name] = field_name(f"other_{name}", taken | set(names.values()))
    columns: dict[str, Tree] = {new: Column(old) for old, new in names.items()}
    right = projected(existence.relation.rows, columns, f"{label} columns")
    renaming: dict[Tree, Tree] = {Column(old): Column(new) for old, new in names.items()}
    keys = [(one, substituted(two, renaming, by_name=True)) for one, two in existence.keys]
    residual: Tree | None = None
    for tree in existence.residual:
        made = without_outer(substituted(tree, renaming, by_name=True))
        residual = made if residual is None else Call("and", (residual, made))
    rows = joined(relation.rows, right, existence.kind, keys, residual, label)
    return replace(relation, rows=rows)


def _without_nulls(relation: Relation, existence: Existence, label: str, context: Context) -> Relation:
    """The rows of which NOT IN isn't NULL: all of them if the subquery has no row, else none if it has a NULL."""
    value = existence.keys[0][1]
    calls: dict[str, Tree] = {"rows": Call("count", ()), "values": Call("count", (value,))}
    counts, _ = grouped(existence.relation.rows, {}, calls, f"{label} counts")
    taken = relation.schema.names
    every, known = field_name("rows", taken), field_name("values", taken)
    named = projected(counts, {every: Column("rows"), known: Column("values")}, f"{label} count columns")
    rows = joined(relation.rows, named, "inner", (), None, f"{label} with counts")
    left = existence.keys[0][0]
    decided = Call("and", (Call("not", (Call("is_null", (left,)),)), Call("equal", (Column(every), Column(known)))))
    condition = Call("or", (Call("equal", (Column(every), Literal(0, BIGINT))), decided))
    return filtered(replace(relation, rows=rows), condition, f"{label} without NULL")


def attached(relation: Relation, scalars: Sequence[Scalar], context: Context) -> Relation:
    """The rows with the values of subqueries as further fields."""
    for each in scalars:
        label = context.labels("Subquery")
        relation = materialised(relation, fields_of([left for left, _ in each.keys]), context.labels("Windows"))
        name = each.field
        names = {inner: f"{name}_key_{number + 1}" for number, (_, inner) in enumerate(each.keys)}
        columns: dict[str, Tree] = {new: Column(old) for old, new in names.items()}
        columns[name] = Column(each.value)
        right = projected(each.relation.rows, columns, f"{label} columns")
        keys: list[tuple[Tree, Tree]] = [(outer, Column(names[inner])) for outer, inner in each.keys]
        left_names = relation.rows.element_type
        rows = joined(relation.rows, right, "left", keys, None, label)
        if each.if_none is not None:
            known = schema_of(left_names)
            kept: dict[str, Tree] = {one: Column(one) for one in (known.names if known is not None else ())}
            kept[name] = Call("coalesce", (Column(name), each.if_none))
            rows = projected(rows, kept, f"{label} or 0")
        relation = replace(relation, rows=rows)
    return relation
