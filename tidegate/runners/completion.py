"""Waits for the end of a run in the background, in such a way that Ctrl-C is always handled."""

from __future__ import annotations

import threading
import time
from typing import Final

_POLL_INTERVAL: Final = 0.25
"""Seconds after which a waiting thread wakes, to handle a signal that was delivered to another thread."""


class Latch:
    """Closed until it is opened, once and for all. A signal handler may raise anywhere in `wait`.

    An `Event` or `Thread.join` would not do, for three reasons. A signal may be delivered to any thread, while Python
    runs its handler in the main thread, which must not sleep until then. An exception at the wrong moment leaves an
    `Event` locked, so that all threads wait for ever. And an exception in `Thread.join` makes Python regard the other
    thread as ended.
    """

    def __init__(self) -> None:
        self.opened = False
        self._shut = threading.Lock()
        self._shut.acquire()

    def open(self) -> None:
        """Wake all waiting threads. Call it once only."""
        self.opened = True  # first, since a thread that is interrupted while it has the lock never releases it
        self._shut.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is open, at most `timeout` seconds. Return whether it is open."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.opened:
            left = _POLL_INTERVAL if deadline is None else min(_POLL_INTERVAL, deadline - time.monotonic())
            if left <= 0:
                break
            if self._shut.acquire(timeout=left):
                self._shut.release()
        return self.opened
