"""Rows of computed columns: `Select` with expressions, lowered to functions of elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidegate.sdk.data.columns import Field, Schema
from tidegate.sdk.data.schema import access_of, column_of, schema_of, with_schema
from tidegate.sdk.errors import BuildError
from tidegate.sdk.relational.authoring import Expression, col
from tidegate.sdk.relational.binding import Input, bound
from tidegate.sdk.relational.expressions import Tree
from tidegate.sdk.relational.python.row_function import RowCode, row_function
from tidegate.sdk.typehints.signatures import signature_of
from tidegate.transforms.rows.row import Row, row_maker


class Computed:
    """A function of an element whose code is generated from expressions; it is pickled as the expressions.

    With `row`, the names of fields, it returns a Row of the values.
    """

    def __init__(self, code: RowCode, row: tuple[str, ...] | None = None) -> None:
        self.parts = code, row
        self._call = computed(code, row)

    def __call__(self, element: Any) -> Any:
        return self._call(element)

    def __reduce__(self) -> tuple[Any, ...]:
        return computed, self.parts


def computed(code: RowCode, row: tuple[str, ...] | None = None) -> Callable[[Any], Any]:
    """The generated function of a `Computed`."""
    return row_function(code, None if row is None else row_maker(row))


def bound_columns(columns: Mapping[str, Expression], element_type: Any) -> dict[str, Tree]:
    """The columns bound to the schema of elements of a type. Raises BuildError, naming the column."""
    input = Input(schema_of(element_type))
    found: dict[str, Tree] = {}
    for name, expression in columns.items():
        try:
            found[name] = bound(expression.tree, input)
        except BuildError as error:
            error.args = (f"column {name!r}: {error}",)
            raise
    return found


def select_rows(expressions: Mapping[str, Any], element_type: Any) -> tuple[Callable[[Any], Row], Any]:
    """The function that makes the rows of a `Select`, and the type of the rows.

    Names and expressions are computed by generated code. If there is a function among them, all values are those of
    functions, and its type is that of its annotation.
    """
    columns = {
        name: col(each) if isinstance(each, str) else each
        for name, each in expressions.items()
        if isinstance(each, (str, Expression))
    }
    trees = bound_columns(columns, element_type)
    fields = Schema(
        tuple(
            Field(name, trees[name].type, trees[name].nullable)
            if name in trees
            else Field(name, *column_of(signature_of(each).result))
            for name, each in expressions.items()
        )
    )
    hint = with_schema(Row, fields)
    if len(trees) == len(expressions):
        return Computed(RowCode(tuple(trees.values()), access_of(element_type)), tuple(expressions)), hint
    return RowOfFunctions(
        {
            name: Computed(RowCode((trees[name],), access_of(element_type), single=True)) if name in trees else each
            for name, each in expressions.items()
        }
    ), hint


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
