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


NO_PANE: Final = PaneInfo(True, True, Timing.UNKNOWN, 0, 0)
"""What elements carry that no grouping has touched: "unknown, only one"."""
