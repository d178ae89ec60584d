"""Ordered elements: the combiner that keeps the first ones in an order, and the rows made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from tidegate.sdk.authoring.combine import CombineFn
from tidegate.sdk.data.columns import DOUBLE, Access
from tidegate.sdk.data.row import row_maker
from tidegate.sdk.relational.expressions import Column
from tidegate.sdk.relational.python.row_function import RowCode, row_function
from tidegate.sdk.relational.relations import Order

_SLACK: Final = 64
"""How many elements beyond twice the limit are kept before they are sorted."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """An order of elements, whose fields are read by `access`; the first `limit` of them (None: all)."""

    order: tuple[Order, ...]
    access: Access
    limit: int | None


class FirstFn(CombineFn[Any, list[tuple[Any, ...]], list[Any]]):
    """Combines elements to a list of the first ones in an order."""

    in_parts = True
    has_identity = True

    def __init__(self, ordered: Ordered) -> None:
        self.ordered = ordered
        self._values = row_function(RowCode(tuple(each.tree for each in ordered.order), ordered.access))
        self._sorts = [_normaliser(each) for each in ordered.order]
        self._most = None if ordered.limit is None else 2 * ordered.limit + _SLACK

    def create_accumulator(self) -> list[tuple[Any, ...]]:
        return []

    def add_input(self, accumulator: list[tuple[Any, ...]], element: Any) -> list[tuple[Any, ...]]:
        values = self._values(element)
        accumulator.append((*[sort(value) for sort, value in zip(self._sorts, values)], element))
        if self._most is not None and len(accumulator) > self._most:
            self._prune(accumulator)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
        merged = [entry for accumulator in accumulators for entry in accumulator]
        self._prune(merged)
        return merged

    def compact(self, accumulator: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        self._prune(accumulator)
        return accumulator

    def extract_output(self, accumulator: list[tuple[Any, ...]]) -> list[Any]:
        found = list(accumulator)
        self._prune(found)
        return [entry[-1] for entry in found]

    def _prune(self, entries: list[tuple[Any, ...]]) -> None:
        """Sort by one column after another, the last one first: a sort leaves equal entries in their order."""
        for k in range(len(self._sorts) - 1, -1, -1):
            entries.sort(key=itemgetter(k), reverse=self.ordered.order[k].descending)
        if self.ordered.limit is not None:
            del entries[self.ordered.limit :]

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstFn, (self.ordered,)


def _normaliser(order: Order) -> Callable[[Any], Any]:
    """A function from a value to one that Python sorts as SQL does: NULL at its end, NaN after all other doubles."""
    null = (0,) if order.nulls_first != order.descending else (2,)
    if order.tree.type == DOUBLE:
        return lambda value: null if value is None else (1, 1, 0.0) if value != value else (1, 0, value)
    if order.tree.nullable:
        return lambda value: null if value is None else (1, value)
    return lambda value: value


def first_elements(paired: bool, offset: int) -> Callable[[Any], Sequence[Any]]:
    """A function from the result of a `FirstFn`, with its key if `paired`, to its elements after the first `offset`."""
    if paired:
        return lambda pair: pair[1][offset:]
    return lambda elements: elements[offset:]


def numbered_rows(
    paired: bool, columns: tuple[Column, ...], access: Access, number: str
) -> Callable[[Any], Sequence[Any]]:
    """A function from the result of a `FirstFn` to rows of the elements' columns and their numbers, from 1."""
    values = row_function(RowCode(columns, access))
    make = row_maker((*(column.name for column in columns), number))

    def rows(found: Any) -> Sequence[Any]:
        return [make((*values(element), at)) for at, element in enumerate(found[1] if paired else found, 1)]

    return rows
