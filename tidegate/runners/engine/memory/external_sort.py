"""Collects bounded input by key, spilling it when it exceeds the memory budget, and sorts a key's entries on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.memory.gauge import MemoryGauge, mean_size, oldest_and_newest
from tidegate.runners.engine.memory.sizing import LIST, LIST_ITEM, TABLE_ENTRY
from tidegate.runners.engine.memory.spill import Spill, SpilledValues
from tidegate.runners.engine.memory.spill_file import new_file, spilling
from tidegate.runners.engine.operator import Context
from tidegate.sdk.data.coders import decode_columns, encode_columns
from tidegate.sdk.data.keys import check_keys
from tidegate.sdk.errors import KeyEncodingError
from tidegate.sdk.private_files import owner_only
from tidegate.sdk.user_code.frames import Where

if TYPE_CHECKING:
    from pathlib import Path

_RUN: Final = 100_000
"""The number of entries that are sorted in memory at a time."""
_first: Final = itemgetter(0)


class GroupedEntries:
    """Entries by key. The operator adds to `table` directly, and calls `block_added` after each block."""

    def __init__(self, label: str, where: Where, context: Context) -> None:
        self.label = label
        self.where = where
        self.context = context
        self.table: dict[Any, list[Any]] = {}
        self._spill: Spill | None = None
        self._key_size = self._entry_size = 0
        self._gauge = MemoryGauge(context.memory_budget, estimate=self._estimate, sample=self._measure)

    def block_added(self, *, large: bool = False) -> None:
        """Spill the table if it exceeds the budget. A `large` block is always checked."""
        if self._gauge.block_added(large=large):
            self.spill()

    def _estimate(self) -> int:
        entries = sum(map(len, self.table.values()))
        return len(self.table) * (TABLE_ENTRY + LIST + self._key_size) + entries * (LIST_ITEM + self._entry_size)

    def _measure(self) -> None:
        sample = oldest_and_newest(self.table)
        if sample:
            self._key_size = mean_size(key for key, _ in sample)
            self._entry_size = mean_size(entry for _, entries in sample for entry in entries[-2:])

    def spill(self) -> None:
        """Write the table to disk, and start an empty one."""
        if self._spill is None:
            context = self.context
            self._spill = Spill(
                context.temp_dir, True, _unused, context.memory_budget, value_size=max(100, self._entry_size)
            )
        self.check(self.table)
        self._spill.write(None, self.table)
        self.table = {}
        self.context.count(self.label, "spills")

    def check(self, keys: Iterable[Any]) -> None:
        """Raise KeyEncodingError for a key that has no encoding."""
        try:
            check_keys(keys)
        except KeyEncodingError as error:
            raise located(error, self.label, self.where) from None

    def entries(self) -> dict[Any, list[Any]]:
        """A copy of all keys and their entries, in memory."""
        found: dict[Any, list[Any]] = {}
        for _, table in self._spill.entries() if self._spill is not None else ():
            found.update(table)
        for key, entries in self.table.items():
            found[key] = found.get(key, []) + entries
        return found

    @property
    def spilled(self) -> bool:
        """Whether any entries have been spilled."""
        return self._spill is not None

    def drain(self) -> Iterator[tuple[Any, list[Any] | SpilledValues]]:
        """Remove and yield every key with its entries in order of arrival. Keys are in order of their first arrival
        unless some were spilled."""
        if self._spill is None:
            if self.context.checks is not None:
                self.check(self.table)
            table, self.table = self.table, {}
            yield from table.items()
            return
        self.spill()
        for _, table in self._spill.drain():
            yield from table.items()


def sorted_entries(entries: Iterable[Any], directory: Callable[[], Path]) -> Iterable[Any]:
    """Sort entries, tuples whose first item is the sort key; the sort is stable.

    A list is sorted in place; any other iterable is sorted on disk, in runs that fit into memory.

    >>> from pathlib import Path
    >>> sorted_entries([(3, "late"), (1, "first"), (1, "second")], directory=Path)
    [(1, 'first'), (1, 'second'), (3, 'late')]
    """
    if isinstance(entries, list):
        entries.sort(key=_first)
        return entries
    return _sorted_on_disk(entries, directory)


def _sorted_on_disk(entries: Iterable[Any], directory: Callable[[], Path]) -> Iterator[Any]:
    source = iter(entries)
    runs: list[_Run] = []
    while run := list(islice(source, _RUN)):
        run.sort(key=_first)
        runs.append(_Run(new_file(directory, "sorted"), run))
    yield from merge(*runs, key=_first)
    for run_on_disk in runs:
        run_on_disk.path.unlink()


class _Run:
    """A file of sorted entries, in frames."""

    frame: Final = 4_096

    def __init__(self, path: Path, entries: list[Any]) -> None:
        self.path = path
        with spilling(path), open(path, "xb", opener=owner_only) as file:
            for start in range(0, len(entries), self.frame):
                data = encode_columns((entries[start : start + self.frame],))
                file.write(len(data).to_bytes(8, "big"))
                file.write(data)

    def __iter__(self) -> Iterator[Any]:
        with self.path.open("rb") as file:
            while size := file.read(8):
                yield from _frame(file, int.from_bytes(size, "big"))


def _frame(file: BinaryIO, size: int) -> list[Any]:
    (entries,) = decode_columns(file.read(size))
    return entries  # type: ignore[no-any-return]


def _unused(pair: tuple[Any, Any]) -> Any:
    raise AssertionError("lists are not merged as accumulators")
