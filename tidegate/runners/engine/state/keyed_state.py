"""State by key as plain data: the one shape in which operators give their state and take it back.

A snapshot can be of all keys, or only of those whose state may have changed since the one before; `rescale` cuts
snapshots by key, puts them together, and lays later ones over earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, compress, repeat
from operator import is_not, itemgetter
from typing import Any, Final, TypeAlias

from tidegate.sdk.time import MIN_MICROS

Tables: TypeAlias = dict[Any, dict[Any, Any]]
"""By window, then by key."""

Touched: TypeAlias = list[Collection[Any]]
"""Runs of keys, some more than once."""

CELLS: Final = "cells"
"""The table of an operator that has only one."""


@dataclass(slots=True)
class KeyedState:
    """State of an operator. `tables` are by name, window and key; where windows do not divide one, the window is None.

    Times are µs. `serials` are counters of what the operator numbers, `any`: whether there was any input. A snapshot
    of some keys has these in `keys` (None: it is of all), and in `windows` all windows that still have state: those of
    an earlier snapshot that are not among them are over.
    """

    tables: dict[str, Tables] = field(default_factory=dict)
    watermark: int = MIN_MICROS
    clock: int | None = None
    serials: dict[str, int] = field(default_factory=dict)
    any: bool = False
    keys: Collection[Any] | None = None
    windows: Collection[Any] | None = None

    def __len__(self) -> int:
        """How many entries there are."""
        return sum(len(table) for tables in self.tables.values() for table in tables.values())


class TouchedKeys:
    """Notes which keys are touched, from when it was first asked: `on` says whether it does. In the order in which they
    first come, so that what is written of them is the same in each run."""

    __slots__ = ("_seen", "on")

    def __init__(self) -> None:
        self.on = False
        self._seen: dict[Any, None] = {}

    def note(self, keys: Iterable[Any]) -> None:
        """These have been touched."""
        self._seen.update(zip(keys, repeat(None)))

    def take(self) -> Touched | None:
        """What was touched since this was last called; None for the first time."""
        seen, self._seen = self._seen, {}
        before, self.on = self.on, True
        return [seen] if before else None


first_of: Final = itemgetter(0)
"""The key of a pair; of what is none, it may be anything."""


def distinct(runs: Touched) -> Collection[Any]:
    """Every key once, in the order in which they first come; a run that is no list goes as it is to whose it is."""
    if len(runs) == 1 and type(runs[0]) is not list:
        return runs[0]
    return dict.fromkeys(chain.from_iterable(runs))


def of_keys(table: dict[Any, Any], keys: Collection[Any] | None, copied: Callable[[Any], Any] | None) -> dict[Any, Any]:
    """Copies of a table's entries, all or those of `keys` that are there; `copied` None: these are not changed."""
    if keys is None:
        found, stored = list(table), list(table.values())
    else:
        found = list(keys)
        stored = list(map(table.get, found, repeat(_MISSING)))
        there = list(map(is_not, stored, repeat(_MISSING)))
        if not all(there):
            found, stored = list(compress(found, there)), list(compress(stored, there))
    if copied is not None:
        stored = list(map(copied, stored))
    return ColumnTable(found, stored)  # type: ignore[return-value]  # to be read, which is all that is done with it


class ColumnTable(Mapping[Any, Any]):
    """A table of a snapshot as a column of keys, each once, and one of what is stored under them: these are made, cut
    and pickled in half the time of a dict. Pickled it is a dict."""

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
        """As several of at most so many keys, in order."""
        for start in range(0, len(self._keys), size):
            yield ColumnTable(self._keys[start : start + size], self._stored[start : start + size])


def _dict_of(keys: list[Any], stored: list[Any]) -> dict[Any, Any]:
    return dict(zip(keys, stored, strict=True))


_MISSING: Final = object()


def without(table: dict[Any, Any], keys: Iterable[Any]) -> None:
    """Drop these keys from a table, as far as they are in it."""
    pop = table.pop
    for key in keys:
        pop(key, None)
