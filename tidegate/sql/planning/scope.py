"""Scopes: what a name in a query stands for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.sdk.data.columns import STRING, ColumnType, Field, Schema, StructType
from tidegate.sdk.errors import BuildError, SqlError
from tidegate.sdk.relational.binding import Input, bound, is_aggregate
from tidegate.sdk.relational.expressions import Call, Column, Literal, Tree, column_names, mapped, walk
from tidegate.sql.steps.relation import Named, Scalar
from tidegate.sql.syntax.expressions import tree_of
from tidegate.sql.syntax.nodes import QUERIES, shown
from tidegate.sql.syntax.parse_tree import word_of
from tidegate.sql.syntax.text import SqlText

OUTER: Final = "outer."
"""How the names of columns begin in an expression that stand for a column of the query around."""


@dataclass(slots=True)
class Scope:
    """What the names in the expressions of a query stand for; the implementation of `expressions.Names`.

    `types` has the fields of the rows. Queries used as values are planned by `plan_scalar` when they are met, and
    gathered in `scalars`.
    """

    source: SqlText
    columns: Sequence[Named]
    types: dict[str, Field]
    parameters: Mapping[str, Any]
    used: set[str]
    plan_scalar: Callable[[Any, Scope], Scalar]
    user_function: Callable[[Scope, Any, str, tuple[Tree, ...]], Tree]
    user_functions: Collection[str] = ()
    outer: Scope | None = None
    scalars: list[Scalar] = field(default_factory=list)

    def column(self, node: Any) -> Tree:
        """The column that a node names, here or in the query around."""
        found = self.named(node)
        if found is not None:
            return Column(found.field)
        field = self._field_of_column(node)
        if field is not None:
            return field
        if self.outer is not None:
            outside = self.outer.column(node)
            if outer_fields(outside):
                raise self.source.refusal(f"{shown(node)} is a column of a query further out than the one around", node)
            for name in column_names(outside):
                self.types[f"{OUTER}{name}"] = replace(self.outer.types[name], name=f"{OUTER}{name}")
            return mapped(outside, lambda each: Column(f"{OUTER}{each.name}") if isinstance(each, Column) else None)
        raise self.source.refusal(self._unknown(node), node)

    def named(self, node: Any) -> Named | None:
        """The column of this query that a node names; None if there is none."""
        return None if node.args.get("db") is not None else self._named(node.table, node.name, node)

    def _field_of_column(self, node: Any) -> Tree | None:
        """The field of a column, with or without its table in front: `address.city`, `users.address.city`."""
        words = [word_of(node.args.get(name)) for name in ("catalog", "db", "table", "this")]
        words = [word for word in words if word]
        for tables in (words[:1], []):
            inside = words[len(tables) :]
            column = self._named("".join(tables), inside[0], node) if len(inside) > 1 else None
            if column is not None:
                tree: Tree = Column(column.field)
                for word in inside[1:]:
                    tree = self.field(tree, word, node)
                return tree
        return None

    def field(self, tree: Tree, name: str, node: Any) -> Tree:
        """A field of a record, whose case matters only if there are two. Raises SqlError if there is none."""
        type = self.type_of(tree)
        if not isinstance(type, StructType):
            raise self.source.refusal(f"{shown(node)}: a value of type {type} has no fields", node)
        names = [each.name for each in type.fields]
        found = [each for each in names if each == name] or [each for each in names if _same(each, name)]
        if len(found) != 1:
            message = f"{shown(node)}: there is no field {name}; there are {', '.join(names) or 'none'}"
            raise self.source.refusal(message, node)
        return Call("part", (tree, Literal(found[0], STRING)))

    def _named(self, table: str, name: str, node: Any) -> Named | None:
        found = [each for each in self.columns if _same(each.name, name) and (not table or _same(each.table, table))]
        exact = [each for each in found if each.name == name]
        found = exact or found
        if len(found) > 1:
            places = {f"{each.table}.{each.name}": None for each in found}
            if len(places) < len(found):
                owner = found[0].table or "the table"
                advice = f"{owner} has two of that name: call one by another in a query of FROM, … AS …"
            else:
                advice = f"write one of {', '.join(places)}"
            raise self.source.refusal(f"{name} is ambiguous: {advice}", node)
        return found[0] if found else None

    def parameter(self, node: Any, name: str) -> Any:
        """The value of a parameter."""
        if name not in self.parameters:
            known = ", ".join(self.parameters) or "none"
            raise self.source.refusal(f"the parameter {name} has no value: params has {known}", node)
        self.used.add(name)
        return self.parameters[name]

    def query(self, node: Any) -> Tree:
        """The value of a query that has one."""
        scalar = self.plan_scalar(node, self)
        self.scalars.append(scalar)
        self.types[scalar.field] = scalar.type
        return Column(scalar.field)

    def call(self, node: Any, name: str, arguments: tuple[Tree, ...]) -> Tree:
        """The value of one of the author's functions, which is called before values of subqueries are known."""
        later = {each.field for each in self.scalars}
        for each in arguments:
            if any(map(is_aggregate, walk(each))) or outer_fields(each) or later & fields_of([each]).keys():
                message = f"{name} is called for each row of the tables, so it takes no aggregate, no subquery and no "
                raise self.source.refusal(f"{message}column of an outer query: compute that in FROM (SELECT …)", node)
            try:
                bound(each, self.input)
            except BuildError as error:
                raise self.source.refusal(str(error), node) from None
        return self.user_function(self, node, name, arguments)

    def has_function(self, name: str) -> bool:
        """Whether the author gives a function of this name."""
        return name.lower() in self.user_functions

    def type_of(self, tree: Tree) -> ColumnType:
        """The type of a tree's value."""
        return bound(tree, self.input).type

    @property
    def input(self) -> Input:
        """The types of the columns, for binding."""
        return Input(Schema(tuple(self.types.values())))

    def tree(self, node: Any) -> Tree:
        """The tree of a node, checked, and without aggregates. Raises SqlError that points to the part refused."""
        tree = tree_of(node, self)
        for each in walk(tree):
            if is_aggregate(each):
                raise self.source.refusal(f"{shown(node)}: aggregates can't stand here. Write them in HAVING", node)
        return self.checked(node, tree)

    def checked(self, node: Any, tree: Tree) -> Tree:
        """The tree with types; SqlError, pointing to the smallest part of the node that is refused."""
        try:
            return bound(tree, self.input)
        except SqlError:
            raise
        except BuildError as error:
            raise self.source.refusal(str(error), self._refused_part(node)) from None

    def _refused_part(self, node: Any) -> Any:
        for inner in node.children():
            if inner.kind in QUERIES:
                continue
            try:
                bound(tree_of(inner, self), self.input)
            except SqlError:
                continue  # no expression by itself, such as a unit of time
            except BuildError:
                return self._refused_part(inner)
        return node

    def _unknown(self, node: Any) -> str:
        from tidegate.sdk.user_code.keywords import near

        tables = list(dict.fromkeys(each.table for each in self.columns))
        if node.table and not any(_same(each, node.table) for each in tables):
            return f"there is no table {node.table} in this query; it has {', '.join(tables) or 'none'}"
        names = list(
            dict.fromkeys(each.name for each in self.columns if not node.table or _same(each.table, node.table))
        )
        meant = near(node.name, names)
        return f"there is no column {node.name}; there are {', '.join(names) or 'none'}" + (
            f". Did you mean {meant}?" if meant else ""
        )


def _same(one: str, two: str) -> bool:
    return one.lower() == two.lower()


def fields_of(trees: Sequence[Tree]) -> dict[str, None]:
    """The fields that trees read, each once."""
    return {name: None for tree in trees for name in column_names(tree)}


def outer_fields(tree: Tree) -> list[str]:
    """The fields of the query around that a tree reads."""
    return [name for name in column_names(tree) if name.startswith(OUTER)]
