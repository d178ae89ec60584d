"""Element-wise steps of relations: rows of computed columns, conditions, and keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidegate.sdk.data.columns import DOUBLE, Access
from tidegate.sdk.data.row import row_maker
from tidegate.sdk.relational.expressions import Tree
from tidegate.sdk.relational.python.generated_functions import compiled
from tidegate.sdk.relational.python.printing import printed
from tidegate.sdk.relational.python.row_function import RowCode, parameters_of, reader, row_function
from tidegate.sdk.relational.python.values import field_of


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


def key_function(trees: tuple[Tree, ...], access: Access, checked: bool = True) -> Callable[..., Any]:
    """A function from an element, and from its window if an expression reads that, to its key: the value of a single
    expression, else a tuple. `checked`: as in RowCode.

    Equal values of SQL are equal keys: NaN is one key, and so are the two zeros.
    """
    made = printed(trees, reader(access), checked=checked)
    lines = [*made.reads, f"return {key_of(trees, made.results)}"]
    return compiled("key", parameters_of(trees), lines, KEY_NAMES | dict(made.names))


def key_of(trees: Sequence[Tree], results: Sequence[str]) -> str:
    """The expression of the key of these expressions, whose values are `results`."""
    parts = [f"as_key({result})" if tree.type == DOUBLE else result for tree, result in zip(trees, results)]
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"


def _as_key(value: float | None) -> Any:
    return value if value is None else NAN if value != value else value + 0.0


KEY_NAMES: Final[dict[str, Any]] = {"as_key": _as_key, "field_of": field_of}
"""The functions that keys, and the columns that they read, refer to."""


def keyed(
    key: tuple[Tree, ...],
    access: Access,
    values: tuple[Tree, ...] | None = None,
    side: int | None = None,
    checked: bool = True,
    bare: bool = False,
) -> Callable[..., tuple[Any, Any]]:
    """A function from an element, and from its window if an expression reads that, to a pair of its key and the
    tuple of computed values, or the element itself.

    With `side`, the second part is a pair of that number and the values. `checked`: as in RowCode. `bare`: there is one
    value, which is no tuple.
    """
    trees = (*key, *(values or ()))
    made = printed(trees, reader(access), checked=checked)
    computed = f"({''.join(f'{result}, ' for result in made.results[len(key) :])})"
    if bare:
        (computed,) = made.results[len(key) :]
    value = "element" if values is None else computed if side is None else f"({side}, {computed})"
    lines = [*made.reads, f"return {key_of(key, made.results)}, {value}"]
    return compiled("keyed", parameters_of(trees), lines, KEY_NAMES | dict(made.names))


def second(pair: tuple[Any, Any]) -> Any:
    """The second part of a pair."""
    return pair[1]
