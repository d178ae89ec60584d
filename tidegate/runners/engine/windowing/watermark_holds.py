"""Holds of a grouping's output watermark."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count

from tidegate.runners.engine.triggers.base import FAR
from tidegate.runners.engine.windowing.pane_state import ActiveWindow, PaneState
from tidegate.sdk.time import MAX_MICROS


class WatermarkHolds:
    """The panes that hold the output watermark, in a heap by the timestamp (µs) at which they do.

    A pane may fire, or hold the watermark later, after its entry was pushed: an entry is corrected when it reaches the
    top of the heap.

    >>> window = ActiveWindow("a window", start=0, end=60, lateness=0, watermark=0)
    >>> holds, pane = WatermarkHolds(), PaneState(serial=0, contents=[], trigger=[])
    >>> pane.timestamp = 20
    >>> holds.add(window, pane)
    >>> holds.minimum()
    20
    >>> pane.reset()  # it has fired
    >>> holds.minimum() == MAX_MICROS
    True
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, ActiveWindow, PaneState]] = []
        self._serial = count()

    def add(self, window: ActiveWindow, pane: PaneState) -> None:
        """Hold the watermark at a pane's timestamp, or at its window's last instant if it has none."""
        at = pane.queued_hold = window.last if pane.timestamp is None else pane.timestamp
        heappush(self._heap, (at, next(self._serial), window, pane))

    def minimum(self) -> int:
        """The timestamp at which the watermark is held; MAX_MICROS if no pane holds it."""
        heap = self._heap
        while heap:
            at, _, window, pane = heap[0]
            hold = _hold_of(window, pane)
            if hold is None:
                heappop(heap)
                if pane.queued_hold == at:
                    pane.queued_hold = FAR
            elif hold > at:
                heapreplace(heap, (hold, next(self._serial), window, pane))
                pane.queued_hold = hold
            else:
                return at
        return MAX_MICROS


def _hold_of(window: ActiveWindow, pane: PaneState) -> int | None:
    """The timestamp at which a pane holds the watermark now; None if it does not."""
    if not window.alive:
        return None
    return pane.timestamp if pane.timestamp is not None else window.last if pane.holds_end else None
