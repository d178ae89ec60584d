"""The first elements of a collection as a table of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegate.sdk.data.panes import NO_PANE, PaneInfo
from tidegate.sdk.errors import shorten, visible
from tidegate.sdk.interactive.recorder import Record
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, format_micros

LONGEST: Final = 200
"""The greatest number of characters shown of an element."""

_NO_TIMES: Final = (MIN_MICROS, MAX_MICROS - 1, MAX_MICROS)
"""The timestamps of elements without timestamps of their own, and of groups of such elements."""
_ONLY: Final = "on_time, only"


@dataclass(frozen=True, slots=True)
class Table:
    """A collection's first elements: `columns` are their visible properties; `more` is true if there are others."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: bool

    @property
    def caption(self) -> str:
        """The number of elements shown, and whether there are more."""
        if self.more:
            return "the first element, of more" if len(self.rows) == 1 else f"the first {len(self.rows)}, of more"
        return {0: "empty", 1: "1 element"}.get(len(self.rows), f"{len(self.rows)} elements")


def table_of(title: str, records: list[Record], *, more: bool) -> Table:
    """Records as a table, without uninformative columns."""
    columns = ["element"]
    cells = [[visible(shorten(value, LONGEST)) for value, _, _, _ in records]]
    if any(micros not in _NO_TIMES for _, micros, _, _ in records):
        columns.append("timestamp")
        cells.append([format_micros(micros) for _, micros, _, _ in records])
    if any(window is not None for _, _, window, _ in records):
        columns.append("window")
        cells.append([visible(shorten(window, LONGEST)) for _, _, window, _ in records])
    if any(pane != NO_PANE and _pane(pane) != _ONLY for _, _, _, pane in records):
        columns.append("pane")
        cells.append([_pane(pane) for _, _, _, pane in records])
    return Table(title, tuple(columns), tuple(zip(*cells)), more)


def _pane(pane: PaneInfo) -> str:
    ends = [word for word, holds in (("first", pane.is_first), ("last", pane.is_last)) if holds]
    place = "only" if len(ends) == 2 else (ends or [f"index {pane.index}"])[0]
    return f"{pane.timing.value}, {place}"
