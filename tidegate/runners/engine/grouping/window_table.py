"""Tables by window that the watermark fires: groupings that emit one pane per window, on time.

The loop that fills the tables is the one of bounded input. Windows that have fired are tables too, which only count
what is put into them: late elements cost the loop nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import compress, groupby
from operator import itemgetter
from typing import Any, Final

from tidegate.runners.engine.grouping.batch_table import ONLY_PANE, Grouping
from tidegate.runners.engine.grouping.global_combine import GlobalCombine
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.runners.engine.state.keyed_state import CELLS, KeyedState, of_keys, without
from tidegate.runners.plan import Phase
from tidegate.sdk.data.block import Block, DerivedFrom, Each, Same
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.windowing.assigners import GlobalWindows
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, window_end

MOST_PARTS: Final = 1 << 16
"""How many keys, of all windows, a combine's parts are held back for."""


class LatenessGate:
    """Which windows are still open at a watermark, and how many elements no window took."""

    __slots__ = ("late", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_MICROS
        self.late = 0

    def is_open(self, window: Any) -> bool:
        """Whether the window still takes elements."""
        return self.watermark < window_end(window)

    def live(self, windows: tuple[Any, ...]) -> tuple[Any, ...]:
        """Those of one element's windows, in ascending order, that are open. Counts it if it is too late for all."""
        if not windows or self.is_open(windows[0]):
            return windows
        kept = tuple([window for window in windows if self.is_open(window)])
        if not kept:
            self.late += 1
        return kept

    def taken(self) -> int:
        """How many were late since the last time this was asked."""
        late, self.late = self.late, 0
        return late


class _Refusing(dict[Any, Any]):
    """The table of a window that has fired."""

    __slots__ = ("gate",)

    def __init__(self, gate: LatenessGate) -> None:
        super().__init__()
        self.gate = gate

    def __setitem__(self, key: Any, value: Any) -> None:
        self.gate.late += 1

    def update(self, elements: Any) -> None:  # type: ignore[override]  # as a Counter: how many there are
        self.gate.late += len(elements)


class Singles:
    """Elements that leave a combine's parts uncombined, each as an accumulator of its own with all its windows.

    The merge behind the exchange may be behind the watermark here, so it decides what is late; and it counts elements
    (SEMANTICS, Lateness), which it can't where several are one accumulator, or one element is in several of them.
    """

    __slots__ = ("_found", "_rows", "_several")

    def __init__(self) -> None:
        self._rows: list[tuple[tuple[Any, ...], Any]] = []
        self._found: tuple[Any, ...] | None = None
        self._several = False

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, windows: tuple[Any, ...], row: Any) -> None:
        """One element, as what the merge takes in."""
        self._rows.append((windows, row))

    def diverts(self, windows: tuple[Any, ...], gate: LatenessGate) -> bool:
        """Whether an element in several windows, in ascending order, is to leave alone. All that follow one that does
        are to as well, so that the values of each key and window stay in their order."""
        if not windows:
            return False
        self._several = self._several or not gate.is_open(windows[0])
        return self._several

    def taken(self, size: int) -> Iterator[tuple[tuple[Any, ...], list[Any]]]:
        """All of them, in their order: at most `size` at a time that are in the same windows."""
        alone, self._rows, self._several = self._rows, [], False
        for windows, run in groupby(alone, key=itemgetter(0)):
            rows = [row for _, row in run]
            yield from ((windows, rows[at : at + size]) for at in range(0, len(rows), size))


class _Several:
    """Stands, in a loop over the windows of an element that leaves alone, for all of them."""

    __slots__ = ("windows",)

    def __init__(self, windows: tuple[Any, ...]) -> None:
        self.windows = windows


class _Single(dict[Any, Any]):
    """Where a grouping's parts put an element that leaves alone: always empty, so that each begins an accumulator."""

    __slots__ = ("singles", "windows")

    def __init__(self, singles: Singles, windows: tuple[Any, ...]) -> None:
        super().__init__()
        self.singles = singles
        self.windows = windows

    def __setitem__(self, key: Any, value: Any) -> None:
        self.singles.add(self.windows, (key, value))

    def update(self, elements: Any) -> None:  # type: ignore[override]  # as a Counter
        for element in elements:
            hash(element)
            self.singles.add(self.windows, (element, 1))


