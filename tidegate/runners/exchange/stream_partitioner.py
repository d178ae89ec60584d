"""The partitioning of a stream's blocks: which task of the next stage receives which elements, and the watermarks.

>>> block = Block(list("abcde"), 0)
>>> select(block, [1, 0, 0, 1, 1]).values
['a', 'd', 'e']
>>> every_nth(block, start=1, step=2).values
['b', 'd']
>>> [owner(group, parallelism=3, max_parallelism=8) for group in range(8)]
[0, 0, 0, 1, 1, 1, 2, 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress
from typing import Any, Final, Protocol

from tidegate.runners.engine.errors.attribution import rethrow
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.exchange.key_extractor import KeyExtractor
from tidegate.runners.exchange.partition_cache import PartitionCache
from tidegate.runners.exchange.partitioner import rebalance_width
from tidegate.runners.plan import Edge, Plan
from tidegate.sdk.data.block import Block, Each, Pairs
from tidegate.sdk.data.keys import check_keys, key_group
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.errors import KeyEncodingError

_MAX_CACHED_KEYS: Final = 1 << 18
"""How many keys' owners are cached: computing one takes ten times as long as a lookup."""

_BYTE: Final = 256
"""How many owners fit in a byte each."""


class Target(Protocol):
    """Receives what one task sends to another on an edge, such as the sending end of a channel."""

    def add(self, block: Block, now: int) -> None: ...
    def send_status(self, status: CollectionStatus, now: int) -> None: ...


@dataclass(frozen=True, slots=True)
class PartitionerProgress:
    """The status that was sent last, and which target is next in turn."""

    sent: CollectionStatus
    next: int


class Partitioner:
    """Partitions the output of one task on one edge among the tasks that receive it."""

    def __init__(self, plan: Plan, edge: Edge, index: int, targets: Sequence[Target], max_parallelism: int) -> None:
        self.edge = edge
        self.targets = targets
        self._sent_status = CollectionStatus()
        routing = "forward" if edge.exchange is None else edge.exchange.routing
        if routing == "hash":
            self._keys = KeyExtractor(plan, edge)
            owners = _owners(len(targets), max_parallelism)
            self._owners = PartitionCache(max_parallelism, limit=_MAX_CACHED_KEYS, names=owners)
            self._selectors = _selectors(len(targets))
        self._routing = routing
        self._width = rebalance_width(plan, edge, len(targets)) if routing == "rebalance" else len(targets)
        self._next = index % self._width

    def write(self, block: Block, now: int) -> None:
        """Send the elements of a block to their targets."""
        match self._routing:
            case "hash":
                self._write_by_key(block, now)
            case "broadcast":
                for target in self.targets:
                    target.add(block, now)
            case "rebalance":
                self._write_round_robin(block, now)
            case _:
                self.targets[0].add(block, now)

    def send_status(self, status: CollectionStatus, now: int) -> None:
        """Send the status of the collection to all targets if it has changed."""
        if status != self._sent_status:
            self._sent_status = status
            for target in self.targets:
                target.send_status(status, now)

    def progress(self) -> PartitionerProgress:
        """What `continue_from` restores."""
        return PartitionerProgress(self._sent_status, self._next)

    def continue_from(self, progress: PartitionerProgress) -> None:
        """Go on where `progress` was taken: no status is sent again."""
        self._sent_status, self._next = progress.sent, progress.next

    def _write_by_key(self, block: Block, now: int) -> None:
        try:
            keys = self._keys.keys(block)
            if len(self.targets) == 1:
                check_keys(keys)
                self.targets[0].add(block, now)
                return
            owners = self._owners.partitions(keys)
        except KeyEncodingError as error:
            rethrow(self._keys.refusal(block, error))
        if len(self.targets) > _BYTE:
            for index in sorted(set(owners)):
                self.targets[index].add(select(block, [at == index for at in owners]), now)
            return
        # As bytes, many owners are compared and counted by one call.
        column = bytes(owners)
        for target, selector in zip(self.targets, self._selectors, strict=True):
            selected = column.translate(selector)
            match selected.count(1):
                case 0:
                    continue
                case n if n == len(column):
                    target.add(block, now)
                    return
            target.add(select(block, selected), now)

    def _write_round_robin(self, block: Block, now: int) -> None:
        """Distribute single elements, not blocks, so that a few costly elements are distributed as well."""
        width = self._width
        for offset in range(min(width, len(block))):
            self.targets[(self._next + offset) % width].add(every_nth(block, offset, width), now)
        self._next = (self._next + len(block)) % width


def owner(group: int, parallelism: int, max_parallelism: int) -> int:
    """The index of the task that owns a key group; each task owns a contiguous range."""
    return group * parallelism // max_parallelism


@cache
def _owners(parallelism: int, max_parallelism: int) -> tuple[int, ...]:
    """The owner of each key group."""
    return tuple(owner(group, parallelism, max_parallelism) for group in range(max_parallelism))


@cache
def _selectors(parallelism: int) -> tuple[bytes, ...]:
    """For each task, a table for `bytes.translate` that maps its index to 1 and all others to 0."""
    return tuple(bytes(at == index for at in range(_BYTE)) for index in range(parallelism))


def elements_owned(plan: Plan, edge: Edge, block: Block, index: int, parallelism: int, max_parallelism: int) -> Block:
    """The elements of a block whose keys the task `index` owns."""
    groups = (key_group(key, max_parallelism) for key in KeyExtractor(plan, edge).keys(block))
    return select(block, [owner(group, parallelism, max_parallelism) == index for group in groups])


def select(block: Block, selected: Sequence[int]) -> Block:
    """The elements of a block at the positions where `selected` is not 0."""
    timestamps = block.timestamps
    if not isinstance(timestamps, int):
        timestamps = list(compress(timestamps, selected))
    windows = block.windows
    if isinstance(windows, Each):
        windows = Each(list(compress(windows.windows, selected)))
    panes = block.panes
    if not isinstance(panes, PaneInfo):
        panes = list(compress(panes, selected))
    values: Sequence[Any]
    if type(block.values) is Pairs:
        pairs = block.values
        values = Pairs(list(compress(pairs.firsts, selected)), list(compress(pairs.seconds, selected)))
    else:
        values = list(compress(block.values, selected))
    return Block(values, timestamps, windows, panes)


def every_nth(block: Block, start: int, step: int) -> Block:
    """The elements of a block at the positions `start`, `start + step`, …"""
    timestamps = block.timestamps
    windows = Each(block.windows.windows[start::step]) if isinstance(block.windows, Each) else block.windows
    panes = block.panes
    return Block(
        block.values[start::step],
        timestamps if isinstance(timestamps, int) else timestamps[start::step],
        windows,
        panes if isinstance(panes, PaneInfo) else panes[start::step],
    )
