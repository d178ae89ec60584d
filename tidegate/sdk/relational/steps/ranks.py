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
from tidegate.sdk.relational.python.generated_functions import compiled
from tidegate.sdk.relational.python.printing import printed
from tidegate.sdk.relational.python.row_function import reader
from tidegate.sdk.relational.python.values import field_of
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
        self.add_input = _adding(ordered, self._prune)  # type: ignore[method-assign,assignment]

    def create_accumulator(self) -> list[tuple[Any, ...]]:
        return []

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
        for k in range(len(self.ordered.order) - 1, -1, -1):
            entries.sort(key=itemgetter(k), reverse=self.ordered.order[k].descending)
        if self.ordered.limit is not None:
            del entries[self.ordered.limit :]

    def __reduce__(self) -> tuple[Any, ...]:
        return FirstFn, (self.ordered,)


def _adding(ordered: Ordered, prune: Callable[[list[Any]], None]) -> Callable[[list[Any], Any], list[Any]]:
    """A generated function that adds an element, behind the values by which it is sorted, to an accumulator."""
    made = printed(tuple(each.tree for each in ordered.order), reader(ordered.access))
    parts = [_sorted_by(each, result) for each, result in zip(ordered.order, made.results, strict=True)]
    lines = [*made.reads, f"entries.append(({', '.join(parts)}, element))"]
    if ordered.limit is not None:
        lines.append(f"if len(entries) > {2 * ordered.limit + _SLACK}: prune(entries)")
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


def numbered_rows(
    paired: bool, columns: tuple[Column, ...], access: Access, number: str
) -> Callable[[Any], Sequence[Any]]:
    """A function from the result of a `FirstFn` to rows of the elements' columns and their numbers, from 1."""
    made = printed(columns, reader(access))
    lines = [
        "rows = []",
        f"for number, element in enumerate({'found[1]' if paired else 'found'}, 1):",
        *(f"    {line}" for line in made.reads),
        f"    rows.append(make(({''.join(f'{result}, ' for result in made.results)}number)))",
        "return rows",
    ]
    names = {"field_of": field_of, "make": row_maker((*(column.name for column in columns), number))}
    return compiled("numbered_rows", "found", lines, names | dict(made.names))
