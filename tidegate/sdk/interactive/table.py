"""The first elements of a collection as a table of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegate.sdk.data.panes import NO_PANE, PaneInfo
from tidegate.sdk.errors import shorten, visible
from tidegate.sdk.interactive.recorder import Record
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, format_micros

LONGEST: Final = 200
"""Characters of an element."""

_NO_TIMES: Final = (MIN_MICROS, MAX_MICROS - 1, MAX_MICROS)
"""The timestamps of elements that nobody stamped, and of what groupings make of them."""
_ONLY: Final = "on_time, only"


@dataclass(frozen=True, slots=True)
class Table:
    """A collection's first elements: `columns` says what is shown of each, `more` whether there are others."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: bool

    @property
    def caption(self) -> str:
        """How much of the collection this is."""
        if self.more:
            return "the first element, of more" if len(self.rows) == 1 else f"the first {len(self.rows)}, of more"
        return {0: "empty", 1: "1 element"}.get(len(self.rows), f"{len(self.rows)} elements")


def table_of(title: str, records: list[Record], *, more: bool) -> Table:
    """Records as text, without the columns that would say nothing."""
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
