"""Groupings without triggers: which windows are open at the watermark, and the count of dropped late elements.

With triggers or panes, `engine/windowing/panes.py` decides it.
"""

from __future__ import annotations

from typing import Any

from tidegate.sdk.time import MIN_MICROS
from tidegate.sdk.windowing.window import window_end


class LatenessGate:
    """Decides which windows are open at the watermark, and counts the elements that are late for all their windows.

    >>> from tidegate.sdk.windowing.window import IntervalWindow
    >>> gate, first, second = LatenessGate(), IntervalWindow(0, 10), IntervalWindow(5, 15)
    >>> gate.watermark = 10_000_000
    >>> gate.open_windows((first, second)) == (second,), gate.open_windows((first,)), gate.take_late()
    (True, (), 1)
    """

    __slots__ = ("late", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_MICROS
        self.late = 0

    def is_open(self, window: Any) -> bool:
        """True until the watermark reaches the end of the window."""
        return self.watermark < window_end(window)

    def open_windows(self, windows: tuple[Any, ...]) -> tuple[Any, ...]:
        """The open ones of an element's windows, which are ascending. Counts the element as late if none is open."""
        if not windows or self.is_open(windows[0]):
            return windows
        still_open = tuple([window for window in windows if self.is_open(window)])
        if not still_open:
            self.late += 1
        return still_open

    def take_late(self) -> int:
        """How many elements were late since the last call."""
        late, self.late = self.late, 0
        return late
