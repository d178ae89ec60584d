"""State cells: the objects that a DoFn gets as its state parameters.

There is one cell for all keys and windows. Before each call of the DoFn, it is pointed at the current window and key
(`enter`, `at`). The value of a key is in an `Entry`, which is looked up once per element. An entry knows the epoch
(the time between two snapshots) of its last change, and is recorded at its first change in each epoch, so that an
incremental snapshot needs no further look-ups.

Each kind of cell has four classes in the table `CELL_CLASSES`: plain or with a time-to-live, and for both a variant
that records the values that are read, so that a value changed in place is detected.

>>> cell, _ = cells_of(StateSpec("count", "value"), expiring=False)
>>> cell.enter("window")
>>> cell.at("a")
>>> cell.write(1)
>>> cell.at("b")
>>> cell.read() is None, cell.tables["window"]["a"].value
(True, 1)
"""

from __future__ import annotations

import pickle
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from tidegate.runners.engine.checks.contracts import snapshot
from tidegate.sdk.authoring.combine import NOTHING, CombineFn
from tidegate.sdk.authoring.state import StateSpec
from tidegate.sdk.time import Timestamp, TimestampLike, timestamp_micros

_SCALARS: Final = frozenset({int, float, str, bytes, bool, complex, type(None), type(NOTHING)})


class Epoch:
    """The time between two snapshots. It has no attributes: entries refer to their epoch, so a reference back to the
    changed entries would form cycles that only the garbage collector can free."""

    __slots__ = ()


class Entry:
    """The value of a cell for one key and window, and the epoch of its last change. `home` is the table that has the
    entry; None once the entry has been removed, which also breaks the reference cycle."""

    __slots__ = ("epoch", "home", "key", "value")

    def __init__(self, home: dict[Any, Entry], key: Any, value: Any, epoch: Epoch) -> None:
        self.home: dict[Any, Entry] | None = home
        self.key = key
        self.value = value
        self.epoch = epoch


class EpochChanges:
    """The changes of one epoch: the changed entries, each once; the keys of removed entries; and whether any window
    was collected. Unless changes are `recorded`, the first two stay empty."""

    __slots__ = ("changed", "collected", "removed")

    def __init__(self, *, recorded: bool) -> None:
        self.changed: list[Entry] | deque[Entry] = [] if recorded else deque(maxlen=0)
        self.removed: list[Any] | deque[Any] = [] if recorded else deque(maxlen=0)
        self.collected = False


RESTORED: Final = Epoch()
"""The epoch of entries that have not changed since they were restored."""


class ChangedKeys(Collection[Any]):
    """The keys with a change in an epoch, some keys more than once."""

    __slots__ = ("changes",)

    def __init__(self, changes: EpochChanges) -> None:
        self.changes = changes

    def __len__(self) -> int:
        return len(self.changes.changed) + len(self.changes.removed)

    def __iter__(self) -> Iterator[Any]:
        yield from (entry.key for entry in self.changes.changed)
        yield from self.changes.removed

    def __contains__(self, key: object) -> bool:
        return any(each == key for each in self)

    def by_table(self, tables: Sequence[dict[Any, Entry]]) -> dict[int, list[Entry]]:
        """The changed entries of each table, by the table's id; without keys from which any value was removed."""
        changed, removed = list(self.changes.changed), frozenset(self.changes.removed)
        if len(tables) == 1 and not removed and not self.changes.collected:
            return {id(tables[0]): changed}
        found: dict[int, list[Entry]] = {id(table): [] for table in tables}
        for entry in changed:
            into = found.get(id(entry.home))
            if into is not None and entry.key not in removed:
                into.append(entry)
        return found


class Cell:
    """A cell for all keys and windows. `table` is the table of the current window, and `entry` the entry of the current
    `key` (None: the cell is empty). `changes` records the current `epoch`; `changed` is its list of entries.
    """

    __slots__ = (
        "changed",
        "changes",
        "clock",
        "entry",
        "epoch",
        "expiries",
        "key",
        "name",
        "reads",
        "table",
        "tables",
        "ttl",
        "window_expiries",
    )

    readers: ClassVar[tuple[str, ...]] = ("read",)
    writers: ClassVar[tuple[str, ...]] = ("add",)

    def __init__(self, spec: StateSpec) -> None:
        self.name = spec.name
        self.key: Any = None
        self.entry: Entry | None = None
        self.tables: dict[Any, dict[Any, Entry]] = {}
        self.table: dict[Any, Entry] = {}
        self.epoch = Epoch()
        self.changes = EpochChanges(recorded=False)
        self.changed = self.changes.changed
        self.ttl = spec.ttl.micros if spec.ttl is not None else 0
        self.clock: Clock = Clock()
        self.expiries: dict[Any, dict[Any, int]] = {}
        self.window_expiries: dict[Any, int] = {}
        self.reads: list[tuple[str, Any, bytes | None]] = []

    def __bool__(self) -> bool:
        raise TypeError(f"a {type(self).__name__} object is neither true nor false: test the value that it returns")

    def clear(self) -> None:
        """Remove the value of the current key."""
        if self.entry is not None:
            del self.table[self.key]
            self.entry.home = None
            self.entry = None
            self.changes.removed.append(self.key)

    def enter(self, window: Any) -> None:
        """Point at a window; call `at` before the cell is used."""
        table = self.tables.get(window)
        if table is None:
            table = self.tables[window] = {}
        self.table = table
        self.entry = None

    def at(self, key: Any) -> None:
        """Point at a key of the current window."""
        self.key = key
        self.entry = self.table.get(key)

    def stored(self, nothing: Any) -> Any:
        """The value of the current key, or `nothing`."""
        return nothing if self.entry is None else self.entry.value

    def store(self, value: Any) -> None:
        """Set the value of the current key."""
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
        """Record that the value of an entry changes in place."""
        if entry.epoch is not self.epoch:
            entry.epoch = self.epoch
            self.changed.append(entry)

    def copied(self, stored: Any) -> Any:
        """A copy of a stored value for a snapshot; it shares no container with the cell."""
        return stored


