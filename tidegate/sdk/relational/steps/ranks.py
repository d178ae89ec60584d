"""Ordered elements: the combiners that keep the first ones in an order, and the rows made of them.

Elements that are emitted as they are stay whole behind the values by which they are sorted (`FirstFn`). Of those that
become numbered rows only the values are kept that are sorted by or are columns of the rows (`FirstEntriesFn`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, TypeAlias

from tidegate.sdk.data.columns import DOUBLE, Access
from tidegate.sdk.data.row import row_maker
from tidegate.sdk.relational.expressions import Column, Tree
from tidegate.sdk.relational.python.generated_functions import GeneratedCombineFn, compiled
from tidegate.sdk.relational.python.printing import printed
from tidegate.sdk.relational.python.row_function import parameters_of, reader
from tidegate.sdk.relational.python.values import field_of
from tidegate.sdk.relational.relations import Order
from tidegate.sdk.relational.steps.rows import KEY_NAMES, key_of

_SLACK: Final = 64
"""How many elements beyond twice the limit are kept before they are sorted."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order of elements, whose fields are read by `access`; the first `limit` of them (None: all)."""

    order: tuple[Order, ...]
    access: Access
    limit: int | None


class _First(GeneratedCombineFn):
    """Combines entries, which `add_input` makes of inputs, to a list of the first `limit` ones by some sorts (None:
    all). Its subclasses make `add_input` and `extract_output`."""

    in_parts = True
    has_identity = True

    def __init__(self, sorts: tuple[Sort, ...], limit: int | None) -> None:
        self.limit = limit
        self._sorts = sorts

    @property
    def initial(self) -> str:
        return "[]"

    def add_all(self, accumulator: list[Any], inputs: Iterable[Any]) -> list[Any]:
        for each in inputs:
            self.add_input(accumulator, each)
        return accumulator

    def create_accumulator(self) -> list[Any]:
        return []

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        merged = [entry for accumulator in accumulators for entry in accumulator]
        self._prune(merged)
        return merged

    def compact(self, accumulator: list[Any]) -> list[Any]:
        self._prune(accumulator)
        return accumulator

    def _prune(self, entries: list[Any]) -> None:
        _sort(entries, self._sorts, self.limit)


class FirstEntriesFn(_First):
    """Combines the entries of `entry_function` to a list of the first `limit` ones (None: all).

    `descending` says for each value by which entries are sorted whether the greatest comes first; an entry has so many
    of these before its other values, of `width` in all. An entry of one value is the value.
    """

    def __init__(self, descending: tuple[bool, ...], width: int, limit: int | None) -> None:
        sorts = tuple(_sorts(descending))
        if len(sorts) == 1 and len(descending) == width:
            sorts = ((None, descending[0]),)
        super().__init__(sorts, limit)
        self.parts = descending, width, limit
        self.adding = _adding_lines(sorts, limit)
        lines = ["entries.append(entry)", *_pruning(limit), "return entries"]
        self.add_input = compiled("add", "entries, entry", lines, {"prune": self._prune})  # type: ignore[method-assign]
        self.extract_output = _extracting(sorts, limit, "found")  # type: ignore[method-assign,assignment]

    def add_all(self, accumulator: list[Any], inputs: Iterable[Any]) -> list[Any]:
        if self.limit is not None:
            return super().add_all(accumulator, inputs)
        accumulator.extend(inputs)
        return accumulator

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstEntriesFn, self.parts


class FirstFn(_First):
    """Combines elements to a list of the first ones in an order; an entry is an element behind the values by which it
    is sorted."""

    adding = None

    def __init__(self, ordered: Ordered) -> None:
        super().__init__(tuple(_sorts([each.descending for each in ordered.order])), ordered.limit)
        self.ordered = ordered
        self.add_input = _adding(ordered, self._prune)  # type: ignore[method-assign,assignment]
        self.extract_output = _extracting(self._sorts, ordered.limit, "[entry[-1] for entry in found]")  # type: ignore[method-assign,assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstFn, (self.ordered,)


Sort: TypeAlias = tuple[Callable[[Any], Any] | None, bool]
"""By what entries are sorted (None: themselves), and whether descending."""


def _sorts(descending: Sequence[bool]) -> Iterator[Sort]:
    """The sorts that put entries in an order by so many values. They are sorted by the last value first, since a sort
    leaves equal entries in their order, and by neighbours of one direction at once."""
    past = len(descending)
    for k in range(past - 1, -1, -1):
        if k == 0 or descending[k - 1] != descending[k]:
            yield itemgetter(*range(k, past)), descending[k]
            past = k


def _sort(entries: list[Any], sorts: Iterable[Sort], limit: int | None) -> None:
    """Sort entries, and drop those after the first `limit`."""
    for values, descending in sorts:
        entries.sort(key=values, reverse=descending)
    if limit is not None and len(entries) > limit:
        del entries[limit:]


def _extracting(sorts: Sequence[Sort], limit: int | None, result: str) -> Callable[[list[Any]], list[Any]]:
    """A generated function from an accumulator to a result of its first `limit` entries in order, which are `found`."""
    lines, given = [], "entries"
    if not sorts:
        lines.append("found = entries[:]")
    for number, (values, descending) in enumerate(sorts):
        by = "" if values is None else f", key=values{number}"
        lines.append(f"found = sorted({given}{by}{', reverse=True' if descending else ''})")
        given = "found"
    if limit is not None:
        lines.append(f"del found[{limit}:]")
    names = {f"values{number}": values for number, (values, _) in enumerate(sorts)}
    return compiled("first", "entries", [*lines, f"return {result}"], names)


