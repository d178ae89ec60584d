"""Processing time, passed in: the machine's clock, or one that a test moves."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Processing time in µs since 1970."""

    def now(self) -> int:
        """What time it is."""

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Let at most `seconds` pass, less if `stop` is set."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def wait(self, seconds: float, stop: threading.Event) -> None:
        stop.wait(seconds)


class ManualClock:
    """A clock that stands until it is moved; waiting moves it, so that nothing ever sleeps."""

    def __init__(self, now: int = 0) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def advance(self, micros: int) -> None:
        """Move on by `micros`."""
        self._now += micros

    def wait(self, seconds: float, stop: threading.Event) -> None:
        self._now += int(seconds * 1_000_000)
