"""Grouping into tables by window that the watermark fires: one pane per window, on time.

The generated loop that fills the tables is that of bounded input. A window that has fired has a table that only counts
what is added to it, so that late elements cost the loop nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import compress, islice
from typing import Any, Final

from tidegate.runners.engine.grouping.accumulation import copy_accumulator
from tidegate.runners.engine.grouping.batch_table import ONLY_PANE, Grouping
from tidegate.runners.engine.grouping.global_combine import GlobalCombine
from tidegate.runners.engine.grouping.lateness_gate import LatenessGate
from tidegate.runners.engine.grouping.partial_results import (
    AllWindows,
    CountedTable,
    UncombinedElements,
    UncombinedTable,
    partial_pane,
    to_merge,
)
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.runners.engine.state.copy_on_write import CHUNK, CopyOnWrite
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState, without
from tidegate.runners.plan import Phase
from tidegate.sdk.data.block import Block, DerivedFrom, Each, PanesColumn, Same, keys_of
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.assigners import GlobalWindows
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, window_end, window_order

MAX_BUNDLE_ENTRIES: Final = 1 << 16
"""How many entries of partial results, over all windows, are buffered until the bundle ends."""


class _ClosedTable(dict[Any, Any]):
    """The table of a window that has fired: counts elements as late and stores none."""

    __slots__ = ("gate",)

    def __init__(self, gate: LatenessGate) -> None:
        super().__init__()
        self.gate = gate

    def __setitem__(self, key: Any, value: Any) -> None:
        self.gate.late += 1

    def update(self, elements: Any) -> None:  # type: ignore[override]  # as a Counter: how many there are
        self.gate.late += len(elements)


class WindowGrouping(Grouping):
    """The tables of a grouping that the watermark fires. Partial results leave at the end of each bundle instead."""

    selects_windows = True

    def __init__(self, node: GroupByKey | CombinePerKey, phase: Phase, context: Context, main: str) -> None:
        super().__init__(node, phase, context, main)
        self.gate = LatenessGate()
        self._closed_table = _ClosedTable(self.gate)
        self._uncombined = UncombinedElements()
        self.copies: Final = CopyOnWrite()
        self.next_end = MAX_MICROS + 1
        """The end (µs) of the first window to end."""

    def environment(self) -> dict[str, Any]:
        return {**super().environment(), "select_windows": self._select_windows}

    def table_in(self, window: Any) -> dict[Any, Any]:
        if type(window) is AllWindows:
            return UncombinedTable(self._uncombined, window.windows)
        table = self.tables.by_window.get(window)
        if table is not None:
            return table
        if not self.gate.is_open(window):
            return UncombinedTable(self._uncombined, (window,)) if self.phase == "parts" else self._closed_table
        self.next_end = min(self.next_end, window_end(window))
        if self._uncombined.may_be_behind:
            counted = self.tables.by_window[window] = CountedTable()
            return counted
        return self.tables.add(window)

    def on_idle(self) -> None:
        """The merge may be ahead from now on. All partial results have left before."""
        self._uncombined.may_be_behind = self.phase == "parts"

    def to_add(self, block: Block) -> Block:
        """What of a block is to be added: if this is a merge, partial results that are not late."""
        if self.phase != "merge":
            return block
        return to_merge(block, self.gate, lambda pair: (pair[0], self._copied(pair[1])))

    def _select_windows(self, windows: tuple[Any, ...]) -> tuple[Any, ...]:
        """Those of an element's windows, which are ascending, to which it is added."""
        if self.phase != "parts":
            return self.gate.open_windows(windows)
        return (AllWindows(windows),) if self._uncombined.diverts(windows, self.gate) else windows

    @property
    def full(self) -> bool:
        """True if partial results should leave early: a checkpoint waits for those that leave when the bundle ends."""
        return self.phase == "parts" and len(self.tables) + len(self._uncombined) >= MAX_BUNDLE_ENTRIES

    def block_added(self, n: int) -> None:
        """Count late elements. The tables are never spilled: a window's table must be in memory when it fires."""
        self.context.count(self.label, "dropped_late", self.gate.take_late())

    def fire(self, micros: int) -> Iterator[Emitted]:
        """Advance the watermark, and emit the panes of all windows that end."""
        if micros <= self.gate.watermark:
            return
        self.gate.watermark = micros
        if micros >= self.next_end:
            if self.copies.active:
                yield from self._copy_ended()
            yield from self.drain()

    def _copy_ended(self) -> Iterator[Emitted]:
        """Copy the entries of all windows that end, which the author's functions may change once they are emitted. The
        runner gets control in between."""
        for window, table in self.tables.by_window.items():
            keys = iter(() if self.gate.is_open(window) else list(table))
            while chunk := list(islice(keys, CHUNK)):
                self.copies.copy(chunk)
                yield self.main, Block(())

    def drain(self) -> Iterator[Emitted]:
        yield from super().drain()
        for windows, rows in self._uncombined.drain(self.context.block_size):
            self.tables.check_keys([key for key, _ in rows])
            self.context.count(self.label, "elements_out", len(rows))
            yield self.main, Block(self._results(rows), window_end(windows[-1]) - 1, Same(windows), ONLY_PANE)

    def _panes(self, table: dict[Any, Any], values: Sequence[Any]) -> PanesColumn:
        if type(table) is not CountedTable:
            return ONLY_PANE
        return [partial_pane(table.added[key]) for key in keys_of(values)]

    def _drain_tables(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        in_parts = self.phase == "parts"
        tables = self.tables
        ended = [window for window in tables.by_window if in_parts or not self.gate.is_open(window)]
        for window in sorted(ended, key=window_order):
            yield window, tables.pop(window)
        self.next_end = min(map(window_end, tables.by_window), default=MAX_MICROS + 1)
        for low, (_, high, _) in list(tables.by_start.items()):
            if in_parts or high <= self.gate.watermark:
                del tables.by_start[low]

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """All entries, or those of `keys`."""
        tables, copy = self.tables.by_window, self._copy_entry()
        cells = {window: self.copies.of_keys(table, keys, copy) for window, table in tables.items()}
        windows = None if keys is None else list(tables)
        return KeyedState({CELLS: cells}, self.gate.watermark, keys=keys, windows=windows)

    def restore(self, state: KeyedState) -> None:
        """Advance the watermark to that of a snapshot, and add its entries."""
        self.gate.watermark = state.watermark
        super().restore(state)

    def evict(self, keys: Collection[Any]) -> None:
        """Drop the entries of these keys."""
        for table in self.tables.by_window.values():
            without(table, keys)


class WindowedGlobalCombine(GlobalCombine):
    """A combine without keys whose windows the watermark fires."""

    def __init__(self, node: CombinePerKey, phase: Phase, context: Context, main: str) -> None:
        super().__init__(node, phase, context, main)
        self.gate = LatenessGate()
        self._uncombined = UncombinedElements()
        self._elements: Counter[Any] = Counter()
        """How many elements each partial result combines."""
        self._any = False
        """True once an element was added, so that no default is emitted when input ends."""

    def on_idle(self) -> None:
        self._uncombined.may_be_behind = self.phase == "parts"

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if self.phase == "merge":
            block = to_merge(block, self.gate, partial(copy_accumulator, self.combiner))
            self.context.count(self.node.label, "dropped_late", self.gate.take_late())
        match block.windows:
            case Same((window,)) if self.gate.is_open(window):
                self._any = True
                return super().process(block, collection)
            case DerivedFrom(GlobalWindows()) if self.gate.is_open(GLOBAL_WINDOW):
                self._any = True
                return super().process(block, collection)
            case _ if self.phase == "parts":
                self._divert(block)
                return iter(())
            case Same((window,)):
                self.gate.late += len(block)
            case _:
                still_open = list(map(self.gate.open_windows, block.window_list()))
                self._any = self._any or any(still_open)
                super().process(Block(block.values, block.timestamps, Each(still_open), block.panes), collection)
        self.context.count(self.node.label, "dropped_late", self.gate.take_late())
        return iter(())

    def _divert(self, block: Block) -> None:
        """Add a block before the exchange, but leave elements uncombined that may be late (see UncombinedElements)."""
        windows_column = block.window_list()
        diverted = [self._uncombined.diverts(windows, self.gate) for windows in windows_column]
        combined = [() if alone else windows for alone, windows in zip(diverted, windows_column, strict=True)]
        super().process(Block(block.values, block.timestamps, Each(combined), block.panes), "")
        for value, windows in compress(zip(block.values, windows_column, strict=True), diverted):
            self._uncombined.add(windows, self._fold_into(self._create(), [value]))

    def _add(self, window: Any, values: Any) -> None:
        super()._add(window, values)
        if self.phase == "parts":
            self._elements[window] += len(values)

    def _pane(self, window: Any) -> PaneInfo:
        return partial_pane(self._elements.pop(window)) if self.phase == "parts" else ONLY_PANE

    def finish_bundle(self) -> Iterator[Emitted]:
        yield from super().finish_bundle()
        for windows, accumulators in self._uncombined.drain(self.context.block_size):
            results = [self._result(accumulator) for accumulator in accumulators]
            self.context.count(self.node.label, "elements_out", len(results))
            yield self.main, Block(results, window_end(windows[-1]) - 1, Same(windows), ONLY_PANE)

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros <= self.gate.watermark:
            return
        self.gate.watermark = micros
        not_ended = {window: a for window, a in self._accumulators.items() if window_end(window) > micros}
        ended = {window: a for window, a in self._accumulators.items() if window not in not_ended}
        if ended or (micros == MAX_MICROS and not self._any):
            self._any = self._any or micros == MAX_MICROS
            self._accumulators = ended
            yield from self._results()
            self._accumulators = not_ended

    def finish(self) -> Iterator[Emitted]:
        yield from self.on_watermark(MAX_MICROS)

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        state = super().snapshot(keys)
        state.watermark, state.any = self.gate.watermark, self._any
        return state

    def restore(self, state: KeyedState) -> None:
        super().restore(state)
        self.gate.watermark, self._any = state.watermark, state.any
