"""The tree of an expression: columns, literals, calls of operations, CASE and CAST, as frozen dataclasses.

Authors build trees without types; `binding` gives each node the type and nullability that follow from a schema, and
inserts the implicit casts. Only a bound tree is given to a back end. A tree holds no code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidegate.sdk.data.columns import UNKNOWN, ColumnType


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the element."""

    name: str
    type: ColumnType = UNKNOWN
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is NULL."""

    value: Any
    type: ColumnType

    @property
    def nullable(self) -> bool:
        """Whether it is NULL."""
        return self.value is None


@dataclass(frozen=True, slots=True)
class Call:
    """An operation of the table (`operations`) applied to arguments."""

    operation: str
    arguments: tuple[Tree, ...]
    type: ColumnType = UNKNOWN
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch `(condition, value)` whose condition is true, else `otherwise`."""

    branches: tuple[tuple[Tree, Tree], ...]
    otherwise: Tree
    type: ColumnType = UNKNOWN
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Cast:
    """The operand converted to another type; an error if its value can't be converted."""

    operand: Tree
    type: ColumnType
    nullable: bool = True


Tree: TypeAlias = Column | Literal | Call | Case | Cast


def parts(tree: Tree) -> tuple[Tree, ...]:
    """The trees that a tree directly consists of, in the order in which they are evaluated."""
    match tree:
        case Call(arguments=arguments):
            return arguments
        case Case(branches=branches, otherwise=otherwise):
            return (*(part for branch in branches for part in branch), otherwise)
        case Cast(operand=operand):
            return (operand,)
        case _:
            return ()


def walk(tree: Tree) -> Iterator[Tree]:
    """The tree and all trees inside it."""
    yield tree
    for part in parts(tree):
        yield from walk(part)


def column_names(tree: Tree) -> dict[str, None]:
    """The names of the columns that a tree reads, each once, in their order."""
    return {each.name: None for each in walk(tree) if isinstance(each, Column)}


INFIX: Final = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "remainder": "%",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_or_equal": "<=",
    "greater": ">",
    "greater_or_equal": ">=",
    "and": "&",
    "or": "|",
}
"""The operators that authors write for operations of two arguments."""


def text(tree: Tree) -> str:
    """The tree as authors write it, without `tg.col` and `tg.lit`: `price * qty > 10`."""
    match tree:
        case Column(name=name):
            return name
        case Literal(value=value):
            return "NULL" if value is None else repr(value)
        case Call(operation=operation, arguments=(one, two)) if operation in INFIX:
            return f"{_inner(one)} {INFIX[operation]} {_inner(two)}"
        case Call(operation="negate", arguments=(one,)):
            return f"-{_inner(one)}"
        case Call(operation="not", arguments=(one,)):
            return f"~{_inner(one)}"
        case Call(operation=operation, arguments=arguments):
            return f"{operation}({', '.join(map(text, arguments))})"
        case Case(branches=branches, otherwise=otherwise):
            whens = "".join(f".when({text(condition)}, {text(value)})" for condition, value in branches)
            return f"{whens[1:]}.otherwise({text(otherwise)})"
        case Cast(operand=operand, type=type):
            return f"{_inner(operand)}.cast({str(type)!r})"


def _inner(tree: Tree) -> str:
    """The text of a part, in parentheses if it has an operator of its own."""
    match tree:
        case Call(operation=operation) if operation in INFIX or operation in ("negate", "not"):
            return f"({text(tree)})"
        case _:
            return text(tree)
