"""Elements held by key before they cross a shuffle, for steps that bring equal keys together anyway.

A key is written once with all its elements, and looked up once by who reads them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
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
    """What holds the elements of an edge by key, if that serves the step at its end."""
    step = plan.steps[edge.target]
    if edge.side is not None or edge.exchange is None or edge.exchange.routing != "hash" or len(step.nodes) > 1:
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
    """Pairs by key. `timed`: their timestamps matter; else one window must tell all that does."""

    def __init__(self, *, timed: bool) -> None:
        self._timed = timed
        self._common: tuple[int | None, WindowsColumn, PaneInfo] | None = None
        self._start()

    def _start(self) -> None:
        self.count = 0
        self._by_key: defaultdict[Any, list[Any]] = defaultdict(list)

    @property
    def keys(self) -> list[Any]:
        """The keys, by first arrival."""
        return list(self._by_key)

    def takes(self, block: Block) -> bool:
        """Whether a block is of the kind of those before: one in which windows and pane are the same for all."""
        if isinstance(block.windows, Each) or not isinstance(block.panes, PaneInfo):
            return False
        if self._timed:
            constant = block.timestamps if isinstance(block.timestamps, int) else None
            common: tuple[int | None, WindowsColumn, PaneInfo] = constant, block.windows, block.panes
        elif only_window(block.windows) is None:
            return False
        else:
            common = MIN_MICROS, block.windows, NO_PANE
        if self._common is None:
            self._common = common
        return common == self._common

    def take(self, block: Block) -> None:
        """A block's elements. TypeError or ValueError if one is no pair, or its key can't be hashed."""
        assert self._common is not None
        pairs = block.values
        keys = keys_of(pairs)
        values = pairs.seconds if type(pairs) is Pairs else [v for _, v in pairs]
        lists = map(self._by_key.__getitem__, keys)
        if self._common[0] is None:
            _drain(map(list.extend, lists, zip(values, block.timestamp_column(), strict=True)))
        else:
            _drain(map(list.append, lists, values))
        self.count += len(keys)

    def parts(self, keys: list[Any], limit: int) -> Iterator[KeyedBatch]:
        """The elements of some keys, about `limit` at a time."""
        assert self._common is not None
        limit *= 2 if self._common[0] is None else 1
        lists = list(map(self._by_key.__getitem__, keys))
        if sum(map(len, lists)) <= limit:
            yield self._keyed(keys, lists)
            return
        some: list[Any] = []
        parts: list[list[Any]] = []
        room = limit
        for key, entries in zip(keys, lists, strict=True):
            for start in range(0, len(entries), limit):
                part = entries[start : start + limit] if len(entries) > limit else entries
                some.append(key)
                parts.append(part)
                room -= len(part)
                if room <= 0:
                    yield self._keyed(some, parts)
                    some, parts, room = [], [], limit
        if some:
            yield self._keyed(some, parts)

    def _keyed(self, keys: list[Any], lists: list[list[Any]]) -> KeyedBatch:
        assert self._common is not None
        timestamp, windows, pane = self._common
        values = list(chain.from_iterable(lists))
        if timestamp is not None:
            return KeyedBatch(keys, list(map(len, lists)), values, timestamp, windows, pane)
        return KeyedBatch(keys, [len(part) // 2 for part in lists], values[::2], values[1::2], windows, pane)

    def empty(self) -> None:
        """What was held has been sent."""
        self._start()
