"""What holds the output watermark of a grouping: the timestamps of results still to come, the least first."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count

from tidegate.runners.engine.triggers.base import FAR
from tidegate.runners.engine.windowing.pane_state import ActiveWindow, PaneState, pending
from tidegate.sdk.time import MAX_MICROS


class WatermarkHolds:
    """Cells by the timestamp (µs) at which they held the watermark when they were last looked at.

    A cell's own timestamp may have moved since, or be gone: entries are put right when they come to the top.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, ActiveWindow, PaneState]] = []
        self._serial = count()

    def add(self, window: ActiveWindow, cell: PaneState, at: int) -> None:
        """A cell whose elements hold the watermark at `at`."""
        cell.heaped = at
        heappush(self._heap, (at, next(self._serial), window, cell))

    def least(self) -> int:
        """Where the watermark is held."""
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
