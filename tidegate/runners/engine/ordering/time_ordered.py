"""Presents bounded input in timestamp order per key, for steps whose results may depend on order.

Elements with equal timestamps stay in arrival order (SEMANTICS, Bounded input). The wrapped operator, for windows or a
stateful DoFn, receives one key after another, each in order, before the watermark advances to the end of time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, repeat
from operator import le
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import rethrow, unfit_for_key
from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.memory.external_sort import GroupedEntries, sorted_entries
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.engine.state.keyed_state import KeyedState
from tidegate.sdk.data.block import Block, Each, WindowsColumn, keys_of
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.portable.model import KeyOf
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.user_code.frames import Where

_BUFFERED: Final = "gathered"
_RUN: Final = 3
"""The length of an entry for a run of elements."""


class TimeOrderedOperator(Operator):
    """Buffers all input, spilling beyond the memory budget, then feeds it to `inner` key by key in timestamp order.

    `key` says where an element's key is. An entry of the buffer is `(timestamp, value)` if windows and pane are those
    of the first block, else `(timestamp, value, windows, pane)`. A run of elements from a keyed batch is one entry:
    `(first timestamp, timestamps, values without the key)`.
    """

    def __init__(self, inner: Operator, key: KeyOf, context: Context, label: str, where: Where) -> None:
        self.inner = inner
        self.key: KeyOf = key
        self.context = context
        self.label = label
        self.where = where
        self._buffer = GroupedEntries(label, where, context)
        self._collection = ""
        self._windows: WindowsColumn | None = None
        self._pane: PaneInfo | None = None
        self._has_runs = self._has_singles = self._has_expanded = False
        self._fed = False

    def open(self) -> None:
        self.inner.open()

    def close(self) -> None:
        self.inner.close()

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if not len(block):
            return iter(())
        if block.timestamps == MIN_MICROS and not self._fed:
            # No element can precede these, so they need not be buffered.
            return self.inner.process(block, collection)
        self._collection = collection
        try:
            self._add(block)
        except (TypeError, ValueError) as error:
            rethrow(unfit_for_key(block.values, error, self.label, self.where, pairs=self.key == "first"))
        self._buffer.block_added()
        return iter(())

    def process_keyed(self, keyed: KeyedBatch, collection: str) -> Iterator[Emitted]:
        if self.key != "first" or keyed.timestamps == MIN_MICROS or not self._is_default(keyed.windows, keyed.pane):
            return super().process_keyed(keyed, collection)
        self._collection = collection
        self._has_runs = True
        table, values = self._buffer.table, keyed.values
        times = [keyed.timestamps] * len(keyed) if isinstance(keyed.timestamps, int) else keyed.timestamps
        at = 0
        for k, n in zip(keyed.keys, keyed.counts, strict=True):
            end = at + n
            entries = table.get(k)
            if entries is None:
                table[k] = [(times[at], times[at:end], values[at:end])]
            elif len(last := entries[-1]) == _RUN:  # one long run takes less memory than several, and less time
                last[1].extend(times[at:end])
                last[2].extend(values[at:end])
            else:
                entries.append((times[at], times[at:end], values[at:end]))
            at = end
        self._buffer.block_added(large=True)
        return iter(())

    def _is_default(self, windows: WindowsColumn, pane: PaneInfo) -> bool:
        """Whether entries with these windows and this pane can be stored without them; the first are the default."""
        if self._windows is None:
            self._windows, self._pane = windows, pane
        return windows == self._windows and pane == self._pane

    def _add(self, block: Block) -> None:
        table = self._buffer.table
        get = table.get
        for k, entry in zip(self._keys(block), self._entries(block), strict=True):
            entries = get(k)
            if entries is None:
                table[k] = [entry]
            else:
                entries.append(entry)

    def _keys(self, block: Block) -> Iterable[Any]:
        match self.key:
            case "first":
                return keys_of(block.values)
            case "element":
                return block.values
            case "none":
                return [None] * len(block)

    def _entries(self, block: Block) -> Iterable[tuple[Any, ...]]:
        times = block.timestamp_column()
        self._has_singles = True
        if (
            not isinstance(block.windows, Each)
            and isinstance(block.panes, PaneInfo)
            and self._is_default(block.windows, block.panes)
        ):
            return zip(times, block.values, strict=True)
        self._has_expanded = True
        return zip(times, block.values, block.window_list(), block.pane_list(), strict=True)

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """All buffered entries, with the state of `inner`, which has received the elements at the minimum timestamp."""
        state: KeyedState = self.inner.snapshot()
        buffered = {
            key: [self._expand(single) for entry in entries for single in _single_entries(key, entry)]
            for key, entries in self._buffer.entries().items()
        }
        state.tables[_BUFFERED] = {None: buffered}
        return state

    def restore(self, state: KeyedState) -> None:
        self.inner.restore(state)
        for key, entries in state.tables.get(_BUFFERED, {}).get(None, {}).items():
            self._buffer.table[key] = entries[:]
            self._has_singles = self._has_expanded = True

    def _expand(self, entry: tuple[Any, ...]) -> tuple[Any, ...]:
        """An entry with its windows and pane."""
        if len(entry) == 4:
            return entry
        assert self._windows is not None
        (windows,) = Block([entry[1]], entry[0], self._windows).window_list()
        return *entry, windows, self._pane

    def finish_bundle(self) -> Iterator[Emitted]:
        return self.inner.finish_bundle()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros == MAX_MICROS:
            yield from self._feed()
            yield from self.inner.on_watermark(MAX_MICROS)

    def finish(self) -> Iterator[Emitted]:
        yield from self._feed()
        yield from self.inner.finish()

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        return self.inner.on_clock(micros) if self._fed else iter(())

    @property
    def paused(self) -> bool:
        return self.inner.paused

    def next_clock(self) -> int | None:
        return self.inner.next_clock() if self._fed else None

    def _feed(self) -> Iterator[Emitted]:
        if self._fed:
            return
        self._fed = True
        for block in self._blocks():
            yield from self.inner.process(block, self._collection)
        yield from self.inner.finish_bundle()

    def _blocks(self) -> Iterator[Block]:
        """All buffered elements; a block may contain several keys, one after another."""
        size = self.context.block_size
        times: list[int] = []
        values: list[Any] = []
        entries: list[tuple[Any, ...]] = []
        for batch_times, batch_values, batch_entries in self._batches():
            times += batch_times
            values += batch_values
            entries += batch_entries
            if len(times) < size:
                continue
            complete = len(times) - len(times) % size
            for start in range(0, complete, size):
                part = slice(start, start + size)
                yield self._block(times[part], values[part], entries[part])
            del times[:complete], values[:complete], entries[:complete]
        if times:
            yield self._block(times, values, entries)

    def _batches(self) -> Iterator[tuple[Sequence[int], Sequence[Any], Sequence[tuple[Any, ...]]]]:
        """Batches of timestamps and values of one key, in order; with their entries, if any has windows and a pane."""
        directory = self.context.temp_dir
        for k, entries in self._buffer.drain():
            if self._has_runs and not self._has_singles and isinstance(entries, list):
                times, values = _sort_runs(entries)
                yield times, list(zip(repeat(k), values, strict=False)), ()
                continue
            singles: Iterable[tuple[Any, ...]] = entries
            if self._has_runs:
                singles = (single for entry in entries for single in _single_entries(k, entry))
                singles = list(singles) if isinstance(entries, list) else singles
            ordered = iter(sorted_entries(singles, directory))
            while part := list(islice(ordered, self.context.block_size)):
                yield [entry[0] for entry in part], [entry[1] for entry in part], part if self._has_expanded else ()

    def _block(self, times: list[int], values: list[Any], entries: list[tuple[Any, ...]]) -> Block:
        if self._windows is not None and self._pane is not None and all(len(entry) == 2 for entry in entries):
            return Block(values, times, self._windows, self._pane)
        windows: list[tuple[Any, ...]] = []
        panes: list[PaneInfo] = []
        for _, _, entry_windows, pane in map(self._expand, entries):
            windows.append(entry_windows)
            panes.append(pane)
        return Block(values, times, Each(windows), panes)


def _sort_runs(runs: list[tuple[int, list[int], list[Any]]]) -> tuple[list[int], list[Any]]:
    """The timestamps and values of all runs, sorted stably by timestamp."""
    _, times, values = runs[0]
    if len(runs) > 1:
        times = list(chain.from_iterable([run[1] for run in runs]))
        values = list(chain.from_iterable([run[2] for run in runs]))
    if all(map(le, times, islice(times, 1, None))):
        return times, values
    order = sorted(range(len(times)), key=times.__getitem__)
    return list(map(times.__getitem__, order)), list(map(values.__getitem__, order))


def _single_entries(key: Any, entry: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """An entry for each element of a run; an entry of one element as it is."""
    if len(entry) != _RUN:
        yield entry
        return
    for t, value in zip(entry[1], entry[2], strict=True):
        yield t, (key, value)
