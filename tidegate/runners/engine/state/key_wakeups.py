"""Wakeups of keys: the instant at which each key next has work to do.

Setting a wakeup is cheap, since most are set again before they are reached: a session's end moves with each element.

>>> wakeups = KeyWakeups(width=10)
>>> wakeups.set("a", 25)
>>> wakeups.set("b", 7)
>>> wakeups.set("b", 12)
>>> wakeups.pop_until(9), wakeups.pop_until(30)
(['b'], ['a'])
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from tidegate.sdk.time import MIN_MICROS


class KeyWakeups:
    """At most one wakeup (µs) per key, the earliest that was set.

    Distant wakeups are in unsorted buckets, each `width` µs wide. A bucket is sorted only when time reaches it.
    """

    __slots__ = ("_buckets", "_current", "_near", "_numbers", "_serial", "_wakeups", "_width")

    def __init__(self, width: int) -> None:
        self._width = max(1, width)
        self._wakeups: dict[Any, int] = {}
        self._buckets: dict[int, dict[Any, None]] = {}
        self._numbers: list[int] = []
        """The numbers of the buckets, as a heap."""
        self._near: list[tuple[int, int, Any]] = []
        """(wakeup, serial, key) of the buckets that time has reached, as a heap; some are outdated."""
        self._current = MIN_MICROS // self._width
        """The number of the last bucket that time has reached."""
        self._serial = count()

    def set(self, key: Any, at: int) -> None:
        """Wake the key at `at`, unless it has an earlier wakeup."""
        known = self._wakeups.get(key)
        if known is not None and known <= at:
            return
        self._wakeups[key] = at
        number = at // self._width
        if number <= self._current:
            heappush(self._near, (at, next(self._serial), key))
            return
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heappush(self._numbers, number)
        bucket[key] = None

    def remove(self, key: Any) -> None:
        """Remove the wakeup of a key."""
        self._wakeups.pop(key, None)

    def clear(self) -> None:
        """Remove all wakeups."""
        self._wakeups.clear()
        self._buckets.clear()
        self._numbers.clear()
        self._near.clear()

    def pop_until(self, now: int) -> list[Any]:
        """Remove the wakeups up to `now`, and return their keys."""
        wakeups, near, current = self._wakeups, self._near, now // self._width
        found = []
        while self._numbers and self._numbers[0] <= current:
            number = heappop(self._numbers)
            for key in self._buckets.pop(number):
                at = wakeups.get(key)
                if at is None or at // self._width != number:
                    continue  # the key's wakeup is in another bucket now
                if at <= now:
                    del wakeups[key]
                    found.append(key)
                else:
                    near.append((at, next(self._serial), key))
            heapify(near)
        self._current = max(self._current, current)
        while near and near[0][0] <= now:
            at, _, key = heappop(near)
            if wakeups.get(key) == at:
                del wakeups[key]
                found.append(key)
        return found
