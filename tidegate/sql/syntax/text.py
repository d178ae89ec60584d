"""The text of a statement, and errors that point into it: line, column, and a caret under what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.sdk.errors import SqlError
from tidegate.sql.syntax.parse_tree import Node


@dataclass(frozen=True, slots=True)
class SqlText:
    """A statement as its author wrote it."""

    text: str

    def error(self, message: str, at: int | None) -> SqlError:
        """The error for the character at an offset of the text; None if the place isn't known.

        Messages of expressions are put in words of SQL.
        """
        message = message.replace(". To convert a value, write .cast(...)", ". To convert a value, write CAST(… AS …)")
        if at is None:
            return SqlError(message)
        at = min(at, len(self.text))
        begin = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        line = self.text[begin : len(self.text) if end < 0 else end]
        number, column = self.text.count("\n", 0, at) + 1, at - begin + 1
        shown = line.expandtabs(1).rstrip()
        return SqlError(f"{message}\n  line {number}, column {column}:\n    {shown}\n    {' ' * (column - 1)}^")

    def refusal(self, message: str, node: Any) -> SqlError:
        """The error for a node of the syntax tree: it points to the first character of the node that is known."""
        return self.error(message, position(node))


def position(node: Node | None) -> int | None:
    """The offset at which a node of sqlglot begins, or that of the nearest node around it that has one.

    sqlglot records places for names only. A node without a name in it is found by those beside it.
    """
    while node is not None:
        starts = [each.start for each in node.walk() if each.start is not None]
        if starts:
            return min(starts)
        node = node.parent
    return None


def has_place(value: Any) -> bool:
    """Whether an argument of a node is itself a node with a place in the text."""
    return isinstance(value, Node) and any(each.start is not None for each in value.walk())
