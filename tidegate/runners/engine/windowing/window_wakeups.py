"""When windows have work to do again: one queue per clock for the whole operator."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

W = TypeVar("W")


class WindowWakeups(Generic[W]):
    """Instants (µs), the windows that wait for each, and in these the keys; None stands for all of a window's keys.

    An alarm is not taken back: what it was set for may be over when it goes off.
    """

    __slots__ = ("_heap", "_waiting")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._waiting: dict[int, dict[W, dict[Any, None] | None]] = {}

    def set(self, instant: int, window: W, key: Any) -> None:
        """Wake one key of a window at `instant`."""
        windows = self._at(instant)
        keys = windows.setdefault(window, {})
        if keys is not None:
            keys[key] = None

    def set_all(self, instant: int, window: W) -> None:
        """Wake all keys of a window at `instant`."""
        self._at(instant)[window] = None

    def _at(self, instant: int) -> dict[W, dict[Any, None] | None]:
        windows = self._waiting.get(instant)
        if windows is None:
            windows = self._waiting[instant] = {}
            heappush(self._heap, instant)
        return windows

    def passed(self, now: int) -> dict[W, dict[Any, None] | None]:
        """Who waits for an instant up to `now`; their alarms are over."""
        woken: dict[W, dict[Any, None] | None] = {}
        while self._heap and self._heap[0] <= now:
            for window, keys in self._waiting.pop(heappop(self._heap)).items():
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
