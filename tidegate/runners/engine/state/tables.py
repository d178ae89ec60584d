"""State tables: what a stateful step remembers, per cell `tables[window][key]`, its times-to-live and its snapshots.

Window-major, so that a window expires by dropping one dict per cell, and a rescale splits each dict by its keys.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final

from tidegate.runners.engine.checks.contracts import changed, mutated
from tidegate.runners.engine.state.cells import NEVER, Cell, Changed, Clock, Entry, Epoch, Notes, cells_of
from tidegate.runners.engine.state.keyed_state import ColumnTable, Tables, of_keys, without
from tidegate.sdk.authoring.state import StateSpec

_SPARE: Final = 1024
"""How many dates that keys no longer have may be there in any case."""


class StateTables:
    """The cells of one step. `expiring`: times-to-live count; on bounded input they are off.

    `cells` are the handles by name; `watched` are the same cells by their other variant, which notes what is read
    until `verify` compares.
    """

    def __init__(self, specs: Iterable[StateSpec], *, expiring: bool) -> None:
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
        self._notes: Notes | None = None
        self._mortal: tuple[Cell, ...] = tuple(cell for cell in self.cells.values() if expiring and cell.ttl)
        self._brought: list[tuple[int, int, Cell, Any, Any]] = []
        """(end, number, cell, window, key) of dates that may stand behind later ones in their table: a heap. Some are
        no longer those of their key."""
        self._serial = count()

    def enter(self, window: Any) -> None:
        """Point every cell at a window."""
        for cell in self._all:
            cell.enter(window)

    def mortal(self, name: str) -> bool:
        """Whether what the cell holds may have outlived its time-to-live: pointing it at a key takes a call."""
        return self.cells[name] in self._mortal

    def verify(self) -> None:
        """Raise CheckError if a value that was read since the last time has been changed in place."""
        for name, value, before in self._reads:
            if changed(before, value):
                self._reads.clear()
                raise mutated(before, value, f"a value read from the state cell {name!r} was")
        self._reads.clear()

    def collect(self, window: Any) -> None:
        """Forget a window."""
        for cell in self.cells.values():
            table = cell.tables.pop(window, None)
            if table is not None:
                cell.notes.collected = True
                for entry in table.values():
                    entry.home = None
            cell.dates.pop(window, None)

    def windows(self) -> Iterator[Any]:
        """Every window with a table, some of them more than once."""
        for cell in self.cells.values():
            yield from cell.tables

    def keys(self, window: Any) -> Iterator[Any]:
        """Every key with something in a window, some of them more than once."""
        for cell in self.cells.values():
            yield from cell.tables.get(window, ())

    # -- time to live

    def sweep(self, now: int) -> None:
        """Processing time is `now`: forget what has outlived its time-to-live."""
        self.clock.now = now
        while (first := self._first_brought()) is not None and first[0] <= now:
            _, _, cell, window, key = heappop(self._brought)
            self._take_out(cell, cell.tables[window], (key,))
            del cell.dates[window][key]
        for cell in self._mortal:
            for window, dates in cell.dates.items():
                over = []
                for key, end in dates.items():
                    if end > now:
                        break
                    over.append(key)
                self._take_out(cell, cell.tables[window], over)
                without(dates, over)

    def next_sweep(self) -> int | None:
        """When something next outlives its time-to-live; None if nothing will."""
        ends = [next(iter(dates.values())) for cell in self._mortal for dates in cell.dates.values() if dates]
        if (first := self._first_brought()) is not None:
            ends.append(first[0])
        return min(ends, default=None)

    def _first_brought(self) -> tuple[int, int, Cell, Any, Any] | None:
        """The first of these dates that still is its key's."""
        while self._brought:
            if self._holds(self._brought[0]):
                return self._brought[0]
            heappop(self._brought)
        return None

    def _holds(self, brought: tuple[int, int, Cell, Any, Any]) -> bool:
        end, _, cell, window, key = brought
        return cell.dates.get(window, {}).get(key) == end

    def _bring(self, cell: Cell, window: Any, ends: dict[Any, int]) -> None:
        """Dates of keys that were elsewhere meanwhile."""
        cell.dates[window].update(ends)
        for key, end in ends.items():
            heappush(self._brought, (end, next(self._serial), cell, window, key))
        dated = sum(len(dates) for each in self._mortal for dates in each.dates.values())
        if len(self._brought) > _SPARE + 2 * dated:
            kept = {(entry[2].name, *entry[3:]): entry for entry in self._brought if self._holds(entry)}
            self._brought = list(kept.values())
            heapify(self._brought)

    # -- snapshots

    def changed(self) -> Changed | None:
        """What was written or cleared since this was last called; None for the first time."""
        before, self._notes = self._notes, Notes(kept=True)
        epoch = Epoch()
        for cell in self._all:
            cell.epoch, cell.notes, cell.changed = epoch, self._notes, self._notes.changed
        return None if before is None else Changed(before)

    def snapshot(self, keys: Collection[Any] | None = None) -> dict[str, Tables]:
        """By cell, window and key what is stored, or what is under `keys`; nothing that is empty."""
        changed: dict[int, list[Entry]] = {}
        if isinstance(keys, Changed):
            changed = keys.by_table([table for cell in self.cells.values() for table in cell.tables.values()])
            keys = self.replaced(keys)
        return {
            name: {
                window: _columns(_entries(table, keys, changed.get(id(table))), _copying(cell))
                for window, table in cell.tables.items()
                if table
            }
            for name, cell in self.cells.items()
        }

    def replaced(self, keys: Collection[Any]) -> list[Any]:
        """Of which of these keys earlier snapshots are to be forgotten before one of them is laid over: of what has
        only been written, and not been taken out, what is laid over is enough."""
        return list(dict.fromkeys(keys.notes.removed) if isinstance(keys, Changed) else keys)

    def dates(self, keys: Collection[Any] | None = None) -> dict[str, Tables]:
        """By cell, window and key when what is stored outlives its time-to-live."""
        return {
            cell.name: {window: of_keys(dates, keys, None) for window, dates in cell.dates.items() if dates}
            for cell in self._mortal
        }

    def evict(self, keys: Collection[Any]) -> None:
        """Forget these keys."""
        for cell in self.cells.values():
            for table in cell.tables.values():
                self._take_out(cell, table, keys)
            for dates in cell.dates.values():
                without(dates, keys)

    def _take_out(self, cell: Cell, table: dict[Any, Entry], keys: Iterable[Any]) -> None:
        """Drop these keys from a table, as far as they are in it."""
        for key in keys:
            entry = table.pop(key, None)
            if entry is not None:
                entry.home = None
                cell.notes.removed.append(key)

    def restore(self, stored: dict[str, Tables], dates: dict[str, Tables], now: int) -> None:
        """Take in what the two gave, which stays as it is. KeyError for a cell that is not declared."""
        self.clock.now = now
        for name, tables in stored.items():
            cell = self.cells[name]
            for window, table in tables.items():
                home = cell.tables.setdefault(window, {})
                home.update({key: Entry(home, key, cell.copied(kept), NEVER) for key, kept in table.items()})
        for name, ends in dates.items():
            cell = self.cells[name]
            for window, ends_of in ends.items() if cell in self._mortal else ():
                known = cell.dates.setdefault(window, {})
                if known:
                    self._bring(cell, window, ends_of)
                else:
                    # Parts of several tasks may have been put together: the order of the dates is what sweeping needs.
                    known.update(sorted(ends_of.items(), key=lambda item: item[1]))


def _columns(entries: Collection[Entry], copied: Callable[[Any], Any] | None) -> dict[Any, Any]:
    """What entries store, by key; `copied` None: it need not be copied."""
    keys, values = [entry.key for entry in entries], [entry.value for entry in entries]
    if copied is not None:
        values = list(map(copied, values))
    return ColumnTable(keys, values)  # type: ignore[return-value]  # to be read, which is all that is done with it


def _entries(
    table: dict[Any, Entry], keys: Collection[Any] | None, changed: Collection[Entry] | None
) -> Collection[Entry]:
    """The entries of a table: all, or those under these keys and the ones that have changed."""
    if keys is None:
        return table.values()
    if not keys:
        return changed or ()
    return [*(changed or ()), *filter(None, map(table.get, keys))]


def _copying(cell: Cell) -> Callable[[Any], Any] | None:
    """How a snapshot copies what a cell stores; None: it need not."""
    return None if type(cell).copied is Cell.copied else cell.copied
