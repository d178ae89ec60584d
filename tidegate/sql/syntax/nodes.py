"""Which nodes of sqlglot are read, and with which arguments: what isn't read is refused, never skipped.

A node of sqlglot is a dict of arguments. Versions add arguments that change the meaning of a node (the NOT of NOT LIKE
is one), so code that reads a node declares all arguments that it takes, and any other one refuses the query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from tidegate.sdk.errors import SqlError
from tidegate.sql.syntax.advice import for_argument, for_kind
from tidegate.sql.syntax.parse_tree import Node
from tidegate.sql.syntax.text import SqlText, has_place

QUERIES: Final = frozenset(("Select", "Union", "Intersect", "Except", "Subquery"))
"""The kinds of nodes that are queries."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Handler(Generic[F]):
    """The function that reads one class of nodes, and the arguments of the node that it reads."""

    function: F
    arguments: frozenset[str]


class Handlers(Generic[F]):
    """Functions by the name of the class of nodes that they read. A class may be missing in a version of sqlglot."""

    def __init__(self) -> None:
        self.by_kind: dict[str, Handler[F]] = {}

    def reads(self, *kinds: str, args: str = "this") -> Callable[[F], F]:
        """Declare that a function reads nodes of these classes, with these arguments, separated by spaces."""

        def declared(function: F) -> F:
            for kind in kinds:
                self.by_kind[kind] = Handler(function, frozenset(args.split()))
            return function

        return declared

    def function(self, node: Any, source: SqlText) -> F | None:
        """The function for a node, whose arguments have been checked; None if there is none for its class."""
        handler = self.by_kind.get(node.kind)
        if handler is None:
            return None
        check_arguments(node, handler.arguments, source)
        return handler.function


def check_arguments(node: Any, known: frozenset[str], source: SqlText) -> None:
    """Raise SqlError if an argument of a node is set that isn't among those known."""
    for name in node.set_arguments():
        if name not in known:
            raise argument_refusal(node, name, source)


def argument_refusal(node: Any, name: str, source: SqlText) -> SqlError:
    """The error for an argument of a node that isn't supported, which points to the argument if its place is known."""
    value = node.set_arguments()[name]
    message = f"{shown(node)}: {_words(name)} is not supported here{_detail(value)}: {for_argument(node.kind, name)}"
    return source.refusal(message, value if has_place(value) else node)


def check_all_read(tree: Node, source: SqlText) -> None:
    """Raise SqlError for the first argument in the tree of a planned statement that nothing has read."""
    for node, name in tree.unread():
        raise argument_refusal(node, name, source)


def read(node: Any, kind: str, arguments: str, source: SqlText) -> Any:
    """The node, which has to be of this class, and may have these arguments. Raises SqlError if not."""
    if node.kind != kind:
        raise source.refusal(f"{shown(node)} is not supported here{for_kind(node.kind)}", node)
    check_arguments(node, frozenset(arguments.split()), source)
    return node


def shown(node: Any) -> str:
    """A node as SQL, shortened."""
    text = " ".join(str(node.sql()).split())
    return text if len(text) <= 60 else f"{text[:57]}…"


def _words(name: str) -> str:
    return name.rstrip("_").replace("_", " ").upper()


def _detail(value: Any) -> str:
    return f" ({shown(value)})" if isinstance(value, Node) else ""
