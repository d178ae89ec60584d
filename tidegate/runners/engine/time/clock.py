"""Two clocks, passed in: processing time, which authors see, and a monotonic clock, which measures intervals.

Processing time follows the machine's clock, which may be set forward or back at any moment. Intervals, timeouts and
whatever else waits for a while go by the monotonic clock, which nobody sets.
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
        """Time since some instant, to measure by how much has passed: it does not depend on what the time is."""

    def reach(self, micros: int) -> None:
        """Processing time is at least this: what goes on from saved state has already seen it."""

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Let at most `seconds` pass, less if `stop` is set."""


def wall_micros() -> int:
    """What the machine's clock shows, in µs since 1970."""
    return time.time_ns() // 1000


def monotonic_micros() -> int:
    """What the machine's monotonic clock shows, in µs."""
    return time.monotonic_ns() // 1000


class SystemClock:
    """The machine's clocks. `wall` and `monotonic` read them.

    A step forward is followed at once. After a step back processing time goes on from where it was, at half its speed,
    until the machine's clock has caught up: so no instant comes twice, and what waits for one waits twice as long at
    most.
    """

    def __init__(self, wall: Callable[[], int] = wall_micros, monotonic: Callable[[], int] = monotonic_micros) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._now = wall()
        self._read = monotonic()
        """When `_now` was right."""

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
    """A clock that stands until it is moved; waiting moves it, so that nothing ever sleeps. Both times are the same."""

    def __init__(self, now: int = 0) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def monotonic(self) -> int:
        return self._now

    def reach(self, micros: int) -> None:
        self._now = max(self._now, micros)

    def advance(self, micros: int) -> None:
        """Move on by `micros`."""
        self._now += micros

    def wait(self, seconds: float, stop: threading.Event) -> None:
        self._now += int(seconds * 1_000_000)
