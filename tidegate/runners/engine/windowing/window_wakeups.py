"""The instants at which windows have work to do again: one queue per clock for all windows of an operator."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

W = TypeVar("W")


class WindowWakeups(Generic[W]):
    """The instants (µs) at which windows are due, each with the keys that are; None stands for all keys of a window.

    Wake-ups are never cancelled: the work one was registered for may no longer be due.

    >>> wakeups = WindowWakeups()
    >>> wakeups.add(10, "first window", "ann")
    >>> wakeups.add(20, "first window", "ben")
    >>> wakeups.add_all(30, "second window")
    >>> wakeups.pop(25)
    {'first window': {'ann': None, 'ben': None}}
    >>> wakeups.next()
    30
    """

    __slots__ = ("_heap", "_windows")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._windows: dict[int, dict[W, dict[Any, None] | None]] = {}

    def add(self, instant: int, window: W, key: Any) -> None:
        """Wake one key of a window at `instant`."""
        keys = self._windows_at(instant).setdefault(window, {})
        if keys is not None:
            keys[key] = None

    def add_all(self, instant: int, window: W) -> None:
        """Wake all keys of a window at `instant`."""
        self._windows_at(instant)[window] = None

    def _windows_at(self, instant: int) -> dict[W, dict[Any, None] | None]:
        windows = self._windows.get(instant)
        if windows is None:
            windows = self._windows[instant] = {}
            heappush(self._heap, instant)
        return windows

    def pop(self, now: int) -> dict[W, dict[Any, None] | None]:
        """Remove the wake-ups up to `now`, and return their windows and keys."""
        woken: dict[W, dict[Any, None] | None] = {}
        while self._heap and self._heap[0] <= now:
            for window, keys in self._windows.pop(heappop(self._heap)).items():
                if keys is None:
                    woken[window] = None
                else:
                    known = woken.setdefault(window, keys)
                    if known is not None and known is not keys:
                        known.update(keys)
        return woken

    def next(self) -> int | None:
        """The earliest instant."""
        return self._heap[0] if self._heap else None
