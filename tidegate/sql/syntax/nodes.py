"""Which nodes of sqlglot are read, and with which arguments: what isn't read is refused, never skipped.

A node of sqlglot is a dict of arguments. Versions add arguments that change the meaning of a node (the NOT of NOT LIKE
is one), so code that reads a node declares all arguments that it takes, and any other one refuses the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tidegate.sql.syntax.text import SqlText

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
        handler = self.by_kind.get(type(node).__name__)
        if handler is None:
            return None
        check_arguments(node, handler.arguments, source)
        return handler.function


def check_arguments(node: Any, known: frozenset[str], source: SqlText) -> None:
    """Raise SqlError if an argument of a node is set that isn't among those known."""
    for name, value in arguments_of(node).items():
        if name not in known:
            raise source.refusal(f"{shown(node)}: {_words(name)} is not supported here{_detail(value)}", node)


def read(node: Any, kind: str, arguments: str, source: SqlText) -> Any:
    """The node, which has to be of this class, and may have these arguments. Raises SqlError if not."""
    if type(node).__name__ != kind:
        raise source.refusal(f"{shown(node)} is not supported here", node)
    check_arguments(node, frozenset(arguments.split()), source)
    return node


def arguments_of(node: Any) -> Mapping[str, Any]:
    """The arguments of a node that are set."""
    return {
        name: value for name, value in node.args.items() if value is not None and value is not False and value != []
    }


def shown(node: Any) -> str:
    """A node as SQL, shortened."""
    text = " ".join(str(node.sql()).split())
    return text if len(text) <= 60 else f"{text[:57]}…"


def _words(name: str) -> str:
    return name.rstrip("_").replace("_", " ").upper()


def _detail(value: Any) -> str:
    return f" ({shown(value)})" if hasattr(value, "sql") else ""
