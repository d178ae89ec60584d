"""Element-wise steps of relations: rows of computed columns, conditions, and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidegate.sdk.data.columns import DOUBLE
from tidegate.sdk.data.row import row_maker
from tidegate.sdk.data.schema import Access
from tidegate.sdk.relational.expressions import Tree
from tidegate.sdk.relational.python.row_function import RowCode, row_function


class FromParts:
    """Pickles as a call of a function with arguments: unpickled, it is what the call returns."""

    def __init__(self, make: Callable[..., Any], *parts: Any) -> None:
        self.make = make
        self.parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return self.make, self.parts


def computed(code: RowCode, row: tuple[str, ...] | None = None) -> Callable[..., Any]:
    """A function that computes expressions; with `row`, the names of fields, it returns a Row of the values."""
    return row_function(code, None if row is None else row_maker(row))


def predicate(code: RowCode) -> Callable[..., Any]:
    """A function that says whether an element passes a filter."""
    return row_function(code)


NAN: Final = "NaN"
"""What a key has instead of NaN, which is no key since it doesn't equal itself."""


def key_function(trees: tuple[Tree, ...], access: Access) -> Callable[[Any], Any]:
    """A function from an element to its key: the value of a single expression, else a tuple.

    Equal values of SQL are equal keys: NaN is one key, and so are the two zeros.
    """
    single = len(trees) == 1
    doubles = [k for k, tree in enumerate(trees) if tree.type == DOUBLE]
    values = row_function(RowCode(trees, access, single))
    if not doubles:
        return values
    if single:
        return lambda element: _as_key(values(element))

    def key(element: Any) -> tuple[Any, ...]:
        parts = list(values(element))
        for k in doubles:
            parts[k] = _as_key(parts[k])
        return tuple(parts)

    return key


def _as_key(value: float | None) -> Any:
    return value if value is None else NAN if value != value else value + 0.0


def keyed(key: tuple[Tree, ...], access: Access, value: RowCode | None = None, side: int | None = None) -> Any:
    """A function from an element to a pair of its key and computed values, or the element itself.

    With `side`, the second part is a pair of that number and the values.
    """
    of = key_function(key, access)
    if value is None:
        return lambda element: (of(element), element)
    values = row_function(value)
    if side is None:
        return lambda element: (of(element), values(element))
    return lambda element: (of(element), (side, values(element)))


def second(pair: tuple[Any, Any]) -> Any:
    """The second part of a pair."""
    return pair[1]
