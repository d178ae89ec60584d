"""Detects elements that reach event-time windows without a timestamp of their own, so that all get the same windows.

Either no step has stamped them, or a grouping in the global window has stamped them with the end of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import MIN_MICROS
from tidegate.sdk.windowing.assigners import CumulativeWindows, FixedWindows, Sessions, SlidingWindows
from tidegate.sdk.windowing.calendar import CalendarWindows
from tidegate.sdk.windowing.window import GlobalWindow

UNSTAMPED: Final = "unstamped"
GROUPED_BEFORE: Final = "grouped_before_windows"
"""Counters of a step that assigns windows: elements with no timestamp, and those with the end of the global window."""

_COUNTERS: Final = {MIN_MICROS: UNSTAMPED, GlobalWindow().max_timestamp().micros: GROUPED_BEFORE}


def assigns_by_time(links: Sequence[Link]) -> tuple[int, ...]:
    """The links that assign windows of event time."""
    windows = (FixedWindows, SlidingWindows, CumulativeWindows, Sessions, CalendarWindows)
    return tuple(
        k for k, link in enumerate(links) if link.form == "assign" and isinstance(link.windowing.assigner, windows)
    )


def counter_for_unstamped(block: Block) -> str | None:
    """The counter for a block without an element that has a timestamp of its own; None for any other block."""
    times = block.timestamps
    if isinstance(times, int):
        return _COUNTERS.get(times)
    counter = _COUNTERS.get(times[0])
    return counter if counter is not None and min(times) == max(times) else None
