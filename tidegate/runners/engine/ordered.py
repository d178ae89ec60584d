"""Bounded input where order can show: each key's elements are presented in timestamp order (SEMANTICS, Bounded input).

Ties keep the order in which they came. What is wrapped, the window operator or a stateful DoFn, sees a stream that
arrived in order, one key after another, before the watermark goes to the end of time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidegate.runners.engine.blame import located, not_pairs, rethrow
from tidegate.runners.engine.gathered import Gathered, in_order
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.sdk.block import Block, Each, WindowsColumn
from tidegate.sdk.errors import KeyEncodingError
from tidegate.sdk.functions import Where
from tidegate.sdk.keys import check_key
from tidegate.sdk.panes import PaneInfo
from tidegate.sdk.portable.pipeline import KeyOf
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS


class InTimeOrder(Operator):
    """Gathers everything, spilling beyond the memory budget, then feeds `inner` key by key in timestamp order.

    `key` says where an element's key is. Per element `(timestamp, value)` is kept while windows and panes are those
    of the first block, and `(timestamp, value, windows, pane)` where they are not.
    """

    def __init__(self, inner: Operator, key: KeyOf, context: Context, label: str, where: Where) -> None:
        self.inner = inner
        self.key: KeyOf = key
        self.context = context
        self.label = label
        self.where = where
        self._gathered = Gathered(label, where, context)
        self._collection = ""
        self._windows: WindowsColumn | None = None
        self._pane: PaneInfo | None = None
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
        self._collection = self._collection or collection
        try:
            self._gather(block)
        except (TypeError, ValueError) as error:
            rethrow(self._refused(block, error))
        self._gathered.settle()
        return iter(())

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
                return [k for k, _ in block.values]
            case "element":
                return block.values
            case "none":
                return [None] * len(block)

    def _entries(self, block: Block) -> Iterable[tuple[Any, ...]]:
        times = block.timestamp_list()
        if self._windows is None and not isinstance(block.windows, Each) and isinstance(block.panes, PaneInfo):
            self._windows, self._pane = block.windows, block.panes
        if block.windows == self._windows and block.panes == self._pane:
            return zip(times, block.values, strict=True)
        return zip(times, block.values, block.window_list(), block.pane_list(), strict=True)

    def _refused(self, block: Block, error: BaseException) -> BaseException:
        for element in block.values:
            k = element
            if self.key == "first":
                try:
                    k, _ = element
                except (TypeError, ValueError):
                    return not_pairs(element, self.label, self.where)
            try:
                check_key(k)
            except KeyEncodingError as refused:
                return located(refused, self.label, self.where)
        return error

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
        batch: list[tuple[Any, ...]] = []
        for _, entries in self._gathered.drain():
            for entry in in_order(entries, self.context.temp_dir):
                batch.append(entry)
                if len(batch) == self.context.block_size:
                    yield self._block(batch)
                    batch = []
        if batch:
            yield self._block(batch)

    def _block(self, batch: list[tuple[Any, ...]]) -> Block:
        times = [entry[0] for entry in batch]
        values = [entry[1] for entry in batch]
        if self._windows is not None and self._pane is not None and all(len(entry) == 2 for entry in batch):
            return Block(values, times, self._windows, self._pane)
        windows: list[tuple[Any, ...]] = []
        panes: list[PaneInfo] = []
        for entry in batch:
            if len(entry) == 4:
                windows.append(entry[2])
                panes.append(entry[3])
            else:
                assert self._windows is not None
                assert self._pane is not None
                windows += Block([None], entry[0], self._windows).window_list()
                panes.append(self._pane)
        return Block(values, times, Each(windows), panes)
