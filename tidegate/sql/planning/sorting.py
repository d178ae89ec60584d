"""ORDER BY, LIMIT and OFFSET: rows of bounded tables, or of each window of the author's, in order.

Rows that compare as equal are ordered by their other columns, so that LIMIT takes the same rows on every runner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.sdk.primitives.relate import Relate
from tidegate.sdk.relational.expressions import Column, Tree
from tidegate.sdk.relational.relations import Order, SortLimit
from tidegate.sdk.relational.relations import Rank as Ranked
from tidegate.sql.planning.context import Context, check_bounded
from tidegate.sql.steps.relation import Relation
from tidegate.sql.steps.rows import in_global_window, materialised, projected
from tidegate.sql.syntax.nodes import read, shown
from tidegate.sql.syntax.parse_tree import word_of
from tidegate.sql.syntax.text import SqlText


@dataclass(frozen=True, slots=True)
class Ordering:
    """One expression of ORDER BY. Once known, `field` is the field of the rows that has its value, `tree` its value."""

    node: Any
    descending: bool
    nulls_first: bool
    field: str = ""
    tree: Tree | None = None

    def output(self, names: Sequence[str], source: SqlText) -> int | None:
        """Which column of SELECT it names, by name or number; None if it is another expression."""
        at = numbered(self.node, "ORDER BY", len(names), source)
        if at is not None:
            return at
        if self.node.kind != "Column" or self.node.table:
            return None
        found = [k for k, name in enumerate(names) if name.lower() == self.node.name.lower()]
        return found[0] if len(found) == 1 else None


def numbered(node: Any, clause: str, count: int, source: SqlText) -> int | None:
    """Which of `count` columns of SELECT a number in a clause stands for, from 0; None for what is no number."""
    if node.kind != "Literal" or node.args.get("is_string"):
        return None
    text = str(node.this)
    at = int(text) - 1 if text.isdecimal() else -1
    if not 0 <= at < count:
        raise source.refusal(f"{clause} {text}: SELECT has {count} columns, numbered from 1", node)
    return at


def orderings(node: Any, context: Context) -> list[Ordering]:
    """The expressions of ORDER BY."""
    clause = node.args.get("order")
    if clause is None:
        return []
    read(clause, "Order", "expressions", context.source)
    found = []
    for each in clause.expressions:
        read(each, "Ordered", "this desc nulls_first", context.source)
        found.append(Ordering(each.this, bool(each.args.get("desc")), bool(each.args.get("nulls_first"))))
    return found


def sorted_rows(relation: Relation, keys: Sequence[Ordering], node: Any, context: Context) -> Relation:
    """The relation in order and cut, as ORDER BY, LIMIT and OFFSET of a query say."""
    limit = _number(node, "limit", "Limit", context)
    offset = _number(node, "offset", "Offset", context) or 0
    if not keys and limit is None and not offset:
        return relation
    what = "ORDER BY" if keys else "LIMIT"
    if relation.windows in ("function", "session"):
        if not relation.rows.is_bounded:
            raise context.refusal(
                f"{what} over an unbounded table would put rows of all windows in one order, which never ends. For the "
                "first rows of each window, write ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY …) "
                "AS n in a query of FROM, and WHERE n <= …; or put the table in windows of tg.WindowInto before the "
                "query",
                node,
            )
        relation = in_global_window(relation, context.labels("Rows of all windows"))
    check_bounded(relation, what, node, context)
    relation = materialised(relation, {each.field: None for each in relation.columns}, context.labels("Windows"))
    schema = relation.rows.schema
    names = () if schema is None else schema.names
    order = tuple(Order(Column(each.field), each.descending, each.nulls_first) for each in keys)
    found: Ranked | SortLimit = SortLimit(order, limit, offset)
    if not relation.rows.is_bounded:
        if limit is None or offset:
            message = f"{what} on a stream takes the first rows of each window: write LIMIT n, without OFFSET"
            raise context.refusal(message, node)
        found = Ranked(order, limit)
    rows = relation.rows | Relate(found, name=context.labels(what))
    fields = [each.field for each in relation.columns]
    if tuple(fields) != names:
        rows = projected(rows, {name: Column(name) for name in fields}, context.labels("Columns"))
    return replace(relation, rows=rows, times=frozenset())


def _number(node: Any, name: str, kind: str, context: Context) -> int | None:
    clause = node.args.get(name)
    if clause is None:
        return None
    read(clause, kind, "expression", context.source)
    value = clause.expression
    if value.kind in ("Placeholder", "Parameter"):
        given = word_of(value.this)
        if given not in context.parameters:
            raise context.refusal(f"the parameter {given} has no value", value)
        context.used.add(given)
        number = context.parameters[given]
    else:
        number = int(value.this) if _is_whole(value) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise context.refusal(f"{name.upper()} takes a whole number, not {shown(value)}", value)
    return number


def _is_whole(node: Any) -> bool:
    return node.kind == "Literal" and not node.args.get("is_string") and str(node.this).isdigit()
