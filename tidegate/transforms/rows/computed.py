"""Rows of fields some of which are expressions and some functions: a step in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.sdk.data.columns import Field, Schema
from tidegate.sdk.data.row import Row, row_maker
from tidegate.sdk.data.schema import access_of, column_of, schema_of, with_schema
from tidegate.sdk.relational.authoring import Expression, col
from tidegate.sdk.relational.binding import refuse_window
from tidegate.sdk.relational.python.row_function import RowCode, row_function
from tidegate.sdk.relational.relation_binding import bound_relation
from tidegate.sdk.relational.relations import Compute, Named
from tidegate.sdk.relational.steps.rows import computed
from tidegate.sdk.typehints.signatures import signature_of


def named_columns(columns: Mapping[str, str | Expression]) -> tuple[Named, ...]:
    """Columns given by names or expressions."""
    return tuple(Named(name, (col(each) if isinstance(each, str) else each).tree) for name, each in columns.items())


def mixed_rows(expressions: Mapping[str, Any], element_type: Any) -> tuple[Callable[[Any], Row], Any]:
    """The function that makes rows of names, expressions and functions, and the type of the rows.

    The type of a function's values is that of its annotation.
    """
    columns = {name: each for name, each in expressions.items() if isinstance(each, (str, Expression))}
    bound = bound_relation(Compute(named_columns(columns)), [schema_of(element_type)])
    assert isinstance(bound, Compute)
    assert bound.columns is not None
    refuse_window(
        [each.tree for each in bound.columns],
        "a Select with functions doesn't know the window. Give the expressions to a Select of their own",
    )
    trees = {each.name: each.tree for each in bound.columns}
    fields = Schema(
        tuple(
            Field(name, trees[name].type, trees[name].nullable)
            if name in trees
            else Field(name, *column_of(signature_of(each).result))
            for name, each in expressions.items()
        )
    )
    access = access_of(element_type)
    return RowOfFunctions(
        {
            name: Computed(RowCode((trees[name],), access, single=True)) if name in trees else each
            for name, each in expressions.items()
        }
    ), with_schema(Row, fields)


class Computed:
    """A function of an element whose code is generated from an expression; it is pickled as the expression."""

    def __init__(self, code: RowCode) -> None:
        self.code = code
        self._call = row_function(code)

    def __call__(self, element: Any) -> Any:
        return self._call(element)

    def __reduce__(self) -> tuple[Any, ...]:
        return computed, (self.code,)


class RowOfFunctions:
    """A function from an element to the Row of what several functions of it return."""

    def __init__(self, functions: Mapping[str, Callable[[Any], Any]]) -> None:
        self.functions = dict(functions)
        self._functions = tuple(functions.values())
        self._make = row_maker(tuple(functions))

    def __call__(self, element: Any) -> Row:
        row: Row = self._make([function(element) for function in self._functions])
        return row

    def __reduce__(self) -> tuple[Any, ...]:
        return RowOfFunctions, (self.functions,)
