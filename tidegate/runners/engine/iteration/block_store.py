"""BlockStore: the elements of a collection between two rounds, in memory up to a budget, beyond it on disk."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tidegate.runners.engine.memory.gauge import SAMPLE, MemoryGauge, mean_size
from tidegate.runners.engine.memory.spill_file import SpillFile, new_file
from tidegate.sdk.data.block import Block
from tidegate.sdk.user_code.redefined_classes import dumps


class BlockStore:
    """Blocks in the order in which they were added. They can be read any number of times.

    `budget` is how many bytes of elements are kept in memory; `directory` creates the folder for the others.
    """

    def __init__(self, budget: int, directory: Callable[[], Path]) -> None:
        self._directory = directory
        self._blocks: list[Block] = []
        self._in_memory = 0
        self._mean = 0
        self._file: SpillFile | None = None
        self._gauge = MemoryGauge(budget, estimate=lambda: self._in_memory * self._mean, sample=self._sample)
        self.elements = 0
        """How many elements have been added."""

    def add(self, block: Block) -> None:
        """Append a block."""
        self._blocks.append(block)
        self._in_memory += len(block)
        self.elements += len(block)
        if self._gauge.block_added():
            self._spill()

    def __iter__(self) -> Iterator[Block]:
        if self._file is not None:
            with self._file.reader() as file:
                while file.tell() < self._file.size:
                    yield Block(*pickle.load(file))
        yield from self._blocks

    def clear(self) -> None:
        """Drop all elements."""
        self._blocks = []
        self._in_memory = self.elements = 0
        if self._file is not None:
            self._file.remove()
            self._file = None

    def snapshot(self) -> list[tuple[Any, ...]]:
        """The columns of all blocks, as picklable data."""
        return [_columns(block) for block in self]

    def restore(self, blocks: list[tuple[Any, ...]]) -> None:
        """Add the blocks that `snapshot` returned."""
        for columns in blocks:
            self.add(Block(*columns))

    def _sample(self) -> None:
        self._mean = 16 + mean_size(islice(self._blocks[-1].values, SAMPLE)) if self._blocks else 0

    def _spill(self) -> None:
        if self._file is None:
            self._file = SpillFile(new_file(self._directory, "round"))
        self._file.append(dumps(_columns(block)) for block in self._blocks)
        self._blocks = []
        self._in_memory = 0


def _columns(block: Block) -> tuple[Any, ...]:
    return block.values, block.timestamps, block.windows, block.panes, block.span
