"""Which task gets which elements of a block, along one edge."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import compress
from typing import Any, Final, Protocol

from tidegate.runners.engine.errors.attribution import rethrow
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.exchange.key_extractor import KeyExtractor
from tidegate.runners.exchange.partition_cache import PartitionCache
from tidegate.runners.exchange.partitioner import rebalance_width
from tidegate.runners.plan import Edge, Plan
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.sdk.data.block import Block, Each, Pairs
from tidegate.sdk.data.keys import check_keys, key_group
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.errors import KeyEncodingError

_MOST_KEYS: Final = 1 << 18
"""How many keys' groups are remembered: to work one out again takes ten times as long."""

_BYTE: Final = 256


class Target(Protocol):
    """The sending end of a channel."""

    def add(self, block: Block, now: int) -> None: ...
    def mark(self, mark: CollectionStatus, now: int) -> None: ...
    def barrier(self, barrier: Barrier) -> None: ...


class Router:
    """Deals what one task gives on one edge to its channels."""

    def __init__(self, plan: Plan, edge: Edge, index: int, targets: Sequence[Target], max_parallelism: int) -> None:
        assert edge.exchange is not None
        self.edge = edge
        self.targets = targets
        self._told = CollectionStatus()
        routing = edge.exchange.routing
        if routing == "hash":
            self._keys = KeyExtractor(plan, edge)
            owners = _owners(len(targets), max_parallelism)
            self._owners = PartitionCache(max_parallelism, limit=_MOST_KEYS, names=owners)
            self._shares = _shares(len(targets))
        self._routing = routing
        self._among = rebalance_width(plan, edge, len(targets)) if routing == "rebalance" else len(targets)
        self._next = index % self._among

    def write(self, block: Block, now: int) -> None:
        """Some elements."""
        match self._routing:
            case "hash":
                self._by_key(block, now)
            case "broadcast":
                for target in self.targets:
                    target.add(block, now)
            case "rebalance":
                self._in_turn(block, now)
            case _:
                self.targets[0].add(block, now)

    def mark(self, mark: CollectionStatus, now: int) -> None:
        """How the collection stands now."""
        if mark != self._told:
            self._told = mark
            for target in self.targets:
                target.mark(mark, now)

    def _by_key(self, block: Block, now: int) -> None:
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
                self.targets[index].add(picked(block, [at == index for at in owners]), now)
            return
        # As bytes they are counted, and turned into who is in and who is out, many at a time.
        column = bytes(owners)
        for target, share in zip(self.targets, self._shares, strict=True):
            selected = column.translate(share)
            match selected.count(1):
                case 0:
                    continue
                case n if n == len(column):
                    target.add(block, now)
                    return
            target.add(picked(block, selected), now)

    def _in_turn(self, block: Block, now: int) -> None:
        """One element to one task after another, by position: a few costly ones are spread too."""
        among = self._among
        for offset in range(min(among, len(block))):
            self.targets[(self._next + offset) % among].add(strided(block, offset, among), now)
        self._next = (self._next + len(block)) % among


def owner(group: int, parallelism: int, max_parallelism: int) -> int:
    """The index of the task that owns a key group: each has a run of them."""
    return group * parallelism // max_parallelism


@cache
def _owners(parallelism: int, max_parallelism: int) -> tuple[int, ...]:
    """The owner of each key group."""
    return tuple(owner(group, parallelism, max_parallelism) for group in range(max_parallelism))


@cache
def _shares(parallelism: int) -> tuple[bytes, ...]:
    """Of each task, a table that translates its own index to 1 and all others to 0."""
    return tuple(bytes(at == index for at in range(_BYTE)) for index in range(parallelism))


def share_of(plan: Plan, edge: Edge, block: Block, index: int, parallelism: int, max_parallelism: int) -> Block:
    """The elements whose keys one task owns."""
    groups = (key_group(key, max_parallelism) for key in KeyExtractor(plan, edge).keys(block))
    return picked(block, [owner(group, parallelism, max_parallelism) == index for group in groups])


def picked(block: Block, selected: Sequence[int]) -> Block:
    """The elements whose place in `selected` is not 0."""
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


def strided(block: Block, start: int, step: int) -> Block:
    """Each element whose position is `start`, `start + step`, …"""
    timestamps = block.timestamps
    windows = Each(block.windows.windows[start::step]) if isinstance(block.windows, Each) else block.windows
    panes = block.panes
    return Block(
        block.values[start::step],
        timestamps if isinstance(timestamps, int) else timestamps[start::step],
        windows,
        panes if isinstance(panes, PaneInfo) else panes[start::step],
    )
