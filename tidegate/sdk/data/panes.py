"""Panes: which firing of its key and window a result came from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Timing(Enum):
    """Where a firing stands to the watermark's passing of the window's end."""

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PaneInfo:
    """One firing of one key and window (the fields and their order are Beam's).

    `index` counts all panes from 0; `nonspeculative_index` counts those that are not EARLY, and is -1 on an
    EARLY one. `is_last` holds when nothing can follow.
    """

    is_first: bool
    is_last: bool
    timing: Timing
    index: int
    nonspeculative_index: int

    def __repr__(self) -> str:
        if self == NO_PANE:
            return "<no pane>"
        at = [f"index {self.index}"]
        if self.nonspeculative_index not in (self.index, -1):
            at.append(f"nonspeculative index {self.nonspeculative_index}")
        ends = [word for word, holds in (("first", self.is_first), ("last", self.is_last)) if holds]
        return f"<pane {', '.join([self.timing.value, *at, *ends])}>"


NO_PANE: Final = PaneInfo(True, True, Timing.UNKNOWN, 0, 0)
"""What elements carry that no grouping has touched: "unknown, only one"."""
