"""The window operator: any assigner, trigger, evictor, accumulation and lateness (SEMANTICS, Windows to Combining).

Each active window has a table of panes by key. An event is an element, a watermark advance or a clock advance; it
evaluates the panes that it concerns once each, windows by (end, start) and keys by first arrival. Two queues of
wake-ups, one per clock, serve the whole operator, so that neither clock visits windows that have nothing to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import rethrow
from tidegate.runners.engine.grouping.base import GroupedByKey
from tidegate.runners.engine.grouping.batch_table import ONLY_PANE
from tidegate.runners.engine.operator import Context, Emitted, KeyedOperator, Wakeups
from tidegate.runners.engine.state.copy_on_write import CopyOnWrite
from tidegate.runners.engine.state.keyed_state import KeyedState, Touched, first_of
from tidegate.runners.engine.windowing.active_windows import ActiveWindowSet, SharedWindows
from tidegate.runners.engine.windowing.merging import MergingWindows
from tidegate.runners.engine.windowing.pane_codec import PaneCodec
from tidegate.runners.engine.windowing.pane_state import ActiveWindow
from tidegate.runners.engine.windowing.panes import Panes
from tidegate.runners.plan import Phase
from tidegate.sdk.authoring.combine import NOTHING
from tidegate.sdk.data.block import Block
from tidegate.sdk.metrics import in_step
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.assigners import is_merging
from tidegate.sdk.windowing.strategy import WindowingStrategy
from tidegate.sdk.windowing.window import GLOBAL_WINDOW


class WindowOperator(GroupedByKey, KeyedOperator):
    """Groups or combines per key and window, and emits panes when a trigger fires.

    `late` is the collection for elements whose windows have all expired; None: they are counted (`dropped_late`).
    A runner with a processing-time clock calls `on_clock` before the first block; otherwise triggers on processing
    time never fire, as bounded input requires.
    """

    def __init__(
        self,
        node: GroupByKey | CombinePerKey,
        phase: Phase,
        strategy: WindowingStrategy,
        context: Context,
        main: str,
        late: str | None = None,
    ) -> None:
        super().__init__(node, phase, strategy, context, main)
        panes = self._panes = Panes(self, late, counts_late=node.late_tag is None)
        self._trigger: Final = panes.trigger
        self._codec: Final = PaneCodec(self.accumulation, panes.trigger, panes.holds, panes.lateness)
        self._windows: Final[ActiveWindowSet] = (
            MergingWindows(strategy.assigner, panes, self._codec)
            if is_merging(strategy.assigner)
            else SharedWindows(panes, self._codec)
        )
        self._emits_default = isinstance(node, CombinePerKey) and node.default and phase != "parts"
        self._any_restored = False

    # -- events

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if not len(block):
            return
        self.exchange_check.check(block)
        if self._panes.copies.active:
            self._panes.copies.copy(self.keys_of(block))
        yield from self._in_step(self._windows.add(self.pairs(block), block))
        if self._panes.touched.on:
            self._panes.touched.note(self.keys_of(block))
        yield from self._panes.flush()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        context = self._trigger.context
        if micros <= context.watermark:
            return
        context.watermark = micros
        woken = self._trigger.event_wakeups.pop(micros)
        for window in sorted(woken, key=ActiveWindow.sort_key):
            if not window.alive:
                continue
            if micros >= window.expiry:
                yield from self._expire(window)
            else:
                keys = woken[window]
                yield from self._in_step(self._panes.evaluate_window(window, keys, by_watermark=True))
                if keys is None:
                    self._trigger.schedule_end(window)
        if micros == MAX_MICROS and self._emits_default and not self._any:
            self._emit_default()
        yield from self._panes.flush()

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        self._trigger.advance_clock(micros)
        clock = self._trigger.context.clock
        assert clock is not None
        woken = self._trigger.clock_wakeups.pop(clock)
        for window in sorted(woken, key=ActiveWindow.sort_key):
            if window.alive:
                yield from self._in_step(self._panes.evaluate_window(window, woken[window], by_watermark=False))
        yield from self._panes.flush()

    def next_clock(self) -> int | None:
        return self._trigger.clock_wakeups.next()

    def hold(self) -> int:
        return self._panes.holds.minimum()

    def finish(self) -> Iterator[Emitted]:
        yield from self.on_watermark(MAX_MICROS)

    def finish_bundle(self) -> Iterator[Emitted]:
        """Partial results are emitted before any snapshot, since several tasks may have some for one key."""
        if self.accumulation.phase == "parts":
            for window in sorted(self._windows.active(), key=ActiveWindow.sort_key):
                yield from self._expire(window)
            yield from self._panes.flush()

    def _expire(self, window: ActiveWindow) -> Iterator[Emitted]:
        yield from self._in_step(self._panes.expire(window))
        self._windows.remove(window)

    def _emit_default(self) -> None:
        """Emit what a global combine gives for bounded input without elements."""
        self._any_restored = True
        try:
            assert self.combiner is not None
            value = self.combiner.extract_output(self.combiner.create_accumulator())
        except Exception as error:
            rethrow(self._panes.attribute(error, NOTHING, NOTHING))
        self._panes.output.add(value, MAX_MICROS - 1, GLOBAL_WINDOW, ONLY_PANE)

    def _in_step(self, blocks: Iterator[Emitted]) -> Iterator[Emitted]:
        """The same blocks; metrics that the author's code updates while they are produced belong to this step."""
        while True:
            with in_step(self.label):
                block = next(blocks, None)
            if block is None:
                return
            yield block

    # -- state by key

    @property
    def _any(self) -> bool:
        """Whether any element has entered a pane."""
        return self._any_restored or self._panes.arrivals > 0

    @property
    def copies(self) -> CopyOnWrite:
        return self._panes.copies

    def keys_of(self, block: Block) -> Iterable[Any]:
        return map(first_of, self.pairs(block))

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        state = self._windows.snapshot(keys)
        state.watermark, state.clock = self._trigger.context.watermark, self._trigger.context.clock
        state.serials["arrivals"] = self._panes.arrivals
        state.any = self._any
        return state

    def restore(self, state: KeyedState) -> None:
        self._trigger.context.watermark, self._trigger.context.clock = state.watermark, state.clock
        self._panes.arrivals = max(self._panes.arrivals, state.serials["arrivals"])
        self._any_restored = self._any_restored or state.any
        self._windows.restore(state)

    def touched(self) -> Touched | None:
        return self._panes.touched.take()

    def evict(self, keys: Collection[Any]) -> None:
        self._windows.evict(keys)

    def wakeups(self, state: KeyedState) -> dict[Any, Wakeups]:
        found: dict[Any, Wakeups] = {}
        for window, k, saved in self._windows.saved_panes(state):
            at = self._codec.wakeups(window, saved)
            before = found.get(k)
            found[k] = at if before is None else Wakeups(*map(min, at, before))
        return found
