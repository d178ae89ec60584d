"""Copy on write: snapshots whose values are copied after the snapshot is taken, while the operator goes on.

To copy a million values takes a few tenths of a second, in which the stream would stand still. A deferred snapshot only
lists them. A value is copied when the part of the snapshot that it is in is written, or before it changes, whichever
comes first.

>>> copies, table = CopyOnWrite(), {"a": [1], "b": [2], "c": [3]}
>>> with copies.deferred(at_once=0):
...     snapshot = copies.of_keys(table, None, list.copy)
>>> parts = snapshot.cut(1)
>>> dict(next(parts))
{'a': [1]}
>>> copies.copy(["a", "b"])
>>> table["a"].append(4); table["b"].append(5)
>>> [dict(part) for part in parts], copies.active
([{'b': [2]}, {'c': [3]}], False)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import filterfalse
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.state.keyed_state import ColumnTable, columns_of

Columns: TypeAlias = Callable[[slice], tuple[list[Any], list[Any]]]
"""The keys of a part of a table, and the values that are stored for them now."""
Stored: TypeAlias = Callable[[Any, Any], Any]
"""The value that is stored for a key now, or a default (as `dict.get`)."""

CHUNK: Final = 1_024
"""The number of keys that an event changes, and therefore copies, at a time."""


class CopyOnWrite:
    """The tables of an operator's last snapshot whose values are not all copied yet; there is one snapshot at a time.

    `active`: whether there are any. The operator then calls `copy` before it changes the state of a key. It may remove
    a key without that, since a table has all values that were stored at the time of the snapshot.
    """

    __slots__ = ("_room", "_seen", "_tables", "active")

    def __init__(self) -> None:
        self.active = False
        self._tables: list[DeferredTable] = []
        self._seen: set[Any] = set()
        """The keys that may have changed since the snapshot."""
        self._room: int | None = None
        """How many more values may be copied at once; None: any number."""

    @contextmanager
    def deferred(self, at_once: int) -> Iterator[None]:
        """A context in which the operator's snapshot copies at most `at_once` values, and defers the others. Ends the
        snapshot before."""
        self.stop()
        self._room = at_once
        try:
            yield
        finally:
            self._room = None
            self.active = bool(self._tables)

    def stop(self) -> None:
        """Copy no more values: the snapshot is written or abandoned."""
        self.active = False
        self._tables = []
        self._seen = set()

    def of_keys(
        self, table: dict[Any, Any], keys: Collection[Any] | None, copied: Callable[[Any], Any] | None
    ) -> dict[Any, Any]:
        """The same as `keyed_state.of_keys`."""
        found, stored = columns_of(table, keys)
        if copied is None:
            return ColumnTable(found, stored)  # type: ignore[return-value]  # a read-only mapping
        return self.table(lambda part: (found[part], stored[part]), len(found), table.get, copied)

    def table(self, columns: Columns, size: int, stored: Stored, copied: Callable[[Any], Any] | None) -> dict[Any, Any]:
        """A table of a snapshot with `size` entries, whose values are copied by `copied`; None if values are immutable,
        but `columns` returns others once they have been replaced."""
        if self._room is None or size <= self._room:
            if self._room is not None:
                self._room -= size
            keys, values = columns(slice(None))
            if copied is not None:
                values = list(map(copied, values))
            return ColumnTable(keys, values)  # type: ignore[return-value]  # a read-only mapping
        deferred = DeferredTable(columns, size, stored, copied or _unchanged, self._release)
        self._tables.append(deferred)
        return deferred  # type: ignore[return-value]

    def copy(self, keys: Iterable[Any]) -> None:
        """Copy the values of these keys, which are about to change; the snapshot need not have all of them. If the keys
        can't be read or hashed, which the operator will report, all values are copied."""
        try:
            new = dict.fromkeys(filterfalse(self._seen.__contains__, keys))
        except Exception:
            for table in self._tables:
                table.copy_rest()
            return
        self._seen.update(new)
        for table in self._tables:
            table.copy(new)

    def _release(self, table: DeferredTable) -> None:
        """A table has been written."""
        self._tables = [each for each in self._tables if each is not table]
        if not self._tables:
            self.stop()


class DeferredTable(ColumnTable):
    """A table of a snapshot whose values are copied later. It is read in parts, each once (`cut`).

    `columns`, `stored` and `copied` are as in `CopyOnWrite.table`; `written` is called after the last part.
    """

    __slots__ = ("_columns", "_copied", "_early", "_size", "_stored_for", "_written")

    def __init__(
        self,
        columns: Columns,
        size: int,
        stored: Stored,
        copied: Callable[[Any], Any],
        written: Callable[[DeferredTable], None],
    ) -> None:
        super().__init__([], [])
        self._columns = columns
        self._size = size
        self._stored_for = stored
        self._copied = copied
        self._early: dict[Any, Any] = {}
        """The copies of values that may have changed since."""
        self._written = written

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dict())

    def __reduce__(self) -> tuple[Any, ...]:
        return ColumnTable(*self._part(slice(None))).__reduce__()

    def _dict(self) -> dict[Any, Any]:
        return dict(zip(*self._part(slice(None)), strict=True))

    def cut(self, size: int) -> Iterator[ColumnTable]:
        for start in range(0, self._size, size):
            yield ColumnTable(*self._part(slice(start, start + size)))
        self._written(self)

    def copy(self, keys: Iterable[Any]) -> None:
        """Copy the values of these keys, before their first change since the snapshot."""
        stored_for, copied, early = self._stored_for, self._copied, self._early
        for key in keys:
            stored = stored_for(key, _MISSING)
            if stored is not _MISSING:
                early[key] = copied(stored)

    def copy_rest(self) -> None:
        """Copy all values."""
        keys, values = self._part(slice(None))
        self._columns = lambda part: (keys[part], values[part])
        self._copied = _unchanged
        self._stored_for = _default
        self._early = {}

    def _part(self, part: slice) -> tuple[list[Any], list[Any]]:
        keys, values = self._columns(part)
        copied, early = self._copied, self._early
        if not early:
            return keys, list(map(copied, values))
        return keys, [early[key] if key in early else copied(value) for key, value in zip(keys, values, strict=True)]


def _unchanged(value: Any) -> Any:
    return value


def _default(key: Any, default: Any) -> Any:
    return default


_MISSING: Final = object()
