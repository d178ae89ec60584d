"""Partitions the elements of an edge: divides each block by partition in one pass, and sends large rows.

The rows are a pure function of the blocks and their order, so that a repeated task sends the same rows.
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
"""The target partition of each element of a block, or one for all of them."""

T = TypeVar("T")

Constants: TypeAlias = tuple[int | None, WindowsColumn | None, PaneInfo | None, Literal[True] | None]
"""The timestamp, windows and pane that all elements share, or None where they differ; then True if all elements are
pairs in two columns."""

_MAX_BUFFERED_BYTES: Final = 128 << 20
_MAX_ROW_BYTES: Final = 4 << 20
_MIN_ROW_BYTES: Final = 256 << 10
_MIN_KEYED_BUFFER_BYTES: Final = 16 << 20
_MIN_ELEMENTS_PER_KEY: Final = 2
_ELEMENTS_BEFORE_DECISION: Final = 1 << 18
"""The number of elements after which the partitioner decides whether grouping by key pays."""
_CACHED_ELEMENTS: Final = 1 << 17
"""About as many elements are still in the processor's cache when they are sent, which then takes half the time."""
_MIN_ELEMENTS_PER_CACHED_KEY: Final = 6
"""With fewer, sending the keys again with each batch would cost more than that."""
_MIN_CACHED_ELEMENTS_PER_ROW: Final = 1 << 12
"""Shorter rows, to many partitions, would cost more than that, too."""
_ELEMENTS_BETWEEN_SAMPLES: Final = 1 << 10
"""The number of elements between two samples of the element size."""
_SHORT_BLOCK: Final = 256
"""A block of fewer elements does not start a new block with constants of its own, as rows of many tiny blocks would
cost more."""