class WindowGrouping(Grouping):
    """The tables of a grouping that the watermark fires. Its parts leave at the end of each bundle instead."""

    takes_some = True

    def __init__(self, node: GroupByKey | CombinePerKey, phase: Phase, context: Context, main: str) -> None:
        super().__init__(node, phase, context, main)
        self.gate = LatenessGate()
        self._refusing = _Refusing(self.gate)
        self._singles = Singles()
        self.next_end = MAX_MICROS + 1
        """When (µs) the first of the windows ends."""

    def environment(self) -> dict[str, Any]:
        return {**super().environment(), "taking": self._taking}

    def table_in(self, window: Any) -> dict[Any, Any]:
        if type(window) is _Several:
            return _Single(self._singles, window.windows)
        table = self._tables.get(window)
        if table is not None:
            return table
        if not self.gate.is_open(window):
            return _Single(self._singles, (window,)) if self.phase == "parts" else self._refusing
        self.next_end = min(self.next_end, window_end(window))
        return super().table_in(window)

    def _taking(self, windows: tuple[Any, ...]) -> tuple[Any, ...]:
        """The windows to take an element into that is in several, in ascending order."""
        if self.phase != "parts":
            return self.gate.live(windows)
        return (_Several(windows),) if self._singles.diverts(windows, self.gate) else windows

    @property
    def full(self) -> bool:
        """Whether parts should leave before their bundle ends: all that is left then leaves at once, which takes time,
        and a checkpoint waits for it."""
        return self.phase == "parts" and sum(map(len, self._tables.values())) + len(self._singles) >= MOST_PARTS

    def block_added(self, n: int) -> None:
        """Count late elements. State stays in memory: a window's table must be there when it fires."""
        self.context.count(self.label, "dropped_late", self.gate.taken())

    def fire(self, micros: int) -> Iterator[Emitted]:
        """The panes of all windows that the watermark `micros` passes."""
        if micros <= self.gate.watermark:
            return
        self.gate.watermark = micros
        if micros >= self.next_end:
            yield from self.drain()

    def drain(self) -> Iterator[Emitted]:
        yield from super().drain()
        for windows, rows in self._singles.taken(self.context.block_size):
            self._check_keys([key for key, _ in rows])
            self.context.count(self.label, "elements_out", len(rows))
            yield self.main, Block(self._results(rows), window_end(windows[-1]) - 1, Same(windows), ONLY_PANE)

    def _parts(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        in_parts = self.phase == "parts"
        due = [window for window in self._tables if in_parts or not self.gate.is_open(window)]
        due.sort(key=lambda window: (window_end(window), window))
        for window in due:
            table = self._tables.pop(window)
            self._check_keys(table)
            yield window, table
        self.next_end = min(map(window_end, self._tables), default=MAX_MICROS + 1)
        self._by_start = {low: found for low, found in self._by_start.items() if found[1] > self.gate.watermark}
        if in_parts:
            self._by_start = {}

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        """All entries, or those of these keys."""
        cells = {window: of_keys(table, keys, self._copying()) for window, table in self._tables.items()}
        windows = None if keys is None else list(self._tables)
        return KeyedState({CELLS: cells}, self.gate.watermark, keys=keys, windows=windows)

    def restore(self, state: KeyedState) -> None:
        """Take in a snapshot."""
        self.gate.watermark = state.watermark
        for window, entries in state.tables[CELLS].items():
            self.table_in(window).update({key: self._copied(entry) for key, entry in entries.items()})

    def evict(self, keys: Collection[Any]) -> None:
        """Forget these keys."""
        for table in self._tables.values():
            without(table, keys)


class WindowedGlobalCombine(GlobalCombine):
    """A combine without keys whose windows the watermark fires."""

    def __init__(self, node: CombinePerKey, phase: Phase, context: Context, main: str) -> None:
        super().__init__(node, phase, context, main)
        self.gate = LatenessGate()
        self._singles = Singles()
        self._any = False

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        match block.windows:
            case Same((window,)) if self.gate.is_open(window):
                self._any = True
                return super().process(block, collection)
            case DerivedFrom(GlobalWindows()) if self.gate.is_open(GLOBAL_WINDOW):
                self._any = True
                return super().process(block, collection)
            case _ if self.phase == "parts":
                self._divert(block)
                return iter(())
            case Same((window,)):
                self.gate.late += len(block)
            case _:
                live = list(map(self.gate.live, block.window_list()))
                self._any = self._any or any(live)
                super().process(Block(block.values, block.timestamps, Each(live), block.panes), collection)
        self.context.count(self.node.label, "dropped_late", self.gate.taken())
        return iter(())

    def _divert(self, block: Block) -> None:
        """Of elements that leave in parts, keep those apart that may be late (see Singles)."""
        columns = block.window_list()
        alone = [self._singles.diverts(windows, self.gate) for windows in columns]
        together = [() if diverted else windows for diverted, windows in zip(alone, columns, strict=True)]
        super().process(Block(block.values, block.timestamps, Each(together), block.panes), "")
        for value, windows in compress(zip(block.values, columns, strict=True), alone):
            self._singles.add(windows, self._folded(self._create(), [value]))

    def finish_bundle(self) -> Iterator[Emitted]:
        yield from super().finish_bundle()
        for windows, accumulators in self._singles.taken(self.context.block_size):
            results = [self._result(accumulator) for accumulator in accumulators]
            self.context.count(self.node.label, "elements_out", len(results))
            yield self.main, Block(results, window_end(windows[-1]) - 1, Same(windows), ONLY_PANE)

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros <= self.gate.watermark:
            return
        self.gate.watermark = micros
        waiting = {window: a for window, a in self._accumulators.items() if window_end(window) > micros}
        due = {window: a for window, a in self._accumulators.items() if window not in waiting}
        if due or (micros == MAX_MICROS and not self._any):
            self._any = self._any or micros == MAX_MICROS
            self._accumulators = due
            yield from self._results()
            self._accumulators = waiting

    def finish(self) -> Iterator[Emitted]:
        yield from self.on_watermark(MAX_MICROS)

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        state = super().snapshot(keys)
        state.watermark, state.any = self.gate.watermark, self._any
        return state

    def restore(self, state: KeyedState) -> None:
        super().restore(state)
        self.gate.watermark, self._any = state.watermark, state.any
