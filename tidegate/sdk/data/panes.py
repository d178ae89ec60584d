"""Panes: the firing of a key and window that produced a result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Timing(Enum):
    """Whether a firing was before, at or after the watermark passed the end of the window."""

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class PaneInfo:
    """A firing of a key and window (the fields and their order are Beam's).

    `index` counts all panes from 0. `nonspeculative_index` counts the panes that are not EARLY; it is -1 for an EARLY
    one. `is_last` is true if no further pane can follow.
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
"""The pane of elements before any grouping: the only one, with unknown timing."""
