"""Where elements go: each block of an edge is parted by target partition in one pass, and leaves in large rows.

What is sent is a pure function of the blocks that were written, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeVar

from tidegate.runners.engine.errors.attribution import located, rethrow
from tidegate.runners.exchange.key_extractor import KeyExtractor
from tidegate.runners.exchange.partition_cache import PartitionCache
from tidegate.runners.exchange.partitioner import rebalance_width
from tidegate.runners.plan import Edge, Plan
from tidegate.runners.spark.shuffle.keyed_buffer import keyed_buffer_of
from tidegate.runners.spark.shuffle.row_codec import OutgoingRows, encode_blocks, encode_keyed
from tidegate.sdk.data.block import Block, Each, Pairs, PanesColumn, TimestampsColumn, WindowsColumn
from tidegate.sdk.data.coders import encode_columns
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.errors import KeyEncodingError, PicklingError

Targets: TypeAlias = Callable[[Block], Sequence[int] | int]
"""The target partition of each of a block's elements, or of all of them."""

T = TypeVar("T")

Constants: TypeAlias = tuple[int | None, WindowsColumn | None, PaneInfo | None, Literal[True] | None]
"""Timestamp, windows and pane where all elements have the same; None where each has its own. At last, whether all
elements are pairs in two columns."""

_MOST_HELD: Final = 128 << 20
_ROW_BYTES: Final = 4 << 20
_LEAST_ROW_BYTES: Final = 256 << 10
_LEAST_HELD: Final = 16 << 20
_LEAST_PER_KEY: Final = 2
_JUDGED: Final = 1 << 18
"""After how many elements it is judged whether bringing them together by key saves anything."""
_WEIGHED: Final = 1 << 10
"""After how many elements it is looked again how long they are."""
_SHORT: Final = 256
"""A block of fewer elements does not get constants of its own: rows of many tiny blocks would cost more."""


