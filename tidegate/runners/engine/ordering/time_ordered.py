"""Bounded input where order can show: each key's elements are presented in timestamp order (SEMANTICS, Bounded input).

Ties keep the order in which they came. What is wrapped, the window operator or a stateful DoFn, sees a stream that
arrived in order, one key after another, before the watermark goes to the end of time.
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

_GATHERED: Final = "gathered"


class TimeOrderedOperator(Operator):
    """Gathers everything, spilling beyond the memory budget, then feeds `inner` key by key in timestamp order.

    `key` says where an element's key is. Per element `(timestamp, value)` is kept while windows and panes are those
    of the first block, and `(timestamp, value, windows, pane)` where they are not. Of elements that come by key a run
    is kept as it comes: `(first timestamp, timestamps, what is beside the key)`.
    """

    def __init__(self, inner: Operator, key: KeyOf, context: Context, label: str, where: Where) -> None:
        self.inner = inner
        self.key: KeyOf = key
        self.context = context
        self.label = label
        self.where = where
        self._gathered = GroupedEntries(label, where, context)
        self._collection = ""
        self._windows: WindowsColumn | None = None
        self._pane: PaneInfo | None = None
        self._runs = self._singles = self._others = False
        self._fed = False

    def open(self) -> None:
        self.inner.open()

    def close(self) -> None:
        self.inner.close()

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if not len(block):
            return iter(())
        if block.timestamps == MIN_MICROS and not self._fed:
            # Nothing can come before these, so they need not wait for what comes after them.
            return self.inner.process(block, collection)
        self._collection = collection
        try:
            self._gather(block)
        except (TypeError, ValueError) as error:
            rethrow(unfit_for_key(block.values, error, self.label, self.where, pairs=self.key == "first"))
        self._gathered.block_added()
        return iter(())

    def process_keyed(self, keyed: KeyedBatch, collection: str) -> Iterator[Emitted]:
        if self.key != "first" or keyed.timestamps == MIN_MICROS or not self._has(keyed.windows, keyed.pane):
            return super().process_keyed(keyed, collection)
        self._collection = collection
        self._runs = True
        table, values = self._gathered.table, keyed.values
        times = [keyed.timestamps] * len(keyed) if isinstance(keyed.timestamps, int) else keyed.timestamps
        at = 0
        for k, n in zip(keyed.keys, keyed.counts, strict=True):
            run = times[at], times[at : at + n], values[at : at + n]
            entries = table.get(k)
            if entries is None:
                table[k] = [run]
            else:
                entries.append(run)
            at += n
        self._gathered.block_added(large=True)
        return iter(())

    def _has(self, windows: WindowsColumn, pane: PaneInfo) -> bool:
        """Whether these are the windows and the pane of all that is kept without them."""
        if self._windows is None:
            self._windows, self._pane = windows, pane
        return windows == self._windows and pane == self._pane

    def _gather(self, block: Block) -> None:
        table = self._gathered.table
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
        self._singles = True
        if (
            not isinstance(block.windows, Each)
            and isinstance(block.panes, PaneInfo)
            and self._has(block.windows, block.panes)
        ):
            return zip(times, block.values, strict=True)
        self._others = True
        return zip(times, block.values, block.window_list(), block.pane_list(), strict=True)

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """All that is gathered, with the state of `inner`: that has seen what nothing can come before."""
        state: KeyedState = self.inner.snapshot()
        gathered = {
            key: [self._whole(single) for entry in entries for single in _singly(key, entry)]
            for key, entries in self._gathered.entries().items()
        }
        state.tables[_GATHERED] = {None: gathered}
        return state

    def restore(self, state: KeyedState) -> None:
        self.inner.restore(state)
        for key, entries in state.tables.get(_GATHERED, {}).get(None, {}).items():
            self._gathered.table[key] = entries[:]
            self._singles = self._others = True

    def _whole(self, entry: tuple[Any, ...]) -> tuple[Any, ...]:
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
        """All that was gathered; a block may hold the elements of several keys, one key's after another's."""
        size = self.context.block_size
        times: list[int] = []
        values: list[Any] = []
        entries: list[tuple[Any, ...]] = []
        for some_times, some_values, some_entries in self._parts():
            times += some_times
            values += some_values
            entries += some_entries
            if len(times) < size:
                continue
            rest = len(times) - len(times) % size
            for start in range(0, rest, size):
                part = slice(start, start + size)
                yield self._block(times[part], values[part], entries[part])
            del times[:rest], values[:rest], entries[:rest]
        if times:
            yield self._block(times, values, entries)

    def _parts(self) -> Iterator[tuple[Sequence[int], Sequence[Any], Sequence[tuple[Any, ...]]]]:
        """Timestamps and values of some elements of a key, in order; the entries too, if windows or panes differ."""
        directory = self.context.temp_dir
        for k, entries in self._gathered.drain():
            if self._runs and not self._singles and isinstance(entries, list):
                times, values = _in_order_of_time(entries)
                yield times, list(zip(repeat(k), values, strict=False)), ()
                continue
            singles: Iterable[tuple[Any, ...]] = entries
            if self._runs:
                singles = (single for entry in entries for single in _singly(k, entry))
                singles = list(singles) if isinstance(entries, list) else singles
            ordered = iter(sorted_entries(singles, directory))
            while part := list(islice(ordered, self.context.block_size)):
                yield [entry[0] for entry in part], [entry[1] for entry in part], part if self._others else ()

    def _block(self, times: list[int], values: list[Any], entries: list[tuple[Any, ...]]) -> Block:
        if self._windows is not None and self._pane is not None and all(len(entry) == 2 for entry in entries):
            return Block(values, times, self._windows, self._pane)
        windows: list[tuple[Any, ...]] = []
        panes: list[PaneInfo] = []
        for _, _, of_entry, pane in map(self._whole, entries):
            windows.append(of_entry)
            panes.append(pane)
        return Block(values, times, Each(windows), panes)


def _in_order_of_time(runs: list[tuple[int, list[int], list[Any]]]) -> tuple[list[int], list[Any]]:
    """The timestamps and values of all runs; of elements of one time the first stays first."""
    _, times, values = runs[0]
    if len(runs) > 1:
        times = list(chain.from_iterable([run[1] for run in runs]))
        values = list(chain.from_iterable([run[2] for run in runs]))
    if all(map(le, times, islice(times, 1, None))):
        return times, values
    order = sorted(range(len(times)), key=times.__getitem__)
    return list(map(times.__getitem__, order)), list(map(values.__getitem__, order))


def _singly(key: Any, entry: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """An entry of one element as it is; of a run, an entry for each."""
    if len(entry) != 3:
        yield entry
        return
    for t, value in zip(entry[1], entry[2], strict=True):
        yield t, (key, value)
