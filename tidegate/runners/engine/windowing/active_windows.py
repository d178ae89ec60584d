"""The active windows of a grouping: which windows an element enters, and which have state.

Windows that do not merge are shared by all keys. Where they merge, each key has its own (`merging`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import repeat
from typing import Any, Protocol, TypeAlias

from tidegate.runners.engine.errors.attribution import rethrow, user_error
from tidegate.runners.engine.operator import Emitted
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState, Tables
from tidegate.runners.engine.windowing.pane_codec import PaneCodec, SavedPane
from tidegate.runners.engine.windowing.pane_state import CLOSED, ActiveWindow, expiry
from tidegate.runners.engine.windowing.panes import Panes
from tidegate.sdk.authoring.combine import NOTHING
from tidegate.sdk.data.block import Block, DerivedFrom, Each, Same
from tidegate.sdk.windowing.assigners import GLOBAL_BOUNDS, Bounds, GlobalWindows
from tidegate.sdk.windowing.assignment import assign_bounds, single_window
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow, window_end

Entered: TypeAlias = tuple[ActiveWindow, ...] | None
"""The windows that an element enters; None if all of its windows have expired."""


class ActiveWindowSet(Protocol):
    """The windows that have not expired, each with its panes by key."""

    def add(self, pairs: Iterable[Any], block: Block) -> Iterator[Emitted]:
        """Add every element of a block to the panes of its windows; `pairs` are the elements as (key, value)."""

    def active(self) -> Iterable[ActiveWindow]:
        """All of them."""

    def remove(self, window: ActiveWindow) -> None:
        """Drop a window that has expired, with its panes."""

    def snapshot(self, keys: Collection[Any] | None) -> KeyedState:
        """The panes of all keys, or of `keys`, and the set's own serials and windows."""

    def restore(self, state: KeyedState) -> None:
        """Load the panes of a snapshot."""

    def saved_panes(self, state: KeyedState) -> Iterator[tuple[Any, Any, SavedPane]]:
        """(window, key, pane) of each pane in a snapshot."""

    def evict(self, keys: Collection[Any]) -> None:
        """Drop the panes of these keys, which will be restored."""


