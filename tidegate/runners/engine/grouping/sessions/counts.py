"""The times of each key's elements as columns of numpy's, for sessions that only count: sorted and cut all at once.

Only where numpy has been imported anyway; what it can't hold exactly is for `session_table.counted`, key by key.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tidegate.runners.engine.grouping.sessions.table import Columns
from tidegate.sdk.data.timestamps import loaded_numpy
from tidegate.sdk.time import MAX_MICROS

_MOST: Final = 1 << 62
"""Spans (µs) below this can be added up without leaving 64 bits."""
_LEAST: Final = 1024
"""How many elements are worth an array."""


class SessionTimes:
    """Times by key, keys numbered by first arrival."""

    __slots__ = ("_few_ids", "_few_stamps", "_ids", "_numpy", "_stamps", "numbers")

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        self._empty()

    def _empty(self) -> None:
        self.numbers = _Numbers()
        self._ids: list[Any] = []
        self._stamps: list[Any] = []
        self._few_ids: list[int] = []
        self._few_stamps = array("q")

    @staticmethod
    def at_hand() -> SessionTimes | None:
        """An empty one; None where numpy is not there."""
        numpy = loaded_numpy()
        return None if numpy is None else SessionTimes(numpy)

    def take(self, keys: Sequence[Any], stamps: Sequence[int]) -> None:
        """Some elements' keys and times (µs). TypeError for a key that can't be hashed."""
        ids = list(map(self.numbers.__getitem__, keys))
        self._few_ids += ids
        self._few_stamps.extend(stamps)
        if len(self._few_ids) >= _LEAST:
            self._build_arrays()

    def _build_arrays(self) -> None:
        """Make arrays of what has come since the last ones: small ones would take more than they hold."""
        n, whole = len(self._few_ids), self._numpy.int64
        self._ids.append(self._numpy.fromiter(self._few_ids, whole, n))
        self._stamps.append(self._numpy.array(self._few_stamps, whole))
        self._few_ids, self._few_stamps = [], array("q")

    def drain(self) -> dict[Any, list[int]]:
        """Every key with its times in the order in which they came. There are none afterwards."""
        found: dict[Any, list[int]] = {k: [] for k in self.numbers}
        lists = list(found.values())
        self._build_arrays()
        for ids, stamps in zip(self._ids, self._stamps, strict=True):
            for number, t in zip(ids.tolist(), stamps.tolist(), strict=True):
                lists[number].append(t)
        self._empty()
        return found

    def sessions(self, gap: int) -> tuple[list[int], Columns] | None:
        """As `counted`, with where each key's sessions begin before it; None if that must be told key by key.

        There are none afterwards.
        """
        np = self._numpy
        self._build_arrays()
        ids, stamps = np.concatenate(self._ids), np.concatenate(self._stamps)
        first, last = int(stamps.min()), int(stamps.max())
        if last - first >= _MOST or last + gap > MAX_MICROS or gap >= _MOST:
            return None
        names, bits = list(self.numbers), (last - first).bit_length()
        self._empty()
        stamps -= first
        if len(names) << bits < _MOST:
            ids <<= bits
            ids |= stamps
            ids.sort()
            stamps = ids & ((1 << bits) - 1)
            ids >>= bits
        else:
            order = np.lexsort((stamps, ids))
            ids, stamps = ids[order], stamps[order]
        new_key = ids[1:] != ids[:-1]
        begins = np.flatnonzero(np.concatenate(([True], new_key | (stamps[1:] - stamps[:-1] >= gap))))
        past = np.append(begins[1:], len(ids))
        stamps += first
        keys = ids[begins]
        of_keys = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))).tolist()
        ends = (stamps[past - 1] + gap).tolist()
        of = list(map(names.__getitem__, keys.tolist()))
        return of_keys, (ends, stamps[begins].tolist(), of, (past - begins).tolist())


def by_key(of_keys: list[int], columns: Columns) -> Iterator[tuple[Any, Sequence[int], Sequence[int], Sequence[Any]]]:
    """Every key with the starts and ends of its sessions, and what they hold."""
    ends, starts, keys, held = columns
    for at, past in zip(of_keys, (*of_keys[1:], len(keys)), strict=True):
        yield keys[at], starts[at:past], ends[at:past], held[at:past]


class _Numbers(dict[Any, int]):
    """A number for each key, by first arrival."""

    __slots__ = ()

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number
