"""Panes in snapshots, as plain data."""

from __future__ import annotations

from typing import Any, TypeAlias

from tidegate.runners.engine.grouping.accumulation import Accumulation
from tidegate.runners.engine.operator import NEVER, Wakeups
from tidegate.runners.engine.triggers.base import copied
from tidegate.runners.engine.windowing.pane_state import CLOSED, ActiveWindow, PaneState, expiry
from tidegate.runners.engine.windowing.pane_trigger import PaneTrigger
from tidegate.runners.engine.windowing.watermark_holds import WatermarkHolds
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.window import window_end

SavedPane: TypeAlias = tuple[Any, ...] | None
"""(serial, contents, trigger state, (unfired, observed, index, nonspeculative), timestamp, whether it holds the
watermark at its window's end); None for a closed pane. Stored in checkpoints."""


class PaneCodec:
    """Saves panes, and loads them with their wake-ups and holds."""

    def __init__(self, accumulation: Accumulation, trigger: PaneTrigger, holds: WatermarkHolds, lateness: int) -> None:
        self._accumulation = accumulation
        self._trigger = trigger
        self._holds = holds
        self._lateness = lateness

    def save(self, pane: PaneState) -> SavedPane:
        """A pane as data that shares nothing mutable with it but elements."""
        if pane is CLOSED:
            return None
        return (
            pane.serial,
            self._accumulation.copy(pane.contents),
            copied(pane.trigger),
            (pane.unfired, pane.observed, pane.index, pane.nonspeculative),
            pane.timestamp,
            pane.holds_end,
        )

    def load(self, window: ActiveWindow, k: Any, saved: SavedPane) -> None:
        """Put a saved pane into a window."""
        if saved is None:
            window.panes[k] = CLOSED
            return
        serial, contents, trigger, counts, timestamp, holds_end = saved
        pane = window.panes[k] = PaneState(serial, self._accumulation.copy(contents), copied(trigger))
        pane.unfired, pane.observed, pane.index, pane.nonspeculative = counts
        pane.timestamp, pane.holds_end = timestamp, holds_end
        self._trigger.schedule(window, k, pane)
        if timestamp is not None or holds_end:
            self._holds.add(window, pane)

    def wakeups(self, window: Any, saved: SavedPane) -> Wakeups:
        """When a saved pane is due: at its window's end or expiry, and whenever its trigger may fire."""
        end = window_end(window)
        event = end if self._trigger.context.watermark < end else expiry(end, self._lateness)
        if saved is None:
            return Wakeups(event, NEVER, MAX_MICROS)
        _, _, trigger, _, timestamp, holds_end = saved
        hold = timestamp if timestamp is not None else end - 1 if holds_end else MAX_MICROS
        return Wakeups(
            min(event, self._trigger.event_time(trigger)), min(self._trigger.clock_time(trigger), NEVER), hold
        )
