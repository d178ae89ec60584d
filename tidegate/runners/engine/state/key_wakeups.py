"""Keys by the instant at which they are to be looked at: cheap to file, for most are filed again before it comes."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from tidegate.sdk.time import MIN_MICROS


class KeyWakeups:
    """At most one instant (µs) for each key, the earliest it was given.

    Far instants lie in coarse buckets, `width` µs each; only the bucket that time is in is put in order.
    """

    __slots__ = ("_buckets", "_filed", "_near", "_numbers", "_opened", "_serial", "_width")

    def __init__(self, width: int) -> None:
        self._width = max(1, width)
        self._filed: dict[Any, int] = {}
        self._buckets: dict[int, dict[Any, None]] = {}
        self._numbers: list[int] = []
        self._near: list[tuple[int, int, Any]] = []
        self._opened = MIN_MICROS // self._width
        self._serial = count()

    def set(self, key: Any, at: int) -> None:
        """Look at this key at that instant, or earlier if it was told so."""
        filed = self._filed.get(key)
        if filed is not None and filed <= at:
            return
        self._filed[key] = at
        number = at // self._width
        if number <= self._opened:
            heappush(self._near, (at, next(self._serial), key))
            return
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heappush(self._numbers, number)
        bucket[key] = None

    def forget(self, key: Any) -> None:
        """Don't look at this key."""
        self._filed.pop(key, None)

    def forget_all(self) -> None:
        """Don't look at any key."""
        self._filed.clear()
        self._buckets.clear()
        self._numbers.clear()
        self._near.clear()

    def passed(self, now: int) -> list[Any]:
        """The keys whose instant is `now` or earlier; they have none afterwards."""
        filed, near, number = self._filed, self._near, now // self._width
        found = []
        while self._numbers and self._numbers[0] <= number:
            opened = heappop(self._numbers)
            for key in self._buckets.pop(opened):
                at = filed.get(key)
                if at is None or at // self._width != opened:
                    continue  # it has been filed elsewhere since
                if at <= now:
                    del filed[key]
                    found.append(key)
                else:
                    near.append((at, next(self._serial), key))
            heapify(near)
        self._opened = max(self._opened, number)
        while near and near[0][0] <= now:
            at, _, key = heappop(near)
            if filed.get(key) == at:
                del filed[key]
                found.append(key)
        return found
