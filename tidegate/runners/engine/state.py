"""State tables: what a stateful step remembers, per cell `tables[window][key]`.

Window-major, so that a window expires by dropping one dict per cell, and a rescale splits each dict by its keys. A
cell is its own handle: the DoFn holds one object for all elements, which is pointed at the window and key in hand.
What is under a key stands in an `Entry`, found once for each element. It knows the epoch of its last change, and puts
itself down with the first of each epoch: what changed between two checkpoints costs no look-up of its own.
Two variants of each cell's class exist, made on demand: one that dates its writes for a time-to-live, and one that
remembers what was read, so that a change made in place is found.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, ClassVar, Final

from tidegate.runners.engine.checks import changed, mutated, snapshot
from tidegate.runners.engine.snapshots import ColumnTable, Tables, of_keys, without
from tidegate.sdk.combine import NOTHING, CombineFn
from tidegate.sdk.state import StateSpec
from tidegate.sdk.time import Timestamp, TimestampLike, timestamp_micros

_SPARE: Final = 1024
"""How many dates that keys no longer have may be there in any case."""
_SCALARS: Final = frozenset({int, float, str, bytes, bool, complex, type(None), type(NOTHING)})


class Entry:
    """What a cell stores under one key and window, and the epoch in which that last changed. `home` is the table that
    has it; None: it has been taken out."""

    __slots__ = ("epoch", "home", "key", "value")

    def __init__(self, home: dict[Any, Entry], key: Any, value: Any, epoch: Epoch) -> None:
        self.home: dict[Any, Entry] | None = home
        self.key = key
        self.value = value
        self.epoch = epoch


class Epoch:
    """What happens between two snapshots: the entries that change, each once; the keys of those that are taken out; and
    whether any window has gone with all it had. Unless it is `noted`, the first two stay empty."""

    __slots__ = ("changed", "collected", "removed")

    def __init__(self, *, noted: bool) -> None:
        self.changed: list[Entry] | deque[Entry] = [] if noted else deque(maxlen=0)
        self.removed: list[Any] | deque[Any] = [] if noted else deque(maxlen=0)
        self.collected = False


_NEVER: Final = Epoch(noted=False)
"""When what is as it was restored has changed."""


class Changed(Collection[Any]):
    """The keys under which anything changed in an epoch, some more than once."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.epoch.changed) + len(self.epoch.removed)

    def __iter__(self) -> Iterator[Any]:
        yield from (entry.key for entry in self.epoch.changed)
        yield from self.epoch.removed

    def __contains__(self, key: object) -> bool:
        return any(each == key for each in self)

    def by_table(self, tables: Sequence[dict[Any, Entry]]) -> dict[int, list[Entry]]:
        """By the id of a table, the entries in it that changed: without the keys of which any was taken out."""
        changed, removed = list(self.epoch.changed), frozenset(self.epoch.removed)
        if len(tables) == 1 and not removed and not self.epoch.collected:
            return {id(tables[0]): changed}
        found: dict[int, list[Entry]] = {id(table): [] for table in tables}
        for entry in changed:
            into = found.get(id(entry.home))
            if into is not None and entry.key not in removed:
                into.append(entry)
        return found


class Cell:
    """One cell of all keys and windows. `table` is that of the window in hand, `key` the key in hand, and `entry` what
    is under it (None: nothing). `changed` are the entries that have changed in this `epoch`.
    """

    __slots__ = (
        "changed",
        "clock",
        "dates",
        "entry",
        "epoch",
        "key",
        "name",
        "reads",
        "table",
        "tables",
        "ttl",
        "window_dates",
    )

    readers: ClassVar[tuple[str, ...]] = ("read",)
    writers: ClassVar[tuple[str, ...]] = ("add",)

    def __init__(self, spec: StateSpec) -> None:
        self.name = spec.name
        self.key: Any = None
        self.entry: Entry | None = None
        self.tables: dict[Any, dict[Any, Entry]] = {}
        self.table: dict[Any, Entry] = {}
        self.epoch = Epoch(noted=False)
        self.changed = self.epoch.changed
        self.ttl = spec.ttl.micros if spec.ttl is not None else 0
        self.clock: Clock = Clock()
        self.dates: dict[Any, dict[Any, int]] = {}
        self.window_dates: dict[Any, int] = {}
        self.reads: list[tuple[str, Any, bytes | None]] = []

    def clear(self) -> None:
        """Forget what is stored under the key in hand."""
        if self.entry is not None:
            del self.table[self.key]
            self.entry.home = None
            self.entry = None
            self.epoch.removed.append(self.key)

    def enter(self, window: Any) -> None:
        """Point at a window; at which key is not known then."""
        table = self.tables.get(window)
        if table is None:
            table = self.tables[window] = {}
        self.table = table
        self.entry = None

    def at(self, key: Any) -> None:
        """Point at a key."""
        self.key = key
        self.entry = self.table.get(key)

    def stored(self, nothing: Any) -> Any:
        """What is under the key in hand."""
        return nothing if self.entry is None else self.entry.value

    def store(self, value: Any) -> None:
        """Put this under the key in hand."""
        entry = self.entry
        if entry is None:
            entry = self.entry = self.table[self.key] = Entry(self.table, self.key, value, self.epoch)
            self.changed.append(entry)
            return
        entry.value = value
        if entry.epoch is not self.epoch:
            entry.epoch = self.epoch
            self.changed.append(entry)

    def touch(self, entry: Entry) -> None:
        """What is stored there changes."""
        if entry.epoch is not self.epoch:
            entry.epoch = self.epoch
            self.changed.append(entry)

    def copied(self, stored: Any) -> Any:
        """What is stored, for a snapshot: it shares no container with the cell."""
        return stored


