"""State tables: the state of a stateful step in `tables[window][key]` for each cell, with its expiry and snapshots.

The window comes first, so that the state of an expired window is dropped as one dict per cell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final

from tidegate.runners.engine.checks.contracts import changed, mutated
from tidegate.runners.engine.state.cells import RESTORED, Cell, ChangedKeys, Clock, Entry, Epoch, EpochChanges, cells_of
from tidegate.runners.engine.state.copy_on_write import CopyOnWrite
from tidegate.runners.engine.state.keyed_state import Tables, of_keys, without
from tidegate.sdk.authoring.state import StateSpec

_SPARE: Final = 1024
"""The heap of expiry times may always have so many outdated entries."""


class StateTables:
    """The cells of one step. Without `expiring`, as on bounded input, times-to-live are ignored.

    `cells` are the cells by name. `watched` are variants over the same tables, which record the values that are read
    until `verify` compares them. `copies` decides when snapshots copy values.
    """

    def __init__(self, specs: Iterable[StateSpec], *, expiring: bool, copies: CopyOnWrite | None = None) -> None:
        self._copies = copies or CopyOnWrite()
        self.clock = Clock()
        self.cells: dict[str, Cell] = {}
        self.watched: dict[str, Cell] = {}
        self._reads: list[tuple[str, Any, bytes | None]] = []
        for spec in specs:
            cell, watched = cells_of(spec, expiring=expiring)
            self.cells[spec.name], self.watched[spec.name] = cell, watched
            watched.reads = self._reads
            cell.clock = watched.clock = self.clock
        self._all: tuple[Cell, ...] = (*self.cells.values(), *self.watched.values())
        self._changes: EpochChanges | None = None
        self._expiring: tuple[Cell, ...] = tuple(cell for cell in self.cells.values() if expiring and cell.ttl)
        self._unsorted: list[tuple[int, int, Cell, Any, Any]] = []
        """(expiry time, serial, cell, window, key), as a heap, for loaded keys: these may follow later expiry times in
        their table. Some entries are outdated: the key has another expiry time now."""
        self._serial = count()

    def enter(self, window: Any) -> None:
        """Point every cell at a window."""
        for cell in self._all:
            cell.enter(window)

    def expires(self, name: str) -> bool:
        """Whether the cell has a time-to-live, so that `Cell.at` must be called for each key to check the expiry."""
        return self.cells[name] in self._expiring

    def verify(self) -> None:
        """Raise CheckError if a value that was read since the last call has been changed in place."""
        for name, value, before in self._reads:
            if changed(before, value):
                self._reads.clear()
                raise mutated(before, value, f"a value read from the state cell {name!r} was")
        self._reads.clear()

    def collect(self, window: Any) -> None:
        """Drop the state of an expired window."""
        for cell in self.cells.values():
            table = cell.tables.pop(window, None)
            if table is not None:
                cell.changes.collected = True
                for entry in table.values():
                    entry.home = None
            cell.expiries.pop(window, None)

    def windows(self) -> Iterator[Any]:
        """Every window that has state, some windows more than once."""
        for cell in self.cells.values():
            yield from cell.tables

    def keys(self, window: Any) -> Iterator[Any]:
        """Every key that has state in a window, some keys more than once."""
        for cell in self.cells.values():
            yield from cell.tables.get(window, ())

    # -- time to live

    def sweep(self, now: int) -> None:
        """Advance processing time to `now`: drop expired values."""
        self.clock.now = now
        while (first := self._first_unsorted()) is not None and first[0] <= now:
            _, _, cell, window, key = heappop(self._unsorted)
            self._remove(cell, cell.tables[window], (key,))
            del cell.expiries[window][key]
        for cell in self._expiring:
            for window, expiries in cell.expiries.items():
                expired = []
                for key, expiry in expiries.items():
                    if expiry > now:
                        break
                    expired.append(key)
                self._remove(cell, cell.tables[window], expired)
                without(expiries, expired)

    def next_sweep(self) -> int | None:
        """The earliest expiry time; None if no value expires."""
        times = [next(iter(times.values())) for cell in self._expiring for times in cell.expiries.values() if times]
        if (first := self._first_unsorted()) is not None:
            times.append(first[0])
        return min(times, default=None)

    def _first_unsorted(self) -> tuple[int, int, Cell, Any, Any] | None:
        while self._unsorted:
            if self._is_current(self._unsorted[0]):
                return self._unsorted[0]
            heappop(self._unsorted)
        return None

    def _is_current(self, entry: tuple[int, int, Cell, Any, Any]) -> bool:
        expiry, _, cell, window, key = entry
        return cell.expiries.get(window, {}).get(key) == expiry

    def _add_unsorted(self, cell: Cell, window: Any, expiries: dict[Any, int]) -> None:
        """Add the expiry times of loaded keys to a table that has others."""
        cell.expiries[window].update(expiries)
        for key, expiry in expiries.items():
            heappush(self._unsorted, (expiry, next(self._serial), cell, window, key))
        total = sum(len(times) for each in self._expiring for times in each.expiries.values())
        if len(self._unsorted) > _SPARE + 2 * total:
            current = {(entry[2].name, *entry[3:]): entry for entry in self._unsorted if self._is_current(entry)}
            self._unsorted = list(current.values())
            heapify(self._unsorted)

    # -- snapshots

    def changed(self) -> ChangedKeys | None:
        """Begin a new epoch; return the keys that were written or cleared in the last one. None at the first call."""
        before, self._changes = self._changes, EpochChanges(recorded=True)
        epoch = Epoch()
        for cell in self._all:
            cell.epoch, cell.changes, cell.changed = epoch, self._changes, self._changes.changed
        return None if before is None else ChangedKeys(before)

    def snapshot(self, keys: Collection[Any] | None = None) -> dict[str, Tables]:
        """The stored values by cell, window and key, of all keys or of `keys`."""
        changed: dict[int, list[Entry]] = {}
        if isinstance(keys, ChangedKeys):
            changed = keys.by_table([table for cell in self.cells.values() for table in cell.tables.values()])
            keys = self.replaced(keys)
        return {
            name: {
                window: self._table(cell, table, _entries(table, keys, changed.get(id(table))))
                for window, table in cell.tables.items()
                if table
            }
            for name, cell in self.cells.items()
        }

    def _table(self, cell: Cell, table: dict[Any, Entry], entries: list[Entry]) -> dict[Any, Any]:
        """The values of entries by key."""

        def columns(part: slice) -> tuple[list[Any], list[Any]]:
            found = entries[part]
            return [entry.key for entry in found], [entry.value for entry in found]

        def stored(key: Any, default: Any) -> Any:
            entry = table.get(key)
            return default if entry is None else entry.value

        return self._copies.table(columns, len(entries), stored, _copying(cell))

    def replaced(self, keys: Collection[Any]) -> list[Any]:
        """The keys that an incremental snapshot must remove from the one before it, in addition to overwriting values:
        keys from which some value was removed. A key that was only written needs no more than the new value."""
        return list(dict.fromkeys(keys.changes.removed) if isinstance(keys, ChangedKeys) else keys)

    def expiries(self, keys: Collection[Any] | None = None) -> dict[str, Tables]:
        """The expiry times by cell, window and key, for snapshots."""
        return {
            cell.name: {window: of_keys(times, keys, None) for window, times in cell.expiries.items() if times}
            for cell in self._expiring
        }

    def evict(self, keys: Collection[Any]) -> None:
        """Drop these keys from memory."""
        for cell in self.cells.values():
            for table in cell.tables.values():
                self._remove(cell, table, keys)
            for expiries in cell.expiries.values():
                without(expiries, keys)

    def _remove(self, cell: Cell, table: dict[Any, Entry], keys: Iterable[Any]) -> None:
        for key in keys:
            entry = table.pop(key, None)
            if entry is not None:
                entry.home = None
                cell.changes.removed.append(key)

    def restore(self, stored: dict[str, Tables], expiries: dict[str, Tables], now: int) -> None:
        """Restore copies of what `snapshot` and `expiries` returned. KeyError for a cell that is not declared."""
        self.clock.now = now
        for name, tables in stored.items():
            cell = self.cells[name]
            for window, table in tables.items():
                home = cell.tables.setdefault(window, {})
                home.update({key: Entry(home, key, cell.copied(value), RESTORED) for key, value in table.items()})
        for name, by_window in expiries.items():
            cell = self.cells[name]
            for window, loaded in by_window.items() if cell in self._expiring else ():
                known = cell.expiries.setdefault(window, {})
                if known:
                    self._add_unsorted(cell, window, loaded)
                else:
                    # `sweep` needs ascending expiry times; merged snapshots of several tasks are not sorted.
                    known.update(sorted(loaded.items(), key=lambda item: item[1]))


def _entries(table: dict[Any, Entry], keys: Collection[Any] | None, changed: list[Entry] | None) -> list[Entry]:
    """The entries of a table: all, or those of `keys` and the changed ones."""
    if keys is None:
        return list(table.values())
    if not keys:
        return changed or []
    return [*(changed or ()), *filter(None, map(table.get, keys))]


def _copying(cell: Cell) -> Callable[[Any], Any] | None:
    """The function with which a snapshot copies a cell's values; None if they are immutable."""
    return None if type(cell).copied is Cell.copied else cell.copied
