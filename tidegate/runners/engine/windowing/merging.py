"""Merging windows in the general window operator: which windows each key has, and how their panes become one.

Here a window belongs to one key. An element comes with its own windows; these are merged with the key's, the element
enters what results, and only then is the trigger asked (SEMANTICS, Triggers, Merging). Sessions have a short way: most
elements fall into one session, which at most grows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.errors.attribution import UserCall, rethrow
from tidegate.runners.engine.operator import Emitted
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState, Tables
from tidegate.runners.engine.windowing.operator import WindowOperator
from tidegate.runners.engine.windowing.pane_state import CLOSED, ActiveWindow, PaneState, retire
from tidegate.sdk.authoring.combine import NOTHING
from tidegate.sdk.data.block import Block, DerivedFrom
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.assigners import Bounds, Sessions
from tidegate.sdk.windowing.assignment import assign_bounds
from tidegate.sdk.windowing.strategy import TimestampCombiner
from tidegate.sdk.windowing.window import IntervalWindow, window_end
from tidegate.sdk.windowing.window_merging import merge_windows

Merge: TypeAlias = tuple[Any, tuple[Any, ...]]
"""A merged window and those it replaces."""


class _Key:
    """The windows that one key has."""

    __slots__ = ("born", "opens")

    def __init__(self, born: int) -> None:
        self.born = born
        self.opens: list[ActiveWindow] = []

    def find(self, window: Any) -> ActiveWindow | None:
        """The window of this key that equals `window`."""
        for opened in self.opens:
            if opened.object() == window:
                return opened
        return None


class MergingWindowOperator(WindowOperator):
    """The window operator under an assigner that merges."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._keys: dict[Any, _Key] = {}
        self._keys_seen = 0
        assigner = self.strategy.assigner
        self._sessions: Final = isinstance(assigner, Sessions)
        self._merges: Callable[[Iterable[Any]], list[Merge]] = merge_windows(assigner)

    # -- elements

    def take_in(self, pairs: Iterable[Any], block: Block) -> Iterator[Emitted]:
        size, panes = self.context.block_size, self.out.panes
        element: Any = None
        k: Any = NOTHING
        try:
            for element, t, (windows, bounds) in zip(pairs, block.timestamp_column(), self._own(block), strict=True):
                k = NOTHING
                k, x = element
                key = self._keys.get(k)
                if key is None:
                    key = self._new_key(k)
                if bounds is None:
                    self._enter(key, k, x, t, windows, element)
                else:
                    self._enter_session(key, k, x, t, bounds, element)
                if not key.opens:
                    del self._keys[k]
                if len(panes) >= size:
                    yield self._full()
        except Exception as error:
            rethrow(self._blamed(error, element, k))

    def _own(self, block: Block) -> Iterable[tuple[tuple[Any, ...], Bounds | None]]:
        """Each element's own windows; of one session its bounds instead."""
        if isinstance(block.windows, DerivedFrom):
            bounds = assign_bounds(block.windows.assigner)
            return zip(repeat(()), [bounds(t)[0] for t in block.timestamp_column()], strict=False)
        if not self._sessions:
            return zip(block.window_list(), repeat(None), strict=False)
        return [
            (windows, (windows[0].start_micros, windows[0].end_micros) if len(windows) == 1 else None)
            for windows in block.window_list()
        ]

    def _new_key(self, k: Any) -> _Key:
        if self.context.checks is not None:
            check_key(k)
        key = self._keys[k] = _Key(self._keys_seen)
        self._keys_seen += 1
        return key

    def _enter_session(self, key: _Key, k: Any, x: Any, t: int, bounds: Bounds, element: Any) -> None:
        """Sessions of one key lie apart, so an element's own merges with those it overlaps, and with no more."""
        start, end = bounds
        over = [opened for opened in key.opens if opened.start < end and start < opened.end]
        if not over:
            opened = self._open(key, k, None, start, end)
            if opened is None:
                self.refuse(element, t)
                return
        elif len(over) == 1 and over[0].start <= start and end <= over[0].end:
            opened = over[0]
        elif len(over) == 1 and not over[0].ended and over[0].cells[k] is not CLOSED:
            opened = over[0]
            self._grow(opened, opened.cells[k], start, end)
        else:
            start = min(start, min([opened.start for opened in over]))
            end = max(end, max([opened.end for opened in over]))
            opened = self._merge(key, k, IntervalWindow.of_micros(start, end), over)
        self._take(opened, k, opened.cells[k], x, t)

    def _grow(self, opened: ActiveWindow, cell: PaneState, start: int, end: int) -> None:
        """A session that has not ended becomes longer. Its trigger's state is that of the merged window: what would
        change is what had happened at its end. It is woken at its old end, and then waits for the new."""
        opened.start = min(start, opened.start)
        opened.until(max(end, opened.end), self.lateness)
        opened.window = None
        cell.index = cell.settled = 0

    def _take(self, window: ActiveWindow, k: Any, cell: PaneState, x: Any, t: int) -> None:
        """One element into one cell."""
        if cell is CLOSED:
            self.context.count(self.label, "dropped_closed")
            return
        cell.unfired += 1
        match self.accumulation.kind:
            case "accumulator":
                cell.held = self.accumulation.add(cell.held, x)
            case "buffer":
                self.buffer(cell, x, t)
            case "list":
                raise AssertionError("lists under merging windows are buffers")
        if self.stamps and t >= self.now.watermark:
            self.stamp(window, cell, t)
        if cell.unfired >= cell.wake:
            self.consult(window, k, cell, x)

    def _enter(self, key: _Key, k: Any, x: Any, t: int, windows: tuple[Any, ...], element: Any) -> None:
        """The long way, for any assigner that merges."""
        if not windows:
            return
        merges = self._merged(key, windows)
        placed = {part: whole for whole, parts in merges for part in parts}
        targets = dict.fromkeys(placed.get(window, window) for window in windows)
        live = [window for window in targets if self.now.watermark < self._expiry(window)]
        if not live:
            self.refuse(element, t)
            return
        touched: list[ActiveWindow] = []
        for whole, parts in merges:
            found = [opened for opened in map(key.find, parts) if opened is not None]
            if found and self.now.watermark < self._expiry(whole):
                touched.append(self._merge(key, k, whole, found))
        entered = [key.find(window) or self._opened_as(key, k, window) for window in live]
        for opened in sorted({*touched, *entered}, key=ActiveWindow.order):
            cell = opened.cells[k]
            if opened in entered:
                self._take(opened, k, cell, x, t)
            elif cell is not CLOSED:
                self.consult(opened, k, cell, None)

    def _merged(self, key: _Key, windows: tuple[Any, ...]) -> list[Merge]:
        """What merges now that the key has these windows as well."""
        try:
            return self._merges([*[opened.object() for opened in key.opens], *windows])
        except Exception as error:
            raise UserCall("the merge of the window assigner") from error

    # -- windows

    def _expiry(self, window: Any) -> int:
        return min(window_end(window) + self.lateness, MAX_MICROS)

    def _opened_as(self, key: _Key, k: Any, window: Any) -> ActiveWindow:
        start = window.start_micros if type(window) is IntervalWindow else 0
        opened = self._open(key, k, window, start, window_end(window))
        assert opened is not None
        return opened

    def _open(self, key: _Key, k: Any, window: Any, start: int, end: int) -> ActiveWindow | None:
        """A new window of this key, with an empty cell; None if it has expired."""
        watermark = self.now.watermark
        if watermark >= min(end + self.lateness, MAX_MICROS):
            return None
        opened = ActiveWindow(window, start, end, self.lateness, watermark, key.born)
        key.opens.append(opened)
        self._wake_at_end(opened)
        self._new(opened, k).born = key.born
        return opened

    def _merge(self, key: _Key, k: Any, whole: Any, found: Sequence[ActiveWindow]) -> ActiveWindow:
        """One window and one cell of several that the key has."""
        if len(found) == 1 and found[0].object() == whole:
            return found[0]
        found = sorted(found, key=ActiveWindow.order)
        cells = [opened.cells[k] for opened in found]
        into = self._opened_as(key, k, whole)
        into.cells[k] = self._one(key, into, found, cells)
        for opened in found:
            key.opens.remove(opened)
            opened.alive = False
        return into

    def _one(self, key: _Key, into: ActiveWindow, windows: Sequence[ActiveWindow], cells: list[PaneState]) -> PaneState:
        """One cell of several: a finished part finishes the whole, and what still waited in the others is dropped."""
        live = [cell for cell in cells if cell is not CLOSED]
        if len(live) < len(cells):
            self.context.count(self.label, "dropped_closed", sum(cell.unfired for cell in live))
            for cell in live:
                retire(cell)
            return CLOSED
        now, machine = self.now, self.machine
        for window, cell in zip(windows, cells, strict=True):
            if cell.unfired > cell.synced:
                now.end, now.pane = window.end, cell.unfired
                machine.on_elements(cell.state, cell.unfired - cell.synced, None, now)
        now.end = into.end
        try:
            held = self.accumulation.merge([cell.held for cell in cells])
        except Exception as error:
            raise UserCall(self.method_name("merge_accumulators")) from error
        one = PaneState(key.born, held, machine.on_merge([cell.state for cell in cells], now))
        one.unfired = one.synced = sum(cell.unfired for cell in cells)
        for window, cell in zip(windows, cells, strict=True):
            if window.object() == into.window:
                one.index, one.settled = cell.index, cell.settled
        stamps = [cell.stamp for cell in cells if cell.stamp is not None]
        if stamps:
            earliest = self.strategy.timestamp_combiner is TimestampCombiner.EARLIEST
            one.stamp = min(stamps) if earliest else max(stamps)
        one.holding = now.ended and any(cell.holding for cell in cells)
        for cell in cells:
            retire(cell)
        if one.stamp is not None or one.holding:
            self.holds.add(into, one, into.last if one.stamp is None else one.stamp)
        return one

    def forget(self, window: ActiveWindow) -> None:
        window.alive = False
        for k in window.cells:
            if self._touches.on:
                self._touches.note([k])
            key = self._keys[k]
            key.opens.remove(window)
            if not key.opens:
                del self._keys[k]
        window.cells = {}

    # -- state by key

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        state = super().snapshot(keys)
        state.serials["keys"] = self._keys_seen
        return state

    def restore(self, state: KeyedState) -> None:
        self._keys_seen = max(self._keys_seen, state.serials["keys"])
        super().restore(replace(state, tables={CELLS: {}}))
        for k, (born, cells) in state.tables[CELLS].get(None, {}).items():
            key = self._keys[k] = _Key(born)
            for window, saved in cells:
                opened = self._reopened(key, window)
                opened.cells[k] = CLOSED if saved is None else self._loaded(opened, k, saved)

    def _opens(self) -> Iterable[ActiveWindow]:
        return [opened for key in self._keys.values() for opened in key.opens]

    def evict(self, keys: Collection[Any]) -> None:
        for k in keys:
            key = self._keys.pop(k, None)
            for opened in key.opens if key is not None else ():
                retire(opened.cells.pop(k))
                opened.alive = False

    def _cells(self, keys: Collection[Any] | None) -> Tables:
        """Windows are the keys' own, so a key's cells stand together with when it was first seen."""

        def copied(k: Any) -> tuple[int, tuple[Any, ...]]:
            key = self._keys[k]
            return key.born, tuple([(opened.object(), self._saved(opened.cells[k])) for opened in key.opens])

        return {None: {k: copied(k) for k in (self._keys if keys is None else keys) if k in self._keys}}

    def _saved_cells(self, state: KeyedState) -> Iterator[tuple[Any, Any, Any]]:
        for k, (_, cells) in state.tables[CELLS].get(None, {}).items():
            for window, saved in cells:
                yield window, k, saved

    def _reopened(self, key: _Key, window: Any) -> ActiveWindow:
        start = window.start_micros if type(window) is IntervalWindow else 0
        opened = ActiveWindow(window, start, window_end(window), self.lateness, self.now.watermark, key.born)
        key.opens.append(opened)
        self._wake_at_end(opened)
        return opened
