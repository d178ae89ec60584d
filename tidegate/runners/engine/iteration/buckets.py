"""Buckets: tables on disk that are divided by the hash of the key, so that each part is loaded as a whole.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as directory:
...     buckets = Buckets(lambda: Path(directory))
...     buckets.store(3, {"window": {"a": 1}})
...     buckets.load(3), buckets.load(4)
({'window': {'a': 1}}, {})
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.iteration.block_store import BlockStore
from tidegate.runners.engine.memory.spill_file import SpillFile, new_file
from tidegate.sdk.data.block import Block, Pairs, take_panes, take_timestamps
from tidegate.sdk.data.keys import check_keys, spill_partitions
from tidegate.sdk.user_code.redefined_classes import dumps

Tables: TypeAlias = dict[Any, dict[Any, Any]]
"""The value of each key, by window."""

_BITS: Final = 6
_LEVEL: Final = 1
COUNT: Final = 1 << _BITS
"""How many buckets there are."""


class Buckets:
    """Tables of values, `[window][key]`, on disk. `directory` creates the folder for their files."""

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory
        self._files: dict[int, SpillFile] = {}

    def load(self, number: int) -> Tables:
        """The tables of a bucket."""
        file = self._files.get(number)
        if file is None:
            return {}
        with file.reader() as opened:
            tables: Tables = pickle.load(opened)
        return tables

    def store(self, number: int, tables: Tables) -> None:
        """Replace the tables of a bucket."""
        file = SpillFile(new_file(self._directory, "bucket"))
        file.append((dumps(tables),))
        before, self._files[number] = self._files.get(number), file
        if before is not None:
            before.remove()

    def clear(self) -> None:
        """Remove all tables."""
        for file in self._files.values():
            file.remove()
        self._files.clear()


class BucketStores:
    """Blocks of pairs by the bucket of their keys, in memory up to a budget (bytes), beyond it on disk."""

    def __init__(self, budget: int, directory: Callable[[], Path]) -> None:
        self._budget = max(1, budget // COUNT)
        self._directory = directory
        self._stores: dict[int, BlockStore] = {}

    def add(self, pairs: Pairs, block: Block) -> None:
        """Add pairs, with the timestamps, the windows and the panes of a block, which is in one window."""
        keys, values = pairs.firsts, pairs.seconds
        check_keys(keys)
        places: dict[int, list[int]] = {}
        for at, number in enumerate(spill_partitions(list(keys), _BITS, _LEVEL)):
            places.setdefault(number, []).append(at)
        for number, chosen in places.items():
            part = Pairs([keys[at] for at in chosen], [values[at] for at in chosen])
            times, panes = take_timestamps(block.timestamps, chosen), take_panes(block.panes, chosen)
            self.add_to(number, Block(part, times, block.windows, panes))

    def add_to(self, number: int, block: Block) -> None:
        """Add a block whose keys are all in one bucket."""
        store = self._stores.get(number)
        if store is None:
            store = self._stores[number] = BlockStore(self._budget, self._directory)
        store.add(block)

    def drain(self) -> Iterator[tuple[int, BlockStore]]:
        """The numbers of the buckets that have blocks, each with its blocks, which are removed afterwards."""
        for number in sorted(self._stores):
            store = self._stores.pop(number)
            yield number, store
            store.clear()

    def clear(self) -> None:
        """Remove all blocks."""
        for _ in self.drain():
            pass


def divided(tables: Tables) -> Iterator[tuple[int, Tables]]:
    """Tables by the number of the bucket."""
    parts: dict[int, Tables] = {}
    for window, table in tables.items():
        for number, (key, value) in zip(spill_partitions(list(table), _BITS, _LEVEL), table.items(), strict=True):
            parts.setdefault(number, {}).setdefault(window, {})[key] = value
    yield from parts.items()