class SharedWindows:
    """Windows that do not merge: one table of panes by key for each."""

    def __init__(self, panes: Panes, codec: PaneCodec) -> None:
        self._panes = panes
        self._codec = codec
        self._windows: dict[Any, ActiveWindow] = {}
        self._by_start: dict[int, Entered] = {}

    def add(self, pairs: Iterable[Any], block: Block) -> Iterator[Emitted]:
        panes, accumulation, context = self._panes, self._panes.accumulation, self._panes.grouping.context
        accumulates = accumulation.kind == "accumulator"
        buffers = accumulation.kind == "buffer"
        add = accumulation.add
        stamps, watermark, size = panes.stamps, panes.context.watermark, context.block_size
        output = panes.output
        closed = 0
        element: Any = None
        k: Any = NOTHING
        try:
            for element, t, entered in zip(pairs, block.timestamp_column(), self._entered(block), strict=False):
                k = NOTHING
                k, x = element
                if not entered:
                    if entered is None:
                        panes.refuse(element, t)
                    continue
                for window in entered:
                    pane = window.panes.get(k)
                    if pane is None:
                        pane = panes.open(window, k)
                    elif pane is CLOSED:
                        closed += 1
                        continue
                    pane.unfired = unfired = pane.unfired + 1
                    if accumulates:
                        pane.contents = add(pane.contents, x)
                    elif buffers:
                        panes.buffer(pane.contents, x, t)
                    else:
                        pane.contents.append(x)
                    if stamps and t >= watermark:
                        panes.combine_timestamp(window, pane, t)
                    if unfired >= pane.recheck_at:
                        panes.evaluate(window, k, pane, x)
                        if len(output) >= size:
                            yield panes.take_output()
        except Exception as error:
            rethrow(panes.attribute(error, element, k))
        context.count(panes.grouping.label, "dropped_closed", closed)

    def active(self) -> Iterable[ActiveWindow]:
        return self._windows.values()

    def remove(self, window: ActiveWindow) -> None:
        window.alive = False
        window.panes = {}
        del self._windows[window.window]
        self._by_start.pop(window.start, None)

    # -- the windows of elements

    def _entered(self, block: Block) -> Iterator[Entered]:
        """The windows that each element of a block enters."""
        match block.windows:
            case Same(windows):
                return repeat(self._find_all(windows))
            case DerivedFrom(GlobalWindows()):
                return repeat(self._find_all((GLOBAL_WINDOW,)))
            case DerivedFrom(assigner) if (bounds := single_window(assigner)) is not None:
                return self._by_bounds(bounds, block)
            case DerivedFrom(assigner):
                return self._by_windows(map(assign_bounds(assigner), block.timestamp_column()), _windows_of)
            case Each(windows):
                return self._by_windows(windows, _unchanged)

    def _by_bounds(self, bounds: Callable[[int], Bounds], block: Block) -> Iterator[Entered]:
        low = high = 0
        entered: Entered = None
        known = self._by_start
        for t in block.timestamp_column():
            if not low <= t < high:
                low, high = bounds(t)
                entered = known.get(low)
                if entered is None:
                    entered = self._find_all((IntervalWindow.of_micros(low, high),))
                    if entered is not None:
                        known[low] = entered
            yield entered

    def _by_windows(self, column: Iterable[Any], windows_of: Callable[[Any], tuple[Any, ...]]) -> Iterator[Entered]:
        """Consecutive elements are mostly in the same windows, for which the column has one tuple."""
        last: Any = None
        entered: Entered = None
        for windows in column:
            if windows is not last:
                last, entered = windows, self._find_all(windows_of(windows))
            yield entered

    def _find_all(self, windows: tuple[Any, ...]) -> Entered:
        panes = self._panes
        try:
            entered = tuple([window for window in map(self._find, windows) if window is not None])
        except Exception as error:
            # Windows are looked up ahead of the element in hand, so the error must not be blamed on that.
            where = panes.grouping.node.where
            rethrow(user_error(error, step=panes.grouping.label, where=where, method="a window's methods"))
        return entered if entered or not windows else None

    def _find(self, window: Any) -> ActiveWindow | None:
        """The active window equal to `window`, which becomes one if it is new; None if it has expired."""
        found = self._windows.get(window)
        if found is None:
            end, lateness, watermark = window_end(window), self._panes.lateness, self._panes.context.watermark
            if watermark >= expiry(end, lateness):
                return None
            start = window.start_micros if type(window) is IntervalWindow else 0
            found = self._windows[window] = ActiveWindow(window, start, end, lateness, watermark)
            self._panes.trigger.schedule_end(found)
        return found

    # -- state by key

    def snapshot(self, keys: Collection[Any] | None) -> KeyedState:
        of_keys, save = self._panes.copies.of_keys, self._codec.save
        tables: Tables = {window.to_window(): of_keys(window.panes, keys, save) for window in self._windows.values()}
        return KeyedState({CELLS: tables}, keys=keys, windows=None if keys is None else list(self._windows))

    def restore(self, state: KeyedState) -> None:
        for window, panes in state.tables[CELLS].items():
            found = self._find(window)
            assert found is not None
            for k, saved in panes.items():
                self._codec.load(found, k, saved)

    def saved_panes(self, state: KeyedState) -> Iterator[tuple[Any, Any, SavedPane]]:
        for window, panes in state.tables[CELLS].items():
            for k, saved in panes.items():
                yield window, k, saved

    def evict(self, keys: Collection[Any]) -> None:
        for window in list(self._windows.values()):
            for k in keys:
                window.panes.pop(k, CLOSED).reset()
            if not window.panes:
                self.remove(window)


def _windows_of(bounds: tuple[Bounds, ...]) -> tuple[Any, ...]:
    if bounds == (GLOBAL_BOUNDS,):
        return (GLOBAL_WINDOW,)
    return tuple([IntervalWindow.of_micros(start, end) for start, end in bounds])


def _unchanged(windows: tuple[Any, ...]) -> tuple[Any, ...]:
    return windows