class Partitioner:
    """Takes what a task gives on one edge, and sends rows of bounded size to each target partition."""

    def __init__(
        self, plan: Plan, edge: Edge, number: int, src: int, partition: int, partitions: int, out: OutgoingRows
    ) -> None:
        self._edge = number
        self._src = src
        self._out = out
        self._maker = plan.steps[edge.source]
        self._everywhere = edge.exchange is not None and edge.exchange.routing == "broadcast"
        self._keys = _ByKey(plan, edge, partitions)
        self._targets = _targets(plan, edge, partition, partitions, self._keys)
        self._held = keyed_buffer_of(plan, edge)
        self._held_bytes = max(_LEAST_HELD, min(_MOST_HELD // 2, _LEAST_ROW_BYTES * partitions))
        self._partitions = partitions
        self._row_bytes = max(_LEAST_ROW_BYTES, min(_ROW_BYTES, _MOST_HELD // partitions))
        self._shares: dict[int, _PartitionBuffer] = {}
        self._constants: Constants = (None, None, None, None)
        self._element_bytes = 0.0
        self._unweighed = 0
        self._seq = 0

    def write(self, block: Block) -> None:
        """Some elements."""
        if not len(block):
            return
        self._unweighed -= len(block)
        if self._unweighed < 0:
            self._weigh(block)
        if self._everywhere:
            self._add(0, block)
            return
        if self._held is not None:
            if self._held.takes(block):
                self._buffer_block(block)
                return
            self._release()
        targets = self._targets(block)
        if isinstance(targets, int):
            self._add(targets, block)
            return
        constants = self._fitting(block)
        if constants[:3] == (block.timestamps, block.windows, block.panes):
            self._scatter(block.values, targets)
            return
        by_target: dict[int, list[int]] = {target: [] for target in set(targets)}
        appends = {target: index.append for target, index in by_target.items()}
        for at, target in enumerate(targets):
            appends[target](at)
        for target, index in by_target.items():
            self._share(target).take(block, index, constants)
            self._settle(target)

    def close(self) -> None:
        """Send what is left."""
        self._release()
        for target in sorted(self._shares):
            self._flush(target)

    def _weigh(self, block: Block) -> None:
        """About how long an element is: of the first ones, and later, of some that turn out to be much longer."""
        self._unweighed = _WEIGHED
        some = 8 if self._element_bytes else 64
        sample = list(block.values[:: len(block) // some or 1])
        bytes_each = len(self._encoded(encode_columns, (sample, list(range(len(sample)))))) / len(sample)
        if bytes_each > 4 * self._element_bytes:
            self._element_bytes = max(8.0, bytes_each)

    def _buffer_block(self, block: Block) -> None:
        """A block whose elements are held by key, until there are enough."""
        held = self._held
        assert held is not None
        try:
            held.take(block)
        except (TypeError, ValueError) as error:
            rethrow(self._keys.refusal(block, error))
        full = held.count * self._element_bytes >= self._held_bytes
        if full or held.count - len(block) < _JUDGED <= held.count:
            if held.count < _LEAST_PER_KEY * len(held.keys):
                self._release()  # keys that hardly come twice
            elif full:
                self._flush_held()

    def _release(self) -> None:
        """Hold nothing by key from here on: what comes now must not overtake what is held."""
        self._flush_held()
        self._held = None

    def _flush_held(self) -> None:
        held = self._held
        if held is None or not held.count:
            return
        by_target: dict[int, list[Any]] = {}
        keys = held.keys
        for key, target in zip(keys, self._keys.of_keys(keys), strict=True):
            by_target.setdefault(target, []).append(key)
        limit = max(1, int(self._row_bytes / self._element_bytes))
        size = 0
        for target in sorted(by_target):
            for keyed in held.parts(by_target[target], limit):
                data = self._encoded(encode_keyed, keyed)
                size += len(data)
                self._seq = self._out.send(target, self._edge, self._src, self._seq, data)
        self._element_bytes = max(1.0, size / held.count)
        held.empty()

    def _scatter(self, values: Sequence[Any], targets: Sequence[int]) -> None:
        """Values whose columns are all constant: one append each, or two."""
        shares = {target: self._share(target) for target in set(targets)}
        beside = {target: share.values.append for target, share in shares.items()}
        if self._constants[3]:
            assert isinstance(values, Pairs)
            appends = {target: share.keys.append for target, share in shares.items()}
            for key, value, target in zip(values.firsts, values.seconds, targets, strict=True):
                appends[target](key)
                beside[target](value)
        else:
            for value, target in zip(values, targets, strict=True):
                beside[target](value)
        for target in shares:
            self._settle(target)

    def _add(self, target: int, block: Block) -> None:
        constants = self._fitting(block)
        self._share(target).take(block, None, constants)
        self._settle(target)

    def _fitting(self, block: Block) -> Constants:
        """The constants under which a block's elements are held; they become the ones of all shares."""
        own: Constants = (
            block.timestamps if isinstance(block.timestamps, int) else None,
            None if isinstance(block.windows, Each) else block.windows,
            block.panes if isinstance(block.panes, PaneInfo) else None,
            True if type(block.values) is Pairs else None,
        )
        before = self._constants
        if own == before:
            return own
        if len(block) < _SHORT and self._shares:
            own = tuple(a if a == b else None for a, b in zip(own, before, strict=True))  # type: ignore[assignment]
        if own != before:
            for share in self._shares.values():
                share.turn(before)
            self._constants = own
        return own

    def _share(self, target: int) -> _PartitionBuffer:
        share = self._shares.get(target)
        if share is None:
            share = self._shares[target] = _PartitionBuffer()
        return share

    def _settle(self, target: int) -> None:
        share = self._shares[target]
        if (share.before + len(share.values)) * self._element_bytes >= self._row_bytes:
            self._flush(target)

    def _flush(self, target: int) -> None:
        share = self._shares.pop(target)
        share.turn(self._constants)
        if not share.done:
            return
        data = self._encoded(encode_blocks, share.done)
        self._element_bytes = max(1.0, len(data) / share.before)
        if self._everywhere:
            starts = [self._out.send(each, self._edge, self._src, self._seq, data) for each in range(self._partitions)]
            self._seq = starts[0]
        else:
            self._seq = self._out.send(target, self._edge, self._src, self._seq, data)

    def _encoded(self, encode: Callable[[T], bytes], elements: T) -> bytes:
        try:
            return encode(elements)
        except PicklingError as error:
            rethrow(located(error, self._maker.label, self._maker.tail.where))


class _PartitionBuffer:
    """What one target partition gets: finished blocks, and the columns of one that grows."""

    __slots__ = ("before", "done", "keys", "panes", "timestamps", "values", "windows")

    def __init__(self) -> None:
        self.done: list[Block] = []
        self.before = 0
        self._start()

    def _start(self) -> None:
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps: list[int] = []
        self.windows: list[tuple[Any, ...]] = []
        self.panes: list[PaneInfo] = []

    def take(self, block: Block, index: list[int] | None, constants: Constants) -> None:
        """The elements at `index`, or all; columns that are not constant are held element by element."""
        timestamp, windows, pane, paired = constants
        if paired:
            assert isinstance(block.values, Pairs)
            self.keys += _at(block.values.firsts, index)
            self.values += _at(block.values.seconds, index)
        else:
            self.values += _at(block.values, index)
        if timestamp is None:
            self.timestamps += _at(block.timestamp_column(), index)
        if windows is None:
            self.windows += _at(block.window_list(), index)
        if pane is None:
            self.panes += _at(block.pane_list(), index)

    def turn(self, constants: Constants) -> None:
        """The block that grows is finished; what follows has other constants."""
        if not self.values:
            return
        timestamps: TimestampsColumn = self.timestamps if constants[0] is None else constants[0]
        windows: WindowsColumn = Each(self.windows) if constants[1] is None else constants[1]
        panes: PanesColumn = self.panes if constants[2] is None else constants[2]
        values = Pairs(self.keys, self.values) if constants[3] else self.values
        self.done.append(Block(values, timestamps, windows, panes))
        self.before += len(self.values)
        self._start()


def _at(column: Sequence[Any], index: list[int] | None) -> Sequence[Any]:
    return column if index is None else [column[i] for i in index]


def _targets(plan: Plan, edge: Edge, partition: int, partitions: int, keys: _ByKey) -> Targets:
    match edge.exchange.routing if edge.exchange is not None else "forward":
        case "hash":
            return keys.targets
        case "gather" | "broadcast":
            return lambda block: 0
        case "rebalance":
            return _RoundRobin(partition, rebalance_width(plan, edge, partitions)).of
        case _:
            return lambda block: partition


class _RoundRobin:
    """Elements go to one partition after another, by their position."""

    def __init__(self, start: int, among: int) -> None:
        self._next = start % among
        self._among = among

    def of(self, block: Block) -> Sequence[int]:
        first, among = self._next, self._among
        self._next = (first + len(block)) % among
        turns = list(range(among))
        turns = turns[first:] + turns[:first]
        return (turns * (len(block) // among + 1))[: len(block)]


class _ByKey:
    """The partition of each element by its key."""

    def __init__(self, plan: Plan, edge: Edge, partitions: int) -> None:
        self._keys = KeyExtractor(plan, edge)
        self._cache = PartitionCache(partitions)

    def targets(self, block: Block) -> Sequence[int]:
        """The partition of each element."""
        keys = self._keys.keys(block)
        try:
            return self._cache.partitions(keys)
        except KeyEncodingError as error:
            rethrow(self._keys.refusal(block, error))

    def of_keys(self, keys: Sequence[Any]) -> Sequence[int]:
        """The partition of each of some keys."""
        try:
            return self._cache.partitions(keys)
        except KeyEncodingError as error:
            rethrow(located(error, self._keys.label, self._keys.where))

    def refusal(self, block: Block, error: BaseException) -> BaseException:
        """The author's error for a block whose elements are not all pairs with keys that have an encoding."""
        return self._keys.refusal(block, error)