def _adding_lines(sorts: Sequence[Sort], limit: int | None) -> tuple[str, ...] | None:
    """The lines that add an entry `x` to an accumulator `a`; None if they call functions."""
    if limit is None:
        return ("a.append(x)",)
    match sorts:
        case ((None, descending),):
            sort = f"a.sort({'reverse=True' if descending else ''})"
            return "a.append(x)", f"if len(a) > {_most(limit)}: {sort}; del a[{limit}:]"
        case _:
            return None


def _most(limit: int) -> int:
    """How many entries are kept before they are sorted and cut."""
    return 2 * limit + _SLACK


def _pruning(limit: int | None) -> list[str]:
    """The lines that drop entries when there are many more than `limit`."""
    return [] if limit is None else [f"if len(entries) > {_most(limit)}: prune(entries)"]


def _adding(ordered: Ordered, prune: Callable[[list[Any]], None]) -> Callable[[list[Any], Any], list[Any]]:
    """A generated function that adds an element, behind the values by which it is sorted, to an accumulator."""
    made = printed(tuple(each.tree for each in ordered.order), reader(ordered.access))
    parts = [_sorted_by(each, result) for each, result in zip(ordered.order, made.results, strict=True)]
    entry = f"({', '.join(parts)}, element)" if parts else "(element,)"
    lines = [*made.reads, f"entries.append({entry})", *_pruning(ordered.limit)]
    names = {"field_of": field_of, "prune": prune}
    return compiled("add", "entries, element", [*lines, "return entries"], names | dict(made.names))


def _sorted_by(order: Order, result: str) -> str:
    """Python for a value that Python sorts as SQL does the result: NULL at its end, NaN after all other doubles."""
    null = "(0,)" if order.nulls_first != order.descending else "(2,)"
    if order.tree.type == DOUBLE:
        return f"({null} if (v := {result}) is None else (1, 1, 0.0) if v != v else (1, 0, v))"
    return f"({null} if (v := {result}) is None else (1, v))" if order.tree.nullable else result


def first_elements(paired: bool, offset: int) -> Callable[[Any], Sequence[Any]]:
    """A function from the result of a `FirstFn`, with its key if `paired`, to its elements after the first `offset`."""
    if paired:
        return lambda pair: pair[1][offset:]
    return lambda elements: elements[offset:]


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """Which values are kept of the elements that become rows with the columns `columns` and a number.

    The elements of each value of `per` are in the order `order`, in which `columns` are read as they are declared.
    """

    per: tuple[Tree, ...]
    order: tuple[Order, ...]
    columns: tuple[Column, ...]

    @property
    def others(self) -> tuple[Column, ...]:
        """The columns that can be had neither from the key nor from the values by which entries are sorted."""
        return tuple(column for column in self.columns if not self._is_of_key(column) and column not in self._plain)

    @property
    def width(self) -> int:
        """How many values an entry has."""
        return len(self.order) + len(self.others)

    def sources(self) -> Iterator[str]:
        """The Python of each column, given a key `key` and an entry `entry`."""
        values = [*self._plain, *self.others]
        for column in self.columns:
            if self._is_of_key(column):
                yield "key" if len(self.per) == 1 else f"key[{self.per.index(column)}]"
            else:
                yield "entry" if self.width == 1 else f"entry[{values.index(column)}]"

    @property
    def _plain(self) -> tuple[Tree | None, ...]:
        """By what entries are sorted, where that is the value itself; else None."""
        return tuple(None if _sorted_by(each, "") else each.tree for each in self.order)

    def _is_of_key(self, column: Column) -> bool:
        return column in self.per and column.type != DOUBLE  # a key has other values for some doubles


def entry_function(rows: NumberedRows, access: Access) -> Callable[..., Any]:
    """A function from an element, and from its window if an expression reads that, to its entry; with keys, to a pair
    of its key and the entry."""
    order = rows.order
    made = printed((*rows.per, *(each.tree for each in order), *rows.others), reader(access))
    values = made.results[len(rows.per) :]
    parts = [*map(_sorted_by, order, values), *values[len(order) :]]
    entry = parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
    result = f"{key_of(rows.per, made.results)}, {entry}" if rows.per else entry
    parameters = parameters_of((*rows.per, *(each.tree for each in order)))
    return compiled("entry", parameters, [*made.reads, f"return {result}"], KEY_NAMES | dict(made.names))


def numbered_rows(rows: NumberedRows, number: str) -> Callable[[Any], Sequence[Any]]:
    """A function from the result of a `FirstEntriesFn`, with its key if there are keys, to rows with numbers from 1."""
    values = ", ".join(rows.sources())
    lines = [
        "key, found = group" if rows.per else "found = group",
        f"return [make(({values}, number)) for number, entry in enumerate(found, 1)]",
    ]
    names = {"make": row_maker((*(column.name for column in rows.columns), number))}
    return compiled("numbered_rows", "group", lines, names)
