"""The syntax tree of a statement, which records what was read of it: a part that nothing reads is refused.

It is a copy of sqlglot's tree. What reads a node asks for its arguments by name, and once a statement is planned, every
argument that its author wrote has been asked for, or the statement is refused. So an argument that a later version adds
can't change a query in silence, whatever code forgot about it. As a copy it is the same for the pure and the compiled
sqlglot, whose own nodes can't be observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

_PRINTING: Final = frozenset(
    (
        ("Concat", "safe"),
        ("Count", "big_int"),
        ("DPipe", "safe"),
        ("Identifier", "quoted"),
        ("Window", "over"),
    )
)
"""Arguments that sqlglot sets by itself, to print a node in another dialect: they don't change what it means."""


class Arguments(dict[str, Any]):
    """The arguments of a node, which record those that are asked for by name."""

    __slots__ = ("read",)

    def __init__(self) -> None:
        super().__init__()
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


class Node:
    """A node of sqlglot: `kind` is its class, `args` its arguments, `origin` the node itself.

    An argument is a node, a list of nodes, or a plain value such as a text.
    """

    __slots__ = ("args", "kind", "origin", "parent")

    def __init__(self, origin: Any, parent: Node | None = None) -> None:
        self.origin = origin
        self.kind = type(origin).__name__
        self.parent = parent
        self.args = Arguments()
        for name, value in origin.args.items():
            self.args[name] = self._part(value)

    def _part(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._part(each) for each in value]
        return type(self)(value, self) if hasattr(value, "args") and hasattr(value, "arg_types") else value

    @property
    def this(self) -> Any:
        """The first argument of most nodes."""
        return self.args.get("this")

    @property
    def expression(self) -> Any:
        """The second argument of nodes that have two."""
        return self.args.get("expression")

    @property
    def expressions(self) -> list[Any]:
        """The further arguments of nodes that have many."""
        return self.args.get("expressions") or []

    @property
    def name(self) -> str:
        """The name that a node states: an identifier's, a column's, a table's, or the text of a constant."""
        return "*" if self.kind == "Star" else word_of(self.this)

    @property
    def table(self) -> str:
        """The table that a column names."""
        return word_of(self.args.get("table"))

    @property
    def alias(self) -> str:
        """The name behind AS."""
        return word_of(self.args.get("alias"))

    @property
    def start(self) -> int | None:
        """The offset of the node in the text. sqlglot records it for names only, and in hints as if they were texts."""
        found: int | None = self.origin.meta.get("start")
        return None if any(each.kind == "Hint" for each in self.around()) else found

    @property
    def function_name(self) -> str | None:
        """The name of the function that the node calls; None for an operator."""
        named = getattr(self.origin, "sql_name", None)
        return None if named is None else str(named()).lower()

    @property
    def declared(self) -> Mapping[str, bool]:
        """The arguments that nodes of this kind may have."""
        found: Mapping[str, bool] = self.origin.arg_types
        return found

    def sql(self) -> str:
        """The node as SQL, for messages."""
        return str(self.origin.sql())

    def children(self) -> Iterator[Self]:
        """The nodes among the arguments."""
        for value in self.args.values():
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, type(self)):
                    yield each

    def around(self) -> Iterator[Node]:
        """The node, and those that it is in."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[Self]:
        """The node, and all those below it."""
        yield self
        for each in self.children():
            yield from each.walk()

    def find_all(self, kind: str) -> Iterator[Self]:
        """The nodes of a kind among this one and those below it."""
        return (each for each in self.walk() if each.kind == kind)

    def means_same(self, other: Node) -> bool:
        """Whether another node states the same."""
        return bool(self.origin == other.origin)

    def skip(self) -> None:
        """Count all of it as read, since it has no part in the result."""
        for each in self.walk():
            each.args.read.update(each.args)

    def unread(self) -> Iterator[tuple[Self, str]]:
        """The arguments that are set and that nothing has asked for, each with its node.

        A table of WITH that nothing reads has no part in the result, so it is left out.
        """
        for node in self.walk():
            if node.kind == "CTE" and "this" not in node.args.read:
                node.skip()
            for name in node.set_arguments():
                if name not in node.args.read and (node.kind, name) not in _PRINTING:
                    yield node, name

    def set_arguments(self) -> Mapping[str, Any]:
        """The arguments that the statement gives."""
        return {name: value for name, value in self.args.items() if value not in (None, False) and value != []}


def word_of(value: Any) -> str:
    """The word that an argument is: a name, the text of a constant, a unit of time; empty for what is no word."""
    match value:
        case str():
            return value
        case Node(kind="Identifier" | "Literal" | "Var"):
            value.args.read.add("is_string")  # a unit of time is one with quotes and without
            return str(value.this)
        case Node(kind="TableAlias"):
            return value.name
        case _:
            return ""
