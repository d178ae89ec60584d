"""Handlers of expressions: which function binds which node of sqlglot, and what names in expressions stand for."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from tidegate.sdk.data.columns import DOUBLE, ColumnType
from tidegate.sdk.relational.expressions import Call, Literal, Tree
from tidegate.sql.syntax.nodes import Handlers, shown
from tidegate.sql.syntax.text import SqlText


class Names(Protocol):
    """What the names in an expression stand for."""

    source: SqlText

    def column(self, node: Any) -> Tree:
        """The column that a node names."""

    def parameter(self, node: Any, name: str) -> Any:
        """The value of a parameter."""

    def query(self, node: Any) -> Tree:
        """The value of a query that has one."""

    def call(self, node: Any, name: str, arguments: tuple[Tree, ...]) -> Tree:
        """The value of a function that SQL doesn't define."""

    def type_of(self, tree: Tree) -> ColumnType:
        """The type of a tree's value."""


_Read: TypeAlias = Callable[[Any, Names], Tree]
HANDLERS: Final[Handlers[_Read]] = Handlers()
reads = HANDLERS.reads


def tree_of(node: Any, names: Names) -> Tree:
    """The tree of a node, without types. Raises SqlError for what isn't supported."""
    try:
        exact = exact_number(node)
    except decimal.DecimalException:
        raise names.source.refusal(f"{shown(node)} is no number that can be computed exactly", node) from None
    if exact is not None:
        if not math.isfinite(value := float(exact)):
            raise names.source.refusal(f"{shown(node)} is too large for a double", node)
        return Literal(value, DOUBLE)
    function = HANDLERS.function(node, names.source)
    if function is None:
        raise names.source.refusal(f"{shown(node)} is not supported ({type(node).__name__}){_advice(node)}", node)
    return function(node, names)


def _advice(node: Any) -> str:
    match type(node).__name__:
        case "Window":
            return (
                ": an OVER clause is supported as ROW_NUMBER() OVER (…) AS n in a subquery whose outer query has the "
                "condition n <= k, or n = 1"
            )
        case "TryCast":
            return ": a value that can't be cast is an error, so write CAST, inside CASE WHEN … THEN if need be"
        case "Star":
            return ": * stands for all columns only in SELECT and COUNT(*)"
        case "CurrentTimestamp" | "CurrentDate" | "CurrentTime" | "Rand" | "Uuid":
            return ": its value would differ whenever the pipeline runs again. Pass a value in params"
        case _:
            return ""


def call(operation: str, *arguments: Tree) -> Tree:
    return Call(operation, arguments)


def exact_number(node: Any) -> decimal.Decimal | None:
    """The value of a constant with a decimal point, computed exactly: 0.06 + 0.01 is 0.07 in SQL."""
    found = number_of(node)
    return found if found is not None and found.as_tuple().exponent not in (0,) else None


def number_of(node: Any) -> decimal.Decimal | None:
    match type(node).__name__:
        case "Literal" if not node.args.get("is_string"):
            text = str(node.this)
            found = decimal.Decimal(text)
            is_double = not text.isdecimal()  # as 1e0 and 1. are
            return found * decimal.Decimal("1.0") if is_double and found.as_tuple().exponent == 0 else found
        case "Paren":
            return number_of(node.this)
        case "Neg":
            inner = number_of(node.this)
            return None if inner is None else -inner
        case "Add" | "Sub" | "Mul" as kind:
            one, two = number_of(node.this), number_of(node.expression)
            if one is None or two is None:
                return None
            return one + two if kind == "Add" else one - two if kind == "Sub" else one * two
        case _:
            return None
