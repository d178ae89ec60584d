"""KeptSolution: one task's part of the solution of a loop that all tasks run, in memory up to a budget.

What a round merges into it comes into force when the next one begins, so all lookups of a round see what it began with:

>>> from pathlib import Path
>>> from tidegate.sdk.data.block import Block, Pairs
>>> solution = KeptSolution(merge=min, budget=1 << 20, directory=lambda: Path())
>>> solution.fill([Block(Pairs(["a", "b"], [3, 1]))])
>>> [list(block.values) for block in solution.update(Block(Pairs(["a", "b"], [2, 5])))], solution.tables
([[('a', 2)]], {GlobalWindow: {'a': 3, 'b': 1}})
>>> solution.next_round()
>>> [list(block.values) for block in solution]
[[('a', 2), ('b', 1)]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from tidegate.runners.engine.iteration.block_store import BlockStore
from tidegate.runners.engine.iteration.buckets import COUNT, Buckets, BucketStores, Tables, divided
from tidegate.runners.engine.iteration.solution import Merging, blocks_of, by_window, in_window
from tidegate.runners.engine.memory.gauge import MemoryGauge, mean_size, oldest_and_newest
from tidegate.runners.engine.memory.sizing import TABLE_ENTRY
from tidegate.sdk.data.block import Block, Pairs, as_pairs
from tidegate.sdk.data.keys import check_keys

_BUDGETS: Final = 4
"""The tables have half of the budget, what waits for the next round and what waits for a bucket a quarter each."""


class KeptSolution:
    """One value for each key and window. `merge`, `changed` and `attributed` are those of `Solution`.

    `budget` (bytes) is for what is in memory; `directory` creates the folder for the rest. `noted` receives the pairs
    that a round replaces, then None when it has merged all.
    """

    def __init__(
        self,
        merge: Callable[[list[Any]], Any] | None = None,
        changed: Callable[[Any, Any], Any] | None = None,
        attributed: Callable[[BaseException, Any], BaseException] | None = None,
        *,
        budget: int,
        directory: Callable[[], Path],
        noted: Callable[[Block | None], None] = lambda block: None,
    ) -> None:
        self.tables: Tables = {}
        """The tables by window, unless they are on disk."""
        self.elements = 0
        """How many values there are."""
        self.noted = noted
        self._merging = Merging(merge, changed, attributed)
        self._budget = budget
        self._directory = directory
        self._buckets: Buckets | None = None
        self._new: BlockStore | BucketStores = BlockStore(budget // _BUDGETS, directory)
        """The pairs that come into force in the next round."""
        self._entry = 0
        self._gauge = MemoryGauge(budget // 2, estimate=self._estimate, sample=self._sample)

    @property
    def spilled(self) -> bool:
        """Whether the tables are on disk: then lookups and updates wait for the end of the round."""
        return self._buckets is not None

    def waiting(self) -> BucketStores:
        """An empty store for pairs that wait until the bucket of their keys is loaded."""
        return BucketStores(self._budget // _BUDGETS, self._directory)

    def fill(self, blocks: Iterable[Block]) -> None:
        """Add pairs; a later value of a key takes the place of an earlier one."""
        blocks = iter(blocks)
        while self._buckets is None:
            block = next(blocks, None)
            if block is None:
                self.elements = _size(self.tables)
                return
            _put(self.tables, block)
            if self._gauge.block_added():
                self._spill()
        stores = self.waiting()
        for block in blocks:
            for _, part in by_window(block):
                stores.add(_pairs(part), part)
        self._store(self._buckets, stores)

    def update(self, block: Block) -> Iterator[Block]:
        """Merge pairs with different keys or windows; return those whose values have changed, with the new values. The
        tables must be in memory."""
        assert isinstance(self._new, BlockStore)
        for window, part in by_window(block):
            changed, new = self._merged(self.tables, window, part)
            for each in new:
                self._new.add(each)
                self.noted(each)
            yield from changed

    def update_all(self, waiting: BucketStores) -> Iterator[Block]:
        """As `update`, with the pairs that have waited for their buckets."""
        assert self._buckets is not None
        assert isinstance(self._new, BucketStores)
        for number, blocks in waiting.drain():
            tables = self._buckets.load(number)
            for block in blocks:
                for window, part in by_window(block):
                    changed, new = self._merged(tables, window, part)
                    for each in new:
                        self._new.add_to(number, each)
                        self.noted(each)
                    yield from changed

    def tables_of(self, number: int) -> Tables:
        """The tables of a bucket, which are on disk."""
        assert self._buckets is not None
        return self._buckets.load(number)

    def end_round(self) -> None:
        """All pairs of the round have been merged."""
        self.noted(None)

    def next_round(self) -> None:
        """Let what the round has merged come into force."""
        new = self._new
        if isinstance(new, BlockStore):
            self._new = BlockStore(self._budget // _BUDGETS, self._directory)
            self.fill(new)
            new.clear()
        else:
            assert self._buckets is not None
            self._store(self._buckets, new)

    def __iter__(self) -> Iterator[Block]:
        if self._buckets is None:
            yield from blocks_of(self.tables)
            return
        for number in range(COUNT):
            yield from blocks_of(self._buckets.load(number))

    def clear(self) -> None:
        """Drop all values."""
        self.tables, self.elements = {}, 0
        self._new.clear()
        if self._buckets is not None:
            self._buckets.clear()

    def _merged(self, tables: Tables, window: Any, block: Block) -> tuple[Iterator[Block], Iterator[Block]]:
        """What merging pairs of one window changes, and the pairs that take the place of others."""
        new: dict[Any, Any] = {}
        changed = self._merging.into(new, tables.get(window, {}), block)
        return (iter((in_window(changed, window),) if len(changed) else ())), blocks_of({window: new})

    def _spill(self) -> None:
        self._buckets = Buckets(self._directory)
        self.elements = _size(self.tables)
        for table in self.tables.values():
            check_keys(table)
        for number, tables in divided(self.tables):
            self._buckets.store(number, tables)
        self.tables = {}
        self._new = self.waiting()  # nothing has been merged since the round began

    def _store(self, buckets: Buckets, stores: BucketStores) -> None:
        for number, blocks in stores.drain():
            tables = buckets.load(number)
            before = _size(tables)
            for block in blocks:
                _put(tables, block)
            self.elements += _size(tables) - before
            buckets.store(number, tables)

    def _estimate(self) -> int:
        return _size(self.tables) * (TABLE_ENTRY + self._entry)

    def _sample(self) -> None:
        newest = islice(reversed(self.tables.values()), 4)
        self._entry = mean_size(entry for table in newest for entry in oldest_and_newest(table))


def _put(tables: Tables, block: Block) -> None:
    """Add pairs to tables; a later value of a key takes the place of an earlier one."""
    for window, part in by_window(block):
        tables.setdefault(window, {}).update(part.values)


def _size(tables: Tables) -> int:
    return sum(map(len, tables.values()))


def _pairs(block: Block) -> Pairs:
    pairs = as_pairs(block.values)
    assert pairs is not None
    return pairs
