"""Functions of the author's in SQL: Python, called for each row before the expressions that use its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from tidegate.sdk.data.columns import ColumnType, Field, Schema
from tidegate.sdk.data.row import Row, row_maker
from tidegate.sdk.data.schema import access_of, column_type, schema_of, with_schema
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Map
from tidegate.sdk.relational.binding import Input, bound
from tidegate.sdk.relational.expressions import Column, Tree, column_names
from tidegate.sdk.relational.python.row_function import RowCode, row_function


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A Python function for SQL, with the type of its result; `tg.udf` returns one."""

    function: Callable[..., Any]
    type: ColumnType


def udf(fn: Callable[..., Any], *, returns: Any) -> UserFunction:
    """A Python function for `tg.Sql(..., functions={"name": tg.udf(fn, returns=int)})`.

    It is called with the values of its arguments, NULL being None, once for each row that reaches the clause in which
    it stands, whatever CASE or AND are around it. `returns` is the type of its result, which may be None.
    """
    if not callable(fn):
        raise BuildError(f"tg.udf takes a function, not {shorten(fn)}")
    return UserFunction(fn, column_type(returns))


@dataclass(frozen=True, slots=True)
class Computed:
    """A call of a function, whose result is a field of the rows."""

    field: str
    function: UserFunction
    arguments: tuple[Tree, ...]


def with_results(rows: PCollection[Any], calls: Sequence[Computed], label: str) -> PCollection[Any]:
    """The rows with the results of calls as further fields. A call may take the results of those before it."""
    ready = list(takewhile(lambda call: not _reads(call, calls), calls))
    later = calls[len(ready) :]
    made = _with_results(rows, ready, label)
    return with_results(made, later, f"{label} then {', '.join(each.field for each in later)}") if later else made


def _reads(call: Computed, others: Sequence[Computed]) -> bool:
    """Whether a call takes the result of another one."""
    names = {name for tree in call.arguments for name in column_names(tree)}
    return any(each.field in names for each in others)


def _with_results(rows: PCollection[Any], calls: Sequence[Computed], label: str) -> PCollection[Any]:
    element = rows.element_type
    known = schema_of(element)
    old = () if known is None else known.fields
    made = Schema((*old, *(Field(each.field, each.function.type) for each in calls)))
    trees: list[Tree] = [Column(each.name, each.type, each.nullable) for each in old]
    parts = []
    for call in calls:
        parts.append((call.function.function, len(call.arguments)))
        trees += [bound(each, Input(known)) for each in call.arguments]
    step = Calling(RowCode(tuple(trees), access_of(element)), made.names, tuple(parts))
    result: PCollection[Any] = rows | Map(step, name=label).with_output_types(with_schema(Row, made))
    return result


class Calling:
    """A function from an element to the Row of its fields and of the results of functions."""

    def __init__(
        self, code: RowCode, names: tuple[str, ...], calls: tuple[tuple[Callable[..., Any], int], ...]
    ) -> None:
        self.parts = code, names, calls
        self._values = row_function(code)
        self._make = row_maker(names)
        self._calls = calls
        self._old = len(names) - len(calls)

    def __call__(self, element: Any) -> Row:
        values = self._values(element)
        row = list(values[: self._old])
        at = self._old
        for function, count in self._calls:
            row.append(function(*values[at : at + count]))
            at += count
        made: Row = self._make(row)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Calling, self.parts


def checked_functions(functions: Mapping[str, Any] | None) -> dict[str, UserFunction]:
    """The functions by name in lower case. Raises BuildError for a value that isn't a `tg.udf`."""
    found = {}
    for name, each in (functions or {}).items():
        if not isinstance(each, UserFunction):
            raise BuildError(f"functions[{name!r}] is made by tg.udf(fn, returns=type), not {shorten(each)}")
        found[name.lower()] = each
    return found
