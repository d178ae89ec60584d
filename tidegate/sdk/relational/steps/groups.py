"""Aggregation: rows of keys and of columns over aggregates, and the combiner that adds whole elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tidegate.sdk.authoring.combine import CombineFn
from tidegate.sdk.data.columns import BIGINT, DOUBLE
from tidegate.sdk.data.row import row_maker
from tidegate.sdk.relational.expressions import Call, Column, Tree
from tidegate.sdk.relational.python.aggregates import AggregateFn, checked_sum
from tidegate.sdk.relational.python.generated_functions import compiled
from tidegate.sdk.relational.python.printing import printed
from tidegate.sdk.relational.python.row_function import RowCode, reads_window, row_function
from tidegate.sdk.relational.steps.rows import NAN


def group_row(
    keys: tuple[Tree, ...],
    key_names: tuple[str, ...],
    outputs: tuple[Tree, ...],
    names: tuple[str, ...],
    only: Call | None = None,
) -> Callable[..., Any]:
    """A function from a key and the results of aggregates to a Row: the keys, then the columns over both.

    Without keys, the results come alone. `only`: the only aggregate, if its result is no tuple.
    """
    single = len(keys) == 1
    sources = {}
    for k, (name, tree) in enumerate(zip(key_names, keys, strict=True)):
        part = "key" if single else f"key[{k}]"
        sources[name] = f"(nan if {part} == {NAN!r} else {part})" if tree.type == DOUBLE else part
    grouped = [Column(name, tree.type, tree.nullable) for name, tree in zip(key_names, keys, strict=True)]

    def read(column: Column) -> str:
        if column.name in sources:
            return sources[column.name]
        return "results" if only is not None else f"results[{int(column.name[1:])}]"

    made = printed((*grouped, *outputs), read, checked=False)
    unpacked = "key, results = group" if keys else "results = group"
    if only is not None and only.operation == "sum" and only.type == BIGINT:
        unpacked += "; checked_sum(results)"
    lines = [unpacked, *made.reads, f"return make(({', '.join(made.results)},))"]
    environment = {"make": row_maker((*key_names, *names)), "nan": float("nan"), "checked_sum": checked_sum}
    parameters = "group, window" if any(map(reads_window, outputs)) else "group"
    return compiled("group_row", parameters, lines, environment | dict(made.names))


class AggregateElements(CombineFn[Any, list[Any], tuple[Any, ...]]):
    """An `AggregateFn` of whole elements, for groupings whose trigger, evictor or late output sees the elements."""

    in_parts = True
    has_identity = True

    def __init__(self, calls: tuple[Call, ...], arguments: RowCode) -> None:
        self.parts = calls, arguments
        self._inner = AggregateFn(calls, arguments.single)
        self._values = row_function(arguments)

    def create_accumulator(self) -> list[Any]:
        return self._inner.create_accumulator()

    def add_input(self, accumulator: list[Any], element: Any) -> list[Any]:
        return self._inner.add_input(accumulator, self._values(element))

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        return self._inner.merge_accumulators(accumulators)

    def extract_output(self, accumulator: list[Any]) -> tuple[Any, ...]:
        return self._inner.extract_output(accumulator)

    def __reduce__(self) -> tuple[Any, ...]:
        return AggregateElements, self.parts
