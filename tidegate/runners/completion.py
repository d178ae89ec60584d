"""Waiting for the end of a run that goes on in the background, so that Ctrl-C is heard whenever it comes."""

from __future__ import annotations

import threading
import time
from typing import Final

LOOK: Final = 0.25
"""Seconds after which whoever waits looks up, to handle a signal that has woken another thread."""


class Latch:
    """Shut until somebody opens it, for good. What a signal's handler raises may interrupt `wait` anywhere.

    An `Event` would not do. The system gives a signal to any thread of a process, if that was stopped as it came, while
    Python handles it in the main thread, which must not sleep until then. And an interrupt at the wrong moment leaves
    an `Event` locked, on whose way to its end everybody then waits for ever; a thread that has been interrupted in
    `Thread.join` takes the other one for ended.
    """

    def __init__(self) -> None:
        self.opened = False
        self._shut = threading.Lock()
        self._shut.acquire()

    def open(self) -> None:
        """Let all who wait go on. Once only."""
        self.opened = True  # first: whoever is interrupted with the lock in hand keeps it from the others
        self._shut.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open, at most `timeout` seconds; whether it is."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.opened:
            left = LOOK if deadline is None else min(LOOK, deadline - time.monotonic())
            if left <= 0:
                break
            if self._shut.acquire(timeout=left):
                self._shut.release()
        return self.opened
