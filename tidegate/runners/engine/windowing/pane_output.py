"""Panes that have fired, collected into blocks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tidegate.runners.engine.operator import Emitted
from tidegate.sdk.data.block import Block, Each, Same, WindowsColumn
from tidegate.sdk.data.panes import PaneInfo, Timing


class PaneOutput:
    """Elements of one output collection that have not been emitted yet, as columns."""

    __slots__ = ("_panes", "_timestamps", "_values", "_windows", "collection")

    def __init__(self, collection: str) -> None:
        self.collection = collection
        self._values: list[Any] = []
        self._timestamps: list[int] = []
        self._windows: list[Any] = []
        self._panes: list[PaneInfo | None] = []

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: Any, timestamp: int, window: Any, pane: PaneInfo | None) -> None:
        """Append an element; `pane` is None for elements that no grouping has touched."""
        self._values.append(value)
        self._timestamps.append(timestamp)
        self._windows.append(window)
        self._panes.append(pane)

    def take(self) -> Emitted:
        """Remove all elements, of which there is at least one, and return them as a block."""
        values, timestamps, windows, panes = self._values, self._timestamps, self._windows, self._panes
        self._values, self._timestamps, self._windows, self._panes = [], [], [], []
        one_window = len(set(map(id, windows))) == 1
        column: WindowsColumn = Same((windows[0],)) if one_window else Each([(window,) for window in windows])
        pane = panes[0]
        if pane is None:
            return self.collection, Block(values, timestamps, column)
        one_time = timestamps.count(timestamps[0]) == len(timestamps)
        one_pane = len(set(map(id, panes))) == 1
        return self.collection, Block(
            values,
            timestamps[0] if one_time else timestamps,
            column,
            pane if one_pane else panes,  # type: ignore[arg-type]
        )


@lru_cache(maxsize=1024)
def early_pane(index: int, last: bool) -> PaneInfo:
    """The pane of a firing before the watermark passed the window's end."""
    return PaneInfo(index == 0, last, Timing.EARLY, index, -1)


@lru_cache(maxsize=4096)
def nonspeculative_pane(on_time: bool, index: int, nonspeculative: int, last: bool) -> PaneInfo:
    """The pane of a firing after that: ON_TIME or LATE."""
    return PaneInfo(index == 0, last, Timing.ON_TIME if on_time else Timing.LATE, index, nonspeculative)
