"""The state of the window operator: for each active window, a table of pane states by key."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.operator import Emitted
from tidegate.runners.engine.triggers.base import FAR, State
from tidegate.sdk.data.block import Block, Each, Same, WindowsColumn
from tidegate.sdk.data.panes import PaneInfo, Timing
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.window import IntervalWindow


class PaneState:
    """What is kept of one key and window.

    `fresh` elements have arrived since the last firing, of which the trigger knows `synced`; it is asked when there
    are `wake`. `index` panes have been emitted, `settled` of them not EARLY. `stamp` is the timestamp of the next
    pane so far (µs; None: the window's last instant). `holding`: elements that were there when the window ended
    still wait.
    """

    __slots__ = (
        "born",
        "clock_alarm",
        "event_alarm",
        "unfired",
        "heaped",
        "held",
        "holding",
        "index",
        "settled",
        "stamp",
        "state",
        "synced",
        "wake",
    )

    def __init__(self, born: int, held: Any, state: State) -> None:
        self.born = born
        self.held = held
        self.state = state
        self.unfired = self.synced = self.wake = 0
        self.index = self.settled = 0
        self.stamp: int | None = None
        self.holding = False
        self.heaped = FAR
        self.clock_alarm = self.event_alarm = FAR


CLOSED: Final = PaneState(0, None, [])
"""Stands where a cell stood whose trigger has finished, until the window expires."""


class ActiveWindow:
    """A window that has not expired, and its cells by key. Times are µs; `last` is its last instant.

    A session's bounds move while it grows; its `window` is made when it is asked for. `born` tells windows of one key
    from equal ones of another, where each key has its own.
    """

    __slots__ = ("alive", "born", "cells", "end", "ended", "expiry", "last", "start", "window")

    def __init__(self, window: Any, start: int, end: int, lateness: int, watermark: int, born: int = 0) -> None:
        self.window = window
        self.start = start
        self.born = born
        self.alive = True
        self.ended = watermark >= end
        self.cells: dict[Any, PaneState] = {}
        self.until(end, lateness)

    def until(self, end: int, lateness: int) -> None:
        """Let it end at `end`, and expire `lateness` after that."""
        self.end = end
        self.last = end - 1
        self.expiry = min(end + lateness, MAX_MICROS)

    def object(self) -> Any:
        """The window as an object."""
        if self.window is None:
            self.window = IntervalWindow.of_micros(self.start, self.end)
        return self.window

    def order(self) -> tuple[int, Any, int]:
        """Windows go by (end, start), or by (end, their own order)."""
        by_start = self.window is None or type(self.window) is IntervalWindow
        return self.end, self.start if by_start else self.window, self.born


Opened: TypeAlias = tuple[ActiveWindow, ...] | None
"""The windows that take an element; None where all of its windows have expired."""


class Output:
    """Panes on their way out, as columns."""

    __slots__ = ("collection", "panes", "timestamps", "values", "windows")

    def __init__(self, collection: str) -> None:
        self.collection = collection
        self.values: list[Any] = []
        self.timestamps: list[int] = []
        self.windows: list[Any] = []
        self.panes: list[PaneInfo | None] = []

    def add(self, value: Any, timestamp: int, window: Any, pane: PaneInfo | None) -> None:
        """One more element; `pane` None is for those that no grouping has touched."""
        self.values.append(value)
        self.timestamps.append(timestamp)
        self.windows.append(window)
        self.panes.append(pane)

    def block(self) -> Emitted:
        """All of them as a block; there are none afterwards."""
        values, timestamps, windows, panes = self.values[:], self.timestamps[:], self.windows[:], self.panes[:]
        for column in (self.values, self.timestamps, self.windows, self.panes):
            column.clear()
        column_of_windows: WindowsColumn
        if len(set(map(id, windows))) == 1:
            column_of_windows = Same((windows[0],))
        else:
            column_of_windows = Each([(window,) for window in windows])
        one_time = timestamps.count(timestamps[0]) == len(timestamps)
        pane = panes[0]
        if pane is None:
            return self.collection, Block(values, timestamps, column_of_windows)
        one_pane = len(set(map(id, panes))) == 1
        return self.collection, Block(
            values,
            timestamps[0] if one_time else timestamps,
            column_of_windows,
            pane if one_pane else panes,  # type: ignore[arg-type]
        )


@lru_cache(maxsize=1024)
def early_pane(index: int, last: bool) -> PaneInfo:
    """The pane of a firing ahead of the window's end."""
    return PaneInfo(index == 0, last, Timing.EARLY, index, -1)


@lru_cache(maxsize=4096)
def settled_pane(on_time: bool, index: int, nonspeculative: int, last: bool) -> PaneInfo:
    """The pane of a firing after it: LATE, if it is not on time."""
    return PaneInfo(index == 0, last, Timing.ON_TIME if on_time else Timing.LATE, index, nonspeculative)


def retire(cell: PaneState) -> None:
    """A cell that has gone elsewhere holds the watermark no more."""
    cell.unfired = 0
    cell.stamp = None
    cell.holding = False


def pending(window: ActiveWindow, cell: PaneState) -> int | None:
    """The timestamp that a cell's waiting elements hold the output watermark at."""
    if not window.alive:
        return None
    return cell.stamp if cell.stamp is not None else window.last if cell.holding else None
