"""Counts the elements of sessions from their times alone: each key's times are sorted, and cut at the gaps.

Where numpy is loaded anyway, `SessionTimes` stores the times of all keys as arrays, and sorts and cuts them at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tidegate.runners.engine.grouping.sessions.columns import SessionColumns
from tidegate.sdk.data.timestamps import loaded_numpy
from tidegate.sdk.time import MAX_MICROS

_MAX_SPAN: Final = 1 << 62
"""Spans (µs) below this can be added without an overflow of 64 bits."""
_MIN_ARRAY: Final = 1024
"""The least number of elements that pays for an array."""


def count_sessions(times: dict[Any, list[int]], gap: int) -> SessionColumns:
    """The sessions of each key's times, with the number of times in each. Sorts the times in place.

    >>> count_sessions({"a": [40, 0, 3]}, gap=10)
    SessionColumns(ends=[13, 50], starts=[0, 40], keys=['a', 'a'], contents=[2, 1])
    """
    ends: list[int] = []
    starts: list[int] = []
    keys: list[Any] = []
    counts: list[int] = []
    for k, stamps in times.items():
        stamps.sort()
        start = last = stamps[0]
        n = 0
        for t in stamps:
            if t - last >= gap:
                ends.append(last + gap)
                starts.append(start)
                keys.append(k)
                counts.append(n)
                start = t
                n = 0
            n += 1
            last = t
        ends.append(min(last + gap, MAX_MICROS))
        starts.append(start)
        keys.append(k)
        counts.append(n)
    return SessionColumns(ends, starts, keys, counts)


class SessionTimes:
    """Times by key, as numpy arrays; `numbers` numbers the keys by first arrival."""

    __slots__ = ("_ids", "_new_ids", "_new_stamps", "_numpy", "_stamps", "numbers")

    def __init__(self, numpy: Any) -> None:
        self._numpy = numpy
        self._clear()

    def _clear(self) -> None:
        self.numbers = _KeyNumbers()
        self._ids: list[Any] = []
        self._stamps: list[Any] = []
        self._new_ids: list[int] = []
        self._new_stamps = array("q")

    @staticmethod
    def if_numpy() -> SessionTimes | None:
        """An empty one; None if numpy is not loaded."""
        numpy = loaded_numpy()
        return None if numpy is None else SessionTimes(numpy)

    def add(self, keys: Sequence[Any], stamps: Sequence[int]) -> None:
        """Add the keys and times (µs) of some elements. Raises TypeError for a key that can't be hashed."""
        ids = list(map(self.numbers.__getitem__, keys))
        self._new_ids += ids
        self._new_stamps.extend(stamps)
        if len(self._new_ids) >= _MIN_ARRAY:
            self._build_arrays()

    def _build_arrays(self) -> None:
        """Turn the latest times into arrays. Done for many at a time, since a small array is mostly overhead."""
        n, int64 = len(self._new_ids), self._numpy.int64
        self._ids.append(self._numpy.fromiter(self._new_ids, int64, n))
        self._stamps.append(self._numpy.array(self._new_stamps, int64))
        self._new_ids, self._new_stamps = [], array("q")

    def drain(self) -> dict[Any, list[int]]:
        """Remove all times, and return them by key in the order in which they were added."""
        times: dict[Any, list[int]] = {k: [] for k in self.numbers}
        lists = list(times.values())
        self._build_arrays()
        for ids, stamps in zip(self._ids, self._stamps, strict=True):
            for number, t in zip(ids.tolist(), stamps.tolist(), strict=True):
                lists[number].append(t)
        self._clear()
        return times

    def drain_sessions(self, gap: int) -> tuple[list[int], SessionColumns] | None:
        """Remove all times, and return the position of each key's first session, and what `count_sessions` returns.

        Returns None, and removes nothing, if 64 bits are too few for the times: use `drain` and `count_sessions`.
        """
        np = self._numpy
        self._build_arrays()
        ids, stamps = np.concatenate(self._ids), np.concatenate(self._stamps)
        first, last = int(stamps.min()), int(stamps.max())
        if last - first >= _MAX_SPAN or last + gap > MAX_MICROS or gap >= _MAX_SPAN:
            return None
        keys, bits = list(self.numbers), (last - first).bit_length()
        self._clear()
        stamps -= first
        if len(keys) << bits < _MAX_SPAN:
            # Sort by (key, time) as one integer.
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
        ids = ids[begins]
        first_of_key = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1]))).tolist()
        ends = (stamps[past - 1] + gap).tolist()
        key_column = list(map(keys.__getitem__, ids.tolist()))
        return first_of_key, SessionColumns(ends, stamps[begins].tolist(), key_column, (past - begins).tolist())


def split_by_key(first_of_key: list[int], columns: SessionColumns) -> Iterator[tuple[Any, SessionColumns]]:
    """Every key with its sessions; `first_of_key` has the position of each key's first session."""
    ends, starts, keys, counts = columns
    for at, past in zip(first_of_key, (*first_of_key[1:], len(keys)), strict=True):
        yield keys[at], SessionColumns(ends[at:past], starts[at:past], keys[at:past], counts[at:past])


class _KeyNumbers(dict[Any, int]):
    """A number for each key, by first arrival."""

    __slots__ = ()

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number
