"""Snapshots of a stateful step: state cells, the ends of their times-to-live, timers and arrivals."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.operator import NEVER, Wakeups
from tidegate.runners.engine.state.keyed_state import KeyedState
from tidegate.runners.engine.state.tables import StateTables
from tidegate.runners.engine.state.timers import Timers
from tidegate.runners.engine.stateful.windows import StatefulWindows
from tidegate.sdk.errors import RunError
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.windowing.window import window_end

_CELL: Final = "cell/"
_ENDS: Final = "ends/"
_TIMERS: Final = "timers"
_ARRIVED: Final = "arrived"
"""Tables of a snapshot: the contents of each cell, the ends of their times-to-live, timers, arrivals."""


class StatefulSnapshots:
    """Takes and restores the snapshots of one step."""

    def __init__(self, link: Link, tables: StateTables, timers: Timers, windows: StatefulWindows) -> None:
        self._link = link
        self._tables = tables
        self._timers = timers
        self._windows = windows

    def take(self, keys: Collection[Any] | None) -> KeyedState:
        """The state of all keys, or of `keys`."""
        tables = {f"{_CELL}{name}": stored for name, stored in self._tables.snapshot(keys).items()}
        tables |= {f"{_ENDS}{name}": ends for name, ends in self._tables.expiries(keys).items()}
        if self._timers.specs:
            tables[_TIMERS] = self._timers.snapshot(keys)
        if self._windows.tracks_arrivals:
            tables[_ARRIVED] = self._windows.snapshot_arrivals(keys)
        return KeyedState(
            tables,
            self._timers.watermark,
            self._timers.clock,
            keys=None if keys is None else self._tables.replaced(keys),
            windows=None if keys is None else list(self._windows.unexpired()),
        )

    def restore(self, state: KeyedState) -> bool:
        """Load a snapshot; return whether the operator was paused at the end of input, which then has to be resumed."""
        cells = {name[len(_CELL) :]: tables for name, tables in state.tables.items() if name.startswith(_CELL)}
        ends = {name[len(_ENDS) :]: tables for name, tables in state.tables.items() if name.startswith(_ENDS)}
        clock = MIN_MICROS if state.clock is None else state.clock
        try:
            self._tables.restore(cells, ends, max(clock, 0))
            self._timers.restore(state.tables.get(_TIMERS, {}))
        except KeyError as error:
            raise RunError(
                f"the snapshot holds state of {self._link.label!r} under the name {error}, which the step, applied at "
                f"{self._link.where}, no longer declares: declare it again, or start from no snapshot"
            ) from None
        if self._windows.tracks_arrivals:
            self._windows.restore_arrivals(state.tables.get(_ARRIVED, {}))
        self._timers.watermark, self._timers.clock = state.watermark, clock
        windows = {*self._tables.windows(), *self._timers.windows(), *self._windows.with_arrivals()}
        for window in windows:
            if state.watermark == MAX_MICROS:
                self._windows.queue(window, MAX_MICROS)
            else:
                self._windows.register(window)
        return bool(windows) and state.watermark == MAX_MICROS

    def wakeups(self, state: KeyedState) -> dict[Any, Wakeups]:
        """When each key of a snapshot is due: at its timers, at the ends of times-to-live, and at its windows' expiry.

        The global window's expiry wakes only keys that await `@on_window_expiration`.
        """
        found: dict[Any, Wakeups] = {}

        def add(key: Any, event: int = NEVER, clock: int = NEVER, hold: int = MAX_MICROS) -> None:
            known = found.get(key)
            if known is not None:
                event, clock, hold = min(event, known.event), min(clock, known.clock), min(hold, known.hold)
            found[key] = Wakeups(event, clock, hold)

        for name, tables in state.tables.items():
            for window, table in tables.items():
                expiry = self._windows.register(window)
                if expiry < MAX_MICROS or (name == _ARRIVED and table):
                    for key in table:
                        add(key, event=expiry)
                if name == _ARRIVED:
                    for key in table:
                        add(key, hold=window_end(window) - 1)
                elif name.startswith(_ENDS):
                    for key, end in table.items():
                        add(key, clock=end)
                elif name == _TIMERS:
                    for key, (_, timers, *_) in table.items():
                        for timer, _, at, output, *_ in timers:
                            if self._timers.specs[self._timers.handles[timer].order].domain == "event":
                                add(key, event=at, hold=output)
                            else:
                                add(key, event=MAX_MICROS, clock=at, hold=output)  # it also fires at the end of input
        return found
