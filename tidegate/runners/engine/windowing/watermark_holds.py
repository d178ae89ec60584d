"""Holds of a grouping's output watermark."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count

from tidegate.runners.engine.triggers.base import FAR
from tidegate.runners.engine.windowing.pane_state import ActiveWindow, PaneState, pending
from tidegate.sdk.time import MAX_MICROS


class WatermarkHolds:
    """Panes by the timestamp (µs) at which they held the watermark when they were last inspected.

    A pane's timestamp may have changed since, or the pane may have fired: entries are corrected when they reach the top
    of the heap.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, ActiveWindow, PaneState]] = []
        self._serial = count()

    def add(self, window: ActiveWindow, cell: PaneState, at: int) -> None:
        """Hold the watermark at `at` for a pane."""
        cell.heaped = at
        heappush(self._heap, (at, next(self._serial), window, cell))

    def least(self) -> int:
        """The timestamp at which the watermark is held; MAX_MICROS if no pane holds it."""
        heap = self._heap
        while heap:
            at, _, window, cell = heap[0]
            waits = pending(window, cell)
            if waits is None:
                heappop(heap)
                if cell.heaped == at:
                    cell.heaped = FAR
            elif waits > at:
                heapreplace(heap, (waits, next(self._serial), window, cell))
                cell.heaped = waits
            else:
                return at
        return MAX_MICROS
