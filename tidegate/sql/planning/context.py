"""What every part of a statement's planning knows: its text, tables, parameters, functions, and labels in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from tidegate.sdk.errors import SqlError
from tidegate.sql.planning.scope import Scope
from tidegate.sql.steps.relation import Relation, Scalar
from tidegate.sql.steps.user_functions import UserFunction
from tidegate.sql.syntax.nodes import read
from tidegate.sql.syntax.table_functions import TableFunction
from tidegate.sql.syntax.text import SqlText


@dataclass(slots=True)
class Labels:
    """The labels of a statement's steps: each once, and stable as long as the query is."""

    used: dict[str, int] = field(default_factory=dict)

    def __call__(self, label: str) -> str:
        """The label, numbered from its second use on."""
        label = label.replace("/", "|")
        count = self.used[label] = self.used.get(label, 0) + 1
        return label if count == 1 else f"{label} ({count})"


@dataclass(slots=True)
class Late:
    """The output for late rows, `tag`, if it was asked for, and the steps that have one."""

    tag: str | None = None
    found: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Planner:
    """The functions that plan what is inside a query: another query, the condition that EXISTS or IN states (None for
    other conditions), and a query used as a value. Each is given a node, the context, and the scope around."""

    plan: Callable[[Any, Context, Scope | None], Relation]
    existence: Callable[[Any, Context, Scope], Any]
    scalar: Callable[[Any, Context, Scope], Scalar]


@dataclass(frozen=True, slots=True)
class Context:
    """`tables` gives a relation by name, `functions` the window table functions by the names that stand for them."""

    source: SqlText
    tables: Mapping[str, Callable[[], Relation]]
    functions: Mapping[str, TableFunction]
    parameters: Mapping[str, Any]
    user_functions: Mapping[str, UserFunction]
    planner: Planner
    labels: Labels = field(default_factory=Labels)
    late: Late = field(default_factory=Late)
    used: set[str] = field(default_factory=set)
    allowed_lateness: Any = None

    def refusal(self, message: str, node: Any) -> SqlError:
        """The error for a node of the statement."""
        return self.source.refusal(message, node)

    def table(self, name: str) -> Relation | None:
        """The table of a name, whose case matters only if there are two; None if there is none."""
        found = [each for each in self.tables if each.lower() == name.lower()]
        exact = [each for each in found if each == name] or found
        return self.tables[exact[0]]() if len(exact) == 1 else None


def with_tables(node: Any, context: Context) -> Context:
    """The context with the tables that WITH names, each of which is planned when it is first read."""
    clause = node.args.get("with_")
    if clause is None:
        return context
    read(clause, "With", "expressions", context.source)
    for each in clause.expressions:
        read(each, "CTE", "this alias", context.source)
        alias = read(each.args["alias"], "TableAlias", "this columns", context.source)
        names = [column.name for column in alias.args.get("columns") or ()]
        planned = cache(partial(_planned, each, names, context))
        others = {name: table for name, table in context.tables.items() if name.lower() != alias.name.lower()}
        context = replace(context, tables=others | {alias.name: planned})
    return context


def _planned(node: Any, names: Sequence[str], context: Context) -> Relation:
    relation = context.planner.plan(node.this, context, None)
    if names and len(names) != len(relation.columns):
        raise context.refusal(f"{node.alias} has {len(relation.columns)} columns, not {len(names)}", node)
    columns = [replace(column, name=name) for column, name in zip(relation.columns, names)] or relation.columns
    return replace(relation, columns=tuple(columns)).called(node.alias)


def check_bounded(relation: Relation, what: str, node: Any, context: Context) -> None:
    """Raise SqlError if the result of an operation would change with each row of an unbounded input."""
    if not relation.rows.is_bounded and relation.windows == "none":
        raise context.refusal(
            f"{what} over an unbounded table would have to update its results with every row, which is not supported. "
            "Divide the table into windows, FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(time_column), INTERVAL '1' MINUTE)), "
            "and let window_start and window_end be among the columns by which rows are grouped, joined or ranked",
            node,
        )


def field_name(name: str, taken: Iterable[str]) -> str:
    """A name for a field of rows that isn't taken, as like a name in SQL as can be."""
    made = "".join(each if each.isalnum() or each == "_" else "_" for each in name).lstrip("_")
    if not made.isidentifier():
        made = f"c_{made}"
    known, number, found = set(taken), 2, made
    while found in known:
        found, number = f"{made}_{number}", number + 1
    return found
