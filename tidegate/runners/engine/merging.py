"""Windows that merge, in the general window operator: which windows each key has, and how cells become one.

An element comes with its own windows; these are merged with the key's, the element enters what results, and only then
is the trigger asked (SEMANTICS, Triggers, Merging). Sessions have a short way: most elements fall inside the one they
belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.blame import rethrow
from tidegate.runners.engine.operator import Emitted
from tidegate.runners.engine.triggers import UserCall
from tidegate.runners.engine.windowed import CLOSED, Cell, Open, WindowOperator
from tidegate.sdk.block import Block
from tidegate.sdk.combine import NOTHING
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.window_types import IntervalWindow, window_end
from tidegate.sdk.windowing import TimestampCombiner
from tidegate.sdk.windows import Sessions, merge_windows

Merge: TypeAlias = tuple[Any, tuple[Any, ...]]
"""A merged window and those it replaces."""


class _Key:
    """The windows that one key has."""

    __slots__ = ("born", "windows")

    def __init__(self, born: int) -> None:
        self.born = born
        self.windows: dict[Any, Open] = {}


class MergingWindowOperator(WindowOperator):
    """The window operator under an assigner that merges."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._keys: dict[Any, _Key] = {}
        self._keys_seen = 0
        assigner = self.strategy.assigner
        self._sessions: Final = isinstance(assigner, Sessions)
        self._merges: Callable[[Iterable[Any]], list[Merge]] = merge_windows(assigner)

    def take_in(self, pairs: Iterable[Any], block: Block) -> Iterator[Emitted]:
        size, panes = self.context.block_size, self.out.panes
        element: Any = None
        k: Any = NOTHING
        try:
            for element, t, windows in zip(pairs, block.timestamp_list(), block.window_list(), strict=True):
                k = NOTHING
                k, x = element
                if not windows:
                    continue
                key = self._keys.get(k)
                if key is None:
                    key = self._new_key(k)
                if not self._inside(key, k, x, t, windows):
                    self._enter(key, k, x, t, windows, element)
                    if not key.windows:
                        del self._keys[k]
                if len(panes) >= size:
                    yield self._full()
        except Exception as error:
            rethrow(self._blamed(error, element, k))

    def _new_key(self, k: Any) -> _Key:
        key = self._keys[k] = _Key(self._keys_seen)
        self._keys_seen += 1
        return key

    def _inside(self, key: _Key, k: Any, x: Any, t: int, windows: tuple[Any, ...]) -> bool:
        """The short way: take in an element whose session lies inside one that is there."""
        if not self._sessions or len(windows) != 1:
            return False
        start, end = windows[0].start_micros, windows[0].end_micros
        for window, opened in key.windows.items():
            if window.start_micros <= start and end <= window.end_micros:
                self._take(opened, k, opened.cells[k], x, t)
                return True
        return False

    def _take(self, window: Open, k: Any, cell: Cell, x: Any, t: int) -> None:
        """One element into one cell."""
        if cell is CLOSED:
            self.context.count(self.label, "dropped_closed")
            return
        cell.fresh += 1
        match self.contents.how:
            case "accumulator":
                cell.held = self.contents.add(cell.held, x)
            case "buffer":
                self.buffer(cell, x, t)
            case "list":
                raise AssertionError("lists under merging windows are buffers")
        if self.stamps and t >= self.now.watermark:
            self.stamp(window, cell, t)
        if cell.fresh >= cell.wake:
            self.consult(window, k, cell, x)

    def _enter(self, key: _Key, k: Any, x: Any, t: int, windows: tuple[Any, ...], element: Any) -> None:
        merges = self._merged(key, windows)
        placed = {part: whole for whole, parts in merges for part in parts}
        targets = dict.fromkeys(placed.get(window, window) for window in windows)
        live = [window for window in targets if self.now.watermark < self._expiry(window)]
        if not live:
            self.refuse(element, t)
            return
        touched: list[tuple[Open, bool]] = []
        for whole, parts in merges:
            opened = self._merge(key, k, whole, parts)
            if opened is not None:
                touched.append((opened, whole in targets))
        known = {opened.window for opened, _ in touched}
        touched += [(self._opened_for(key, k, window), True) for window in live if window not in known]
        for opened, enters in sorted(touched, key=lambda item: item[0].order):
            cell = opened.cells.get(k)
            if cell is None:
                cell = self._new(opened, k)
                cell.born = key.born
            if enters:
                self._take(opened, k, cell, x, t)
            elif cell is not CLOSED:
                self.consult(opened, k, cell, None)

    def _merged(self, key: _Key, windows: tuple[Any, ...]) -> list[Merge]:
        """What merges now that the key has these windows as well."""
        if self._sessions and len(windows) == 1:
            return _session(key, windows[0])
        try:
            return self._merges([*key.windows, *windows])
        except Exception as error:
            raise UserCall("the merge of the window assigner") from error

    def _expiry(self, window: Any) -> int:
        return min(window_end(window) + self.lateness, MAX_MICROS)

    def _opened_for(self, key: _Key, k: Any, window: Any) -> Open:
        opened = key.windows.get(window)
        if opened is None:
            opened = self.window(window)
            assert opened is not None
            key.windows[window] = opened
        return opened

    def _merge(self, key: _Key, k: Any, whole: Any, parts: tuple[Any, ...]) -> Open | None:
        """Make one cell of the parts that the key has; None if it has none, or the whole has expired."""
        found = [key.windows[part] for part in parts if part in key.windows]
        if not found or self.now.watermark >= self._expiry(whole):
            return None
        if len(found) == 1 and found[0].window == whole:
            return found[0]
        cells = [opened.cells[k] for opened in found]
        for opened in found:
            del key.windows[opened.window]
            del opened.cells[k]
        into = self._opened_for(key, k, whole)
        into.cells[k] = self._one(key, into, found, cells)
        for opened in found:
            if not opened.cells and opened is not into:
                self.drop(opened)
        return into

    def _one(self, key: _Key, into: Open, windows: list[Open], cells: list[Cell]) -> Cell:
        """One cell of several: a finished part finishes the whole, and what still waited in the others is dropped."""
        live = [cell for cell in cells if cell is not CLOSED]
        if len(live) < len(cells):
            self.context.count(self.label, "dropped_closed", sum(cell.fresh for cell in live))
            for cell in live:
                _retire(cell)
            return CLOSED
        now, machine = self.now, self.machine
        for window, cell in zip(windows, cells, strict=True):
            if cell.fresh > cell.synced:
                now.end, now.pane = window.end, cell.fresh
                machine.elements(cell.state, cell.fresh - cell.synced, None, now)
        now.end = into.end
        try:
            held = self.contents.merge([cell.held for cell in cells])
        except Exception as error:
            raise UserCall(self.method("merge_accumulators")) from error
        one = Cell(key.born, held, machine.merge([cell.state for cell in cells], now))
        one.fresh = one.synced = sum(cell.fresh for cell in cells)
        for window, cell in zip(windows, cells, strict=True):
            if window.window == into.window:
                one.index, one.settled = cell.index, cell.settled
        stamps = [cell.stamp for cell in cells if cell.stamp is not None]
        if stamps:
            earliest = self.strategy.timestamp_combiner is TimestampCombiner.EARLIEST
            one.stamp = min(stamps) if earliest else max(stamps)
        one.holding = False and any(cell.holding for cell in cells)
        for cell in cells:
            _retire(cell)
        if one.stamp is not None or one.holding:
            self._hold(into, one, into.last if one.stamp is None else one.stamp)
        return one

    def _entries(self, window: Open, keys: dict[Any, None] | None) -> list[tuple[Any, Cell]]:
        entries = super()._entries(window, keys)
        if len(entries) > 1:
            entries.sort(key=lambda entry: entry[1].born)
        return entries

    def forget(self, window: Open) -> None:
        for k in window.cells:
            key = self._keys[k]
            del key.windows[window.window]
            if not key.windows:
                del self._keys[k]
        super().forget(window)

    def snapshot(self) -> Any:
        return {
            **super().snapshot(),
            "keys_seen": self._keys_seen,
            "keys": [(k, key.born, list(key.windows)) for k, key in self._keys.items()],
        }

    def restore(self, state: Any) -> None:
        super().restore(state)
        self._keys_seen = state["keys_seen"]
        for k, born, windows in state["keys"]:
            key = self._keys[k] = _Key(born)
            key.windows = {window: self.windows[window] for window in windows}


def _session(key: _Key, own: IntervalWindow) -> list[Merge]:
    """Sessions of one key lie apart, so the element's own merges with those it overlaps, and with no more."""
    start, end = own.start_micros, own.end_micros
    parts = [window for window in key.windows if window.start_micros < end and start < window.end_micros]
    if not parts:
        return []
    start = min(start, min([window.start_micros for window in parts]))
    end = max(end, max([window.end_micros for window in parts]))
    whole = IntervalWindow.of_micros(start, end)
    return [(whole, tuple(dict.fromkeys((*parts, own))))]


def _retire(cell: Cell) -> None:
    """A cell that has gone into another holds the watermark no more."""
    cell.fresh = 0
    cell.stamp = None
    cell.holding = False
