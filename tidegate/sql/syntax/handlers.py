"""Handlers of expressions: which function binds which node of sqlglot, and what names in expressions stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from tidegate.sdk.data.columns import ColumnType
from tidegate.sdk.relational.expressions import Call, Tree
from tidegate.sql.syntax.advice import for_kind
from tidegate.sql.syntax.nodes import Handlers, shown
from tidegate.sql.syntax.text import SqlText


class Names(Protocol):
    """What the names in an expression stand for."""

    source: SqlText

    def column(self, node: Any) -> Tree:
        """The column that a node names."""

    def field(self, tree: Tree, name: str, node: Any) -> Tree:
        """The field of a record."""

    def parameter(self, node: Any, name: str) -> Any:
        """The value of a parameter."""

    def query(self, node: Any) -> Tree:
        """The value of a query that has one."""

    def call(self, node: Any, name: str, arguments: tuple[Tree, ...]) -> Tree:
        """The value of a function that SQL doesn't define."""

    def has_function(self, name: str) -> bool:
        """Whether the author gives a function of this name."""

    def type_of(self, tree: Tree) -> ColumnType:
        """The type of a tree's value."""


_Read: TypeAlias = Callable[[Any, Names], Tree]
HANDLERS: Final[Handlers[_Read]] = Handlers()
reads = HANDLERS.reads


def tree_of(node: Any, names: Names) -> Tree:
    """The tree of a node, without types. Raises SqlError for what isn't supported."""
    function = HANDLERS.function(node, names.source)
    if function is None:
        raise names.source.refusal(f"{shown(node)} is not supported ({node.kind}){for_kind(node.kind)}", node)
    return function(node, names)


def call(operation: str, *arguments: Tree) -> Tree:
    return Call(operation, arguments)