class Clock:
    """The processing time (µs) of the step's last clock event."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0


class ValueCell(Cell):
    """A ValueState."""

    __slots__ = ()
    writers = ("write",)

    def read(self, default: Any = None) -> Any:
        entry = self.entry
        return default if entry is None else entry.value

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
    """A SetState; stores a dict, so that members are in order of insertion in every process."""

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
    """A CombiningState; stores an accumulator. Without input it reads None if the combiner has no identity."""

    __slots__ = ("fn",)

    def __init__(self, spec: StateSpec) -> None:
        super().__init__(spec)
        assert spec.combine_fn is not None
        self.fn: CombineFn[Any, Any, Any] = spec.combine_fn.load()

    def read(self) -> Any:
        if self.entry is not None:
            # The result may be the accumulator or a part of it, which later inputs change in place.
            return self.fn.extract_output(independent(self.entry.value))
        return self.fn.extract_output(self.fn.create_accumulator()) if self.fn.has_identity else None

    def add(self, value: Any) -> None:
        fn, entry = self.fn, self.entry
        self.store(fn.add_input(fn.create_accumulator() if entry is None else entry.value, value))

    def copied(self, stored: Any) -> Any:
        return independent(stored)


def independent(value: Any) -> Any:
    """A copy of an accumulator that shares nothing mutable with it."""
    if type(value) in _SCALARS or (type(value) is tuple and all(type(part) in _SCALARS for part in value)):
        return value
    try:
        return pickle.loads(pickle.dumps(value, 5))
    except Exception:
        import copy

        return copy.deepcopy(value)


# -- the two variants


def _with_ttl(cell: type[Cell]) -> type[Cell]:
    """The same cell with a time-to-live. Each write sets the entry's expiry time; an expired entry is removed when the
    cell is pointed at its key. A table of expiry times is in ascending order, since the clock never goes back.
    """

    def enter(self: Cell, window: Any) -> None:
        cell.enter(self, window)
        self.window_expiries = self.expiries.setdefault(window, {})

    def at(self: Cell, key: Any) -> None:
        cell.at(self, key)
        if self.window_expiries.get(key, self.clock.now + 1) <= self.clock.now:
            del self.window_expiries[key]
            cell.clear(self)

    def clear(self: Cell) -> None:
        cell.clear(self)
        self.window_expiries.pop(self.key, None)

    def writing(write: Callable[..., None]) -> Callable[..., None]:
        def method(self: Cell, *args: Any, **kwargs: Any) -> None:
            write(self, *args, **kwargs)
            self.window_expiries.pop(self.key, None)
            if self.entry is not None:
                self.window_expiries[self.key] = self.clock.now + self.ttl

        return method

    methods = {name: writing(getattr(cell, name)) for name in cell.writers}
    return type(cell.__name__, (cell,), {"__slots__": (), "enter": enter, "at": at, "clear": clear, **methods})


def _recording_reads(cell: type[Cell]) -> type[Cell]:
    """The same cell, which records each value that is read, with a snapshot for comparison."""

    def reading(read: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: Cell, *args: Any, **kwargs: Any) -> Any:
            value = read(self, *args, **kwargs)
            if isinstance(value, Iterator):
                value = list(value)
                self.reads.append((self.name, value, snapshot(value)))
                return iter(value)
            self.reads.append((self.name, value, snapshot(value)))
            return value

        return method

    methods = {name: reading(getattr(cell, name)) for name in cell.readers}
    return type(cell.__name__, (cell,), {"__slots__": (), **methods})  # authors see this name in error messages


class CellClasses(NamedTuple):
    """The classes of one kind of cell: plain and with a time-to-live, and for both a variant that records reads."""

    plain: type[Cell]
    watched: type[Cell]
    expiring: type[Cell]
    watched_expiring: type[Cell]

    @staticmethod
    def of(cell: type[Cell]) -> CellClasses:
        """The variants of a cell's class."""
        expiring = _with_ttl(cell)
        return CellClasses(cell, _recording_reads(cell), expiring, _recording_reads(expiring))


CELL_CLASSES: Final[dict[str, CellClasses]] = {
    "value": CellClasses.of(ValueCell),
    "bag": CellClasses.of(BagCell),
    "set": CellClasses.of(SetCell),
    "map": CellClasses.of(MapCell),
    "ordered_list": CellClasses.of(OrderedListCell),
    "combining": CellClasses.of(CombiningCell),
}
"""The classes by the kind of cell that a StateSpec declares."""


# -- made for a step


def cells_of(spec: StateSpec, *, expiring: bool) -> tuple[Cell, Cell]:
    """The cell of a spec, and its variant that records reads, over the same tables. Without `expiring`, the spec's
    time-to-live is ignored."""
    classes = CELL_CLASSES[spec.cell]
    if expiring and spec.ttl is not None:
        cell, watched = classes.expiring(spec), classes.watched_expiring(spec)
    else:
        cell, watched = classes.plain(spec), classes.watched(spec)
    watched.tables, watched.expiries = cell.tables, cell.expiries
    return cell, watched
