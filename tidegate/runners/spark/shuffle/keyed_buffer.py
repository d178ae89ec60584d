"""Groups elements by key before they cross a shuffle, if the step behind it groups by key anyway.

Each key is then sent once with all its elements, and the receiving step looks it up once.

>>> buffer = KeyedBuffer(timed=False)
>>> block = Block([("a", 1), ("b", 2), ("a", 3)])
>>> if buffer.accepts(block):
...     buffer.add(block)
>>> targets = [1 for key in buffer.keys]
>>> [(target, batch.keys, batch.counts, batch.values) for target, batch in buffer.batches(targets, limit=100)]
[(1, ['a', 'b'], [2, 1], [1, 3, 2])]
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final

from tidegate.runners.engine.keyed_batch import KeyedBatch, only_window
from tidegate.runners.plan import Edge, Plan
from tidegate.sdk.authoring.combine import CallableFn, ListFn, TupleFn
from tidegate.sdk.data.block import Block, Each, Pairs, WindowsColumn, keys_of
from tidegate.sdk.data.panes import NO_PANE, PaneInfo
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey, ParDo
from tidegate.sdk.time import MIN_MICROS

_drain: Final = deque[Any](maxlen=0).extend


def keyed_buffer_of(plan: Plan, edge: Edge) -> KeyedBuffer | None:
    """A buffer for an edge whose target step can process keyed batches; else None. There is none either if other edges
    read the same stored elements: they may need the timestamps and panes that a grouping does without."""
    step = plan.steps[edge.target]
    if edge.side is not None or edge.exchange is None or edge.exchange.routing != "hash" or len(step.nodes) > 1:
        return None
    if any(other.files is not None and plan.edges[other.files] == edge for other in plan.edges):
        return None
    match step.tail:
        case ParDo() if step.in_time_order:
            return KeyedBuffer(timed=True)
        case GroupByKey() if step.in_time_order or step.path == "table":
            return KeyedBuffer(timed=step.in_time_order)
        case CombinePerKey(key="first") if step.phase == "whole" and step.in_time_order:
            return KeyedBuffer(timed=True)
        case CombinePerKey(key="first") as node if step.phase == "whole" and step.path == "table":
            return KeyedBuffer(timed=False) if type(node.fn.load()) in (ListFn, TupleFn, CallableFn) else None
        case _:
            return None


class KeyedBuffer:
    """Pairs grouped by key. `timed`: the step needs the elements' timestamps; if not, it needs only their window."""

    def __init__(self, *, timed: bool) -> None:
        self._timed = timed
        self._constants: tuple[int | None, WindowsColumn, PaneInfo] | None = None
        self.clear()

    def clear(self) -> None:
        """Remove all elements."""
        self.count = 0
        self._by_key: defaultdict[Any, list[Any]] = defaultdict(list)

    @property
    def keys(self) -> list[Any]:
        """The keys, in the order of their first element."""
        return list(self._by_key)

    @property
    def key_count(self) -> int:
        """The number of keys."""
        return len(self._by_key)

    def accepts(self, block: Block) -> bool:
        """Whether a block can be added: its elements share their windows and pane, the same as in earlier blocks."""
        if isinstance(block.windows, Each) or not isinstance(block.panes, PaneInfo):
            return False
        if self._timed:
            constant = block.timestamps if isinstance(block.timestamps, int) else None
            constants: tuple[int | None, WindowsColumn, PaneInfo] = constant, block.windows, block.panes
        elif only_window(block.windows) is None:
            return False
        else:
            constants = MIN_MICROS, block.windows, NO_PANE
        if self._constants is None:
            self._constants = constants
        return constants == self._constants

    def add(self, block: Block) -> None:
        """Add a block's elements. Raises TypeError or ValueError if one is not a pair or its key is not hashable."""
        assert self._constants is not None
        pairs = block.values
        keys = keys_of(pairs)
        values = pairs.seconds if type(pairs) is Pairs else [v for _, v in pairs]
        lists = map(self._by_key.__getitem__, keys)
        if self._constants[0] is None:
            _drain(map(list.extend, lists, zip(values, block.timestamp_column(), strict=True)))
        else:
            _drain(map(list.append, lists, values))
        self.count += len(keys)

    def batches(self, targets: Sequence[int], limit: int) -> Iterator[tuple[int, KeyedBatch]]:
        """The elements in batches of about `limit`, by target in ascending order; `targets` are those of `keys`."""
        # Look up no key again: the entries of a large dict are rarely in the processor's cache.
        parts: dict[int, tuple[list[Any], list[list[Any]]]] = {target: ([], []) for target in sorted(set(targets))}
        appends = {target: (keys.append, lists.append) for target, (keys, lists) in parts.items()}
        for target, key, entries in zip(targets, self._by_key, self._by_key.values(), strict=True):
            append_key, append_list = appends[target]
            append_key(key)
            append_list(entries)
        for target, (keys, lists) in parts.items():
            for batch in self._divided(keys, lists, limit):
                yield target, batch

    def _divided(self, keys: list[Any], lists: list[list[Any]], limit: int) -> Iterator[KeyedBatch]:
        assert self._constants is not None
        limit *= 2 if self._constants[0] is None else 1
        sizes = list(map(len, lists))
        if sum(sizes) <= limit:
            yield self._batch(keys, lists, sizes)
            return
        batch_keys: list[Any] = []
        parts: list[list[Any]] = []
        room = limit
        for key, entries in zip(keys, lists, strict=True):
            for start in range(0, len(entries), limit):
                part = entries[start : start + limit] if len(entries) > limit else entries
                batch_keys.append(key)
                parts.append(part)
                room -= len(part)
                if room <= 0:
                    yield self._batch(batch_keys, parts, list(map(len, parts)))
                    batch_keys, parts, room = [], [], limit
        if batch_keys:
            yield self._batch(batch_keys, parts, list(map(len, parts)))

    def _batch(self, keys: list[Any], lists: list[list[Any]], sizes: list[int]) -> KeyedBatch:
        assert self._constants is not None
        timestamp, windows, pane = self._constants
        values = list(chain.from_iterable(lists))
        if timestamp is not None:
            return KeyedBatch(keys, sizes, values, timestamp, windows, pane)
        return KeyedBatch(keys, [size // 2 for size in sizes], values[::2], values[1::2], windows, pane)
