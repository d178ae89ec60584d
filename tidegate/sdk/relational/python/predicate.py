"""Predicates: expressions as functions that say whether an element passes a filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegate.sdk.data.columns import BOOLEAN, VOID
from tidegate.sdk.data.schema import access_of, schema_of
from tidegate.sdk.errors import BuildError, TypeCheckError
from tidegate.sdk.relational.authoring import Expression
from tidegate.sdk.relational.binding import Input, bound
from tidegate.sdk.relational.expressions import text
from tidegate.sdk.relational.python.row_function import RowCode, row_function


class Predicate:
    """A function of an element whose code is generated from an expression; it is pickled as the expression."""

    def __init__(self, code: RowCode | None, shown: str) -> None:
        self.code = code
        self.shown = shown
        self._call = None if code is None else row_function(code)

    @staticmethod
    def unbound(expression: Expression) -> Predicate:
        """The predicate before the columns of its elements are known."""
        return Predicate(None, repr(expression))

    @staticmethod
    def of(expression: Expression, element_type: Any) -> Predicate:
        """The predicate for elements of a type. Raises BuildError if the expression doesn't fit them."""
        tree = bound(expression.tree, Input(schema_of(element_type)))
        if tree.type not in (BOOLEAN, VOID):
            raise TypeCheckError(f"a filter's condition is a boolean, and {text(tree)} is of type {tree.type}")
        return Predicate(RowCode((tree,), access_of(element_type), single=True), text(tree))

    def __call__(self, element: Any) -> bool | None:
        if self._call is None:
            raise BuildError(f"the condition {self.shown} is not bound to the columns of a collection")
        passes: bool | None = self._call(element)
        return passes

    def __reduce__(self) -> tuple[Any, ...]:
        return predicate, (self.code,)


def predicate(code: RowCode) -> Callable[[Any], Any]:
    """The generated function of a `Predicate`."""
    return row_function(code)
