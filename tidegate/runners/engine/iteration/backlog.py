"""The backlog of a feedback loop: blocks that have been fed back, first in, first out; beyond a budget on disk.

>>> from pathlib import Path
>>> backlog = Backlog(1_000_000, Path)
>>> backlog.add(Block(["a", "b"], [7, 5]), 1); backlog.add(Block(["c"], 6), 1); backlog.add(Block(["d"], 9), 2)
>>> backlog.low, [(hops, block.values) for hops, block in (backlog.take(10), backlog.take(10))]
(5, [(1, ['a', 'b', 'c']), (2, ['d'])])
>>> backlog.low == NOTHING, len(backlog)
(True, 0)
"""

from __future__ import annotations

import pickle
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.memory.gauge import SAMPLE, MemoryGauge, mean_size
from tidegate.runners.engine.memory.spill_file import SpillFile, keep_removed_files, new_file
from tidegate.sdk.data.block import Block, joined
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.user_code.redefined_classes import dumps

NOTHING: Final = MAX_MICROS + 1
"""The least timestamp (µs) of no elements."""

Entry: TypeAlias = tuple[int, Block]
"""How often the elements of a block have gone round, and the block."""
StoredEntry: TypeAlias = tuple[int, tuple[Any, ...]]
"""The same, with the block's columns."""


@dataclass(frozen=True, slots=True)
class BacklogSnapshot:
    """The columns of all blocks, with how often each has gone round. `watermark`: that of the loop (µs); `task`: the
    index of the task, whose blocks stay together when the number of tasks changes."""

    blocks: Iterable[StoredEntry]
    watermark: int
    task: int

    def pieces(self, size: int) -> Iterator[tuple[BacklogSnapshot | MoreBacklog, int]]:
        """The snapshot in pieces of about `size` elements, each with the number of its elements. Of what is on disk,
        one piece after the other is read."""
        blocks: list[StoredEntry] = []
        piece: BacklogSnapshot | MoreBacklog = BacklogSnapshot(blocks, self.watermark, self.task)
        elements = 0
        for hops, columns in self.blocks:
            if elements >= size:
                yield piece, elements
                blocks, elements = [], 0
                piece = MoreBacklog(blocks)
            blocks.append((hops, columns))
            elements += len(columns[0])
        yield piece, elements


@dataclass(frozen=True, slots=True)
class MoreBacklog:
    """What follows the blocks of a `BacklogSnapshot`."""

    blocks: list[StoredEntry]


