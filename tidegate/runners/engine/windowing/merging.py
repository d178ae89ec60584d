"""Windows that merge: each key's active windows, and how several panes become one.

The windows of an element are merged with its key's active windows, the element is added to the pane that results, and
only then is the trigger evaluated (SEMANTICS, Triggers, Merging). Sessions take a short cut: most elements fall into
one session, which at most grows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.errors.attribution import UserCall, rethrow
from tidegate.runners.engine.operator import Emitted
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState, Tables
from tidegate.runners.engine.windowing.pane_codec import PaneCodec, SavedPane
from tidegate.runners.engine.windowing.pane_state import CLOSED, ActiveWindow, PaneState, expiry
from tidegate.runners.engine.windowing.panes import Panes
from tidegate.sdk.authoring.combine import NOTHING
from tidegate.sdk.data.block import Block, DerivedFrom
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.windowing.assigners import Assigner, Bounds, Sessions
from tidegate.sdk.windowing.assignment import assign_bounds
from tidegate.sdk.windowing.window import IntervalWindow, window_end
from tidegate.sdk.windowing.window_merging import merge_windows

Merge: TypeAlias = tuple[Any, tuple[Any, ...]]
"""A merged window, and the windows that it replaces."""


class _KeyWindows:
    """The active windows of one key. `serial` orders keys by first arrival."""

    __slots__ = ("serial", "windows")

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.windows: list[ActiveWindow] = []

    def find(self, window: Any) -> ActiveWindow | None:
        """The active window equal to `window`."""
        for active in self.windows:
            if active.to_window() == window:
                return active
        return None


class MergingWindows:
    """The active windows of each key, under an assigner that merges."""

    def __init__(self, assigner: Assigner, panes: Panes, codec: PaneCodec) -> None:
        self._panes = panes
        self._codec = codec
        self._keys: dict[Any, _KeyWindows] = {}
        self._next_serial = 0
        self._sessions: Final = isinstance(assigner, Sessions)
        self._merges: Callable[[Iterable[Any]], list[Merge]] = merge_windows(assigner)

    # -- elements

    def add(self, pairs: Iterable[Any], block: Block) -> Iterator[Emitted]:
        panes, output, size = self._panes, self._panes.output, self._panes.grouping.context.block_size
        element: Any = None
        k: Any = NOTHING
        try:
            for element, t, (windows, bounds) in zip(
                pairs, block.timestamp_column(), self._assigned(block), strict=True
            ):
                k = NOTHING
                k, x = element
                key = self._keys.get(k)
                if key is None:
                    key = self._new_key(k)
                if bounds is None:
                    self._add(key, k, x, t, windows, element)
                else:
                    self._add_to_session(key, k, x, t, bounds, element)
                if not key.windows:
                    del self._keys[k]
                if len(output) >= size:
                    yield panes.take_output()
        except Exception as error:
            rethrow(panes.attribute(error, element, k))

    def _assigned(self, block: Block) -> Iterable[tuple[tuple[Any, ...], Bounds | None]]:
        """The windows assigned to each element; if that is one session, its bounds instead."""
        if isinstance(block.windows, DerivedFrom):
            bounds = assign_bounds(block.windows.assigner)
            return zip(repeat(()), [bounds(t)[0] for t in block.timestamp_column()], strict=False)
        if not self._sessions:
            return zip(block.window_list(), repeat(None), strict=False)
        return [
            (windows, (windows[0].start_micros, windows[0].end_micros) if len(windows) == 1 else None)
            for windows in block.window_list()
        ]

    def _new_key(self, k: Any) -> _KeyWindows:
        if self._panes.grouping.context.checks is not None:
            check_key(k)
        key = self._keys[k] = _KeyWindows(self._next_serial)
        self._next_serial += 1
        return key

    def _add_to_session(self, key: _KeyWindows, k: Any, x: Any, t: int, bounds: Bounds, element: Any) -> None:
        """Sessions of one key do not overlap, so a new one merges with those it overlaps and with no others."""
        start, end = bounds
        overlapped = [active for active in key.windows if active.start < end and start < active.end]
        if not overlapped:
            if self._panes.context.watermark >= expiry(end, self._panes.lateness):
                self._panes.refuse(element, t)
                return
            session = self._open(key, k, None, start, end)
        elif len(overlapped) == 1 and overlapped[0].start <= start and end <= overlapped[0].end:
            session = overlapped[0]
        elif len(overlapped) == 1 and not overlapped[0].ended and overlapped[0].panes[k] is not CLOSED:
            session = overlapped[0]
            self._grow(session, session.panes[k], start, end)
        else:
            start = min(start, min([active.start for active in overlapped]))
            end = max(end, max([active.end for active in overlapped]))
            session = self._merge(key, k, IntervalWindow.of_micros(start, end), overlapped)
        self._add_to_pane(session, k, x, t)

    def _grow(self, session: ActiveWindow, pane: PaneState, start: int, end: int) -> None:
        """Extend a session that has not ended. The trigger keeps its state, which merging would change only if the
        session had ended. The wake-up at the old end stays, and schedules one at the new end."""
        session.start = min(start, session.start)
        session.set_end(max(end, session.end), self._panes.lateness)
        session.window = None
        pane.index = pane.nonspeculative = 0

    def _add_to_pane(self, window: ActiveWindow, k: Any, x: Any, t: int) -> None:
        pane = window.panes[k]
        if pane is CLOSED:
            self._count_closed(1)
        else:
            self._panes.add(window, k, pane, x, t)

    def _count_closed(self, elements: int) -> None:
        grouping = self._panes.grouping
        grouping.context.count(grouping.label, "dropped_closed", elements)

    def _add(self, key: _KeyWindows, k: Any, x: Any, t: int, windows: tuple[Any, ...], element: Any) -> None:
        """Add an element to its windows, under any assigner that merges."""
        if not windows:
            return
        merges = self._merged(key, windows)
        merged_window = {part: merged for merged, parts in merges for part in parts}
        targets = dict.fromkeys(merged_window.get(window, window) for window in windows)
        live = [window for window in targets if self._is_live(window)]
        if not live:
            self._panes.refuse(element, t)
            return
        changed: list[ActiveWindow] = []
        for merged, parts in merges:
            active_parts = [active for active in map(key.find, parts) if active is not None]
            if active_parts and self._is_live(merged):
                changed.append(self._merge(key, k, merged, active_parts))
        entered = [key.find(window) or self._open_window(key, k, window) for window in live]
        for active in sorted({*changed, *entered}, key=ActiveWindow.sort_key):
            if active in entered:
                self._add_to_pane(active, k, x, t)
            elif active.panes[k] is not CLOSED:
                self._panes.evaluate(active, k, active.panes[k])

    def _merged(self, key: _KeyWindows, windows: tuple[Any, ...]) -> list[Merge]:
        """The merges that follow from adding these windows to the key's."""
        try:
            return self._merges([*[active.to_window() for active in key.windows], *windows])
        except Exception as error:
            raise UserCall("the merge of the window assigner") from error

    # -- windows

    def active(self) -> Iterable[ActiveWindow]:
        return [active for key in self._keys.values() for active in key.windows]

    def remove(self, window: ActiveWindow) -> None:
        window.alive = False
        if self._panes.copies.active:
            self._panes.copies.copy(window.panes)
        for k in window.panes:
            if self._panes.touched.on:
                self._panes.touched.note([k])
            key = self._keys[k]
            key.windows.remove(window)
            if not key.windows:
                del self._keys[k]
        window.panes = {}

    def _is_live(self, window: Any) -> bool:
        return self._panes.context.watermark < expiry(window_end(window), self._panes.lateness)

    def _open_window(self, key: _KeyWindows, k: Any, window: Any) -> ActiveWindow:
        return self._open(key, k, window, _start_of(window), window_end(window))

    def _open(self, key: _KeyWindows, k: Any, window: Any, start: int, end: int) -> ActiveWindow:
        """A new window of a key, with an empty pane."""
        active = self._activate(key, window, start, end)
        self._panes.open(active, k, key.serial)
        return active

    def _activate(self, key: _KeyWindows, window: Any, start: int, end: int) -> ActiveWindow:
        panes = self._panes
        active = ActiveWindow(window, start, end, panes.lateness, panes.context.watermark, key.serial)
        key.windows.append(active)
        panes.trigger.schedule_end(active)
        return active

    def _merge(self, key: _KeyWindows, k: Any, merged: Any, parts: Sequence[ActiveWindow]) -> ActiveWindow:
        """Replace several windows of a key, and their panes, by one."""
        if len(parts) == 1 and parts[0].to_window() == merged:
            return parts[0]
        parts = sorted(parts, key=ActiveWindow.sort_key)
        into = self._open_window(key, k, merged)
        into.panes[k] = self._merge_panes(into, parts, [part.panes[k] for part in parts], key.serial)
        for part in parts:
            key.windows.remove(part)
            part.alive = False
        return into

    def _merge_panes(
        self, into: ActiveWindow, windows: Sequence[ActiveWindow], parts: list[PaneState], serial: int
    ) -> PaneState:
        """One closed pane closes the merged one; the unfired elements of the others are then dropped."""
        panes = self._panes
        open_parts = [part for part in parts if part is not CLOSED]
        if len(open_parts) < len(parts):
            self._count_closed(sum(part.unfired for part in open_parts))
            for part in open_parts:
                part.reset()
            return CLOSED
        for window, part in zip(windows, parts, strict=True):
            panes.trigger.observe(window, part)
        try:
            contents = panes.accumulation.merge([part.contents for part in parts])
        except Exception as error:
            raise UserCall(panes.grouping.method_name("merge_accumulators")) from error
        merged = PaneState(serial, contents, panes.trigger.merge(into, [part.trigger for part in parts]))
        merged.unfired = merged.observed = sum(part.unfired for part in parts)
        for window, part in zip(windows, parts, strict=True):
            if window.to_window() == into.window:
                merged.index, merged.nonspeculative = part.index, part.nonspeculative
        merged.timestamp = panes.combine_timestamps(parts)
        merged.holds_end = panes.context.watermark >= into.end and any(part.holds_end for part in parts)
        for part in parts:
            part.reset()
        if merged.timestamp is not None or merged.holds_end:
            panes.holds.add(into, merged)
        return merged

    # -- state by key

    def snapshot(self, keys: Collection[Any] | None) -> KeyedState:
        """A key's windows are stored together, with the key's serial."""
        tables: Tables = {None: self._panes.copies.of_keys(self._keys, keys, self._saved)}
        return KeyedState(
            {CELLS: tables}, serials={"keys": self._next_serial}, keys=keys, windows=None if keys is None else []
        )

    def _saved(self, key: _KeyWindows) -> tuple[int, tuple[tuple[Any, SavedPane], ...]]:
        save = self._codec.save
        return key.serial, tuple(
            [(active.to_window(), save(pane)) for active in key.windows for pane in active.panes.values()]
        )

    def restore(self, state: KeyedState) -> None:
        self._next_serial = max(self._next_serial, state.serials["keys"])
        for k, (serial, panes) in state.tables[CELLS].get(None, {}).items():
            key = self._keys[k] = _KeyWindows(serial)
            for window, saved in panes:
                self._codec.load(self._activate(key, window, _start_of(window), window_end(window)), k, saved)

    def saved_panes(self, state: KeyedState) -> Iterator[tuple[Any, Any, SavedPane]]:
        for k, (_, panes) in state.tables[CELLS].get(None, {}).items():
            for window, saved in panes:
                yield window, k, saved

    def evict(self, keys: Collection[Any]) -> None:
        for k in keys:
            key = self._keys.pop(k, None)
            for active in key.windows if key is not None else ():
                active.panes.pop(k).reset()
                active.alive = False


def _start_of(window: Any) -> int:
    return window.start_micros if type(window) is IntervalWindow else 0
