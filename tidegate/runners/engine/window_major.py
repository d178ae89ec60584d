"""Tables by window, fired by the watermark: groupings that emit one pane per window, on time (PERFORMANCE: no timer
per key; firing a window is popping one dict).

The loop that fills the tables is the one of bounded input. Windows that have fired are tables too, which only count
what is put into them: late elements cost the loop nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from tidegate.runners.engine.blame import close_all
from tidegate.runners.engine.chain import Chain
from tidegate.runners.engine.operator import Context, Emitted
from tidegate.runners.engine.snapshots import (
    CELLS,
    NEVER,
    ByKey,
    Instants,
    KeyedState,
    Touched,
    Touches,
    first_of,
    of_keys,
    without,
)
from tidegate.runners.engine.tables import Grouping
from tidegate.runners.engine.whole import CombineWhole
from tidegate.runners.plan import Phase
from tidegate.sdk.block import Block, DerivedFrom, Each, Same
from tidegate.sdk.portable.pipeline import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.window_types import GLOBAL_WINDOW, window_end
from tidegate.sdk.windows import GlobalWindows

MOST_PARTS: Final = 1 << 16
"""How many keys, of all windows, a combine's parts are held back for."""


class Gate:
    """Which windows are still open at a watermark, and how many elements no window took. `open` is always true of a
    grouping's parts: the merge behind the exchange decides, by its own watermark."""

    __slots__ = ("late", "refuses", "watermark")

    def __init__(self, phase: Phase) -> None:
        self.watermark = MIN_MICROS
        self.late = 0
        self.refuses = phase != "parts"

    def is_open(self, window: Any) -> bool:
        """Whether the window still takes elements."""
        return not self.refuses or self.watermark < window_end(window)

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

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate

    def __setitem__(self, key: Any, value: Any) -> None:
        self.gate.late += 1

    def update(self, elements: Any) -> None:  # type: ignore[override]  # as a Counter: how many there are
        self.gate.late += len(elements)


class WindowMajorGrouping(Grouping):
    """The tables of a grouping that the watermark fires. Its parts leave at the end of each bundle instead."""

    def __init__(self, node: GroupByKey | CombinePerKey, phase: Phase, context: Context, main: str) -> None:
        super().__init__(node, phase, context, main)
        self.gate = Gate(phase)
        self._refusing = _Refusing(self.gate)
        self.next_end = MAX_MICROS + 1
        """When (µs) the first of the windows ends."""

    def table_in(self, window: Any) -> dict[Any, Any]:
        table = self._tables.get(window)
        if table is not None:
            return table
        if not self.gate.is_open(window):
            return self._refusing
        self.next_end = min(self.next_end, window_end(window))
        return super().table_in(window)

    @property
    def full(self) -> bool:
        """Whether parts should leave before their bundle ends: all that is left then leaves at once, which takes time,
        and a checkpoint waits for it."""
        return not self.gate.refuses and sum(map(len, self._tables.values())) >= MOST_PARTS

    def settle(self) -> None:
        """After each block. State stays in memory: a window's table must be there when it fires."""
        self.context.count(self.label, "dropped_late", self.gate.taken())

    def fire(self, micros: int) -> Iterator[Emitted]:
        """The panes of all windows that the watermark `micros` passes."""
        if micros <= self.gate.watermark:
            return
        self.gate.watermark = micros
        if micros >= self.next_end:
            yield from self.drain()

    def _parts(self) -> Iterator[tuple[Any, dict[Any, Any]]]:
        due = [window for window in self._tables if not (self.gate.refuses and self.gate.is_open(window))]
        due.sort(key=lambda window: (window_end(window), window))
        for window in due:
            table = self._tables.pop(window)
            self._check_keys(table)
            yield window, table
        self.next_end = min(map(window_end, self._tables), default=MAX_MICROS + 1)
        self._by_start = {low: found for low, found in self._by_start.items() if found[1] > self.gate.watermark}
        if not self.gate.refuses:
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


class WindowMajor(Chain, ByKey):
    """A chain that ends in tables fired by the watermark."""

    grouping: WindowMajorGrouping

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._touches = Touches()

    def open(self) -> None:
        super().open()
        self.grouping.open()

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if isinstance(block.windows, Each) and not any(link.form == "assign" for link in self.links):
            live = list(map(self.grouping.gate.live, block.windows.windows))
            block = Block(block.values, block.timestamps, Each(live), block.panes)
        yield from super().process(block, collection)
        if self._touches.on:
            self._touches.note(self.keys_of(block))
        if self.grouping.full:
            yield from self.grouping.drain()

    def keys_of(self, block: Block) -> Iterable[Any]:
        node = self.grouping.node
        if isinstance(node, CombinePerKey) and node.key == "element" and self.grouping.phase != "merge":
            return block.values
        return map(first_of, block.values)

    def finish_bundle(self) -> Iterator[Emitted]:
        yield from super().finish_bundle()
        if self.grouping.phase == "parts":
            yield from self.grouping.drain()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        yield from self.grouping.fire(micros)

    def finish(self) -> Iterator[Emitted]:
        yield from super().finish()
        yield from self.grouping.fire(MAX_MICROS)

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        return self.grouping.snapshot(keys)

    def restore(self, state: KeyedState) -> None:
        self.grouping.restore(state)

    def touched(self) -> Touched | None:
        # Behind other steps of a loop, keys don't show.
        return None if self.links else self._touches.take()

    def next_event(self) -> int:
        return self.grouping.next_end

    def evict(self, keys: Collection[Any]) -> None:
        self.grouping.evict(keys)

    def instants(self, state: KeyedState) -> dict[Any, Instants]:
        ends: dict[Any, int] = {}
        for window, entries in state.tables[CELLS].items():
            end = window_end(window)
            for key in entries:
                ends[key] = min(end, ends.get(key, end))
        return {key: Instants(end, NEVER, MAX_MICROS) for key, end in ends.items()}

    def close(self) -> None:
        close_all([super().close, self.grouping.close])

    def _environment(self) -> dict[str, Any]:
        """The names of the loop; where it asks for the windows of an element, it is given those that are open.

        Only elements in several windows ask: one window's table refuses by itself.
        """
        env = super()._environment()
        live = self.grouping.gate.live
        assigns = [k for k, link in enumerate(self.links) if link.form == "assign"]
        for name in (f"assign{assigns[-1]}",) if assigns else ("same_windows", "derived"):
            windows = env[name]
            env[name] = lambda *args, windows=windows: live(windows(*args))
        return env


class WholeWindowMajor(CombineWhole):
    """A combine without keys whose windows the watermark fires."""

    def __init__(self, node: CombinePerKey, phase: Phase, context: Context, main: str) -> None:
        super().__init__(node, phase, context, main)
        self.gate = Gate(phase)
        self._any = False

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        match block.windows:
            case Same((window,)) if self.gate.is_open(window):
                self._any = True
                return super().process(block, collection)
            case DerivedFrom(GlobalWindows()) if self.gate.is_open(GLOBAL_WINDOW):
                self._any = True
                return super().process(block, collection)
            case Same((window,)):
                self.gate.late += len(block)
            case _:
                live = list(map(self.gate.live, block.window_list()))
                self._any = self._any or any(live)
                super().process(Block(block.values, block.timestamps, Each(live), block.panes), collection)
        self.context.count(self.node.label, "dropped_late", self.gate.taken())
        return iter(())

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
