"""ROW_NUMBER() OVER (PARTITION BY … ORDER BY …): top n and deduplication, of bounded tables and in windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.sdk.primitives.relate import Relate
from tidegate.sdk.relational.expressions import Column, Tree
from tidegate.sdk.relational.relations import EVERY, Order, Rank
from tidegate.sql.planning.context import Context, check_bounded
from tidegate.sql.planning.scope import Scope, fields_of
from tidegate.sql.planning.sorting import Ordering, orderings
from tidegate.sql.steps.relation import Named, Relation
from tidegate.sql.steps.rows import in_global_window, materialised
from tidegate.sql.syntax.nodes import read, shown


def is_row_number(node: Any) -> bool:
    """Whether a node is `ROW_NUMBER() OVER (…)`."""
    return bool(node.kind == "Window" and node.this.kind == "RowNumber")


@dataclass(frozen=True, slots=True)
class Ranking:
    """A ROW_NUMBER: `partition` and `order` over the joined rows."""

    node: Any
    context: Context
    partition: tuple[Tree, ...]
    order: tuple[Ordering, ...]

    @property
    def trees(self) -> list[Tree]:
        """The trees that it reads."""
        return [*self.partition, *[each.tree for each in self.order if each.tree is not None]]

    def applied(self, relation: Relation, field: str) -> Relation:
        """The relation with the number of each row in its partition as a further field."""
        context = self.context
        roles = {each.field: each for each in relation.columns if each.role is not None}
        bounds = {tree.name for tree in self.partition if isinstance(tree, Column) and tree.name in roles}
        kinds = {roles[name].role for name in bounds}
        if relation.windows in ("function", "session") and not {"window_start", "window_end"} <= kinds:
            if not relation.rows.is_bounded:
                raise context.refusal(
                    f"{shown(self.node)} ranks rows of all windows, so every row would update its results, which is "
                    "not supported: add window_start and window_end to PARTITION BY",
                    self.node,
                )
            relation = in_global_window(relation, context.labels("Rows of all windows"))
        check_bounded(relation, "ROW_NUMBER()", self.node, context)
        relation = materialised(relation, fields_of(self.trees), context.labels("Windows"))
        keys = tuple(tree for tree in self.partition if not (isinstance(tree, Column) and tree.name in bounds))
        return replace(
            relation,
            rows=numbered(relation, keys, self.order, field, context.labels("RowNumber")),
            columns=(*relation.columns, Named("", field, field)),
            times=frozenset(),
        )


def ranked(node: Any, context: Context, scope: Scope) -> Ranking:
    """The ROW_NUMBER that a node states. Raises SqlError without ORDER BY."""
    read(node, "Window", "this partition_by order over", context.source)
    read(node.this, "RowNumber", "", context.source)
    order = orderings(node, context)
    if not order:
        raise context.refusal("ROW_NUMBER() OVER (…) needs an ORDER BY: without one its numbers mean nothing", node)
    partition = tuple(scope.tree(each) for each in node.args.get("partition_by") or ())
    return Ranking(node, context, partition, tuple(replace(each, tree=scope.tree(each.node)) for each in order))


def numbered(relation: Relation, keys: Sequence[Tree], order: Sequence[Ordering], field: str, label: str) -> Any:
    """The rows with their numbers, by partitions."""
    by = tuple(Order(each.tree, each.descending, each.nulls_first) for each in order if each.tree is not None)
    rank = Rank(by, EVERY, tuple(keys), field)
    return relation.rows | Relate(rank, name=label)
