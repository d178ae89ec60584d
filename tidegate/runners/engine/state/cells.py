"""State cells: what the state parameters of a DoFn are, one object for all keys and windows.

A cell is its own handle: the DoFn holds one object for all elements, which is pointed at the window and key in hand.
What is under a key stands in an `Entry`, found once for each element. It knows the epoch of its last change, and is
noted at the first change in each epoch: what changed between two checkpoints costs no look-up of its own.
Each kind of cell has four classes, in the table `CELL_CLASSES`: plain or with a time-to-live, and of each a variant
that records what was read, so that a value changed in place is found.
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
    """The time between two snapshots, by its identity alone. Entries hold on to theirs for as long as they live, so it
    refers to nothing: with what was noted in it, entries would form cycles that only the collector can free."""

    __slots__ = ()


class Entry:
    """What a cell stores under one key and window, and the epoch in which that last changed. `home` is the table that
    has it; None once it has been taken out, which also breaks the cycle between the two."""

    __slots__ = ("epoch", "home", "key", "value")

    def __init__(self, home: dict[Any, Entry], key: Any, value: Any, epoch: Epoch) -> None:
        self.home: dict[Any, Entry] | None = home
        self.key = key
        self.value = value
        self.epoch = epoch


class Notes:
    """What happened in one epoch: the entries that changed, each once; the keys of those that were taken out; and
    whether any window has gone with all it had. Unless they are `kept`, the first two stay empty."""

    __slots__ = ("changed", "collected", "removed")

    def __init__(self, *, kept: bool) -> None:
        self.changed: list[Entry] | deque[Entry] = [] if kept else deque(maxlen=0)
        self.removed: list[Any] | deque[Any] = [] if kept else deque(maxlen=0)
        self.collected = False


NEVER: Final = Epoch()
"""When what is as it was restored has changed."""


class Changed(Collection[Any]):
    """The keys under which anything changed in an epoch, some more than once."""

    __slots__ = ("notes",)

    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def __len__(self) -> int:
        return len(self.notes.changed) + len(self.notes.removed)

    def __iter__(self) -> Iterator[Any]:
        yield from (entry.key for entry in self.notes.changed)
        yield from self.notes.removed

    def __contains__(self, key: object) -> bool:
        return any(each == key for each in self)

    def by_table(self, tables: Sequence[dict[Any, Entry]]) -> dict[int, list[Entry]]:
        """By the id of a table, the entries in it that changed: without the keys of which any was taken out."""
        changed, removed = list(self.notes.changed), frozenset(self.notes.removed)
        if len(tables) == 1 and not removed and not self.notes.collected:
            return {id(tables[0]): changed}
        found: dict[int, list[Entry]] = {id(table): [] for table in tables}
        for entry in changed:
            into = found.get(id(entry.home))
            if into is not None and entry.key not in removed:
                into.append(entry)
        return found


class Cell:
    """One cell of all keys and windows. `table` is that of the window in hand, `key` the key in hand, and `entry` what
    is under it (None: nothing). `notes` are of this `epoch`, and `changed` is theirs.
    """

    __slots__ = (
        "changed",
        "clock",
        "dates",
        "entry",
        "epoch",
        "key",
        "name",
        "notes",
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
        self.epoch = Epoch()
        self.notes = Notes(kept=False)
        self.changed = self.notes.changed
        self.ttl = spec.ttl.micros if spec.ttl is not None else 0
        self.clock: Clock = Clock()
        self.dates: dict[Any, dict[Any, int]] = {}
        self.window_dates: dict[Any, int] = {}
        self.reads: list[tuple[str, Any, bytes | None]] = []

    def __bool__(self) -> bool:
        raise TypeError(f"a {type(self).__name__} object is neither true nor false: look at what is in it")

    def clear(self) -> None:
        """Forget what is stored under the key in hand."""
        if self.entry is not None:
            del self.table[self.key]
            self.entry.home = None
            self.entry = None
            self.notes.removed.append(self.key)

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


def _with_ttl(cell: type[Cell]) -> type[Cell]:
    """The same cell with a time-to-live. Each write sets the entry's expiry time; an expired entry is removed when the
    cell is pointed at its key. A table of expiry times is in ascending order, since the clock never goes back.
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
        def method(self: Cell, *args: Any, **kwargs: Any) -> None:
            write(self, *args, **kwargs)
            self.window_dates.pop(self.key, None)
            if self.entry is not None:
                self.window_dates[self.key] = self.clock.now + self.ttl

        return method

    methods = {name: writing(getattr(cell, name)) for name in cell.writers}
    return type(cell.__name__, (cell,), {"__slots__": (), "enter": enter, "at": at, "clear": clear, **methods})


def _recording_reads(cell: type[Cell]) -> type[Cell]:
    """The same cell, which records each value that is read and what it was then."""

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
    return type(cell.__name__, (cell,), {"__slots__": (), **methods})  # the name stands in errors that authors see


class CellClasses(NamedTuple):
    """The classes of one kind of cell: as it is, and with a time-to-live; of each, one that records reads."""

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
"""By the kind of cell that a StateSpec declares."""


# -- made for a step


def cells_of(spec: StateSpec, *, expiring: bool) -> tuple[Cell, Cell]:
    """The cell of a spec, and its variant that records reads, over the same tables. `expiring`: a time-to-live counts,
    if the spec has one."""
    classes = CELL_CLASSES[spec.cell]
    if expiring and spec.ttl is not None:
        cell, watched = classes.expiring(spec), classes.watched_expiring(spec)
    else:
        cell, watched = classes.plain(spec), classes.watched(spec)
    watched.tables, watched.dates = cell.tables, cell.dates
    return cell, watched
