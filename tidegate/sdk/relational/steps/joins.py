"""Joins: the rows of a key's elements of both sides that are in one window.

The elements of a side come as tuples of the values of the columns that the join reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate.sdk.data.row import row_maker
from tidegate.sdk.relational.expressions import Column, Tree
from tidegate.sdk.relational.python.generated_functions import compiled
from tidegate.sdk.relational.python.printing import printed
from tidegate.sdk.relational.python.row_function import RowCode, reads_window, row_function
from tidegate.sdk.relational.relations import JoinKind, Named

Values: TypeAlias = tuple[Any, ...]
"""The values of an element's columns."""


@dataclass(frozen=True, slots=True)
class JoinCode:
    """What a join makes of the elements of a key. `left` and `right` name the columns of which elements have values.

    `several_keys`: the key is a tuple.
    """

    join: JoinKind
    columns: tuple[Named, ...]
    where: Tree | None
    left: tuple[str, ...]
    right: tuple[str, ...]
    several_keys: bool

    @property
    def emits_lefts(self) -> bool:
        """Whether left elements are emitted for having no partner, or once for having one."""
        return self.join in ("left", "full", "semi", "anti")

    @property
    def emits_rights(self) -> bool:
        """Whether right elements without a partner are emitted."""
        return self.join in ("right", "full")

    @property
    def emits_pairs(self) -> bool:
        """Whether each pair is emitted."""
        return self.join not in ("semi", "anti")

    @property
    def trees(self) -> list[Tree]:
        """The expressions over a pair: those of the columns, and the condition."""
        return [each.tree for each in self.columns] + ([] if self.where is None else [self.where])

    @property
    def reads_window(self) -> bool:
        """Whether a column, or the condition, depends on the window."""
        return any(map(reads_window, self.trees))

    def is_null(self, key: Any) -> bool:
        """Whether a key has a NULL, which equals nothing."""
        return None in key if self.several_keys else key is None


def pair_row(code: JoinCode) -> Callable[..., Any]:
    """A function from the values of both sides, of which one may be None, and perhaps the window to the row."""
    trees = tuple(each.tree for each in code.columns)
    optional = {0: code.emits_rights, 1: code.emits_lefts}
    made = printed(trees, _reader(code, optional), checked=False)
    names = {"make": row_maker(tuple(each.name for each in code.columns)), **made.names}
    lines = [*made.reads, f"return make(({''.join(f'{result}, ' for result in made.results)}))"]
    return compiled("joined", _parameters(code), lines, names)


def pair_condition(code: JoinCode) -> Callable[..., bool | None]:
    """A function that says of two elements with equal keys, and perhaps their window, whether they are a pair."""
    if code.where is None:
        return lambda left, right, *window: True
    made = printed((code.where,), _reader(code, {0: False, 1: False}), checked=False)
    return compiled("condition", _parameters(code), [*made.reads, f"return {made.results[0]}"], dict(made.names))


def _parameters(code: JoinCode) -> str:
    return "left, right, window" if code.reads_window else "left, right"


def _reader(code: JoinCode, optional: dict[int, bool]) -> Callable[[Column], str]:
    places = {(0, name): f"left[{at}]" for at, name in enumerate(code.left)}
    places |= {(1, name): f"right[{at}]" for at, name in enumerate(code.right)}

    def read(column: Column) -> str:
        place = places[column.input, column.name]
        side = "right" if column.input else "left"
        return f"None if {side} is None else {place}" if optional[column.input] else place

    return read


def joined_group(code: JoinCode) -> Callable[..., list[Any]]:
    """A function from `(key, (left elements, right elements))`, and perhaps the window, to the rows of the join."""
    if code.join == "inner" and code.where is None:
        return _all_pairs(code)
    row, fits = pair_row(code), pair_condition(code)
    always = code.where is None

    def rows(group: tuple[Any, tuple[list[Values], list[Values]]], *window: Any) -> list[Any]:
        key, (lefts, rights) = group
        found: list[Any] = []
        partners = [] if code.is_null(key) else rights
        matched: set[int] = set()
        for left in lefts:
            own: Sequence[int] = range(len(partners))
            if not always:
                own = [k for k in own if fits(left, partners[k], *window)]
            if code.emits_pairs:
                found += [row(left, partners[k], *window) for k in own]
            if code.emits_lefts and bool(own) == (code.join == "semi"):
                found.append(row(left, None, *window))
            if code.emits_rights:
                matched.update(own)
        if code.emits_rights:
            found += [row(None, right, *window) for k, right in enumerate(rights) if k not in matched]
        return found

    if code.reads_window:
        return lambda group, window: rows(group, window)
    return rows


def _all_pairs(code: JoinCode) -> Callable[..., list[Any]]:
    """The function `joined_group` for an inner join by keys alone. Rows with NULL as key are not among its input."""
    made = printed(tuple(each.tree for each in code.columns), _reader(code, {0: False, 1: False}), checked=False)
    lines = [
        "lefts, rights = group[1]",
        "rows = []",
        "for left in lefts:",
        "    for right in rights:",
        *(f"        {line}" for line in made.reads),
        f"        rows.append(make(({''.join(f'{result}, ' for result in made.results)})))",
        "return rows",
    ]
    names = {"make": row_maker(tuple(each.name for each in code.columns)), **made.names}
    return compiled("pairs", "group, window" if code.reads_window else "group", lines, names)


def product(code: JoinCode, left: RowCode) -> Callable[[Any, Sequence[Values]], list[Any]]:
    """A function from a left element, and the values of all right elements, to the rows of the join by equal keys."""
    rows, values = joined_group(code), row_function(left)
    key = (0,) if code.several_keys else 0
    return lambda element, rights: rows((key, ([values(element)], list(rights))))
