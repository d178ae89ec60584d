"""Predicates: conditions as functions of the author's side, for filters whose failures become dead letters."""

from __future__ import annotations

from typing import Any

from tidegate.sdk.data.schema import access_of, schema_of
from tidegate.sdk.errors import BuildError
from tidegate.sdk.relational.authoring import Expression
from tidegate.sdk.relational.binding import refuse_window
from tidegate.sdk.relational.expressions import text
from tidegate.sdk.relational.python.row_function import RowCode, row_function
from tidegate.sdk.relational.relation_binding import bound_relation
from tidegate.sdk.relational.relations import Compute
from tidegate.sdk.relational.steps.rows import predicate


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
        bound = bound_relation(Compute(where=expression.tree), [schema_of(element_type)])
        assert isinstance(bound, Compute)
        assert bound.where is not None
        refuse_window(
            [bound.where],
            "a filter whose failures become dead letters doesn't know the window. Make a column of it first, as in "
            "tg.Select(..., start=tg.fn.window_start())",
        )
        return Predicate(RowCode((bound.where,), access_of(element_type), single=True), text(bound.where))

    def __call__(self, element: Any) -> bool | None:
        if self._call is None:
            raise BuildError(f"the condition {self.shown} is not bound to the columns of a collection")
        passes: bool | None = self._call(element)
        return passes

    def __reduce__(self) -> tuple[Any, ...]:
        return predicate, (self.code,)
