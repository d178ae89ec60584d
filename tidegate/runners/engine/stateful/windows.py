"""The windows of a stateful step that have not expired, and the keys that have arrived in each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from heapq import heappop, heappush
from itertools import count
from typing import Any, TypeAlias

from tidegate.runners.engine.state.keyed_state import Tables, of_keys, without
from tidegate.runners.engine.state.tables import StateTables
from tidegate.runners.engine.state.timers import Timers
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.assigners import Bounds
from tidegate.sdk.windowing.window import IntervalWindow, window_end

Placement: TypeAlias = tuple[int, int, Any, bool]
"""The bounds of a window (µs), the window, and whether it has not expired."""


class StatefulWindows:
    """Points state and timers at a window, and decides when windows expire. Times are µs.

    `tracks_arrivals`: the keys of each window are numbered in order of first arrival, in which `@on_window_expiration`
    is called for them.
    """

    def __init__(self, tables: StateTables, timers: Timers, lateness: int, *, tracks_arrivals: bool) -> None:
        self.tracks_arrivals = tracks_arrivals
        self._tables = tables
        self._timers = timers
        self._lateness = lateness
        self._arrivals: dict[Any, dict[Any, int]] = {}
        self._expiries: dict[Any, int] = {}
        self._by_expiry: list[tuple[int, int, int, Any]] = []
        """A heap of windows by expiry; of windows that expire together, the one that ends first comes first."""
        self._serials = count()

    # -- pointing

    def enter(self, window: Any) -> bool:
        """Point state and timers at the window of an element; return False if it has expired."""
        expiry = self.register(window)
        if expiry <= self._timers.watermark:
            return False
        self._tables.enter(window)
        self._timers.enter(window, expiry)
        return True

    def enter_by_time(self, bounds: Callable[[int], Bounds], t: int) -> Placement:
        """The same for the interval window that contains `t`."""
        low, high = bounds(t)
        window = IntervalWindow.of_micros(low, high)
        return low, high, window, self.enter(window)

    def enter_to_fire(self, window: Any) -> None:
        """Point state and timers at a window whose timers are due, and which may have just expired."""
        self._tables.enter(window)
        self._timers.enter(window, self._expiry(window))

    # -- expiry

    def register(self, window: Any) -> int:
        """The expiry of a window, which is queued for it unless it has expired."""
        expiry = self._expiries.get(window)
        if expiry is None:
            expiry = self._expiry(window)
            if expiry > self._timers.watermark:
                self.queue(window, expiry)
        return expiry

    def queue(self, window: Any, expiry: int) -> None:
        """Have a window expire at `expiry`, unless it is queued already."""
        if window not in self._expiries:
            self._expiries[window] = expiry
            heappush(self._by_expiry, (expiry, window_end(window), next(self._serials), window))

    def pop_expired(self, watermark: int) -> dict[Any, None]:
        """Remove the windows that have expired from the queue, and return them."""
        expired: dict[Any, None] = {}
        while self._by_expiry and self._by_expiry[0][0] <= watermark:
            window = heappop(self._by_expiry)[-1]
            del self._expiries[window]
            expired[window] = None
        return expired

    def next_expiry(self) -> int:
        """The earliest expiry; MAX_MICROS if there is no window."""
        return self._by_expiry[0][0] if self._by_expiry else MAX_MICROS

    def hold(self) -> int:
        """The hold of `@on_window_expiration`, which emits at the `max_timestamp` of the next window to expire."""
        return self._by_expiry[0][1] - 1 if self.tracks_arrivals and self._by_expiry else MAX_MICROS

    def collect(self, window: Any) -> None:
        """Drop all state and timers of an expired window."""
        self._tables.collect(window)
        self._timers.collect(window)
        self._arrivals.pop(window, None)

    def _expiry(self, window: Any) -> int:
        return min(window_end(window) + self._lateness, MAX_MICROS)

    # -- arrivals

    def arrivals_in(self, window: Any) -> dict[Any, int]:
        """The keys that have arrived in a window, by number of arrival; a loop adds keys to it."""
        return self._arrivals.setdefault(window, {})

    def snapshot_arrivals(self, keys: Collection[Any] | None) -> Tables:
        """The arrivals of all keys, or of `keys`."""
        return {window: of_keys(arrivals, keys, None) for window, arrivals in self._arrivals.items()}

    def restore_arrivals(self, tables: Tables) -> None:
        """Load arrivals of keys that this task does not have."""
        for window, stored in tables.items():
            known = self._arrivals.get(window)
            if known is None:
                # Numbers may come from several tasks, or have gaps: renumber, so that the next number is their count.
                in_order = sorted(stored, key=stored.__getitem__)
                self._arrivals[window] = {key: n for n, key in enumerate(in_order)}
            else:
                known.update(stored)

    def evict(self, keys: Collection[Any]) -> None:
        """Drop the arrivals of these keys."""
        for arrivals in self._arrivals.values():
            without(arrivals, keys)

    def with_arrivals(self) -> Collection[Any]:
        """The windows in which keys have arrived."""
        return self._arrivals.keys()

    def unexpired(self) -> Collection[Any]:
        """All windows in the queue."""
        return self._expiries.keys()
