"""Functions of an element that compute expressions: generated once, and pickled as the expressions they compute."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.sdk import moved
from tidegate.sdk.data.columns import Access
from tidegate.sdk.relational.binding import is_of_window
from tidegate.sdk.relational.expressions import Column, Tree, walk
from tidegate.sdk.relational.python.generated_functions import compiled
from tidegate.sdk.relational.python.printing import printed
from tidegate.sdk.relational.python.values import field_of


@dataclass(frozen=True, slots=True)
class RowCode:
    """The expressions that a function computes, bound to the columns of its elements, and how it reads those.

    It returns the value of a single expression if `single`, else a tuple of the values. If an expression reads the
    element's window, that is its second parameter. Unless `checked`, the columns are known to hold values of their
    types.
    """

    trees: tuple[Tree, ...]
    access: Access
    single: bool = False
    checked: bool = True

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)


def row_function(code: RowCode, make: Callable[[tuple[Any, ...]], Any] | None = None) -> Callable[[Any], Any]:
    """The function. `make` is applied to the tuple of values."""
    names: dict[str, Any] = {"make": make, "field_of": field_of}
    made = printed(code.trees, reader(code.access), checked=code.checked)
    results = ", ".join(made.results)
    result = results if code.single else f"({results},)" if made.results else "()"
    lines = [*made.reads, f"return make({result})" if make else f"return {result}"]
    return compiled("expressions", parameters_of(code.trees), lines, names | dict(made.names))


def parameters_of(trees: Sequence[Tree]) -> str:
    """The parameters of a function that computes expressions of an element."""
    return "element, window" if any(map(reads_window, trees)) else "element"


def reads_window(tree: Tree) -> bool:
    """Whether the value of a tree depends on the element's window."""
    return any(map(is_of_window, walk(tree)))


def reader(access: Access) -> Callable[[Column], str]:
    """The Python that reads a column of `element`."""
    match access:
        case "attribute":
            return lambda column: _attribute(column.name)
        case "item":
            return lambda column: f"element[{column.name!r}]"
        case "either":
            return lambda column: f"field_of(element, {column.name!r})"


def _attribute(name: str) -> str:
    """The Python that reads an attribute of `element`: by a call where the name isn't one in a text of Python, as
    `class` is not, and as Python takes others than those of ASCII for their normal forms."""
    is_name = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    return f"element.{name}" if is_name else f"getattr(element, {name!r})"
