"""Clocks, passed in as an argument: processing time, which authors see, and a monotonic clock for intervals.

Processing time follows the machine's clock, which may be set forward or back at any moment. Intervals and timeouts are
measured by the monotonic clock, which can't be set.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Times are µs."""

    def now(self) -> int:
        """Processing time since 1970. It never goes back, and never stands still for long."""

    def monotonic(self) -> int:
        """Time since some fixed instant, for measuring intervals."""

    def reach(self, micros: int) -> None:
        """Advance processing time to at least `micros`, which restored state has already seen."""

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait for `seconds`, or until `stop` is set."""


def wall_micros() -> int:
    """The machine's clock, in µs since 1970."""
    return time.time_ns() // 1000


def monotonic_micros() -> int:
    """The machine's monotonic clock, in µs."""
    return time.monotonic_ns() // 1000


class SystemClock:
    """The machine's clocks, which the functions `wall` and `monotonic` read.

    When the machine's clock is set forward, processing time follows at once. When it is set back, processing time
    continues at half speed until the machine's clock has caught up. So processing time never repeats, and a timer fires
    after twice its delay at most.
    """

    def __init__(self, wall: Callable[[], int] = wall_micros, monotonic: Callable[[], int] = monotonic_micros) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._now = wall()
        self._read = monotonic()
        """The monotonic time at which `_now` was computed."""

    def now(self) -> int:
        half = (self._monotonic() - self._read) // 2
        self._read += 2 * half
        self._now = max(self._wall(), self._now + half)
        return self._now

    def monotonic(self) -> int:
        return self._monotonic()

    def reach(self, micros: int) -> None:
        self._now = max(self.now(), micros)

    def wait(self, seconds: float, stop: threading.Event) -> None:
        stop.wait(seconds)


class ManualClock:
    """A clock for tests: it advances only by `advance` and `wait`, so that no test sleeps. Both times are the same."""

    def __init__(self, now: int = 0) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def monotonic(self) -> int:
        return self._now

    def reach(self, micros: int) -> None:
        self._now = max(self._now, micros)

    def advance(self, micros: int) -> None:
        """Advance the clock by `micros`."""
        self._now += micros

    def wait(self, seconds: float, stop: threading.Event) -> None:
        self._now += int(seconds * 1_000_000)
