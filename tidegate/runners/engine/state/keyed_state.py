"""Keyed state as plain data: the form in which operators snapshot and restore it.

A snapshot has the state of all keys, or, if it is incremental, of the keys whose state may have changed since the one
before. `rescale` filters snapshots by key, merges them, and applies incremental ones.

>>> touched = TouchedKeys()
>>> touched.take()
>>> touched.note(["a", "b"]); touched.note(["a"])
>>> list(distinct(touched.take()))
['a', 'b']
"""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from operator import is_not, itemgetter
from typing import Any, Final, TypeAlias

from tidegate.sdk.time import MIN_MICROS

Tables: TypeAlias = dict[Any, dict[Any, Any]]
"""Stored values by window, then by key."""

Touched: TypeAlias = list[Collection[Any]]
"""Keys in several collections, some keys more than once."""

CELLS: Final = "cells"
"""The name of the table, in snapshots of operators that have only one."""


@dataclass(slots=True)
class KeyedState:
    """The state of an operator with keyed state. Times are µs.

    tables: stored values by table name, window and key; the window is None in tables that windows don't divide.
    serials: the operator's counters, by name. any: whether there was any input.
    keys: the keys of an incremental snapshot; None for a full one.
    windows: of an incremental snapshot, all windows that still have state; the others have expired.
    """

    tables: dict[str, Tables] = field(default_factory=dict)
    watermark: int = MIN_MICROS
    clock: int | None = None
    serials: dict[str, int] = field(default_factory=dict)
    any: bool = False
    keys: Collection[Any] | None = None
    windows: Collection[Any] | None = None

    def __len__(self) -> int:
        """The number of entries in all tables."""
        return sum(len(table) for tables in self.tables.values() for table in tables.values())


class TouchedKeys:
    """Records the touched keys, once `take` has been called for the first time (`on`).

    Keys are in the order in which they were first touched, so that snapshots are the same in every run.
    """

    __slots__ = ("_seen", "on")

    def __init__(self) -> None:
        self.on = False
        self._seen: dict[Any, None] = {}

    def note(self, keys: Iterable[Any]) -> None:
        """Record that these keys have been touched."""
        self._seen.update(zip(keys, repeat(None)))

    def take(self) -> Touched | None:
        """Return and reset the keys that were touched since the last call; None at the first call."""
        seen, self._seen = self._seen, {}
        before, self.on = self.on, True
        return [seen] if before else None


first_of: Final = itemgetter(0)
"""The key of a pair. For an element that is not a pair, any value or an error."""


def distinct(runs: Touched) -> Collection[Any]:
    """Every key once, in order of first occurrence. A single collection that is not a list is returned unchanged, since
    the operator that reported it may attach more than its keys (`state.cells.ChangedKeys`)."""
    if len(runs) == 1 and type(runs[0]) is not list:
        return runs[0]
    return dict.fromkeys(chain.from_iterable(runs))


def columns_of(table: dict[Any, Any], keys: Collection[Any] | None) -> tuple[list[Any], list[Any]]:
    """The keys of a table, all or those of `keys`, and their stored values."""
    if keys is None:
        return list(table), list(table.values())
    found = list(keys)
    stored = list(map(table.get, found, repeat(_MISSING)))
    there = list(map(is_not, stored, repeat(_MISSING)))
    if not all(there):
        return list(compress(found, there)), list(compress(stored, there))
    return found, stored


def of_keys(table: dict[Any, Any], keys: Collection[Any] | None, copied: Callable[[Any], Any] | None) -> dict[Any, Any]:
    """A table's entries, all or those of `keys`, copied by `copied`; None if stored values are immutable."""
    found, stored = columns_of(table, keys)
    if copied is not None:
        stored = list(map(copied, stored))
    return ColumnTable(found, stored)  # type: ignore[return-value]  # a read-only mapping: snapshots are only read


class ColumnTable(Mapping[Any, Any]):
    """A table of a snapshot as two columns, the distinct keys and their stored values; unpickles as a dict.

    Columns are built, divided and pickled in half the time of a dict.
    """

    __slots__ = ("_by_key", "_keys", "_stored")

    def __init__(self, keys: list[Any], stored: list[Any]) -> None:
        self._keys = keys
        self._stored = stored
        self._by_key: dict[Any, Any] | None = None

    def __getitem__(self, key: Any) -> Any:
        return self._dict()[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def items(self) -> ItemsView[Any, Any]:
        return self._dict().items()

    def __reduce__(self) -> tuple[Any, ...]:
        return _dict_of, (self._keys, self._stored)

    def _dict(self) -> dict[Any, Any]:
        if self._by_key is None:
            self._by_key = _dict_of(self._keys, self._stored)
        return self._by_key

    def cut(self, size: int) -> Iterator[ColumnTable]:
        """The table in parts of at most `size` keys, in order."""
        for start in range(0, len(self._keys), size):
            yield ColumnTable(self._keys[start : start + size], self._stored[start : start + size])


def _dict_of(keys: list[Any], stored: list[Any]) -> dict[Any, Any]:
    return dict(zip(keys, stored, strict=True))


_MISSING: Final = object()


def without(table: dict[Any, Any], keys: Iterable[Any]) -> None:
    """Remove these keys from a table, if they are in it."""
    pop = table.pop
    for key in keys:
        pop(key, None)