class Partitioner:
    """Receives the blocks that a task emits on one edge, and sends rows of bounded size to each target partition."""

    def __init__(
        self, plan: Plan, edge: Edge, number: int, src: int, partition: int, partitions: int, out: OutgoingRows
    ) -> None:
        self._edge = number
        self._src = src
        self._out = out
        self._producer = plan.steps[edge.source]
        self._everywhere = edge.exchange is not None and edge.exchange.routing == "broadcast"
        self._keys = _KeyRouter(plan, edge, partitions)
        self._targets = _targets(plan, edge, partition, partitions, self._keys)
        self._keyed_buffer = keyed_buffer_of(plan, edge)
        buffer_bytes = min(_MAX_BUFFERED_BYTES // 2, _MIN_ROW_BYTES * partitions)
        self._keyed_buffer_bytes = max(_MIN_KEYED_BUFFER_BYTES, buffer_bytes)
        self._partitions = partitions
        self._row_bytes = max(_MIN_ROW_BYTES, min(_MAX_ROW_BYTES, _MAX_BUFFERED_BYTES // partitions))
        self._buffers: dict[int, _PartitionBuffer] = {}
        self._constants: Constants = (None, None, None, None)
        self._element_bytes = 0.0
        self._until_sample = 0
        self._seq = 0

    def write(self, block: Block) -> None:
        """Partition a block."""
        if not len(block):
            return
        self._until_sample -= len(block)
        if self._until_sample < 0:
            self._measure_element_size(block)
        if self._everywhere:
            self._add(0, block)
            return
        if self._keyed_buffer is not None:
            if self._keyed_buffer.accepts(block):
                self._buffer_block(block)
                return
            self._stop_buffering_by_key()
        targets = self._targets(block)
        if isinstance(targets, int):
            self._add(targets, block)
            return
        constants = self._constants_for(block)
        if constants[:3] == (block.timestamps, block.windows, block.panes):
            self._scatter(block.values, targets)
            return
        by_target: dict[int, list[int]] = {target: [] for target in set(targets)}
        appends = {target: index.append for target, index in by_target.items()}
        for at, target in enumerate(targets):
            appends[target](at)
        for target, index in by_target.items():
            self._buffer_of(target).append(block, index, constants)
            self._flush_if_full(target)

    def close(self) -> None:
        """Send all buffered elements."""
        self._stop_buffering_by_key()
        for target in sorted(self._buffers):
            self._flush(target)

    def _measure_element_size(self, block: Block) -> None:
        """Estimate the size of an element from a sample. A later sample only counts if its elements are much longer."""
        self._until_sample = _ELEMENTS_BETWEEN_SAMPLES
        count = 8 if self._element_bytes else 64
        sample = list(block.values[:: len(block) // count or 1])
        bytes_each = len(self._encoded(encode_columns, (sample, list(range(len(sample)))))) / len(sample)
        if bytes_each > 4 * self._element_bytes:
            self._element_bytes = max(8.0, bytes_each)

    def _buffer_block(self, block: Block) -> None:
        """Add a block to the keyed buffer, and flush that if it is full or does not pay."""
        buffer = self._keyed_buffer
        assert buffer is not None
        try:
            buffer.add(block)
        except (TypeError, ValueError) as error:
            rethrow(self._keys.refusal(block, error))
        full = buffer.count * self._element_bytes >= self._keyed_buffer_bytes
        cached = max(_CACHED_ELEMENTS, _MIN_CACHED_ELEMENTS_PER_ROW * self._partitions)
        if buffer.count >= max(cached, _MIN_ELEMENTS_PER_CACHED_KEY * buffer.key_count):
            self._flush_keyed_buffer()
        elif full or buffer.count - len(block) < _ELEMENTS_BEFORE_DECISION <= buffer.count:
            if buffer.count < _MIN_ELEMENTS_PER_KEY * buffer.key_count:
                self._stop_buffering_by_key()  # most keys occur only once
            elif full:
                self._flush_keyed_buffer()

    def _stop_buffering_by_key(self) -> None:
        """Flush and drop the keyed buffer. Later elements must not overtake those in it."""
        self._flush_keyed_buffer()
        self._keyed_buffer = None

    def _flush_keyed_buffer(self) -> None:
        buffer = self._keyed_buffer
        if buffer is None or not buffer.count:
            return
        limit = max(1, int(self._row_bytes / self._element_bytes))
        size = 0
        for target, keyed in buffer.batches(self._keys.of_distinct(buffer.keys), limit):
            data = self._encoded(encode_keyed, keyed)
            size += len(data)
            self._seq = self._out.send(target, self._edge, self._src, self._seq, data)
        self._element_bytes = max(1.0, size / buffer.count)
        buffer.clear()

    def _scatter(self, values: Sequence[Any], targets: Sequence[int]) -> None:
        """Append values whose other columns are constant: one append per element, or two for pairs."""
        buffers = {target: self._buffer_of(target) for target in set(targets)}
        append_value = {target: buffer.values.append for target, buffer in buffers.items()}
        if self._constants[3]:
            assert isinstance(values, Pairs)
            append_key = {target: buffer.keys.append for target, buffer in buffers.items()}
            for key, value, target in zip(values.firsts, values.seconds, targets, strict=True):
                append_key[target](key)
                append_value[target](value)
        else:
            for value, target in zip(values, targets, strict=True):
                append_value[target](value)
        for target in buffers:
            self._flush_if_full(target)

    def _add(self, target: int, block: Block) -> None:
        constants = self._constants_for(block)
        self._buffer_of(target).append(block, None, constants)
        self._flush_if_full(target)

    def _constants_for(self, block: Block) -> Constants:
        """The constants with which a block's elements are appended. If they change, every buffer starts a new block."""
        constants: Constants = (
            block.timestamps if isinstance(block.timestamps, int) else None,
            None if isinstance(block.windows, Each) else block.windows,
            block.panes if isinstance(block.panes, PaneInfo) else None,
            True if type(block.values) is Pairs else None,
        )
        current = self._constants
        if constants == current:
            return constants
        if len(block) < _SHORT_BLOCK and self._buffers:
            constants = tuple(a if a == b else None for a, b in zip(constants, current, strict=True))  # type: ignore[assignment]
        if constants != current:
            for buffer in self._buffers.values():
                buffer.finish_block(current)
            self._constants = constants
        return constants

    def _buffer_of(self, target: int) -> _PartitionBuffer:
        buffer = self._buffers.get(target)
        if buffer is None:
            buffer = self._buffers[target] = _PartitionBuffer()
        return buffer

    def _flush_if_full(self, target: int) -> None:
        buffer = self._buffers[target]
        if (buffer.finished_elements + len(buffer.values)) * self._element_bytes >= self._row_bytes:
            self._flush(target)

    def _flush(self, target: int) -> None:
        buffer = self._buffers.pop(target)
        buffer.finish_block(self._constants)
        if not buffer.finished:
            return
        data = self._encoded(encode_blocks, buffer.finished)
        self._element_bytes = max(1.0, len(data) / buffer.finished_elements)
        if self._everywhere:
            seq = self._seq
            for partition in range(self._partitions):
                self._seq = self._out.send(partition, self._edge, self._src, seq, data)
        else:
            self._seq = self._out.send(target, self._edge, self._src, self._seq, data)

    def _encoded(self, encode: Callable[[T], bytes], elements: T) -> bytes:
        try:
            return encode(elements)
        except PicklingError as error:
            rethrow(located(error, self._producer.label, self._producer.tail.where))


class _PartitionBuffer:
    """The elements for one target partition: finished blocks, and the columns of the current block."""

    __slots__ = ("finished", "finished_elements", "keys", "panes", "timestamps", "values", "windows")

    def __init__(self) -> None:
        self.finished: list[Block] = []
        self.finished_elements = 0
        self._start_block()

    def _start_block(self) -> None:
        self.keys: list[Any] = []
        self.values: list[Any] = []
        self.timestamps: list[int] = []
        self.windows: list[tuple[Any, ...]] = []
        self.panes: list[PaneInfo] = []

    def append(self, block: Block, index: list[int] | None, constants: Constants) -> None:
        """Append the elements at `index`, or all, to the current block: the columns that are not constant."""
        timestamp, windows, pane, paired = constants
        if paired:
            assert isinstance(block.values, Pairs)
            self.keys += _select(block.values.firsts, index)
            self.values += _select(block.values.seconds, index)
        else:
            self.values += _select(block.values, index)
        if timestamp is None:
            self.timestamps += _select(block.timestamp_column(), index)
        if windows is None:
            self.windows += _select(block.window_list(), index)
        if pane is None:
            self.panes += _select(block.pane_list(), index)

    def finish_block(self, constants: Constants) -> None:
        """Finish the current block, because later elements have other constants."""
        if not self.values:
            return
        timestamps: TimestampsColumn = self.timestamps if constants[0] is None else constants[0]
        windows: WindowsColumn = Each(self.windows) if constants[1] is None else constants[1]
        panes: PanesColumn = self.panes if constants[2] is None else constants[2]
        values = Pairs(self.keys, self.values) if constants[3] else self.values
        self.finished.append(Block(values, timestamps, windows, panes))
        self.finished_elements += len(self.values)
        self._start_block()


def _select(column: Sequence[Any], index: list[int] | None) -> Sequence[Any]:
    return column if index is None else [column[i] for i in index]


def _targets(plan: Plan, edge: Edge, partition: int, partitions: int, keys: _KeyRouter) -> Targets:
    match edge.exchange.routing if edge.exchange is not None else "forward":
        case "hash":
            return keys.targets
        case "gather" | "broadcast":
            return lambda block: 0
        case "rebalance":
            return _RoundRobin(partition, rebalance_width(plan, edge, partitions)).targets
        case _:
            return lambda block: partition


class _RoundRobin:
    """Assigns elements to partitions round-robin."""

    def __init__(self, start: int, partitions: int) -> None:
        self._next = start % partitions
        self._partitions = partitions

    def targets(self, block: Block) -> Sequence[int]:
        """The partition of each element."""
        first, partitions = self._next, self._partitions
        self._next = (first + len(block)) % partitions
        cycle = [*range(first, partitions), *range(first)]
        return (cycle * (len(block) // partitions + 1))[: len(block)]


class _KeyRouter:
    """Assigns elements to partitions by key."""

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

    def of_distinct(self, keys: list[Any]) -> Sequence[int]:
        """The partition of each of these keys, which all differ."""
        try:
            return self._cache.of_distinct(keys)
        except KeyEncodingError as error:
            rethrow(located(error, self._keys.label, self._keys.where))

    def refusal(self, block: Block, error: BaseException) -> BaseException:
        """The author's error for a block with an element that is not a pair, or whose key has no encoding."""
        return self._keys.refusal(block, error)