class Clock:
    """Processing time (µs) as the step knows it: that of its last clock event."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


class ValueCell(Cell):
    """A ValueState."""

    __slots__ = ()
    writers = ("write",)

    def read(self) -> Any:
        entry = self.entry
        return None if entry is None else entry.value

    write = Cell.store


class BagCell(Cell):
    """A BagState; stores a list."""

    __slots__ = ()

    def read(self) -> tuple[Any, ...]:
        return tuple(self.stored(()))

    def add(self, value: Any) -> None:
        if self.entry is None:
            self.store([value])
        else:
            self.entry.value.append(value)
            self.touch(self.entry)

    def copied(self, stored: list[Any]) -> list[Any]:
        return stored[:]


class SetCell(Cell):
    """A SetState; stores a dict, so that members come out in the order in which they went in, in every process."""

    __slots__ = ()
    writers = ("add", "discard")

    def read(self) -> tuple[Any, ...]:
        return tuple(self.stored(()))

    def __contains__(self, value: object) -> bool:
        return value in self.stored(())

    def add(self, value: Any) -> None:
        if self.entry is None:
            self.store({value: None})
        else:
            self.entry.value[value] = None
            self.touch(self.entry)

    def discard(self, value: Any) -> None:
        if self.entry is not None:
            self.entry.value.pop(value, None)
            self.touch(self.entry)
            if not self.entry.value:
                Cell.clear(self)

    def copied(self, stored: dict[Any, None]) -> dict[Any, None]:
        return stored.copy()


class MapCell(Cell):
    """A MapState; stores a dict."""

    __slots__ = ()
    readers = ("get", "items")
    writers = ("put", "remove")

    def get(self, key: Any, default: Any = None) -> Any:
        return default if self.entry is None else self.entry.value.get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self.stored(())

    def items(self) -> tuple[tuple[Any, Any], ...]:
        return tuple(self.stored({}).items())

    def put(self, key: Any, value: Any) -> None:
        if self.entry is None:
            self.store({key: value})
        else:
            self.entry.value[key] = value
            self.touch(self.entry)

    def remove(self, key: Any) -> None:
        if self.entry is not None:
            self.entry.value.pop(key, None)
            self.touch(self.entry)
            if not self.entry.value:
                Cell.clear(self)

    def copied(self, stored: dict[Any, Any]) -> dict[Any, Any]:
        return stored.copy()


class OrderedListCell(Cell):
    """An OrderedListState; stores a pair of lists, timestamps (µs) in order and their values."""

    __slots__ = ()
    readers = ("read", "read_range")
    writers = ("add", "clear_range")

    def read(self) -> Iterator[tuple[Timestamp, Any]]:
        return self._pairs(0, None)

    def read_range(self, start: TimestampLike, end: TimestampLike) -> Iterator[tuple[Timestamp, Any]]:
        return self._pairs(*self._range(start, end))

    def add(self, timestamp: TimestampLike, value: Any) -> None:
        micros = timestamp_micros(timestamp)
        if self.entry is None:
            self.store(([micros], [value]))
            return
        times, values = self.entry.value
        place = bisect_right(times, micros)
        times.insert(place, micros)
        values.insert(place, value)
        self.touch(self.entry)

    def clear_range(self, start: TimestampLike, end: TimestampLike) -> None:
        first, past = self._range(start, end)
        if first < past and self.entry is not None:
            times, values = self.entry.value
            del times[first:past], values[first:past]
            self.touch(self.entry)
            if not times:
                Cell.clear(self)

    def copied(self, stored: tuple[list[int], list[Any]]) -> tuple[list[int], list[Any]]:
        return stored[0][:], stored[1][:]

    def _range(self, start: TimestampLike, end: TimestampLike) -> tuple[int, int]:
        low, high = timestamp_micros(start), timestamp_micros(end)
        times = self.stored(((), ()))[0]
        return bisect_left(times, low), bisect_left(times, high)

    def _pairs(self, first: int, past: int | None) -> Iterator[tuple[Timestamp, Any]]:
        times, values = self.stored(((), ()))
        pairs = list(zip(times[first:past], values[first:past], strict=True))
        return ((Timestamp.of_micros(micros), value) for micros, value in pairs)


class CombiningCell(Cell):
    """A CombiningState; stores an accumulator. Without input, and a combiner that gives nothing for it, reads None."""

    __slots__ = ("fn",)

    def __init__(self, spec: StateSpec) -> None:
        super().__init__(spec)
        assert spec.combine_fn is not None
        self.fn: CombineFn[Any, Any, Any] = spec.combine_fn.load()

    def read(self) -> Any:
        if self.entry is not None:
            # The result may be the accumulator, or part of it, and later inputs change that in place.
            return self.fn.extract_output(independent(self.entry.value))
        return self.fn.extract_output(self.fn.create_accumulator()) if self.fn.has_identity else None

    def add(self, value: Any) -> None:
        fn, entry = self.fn, self.entry
        self.store(fn.add_input(fn.create_accumulator() if entry is None else entry.value, value))

    def copied(self, stored: Any) -> Any:
        return independent(stored)


_CELLS: Final[dict[str, type[Cell]]] = {
    "value": ValueCell,
    "bag": BagCell,
    "set": SetCell,
    "map": MapCell,
    "ordered_list": OrderedListCell,
    "combining": CombiningCell,
}


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


def independent(value: Any) -> Any:
    """A copy of an accumulator that shares nothing that can change with it."""
    if type(value) in _SCALARS or (type(value) is tuple and all(type(part) in _SCALARS for part in value)):
        return value
    try:
        return pickle.loads(pickle.dumps(value, 5))
    except Exception:
        import copy

        return copy.deepcopy(value)


# -- the two variants


def _dated(cell: type[Cell]) -> type[Cell]:
    """The same cell with a time-to-live: each write is dated, and what has outlived it is gone when the cell is pointed
    at its key. A table of dates is in the order of its dates, since the clock never goes back.
    """

    def enter(self: Cell, window: Any) -> None:
        cell.enter(self, window)
        self.window_dates = self.dates.setdefault(window, {})

    def at(self: Cell, key: Any) -> None:
        cell.at(self, key)
        if self.window_dates.get(key, self.clock.now + 1) <= self.clock.now:
            del self.window_dates[key]
            cell.clear(self)

    def clear(self: Cell) -> None:
        cell.clear(self)
        self.window_dates.pop(self.key, None)

    def writing(write: Callable[..., None]) -> Callable[..., None]:
        def method(self: Cell, *args: Any) -> None:
            write(self, *args)
            self.window_dates.pop(self.key, None)
            if self.entry is not None:
                self.window_dates[self.key] = self.clock.now + self.ttl

        return method

    methods = {name: writing(getattr(cell, name)) for name in cell.writers}
    return type(cell.__name__, (cell,), {"__slots__": (), "enter": enter, "at": at, "clear": clear, **methods})


def _watched(cell: type[Cell]) -> type[Cell]:
    """The same cell, with a note of each value read and what it was then."""

    def reading(read: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Cell, *args: Any) -> Any:
            value = read(self, *args)
            if isinstance(value, Iterator):
                value = list(value)
                self.reads.append((self.name, value, snapshot(value)))
                return iter(value)
            self.reads.append((self.name, value, snapshot(value)))
            return value

        return method

    return type(
        cell.__name__, (cell,), {"__slots__": (), **{name: reading(getattr(cell, name)) for name in cell.readers}}
    )


# -- all cells of a step


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
            kind = _CELLS[spec.cell]
            if spec.ttl is not None and expiring:
                kind = _dated(kind)
            cell = self.cells[spec.name] = kind(spec)
            other = self.watched[spec.name] = _watched(kind)(spec)
            other.tables, other.dates, other.reads = cell.tables, cell.dates, self._reads
            cell.clock = other.clock = self.clock
        self._all: tuple[Cell, ...] = (*self.cells.values(), *self.watched.values())
        self._epoch: Epoch | None = None
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
            if cell.tables.pop(window, None) is not None:
                cell.epoch.collected = True
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
        before, self._epoch = self._epoch, Epoch(noted=True)
        for cell in self._all:
            cell.epoch, cell.changed = self._epoch, self._epoch.changed
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
        return list(dict.fromkeys(keys.epoch.removed) if isinstance(keys, Changed) else keys)

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
                cell.epoch.removed.append(key)

    def restore(self, stored: dict[str, Tables], dates: dict[str, Tables], now: int) -> None:
        """Take in what the two gave, which stays as it is. KeyError for a cell that is not declared."""
        self.clock.now = now
        for name, tables in stored.items():
            cell = self.cells[name]
            for window, table in tables.items():
                home = cell.tables.setdefault(window, {})
                home.update({key: Entry(home, key, cell.copied(kept), _NEVER) for key, kept in table.items()})
        for name, ends in dates.items():
            cell = self.cells[name]
            for window, ends_of in ends.items() if cell in self._mortal else ():
                known = cell.dates.setdefault(window, {})
                if known:
                    self._bring(cell, window, ends_of)
                else:
                    # Parts of several tasks may have been put together: the order of the dates is what sweeping needs.
                    known.update(sorted(ends_of.items(), key=lambda item: item[1]))