class Backlog:
    """A queue of blocks. `budget` is how many bytes of elements are kept in memory; `directory` creates the folder for
    the others."""

    def __init__(self, budget: int, directory: Callable[[], Path]) -> None:
        self._directory = directory
        self._front: deque[Entry] = deque()
        self._files: deque[_Batches] = deque()
        self._tail: list[Entry] = []
        self._in_tail = self._elements = self._mean = 0
        self._lows: deque[tuple[int, int]] = deque()
        """The least timestamps of later and later parts of the queue, each with the number of its first block."""
        self._added = self._taken = 0
        """How many blocks have been added, and how many of them taken."""
        self._gauge = MemoryGauge(max(1, budget // 2), estimate=lambda: self._in_tail * self._mean, sample=self._sample)

    def __len__(self) -> int:
        return self._elements

    @property
    def size(self) -> int:
        """About how many bytes the elements have."""
        return self._elements * self._mean

    @property
    def low(self) -> int:
        """The least timestamp (µs); NOTHING without elements."""
        return self._lows[0][0] if self._lows else NOTHING

    def add(self, block: Block, hops: int) -> None:
        """Append a block. RunError if it has to go to disk, and the disk is full."""
        low = least(block)
        while self._lows and self._lows[-1][0] >= low:
            self._lows.pop()
        self._lows.append((low, self._added))
        self._added += 1
        self._tail.append((hops, block))
        self._in_tail += len(block)
        self._elements += len(block)
        if self._gauge.block_added():
            self._spill()

    @property
    def next_hops(self) -> int:
        """How often the first block has gone round. There must be one."""
        self._fill()
        return self._front[0][0]

    def take(self, limit: int) -> Entry:
        """Remove and return the first block; joined with the next ones, as far as these have gone round equally often
        and there are no more elements than `limit`. There must be one."""
        hops, block = self._pop()
        blocks, size = [block], len(block)
        while self._elements:
            self._fill()
            next_hops, following = self._front[0]
            size += len(following)
            if next_hops != hops or size > limit:
                break
            blocks.append(self._pop()[1])
        return hops, joined(blocks)

    def stored(self) -> Iterable[StoredEntry]:
        """All blocks in order, as they are now; what is on disk is read when it is asked for."""
        return _Stored(
            [*self._front], [(each.spilled, each.read, each.spilled.size) for each in self._files], self._tail
        )

    def clear(self) -> None:
        """Drop all elements."""
        for file in self._files:
            file.spilled.remove()
        self._front.clear()
        self._files.clear()
        self._tail.clear()
        self._lows.clear()
        self._in_tail = self._elements = 0

    def _pop(self) -> Entry:
        self._fill()
        entry = self._front.popleft()
        if self._lows[0][1] == self._taken:
            self._lows.popleft()
        self._taken += 1
        self._elements -= len(entry[1])
        return entry

    def _fill(self) -> None:
        """Bring the next blocks to the front. What has been spilled at a time has at most half of the budget."""
        if self._front:
            return
        if self._files:
            file = self._files[0]
            self._front.extend(file.next())
            if file.read == file.spilled.size:
                self._files.popleft().spilled.remove()
        else:
            self._front.extend(self._tail)
            self._tail.clear()
            self._in_tail = 0

    def _sample(self) -> None:
        self._mean = 16 + mean_size(islice(self._tail[-1][1].values, SAMPLE)) if self._tail else self._mean

    def _spill(self) -> None:
        if not self._files or self._files[-1].spilled.size > _FILE_SIZE:
            self._files.append(_Batches(SpillFile(new_file(self._directory, "backlog"))))
        self._files[-1].spilled.append([dumps([(hops, columns_of(block)) for hops, block in self._tail])])
        self._tail.clear()
        self._in_tail = 0


@dataclass(slots=True)
class _Batches:
    """A file of spilled blocks, in batches. `read`: up to where it has been read."""

    spilled: SpillFile
    read: int = 0

    def next(self) -> list[Entry]:
        """The blocks of the next batch."""
        with self.spilled.reader() as file:
            file.seek(self.read)
            batch = pickle.load(file)
            self.read = file.tell()
        return [(hops, Block(*columns)) for hops, columns in batch]


class _Stored:
    """The blocks of a backlog at one moment. `files`: each with the part of it that belongs to the backlog; they are
    not deleted as long as this is there."""

    def __init__(self, front: list[Entry], files: list[tuple[SpillFile, int, int]], tail: list[Entry]) -> None:
        self._front, self._files, self._tail = front, files, [*tail]
        if files:
            weakref.finalize(self, keep_removed_files())

    def __iter__(self) -> Iterator[StoredEntry]:
        for hops, block in self._front:
            yield hops, columns_of(block)
        for spilled, start, end in self._files:
            with spilled.reader() as file:
                file.seek(start)
                while file.tell() < end:
                    yield from pickle.load(file)
        for hops, block in self._tail:
            yield hops, columns_of(block)


_FILE_SIZE: Final = 64 << 20
"""How many bytes a file has at most, but for what is spilled at a time: it is removed when all has been read."""


def least(block: Block) -> int:
    """The least timestamp (µs) of a block."""
    column = block.timestamps
    return column if isinstance(column, int) else min(column)


def columns_of(block: Block) -> tuple[Any, ...]:
    """The columns of a block, from which `Block` makes it again."""
    return block.values, block.timestamps, block.windows, block.panes, block.span
