"""The tables of a grouping, `tables[window][key]`, which are spilled when they exceed the memory budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from tidegate.runners.engine.errors.attribution import combiner_method, guarded, located, rethrow
from tidegate.runners.engine.memory.gauge import MemoryGauge, mean_size, oldest_and_newest
from tidegate.runners.engine.memory.sizing import LIST, LIST_ITEM, TABLE_ENTRY
from tidegate.runners.engine.memory.spill import Spill
from tidegate.runners.engine.operator import Context
from tidegate.sdk.authoring.combine import CombineFn, CountFn
from tidegate.sdk.data.block import BLOCK_SIZE
from tidegate.sdk.data.keys import check_keys
from tidegate.sdk.errors import KeyEncodingError, PicklingError
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.windowing.window import window_order


class SpillableTables:
    """Tables by window. `lists`: a table's entries are lists of values; otherwise they are accumulators of `combiner`.

    `by_start` is a cache for windows that a timestamp determines: the start and end of the window, and its table, by
    the start.
    """

    def __init__(
        self,
        node: GroupByKey | CombinePerKey,
        combiner: CombineFn[Any, Any, Any] | None,
        context: Context,
        *,
        lists: bool,
    ) -> None:
        self.by_window: dict[Any, dict[Any, Any]] = {}
        self.by_start: dict[int, tuple[int, int, dict[Any, Any]]] = {}
        self.windows_per_element = 1
        """In how many windows an element may be; a guess where it may be in several."""
        self._node = node
        self._combiner = combiner
        self._context = context
        self._lists = lists
        self._spill: Spill | None = None
        self._key_size = self._value_size = 0
        self._counted_values = self._added = 0
        self._gauge = MemoryGauge(
            context.memory_budget, estimate=self._estimate, sample=self._measure, recount=self._recount
        )

    def __len__(self) -> int:
        """How many entries the tables in memory have."""
        return sum(map(len, self.by_window.values()))

    def add(self, window: Any) -> dict[Any, Any]:
        """Add and return an empty table for a window that has none."""
        table = self.by_window[window] = Counter() if type(self._combiner) is CountFn else {}
        return table

    def pop(self, window: Any) -> dict[Any, Any]:
        """Remove and return the table of a window. Refuses keys without an encoding."""
        table = self.by_window.pop(window)
        self.check_keys(table)
        return table

    def check_keys(self, keys: Iterable[Any]) -> None:
        """Raise the author's error for a key that has no encoding."""
        try:
            check_keys(keys)
        except KeyEncodingError as error:
            raise located(error, self._node.label, self._node.where) from None

    # -- memory

    @property
    def spilled(self) -> bool:
        """True once tables have been spilled."""
        return self._spill is not None

    def elements_added(self, n: int) -> None:
        """Account for `n` elements, and spill the tables if they exceed the budget."""
        self._added += n
        for _ in range(0, n, BLOCK_SIZE):
            if self._gauge.block_added():
                self.spill()

    def _estimate(self) -> int:
        """About how many bytes the tables take at most: each element added since the last count may be a value."""
        keys = len(self)
        if not self._lists:
            return keys * (TABLE_ENTRY + self._key_size + self._value_size)
        values = self._counted_values + self._added * self.windows_per_element
        return keys * (TABLE_ENTRY + LIST + self._key_size) + values * (LIST_ITEM + self._value_size)

    def _recount(self) -> None:
        """Sample the sizes, and count the values in the tables, which is slow."""
        self._measure()
        self._added = 0
        if self._lists:
            self._counted_values = sum(sum(map(len, table.values())) for table in self.by_window.values())

    def _measure(self) -> None:
        """Sample the sizes of keys, and of values or accumulators, in the oldest and the newest entries."""
        newest = islice(reversed(self.by_window.values()), 4)
        sample = [entry for table in newest for entry in oldest_and_newest(table)]
        if sample:
            self._key_size = mean_size(key for key, _ in sample)
            values = (value for _, entry in sample for value in (entry[-2:] if self._lists else (entry,)))
            self._value_size = mean_size(values)

    def spill(self) -> None:
        """Write all tables to disk."""
        if self._spill is None:
            context = self._context
            self._spill = Spill(
                context.temp_dir, self._lists, self._merge, context.memory_budget, value_size=self._value_size
            )
        for window in list(self.by_window):
            table = self.pop(window)
            try:
                self._spill.write(window, table)
            except PicklingError as error:
                rethrow(located(error, self._node.label, self._node.where))
            self._context.count(self._node.label, "spills")
        self.by_start.clear()
        self._added = self._counted_values = 0

    def _merge(self, pair: tuple[Any, Any]) -> Any:
        assert self._combiner is not None
        method = combiner_method(self._combiner, "merge_accumulators")
        merge = self._combiner.merge_accumulators
        return guarded(merge, pair, step=self._node.label, where=self._node.where, method=method)

    # -- results

    def spilled_entries(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        """Every window with a part of its spilled entries; they stay on disk."""
        return self._spill.entries() if self._spill is not None else iter(())

    def joined(self, earlier: Any, later: Any) -> Any:
        """Two entries of one key as one."""
        return earlier + later if self._lists else self._merge((earlier, later))

    def drain(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        """Remove all tables, and return them by window, ordered by (end, start).

        Spilled tables come partition by partition; the windows of each partition have this order.
        """
        if self._spill is not None:
            self.spill()
            yield from self._spill.drain()
            return
        for window in sorted(self.by_window, key=window_order):
            yield window, self.pop(window)
        self.by_start.clear()
