"""State of the window operator: the panes that each active window is collecting, by key."""

from __future__ import annotations

from typing import Any, Final

from tidegate.runners.engine.triggers.base import FAR, State
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.window import IntervalWindow


class PaneState:
    """The next pane of one key and window.

    `serial` orders the keys of a window by first arrival. `contents` are the elements or the accumulator, `trigger` is
    the trigger's state. `unfired` elements have arrived since the last firing; the trigger has observed `observed` of
    them and is evaluated once there are `recheck_at`. `index` and `nonspeculative` count the panes emitted, all of
    them and those that were not EARLY. `timestamp` is the pane's so far (µs; None: the window's last instant).
    `holds_end`: unfired elements arrived before the window ended, so the pane holds the watermark even without a
    timestamp. `event_wakeup`, `clock_wakeup` and `queued_hold` are the earliest instants at which the pane is queued in
    the wake-ups of either clock and in the watermark holds; FAR if it is not.
    """

    __slots__ = (
        "clock_wakeup",
        "contents",
        "event_wakeup",
        "holds_end",
        "index",
        "nonspeculative",
        "observed",
        "queued_hold",
        "recheck_at",
        "serial",
        "timestamp",
        "trigger",
        "unfired",
    )

    def __init__(self, serial: int, contents: Any, trigger: State) -> None:
        self.serial = serial
        self.contents = contents
        self.trigger = trigger
        self.unfired = self.observed = self.recheck_at = 0
        self.index = self.nonspeculative = 0
        self.timestamp: int | None = None
        self.holds_end = False
        self.queued_hold = FAR
        self.clock_wakeup = self.event_wakeup = FAR

    def reset(self) -> None:
        """Start the next pane: the elements have been emitted, dropped, or moved to another pane."""
        self.unfired = self.observed = 0
        self.timestamp = None
        self.holds_end = False


CLOSED: Final = PaneState(0, None, [])
"""Takes the place of a pane whose trigger has finished, until the window expires."""


class ActiveWindow:
    """A window that has not expired, and its panes by key. Times are µs; `last` is its last instant.

    A session's bounds move while it grows; its `window` is created on demand. `serial` distinguishes equal windows of
    different keys, where each key has its own.
    """

    __slots__ = ("alive", "end", "ended", "expiry", "last", "panes", "serial", "start", "window")

    def __init__(self, window: Any, start: int, end: int, lateness: int, watermark: int, serial: int = 0) -> None:
        self.window = window
        self.start = start
        self.serial = serial
        self.alive = True
        self.ended = watermark >= end
        self.panes: dict[Any, PaneState] = {}
        self.set_end(end, lateness)

    def set_end(self, end: int, lateness: int) -> None:
        """Move the end to `end`, and the expiry to `lateness` after it."""
        self.end = end
        self.last = end - 1
        self.expiry = expiry(end, lateness)

    def to_window(self) -> Any:
        """The window as authors see it."""
        if self.window is None:
            self.window = IntervalWindow.of_micros(self.start, self.end)
        return self.window

    def sort_key(self) -> tuple[int, Any, int]:
        """Windows are evaluated by (end, start); windows other than intervals by end, then by their own order."""
        by_start = self.window is None or type(self.window) is IntervalWindow
        return self.end, self.start if by_start else self.window, self.serial


def expiry(end: int, lateness: int) -> int:
    """The watermark (µs) at which a window that ends at `end` expires."""
    return min(end + lateness, MAX_MICROS)
