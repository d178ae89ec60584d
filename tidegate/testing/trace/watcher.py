"""Watching an operator for a trace: its input, its watermark, its windows and the panes it emits.

A watcher passes elements to its operator one at a time, which changes no result (a block may be cut anywhere), and so
sees whether each was added or dropped. It records evenly spread samples, so its size is bounded however long the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, Final

from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.plan import RELATION, Plan, Step
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.drawing.graph import describe
from tidegate.sdk.metrics import ENGINE, MetricKey
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey, ParDo
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.windowing.strategy import WindowingStrategy
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow, window_end
from tidegate.testing.trace.model import UNSTAMPED, Arrival, Firing, Moment, Standing, Traced, Window
from tidegate.testing.trace.sampling import Sample, drawn
from tidegate.testing.trace.window_tracker import TrackedKey, TrackedWindow, WindowTracker, text_of

MOST_SINGLE: Final = 20_000
"""After this many elements only every second one is passed singly, after twice as many every third, and so on."""
MOST_FIRINGS: Final = 1500
MOST_ADVANCES: Final = 2000


class Watcher(Operator):
    """An operator that records what its inner operator receives and emits."""

    def __init__(self, step: Step, plan: Plan, operator: Operator, context: Context, clock: Clock) -> None:
        node = step.tail
        assert isinstance(node, (GroupByKey, CombinePerKey, ParDo))
        self._inner = operator
        self._node = node
        self._label, self._computes = _of_relation(plan, node.label, node.composite)
        self._input = plan.pipeline.collection(node.inputs[0])
        self._context = context
        self._clock = clock
        self._main = set(node.inputs) | {edge.collection for edge in plan.inputs(step.id) if edge.side is None}
        self._late = next((out.collection for out in node.outputs if out.tag == getattr(node, "late_tag", None)), None)
        self._key_of = node.key if isinstance(node, CombinePerKey) else "first"
        self._strategy = self._input.windowing
        self._tracker = WindowTracker(self._strategy)
        self._event, self._spacing = 0, 0.0
        self._key: TrackedKey | None = None
        self._firings: Sample[tuple[Firing, TrackedWindow | None]] = Sample(MOST_FIRINGS)
        self._advances: Sample[tuple[Moment, int]] = Sample(MOST_ADVANCES)
        self._last_advance: tuple[Moment, int] | None = None
        self._counters = [MetricKey(node.label, ENGINE, name) for name in ("dropped_late", "dropped_closed")]
        self._counts = dict.fromkeys(("elements", "panes", "late", "dropped_late", "dropped_closed"), 0)

    # -- events

    def open(self) -> None:
        self._inner.open()

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if collection not in self._main:
            yield from self._inner.process(block, collection)
            return
        windows, i = block.window_list(), 0
        while i < len(block):
            yield from self._arrive(block.slice(i, i + 1), windows[i], collection)
            i += 1
            if self._interval > 1 and i < len(block) and (gap := self._gap()):
                together = block.slice(i, i + gap)
                yield from self._pass(together, collection)
                i += len(together)

    def process_keyed(self, keyed: KeyedBatch, collection: str) -> Iterator[Emitted]:
        return super().process_keyed(keyed, collection)  # as blocks, whose elements can be recorded one by one

    def finish_bundle(self) -> Iterator[Emitted]:
        return self._seen(self._inner.finish_bundle())

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        at = self._next()
        self._tracker.watermark = micros
        self._key = None
        self._last_advance = (at, micros)
        self._advances.offer(lambda: (at, micros))
        yield from self._seen(self._inner.on_watermark(micros), at)
        if micros < MAX_MICROS:  # then the end of input follows, which may fire
            self._tracker.expire(self._now())

    def on_idle(self) -> None:
        self._inner.on_idle()

    def on_side_watermark(self, collection: str, micros: int) -> Iterator[Emitted]:
        return self._seen(self._inner.on_side_watermark(collection, micros))

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        self._key = None
        return self._seen(self._inner.on_clock(micros))

    @property
    def paused(self) -> bool:
        return self._inner.paused

    def next_clock(self) -> int | None:
        return self._inner.next_clock()

    def hold(self) -> int:
        return self._inner.hold()

    def under_way(self) -> int:
        return self._inner.under_way()

    def finish(self) -> Iterator[Emitted]:
        self._key = None
        yield from self._seen(self._inner.finish(), self._now())
        self._tracker.expire(self._now())

    def snapshot(self, keys: Collection[Any] | None = None) -> Any:
        return self._inner.snapshot(keys)

    def restore(self, state: Any) -> None:
        self._inner.restore(state)

    def touched(self) -> list[Collection[Any]] | None:
        return self._inner.touched()

    def close(self) -> None:
        self._inner.close()

    # -- elements

    @property
    def _interval(self) -> int:
        """One element in so many is passed singly, and recorded."""
        return 1 + self._counts["elements"] // MOST_SINGLE

    def _gap(self) -> int:
        """The number of elements to pass together before the next single one: `_interval - 1` on average.

        The number varies, so that it doesn't stay in step with alternating keys: multiples of the golden ratio, modulo
        1, are spread evenly.
        """
        self._spacing = (self._spacing + 0.618033988749895) % 1.0
        return int(self._spacing * (2 * self._interval - 1))

    def _pass(self, block: Block, collection: str) -> Iterator[Emitted]:
        """Pass elements that are counted but not recorded.

        They count as events, so that equal distances in a picture represent equal numbers of elements.
        """
        self._event += len(block)
        self._key = None
        before = self._dropped()
        yield from self._seen(self._inner.process(block, collection))
        late, closed = (now - then for now, then in zip(self._dropped(), before, strict=True))
        self._counts["elements"] += len(block)
        self._counts["dropped_late"] += late
        self._counts["dropped_closed"] += closed

    def _arrive(self, block: Block, windows: tuple[Any, ...], collection: str) -> Iterator[Emitted]:
        """Pass one element through the operator, and record whether it was added, late or dropped."""
        (element,), (t,) = block.values, block.timestamp_column()
        at = self._next()
        key, value = self._of_key(element)
        self._key = key
        before = self._dropped()
        refused = False
        entered: list[TrackedWindow] | None = None
        try:
            for emitted in self._inner.process(block, collection):
                if emitted[0] == self._late:
                    refused = True
                elif entered is None:
                    entered = self._tracker.enter(key, windows, at)
                yield from self._seen(iter((emitted,)))
        finally:
            late, closed = (now - then for now, then in zip(self._dropped(), before, strict=True))
            if entered is None and not (closed or late or refused):
                entered = self._tracker.enter(key, windows, at)
            standing = self._standing(t, windows, entered, closed=closed > 0 and not entered)
            self._count(standing)
            if key is not None:
                sample = key.plain if standing in ("in time", "behind") else key.marked
                sample.offer(lambda: Arrival(at, key.number, text_of(value), t, standing), self._interval)

    def _standing(
        self, t: int, windows: tuple[Any, ...], entered: list[TrackedWindow] | None, *, closed: bool
    ) -> Standing:
        if not windows:
            return "no window"
        if closed:
            return "dropped closed"
        if not entered:
            return "dropped late"
        if all(window_end(opened.window) <= self._tracker.watermark for opened in entered):
            return "late"
        return "behind" if t < self._tracker.watermark and t != UNSTAMPED else "in time"

    def _count(self, standing: Standing) -> None:
        self._counts["elements"] += 1
        name = standing.replace(" ", "_")
        if name in self._counts:
            self._counts[name] += 1

    def _of_key(self, element: Any) -> tuple[TrackedKey | None, Any]:
        """The record of the element's key (None if it is not shown), and the element without its key."""
        key, value = element, element
        match self._key_of:
            case "none":
                return self._tracker.unkeyed, element
            case "first":
                try:
                    key, value = element
                except (TypeError, ValueError):  # the operator refuses it, saying why
                    return self._tracker.unkeyed, element
        return self._tracker.key(key), value

    def _dropped(self) -> tuple[int, int]:
        counted = self._context.metrics.counters
        late, closed = self._counters
        return counted.get(late, 0), counted.get(closed, 0)

    # -- output

    def _seen(self, emitted: Iterator[Emitted], at: Moment | None = None) -> Iterator[Emitted]:
        """Record what the operator emits, and pass it on.

        Panes of one event share the moment `at`, unless they would hide each other in the picture: further panes of the
        same key and window, panes of another timing, and panes of overlapping windows.
        """
        reached = MIN_MICROS
        last: Any = None
        timings: dict[Any, Any] = {}
        panes: set[Any] = set()
        for collection, block in emitted:
            if collection != self._late:
                rows = zip(block.values, block.timestamp_column(), block.window_list(), block.pane_list(), strict=True)
                for value, t, windows, pane in rows:
                    window = windows[0] if windows else GLOBAL_WINDOW
                    key, value = self._pane_of(value)
                    overlaps = window != last and _start(window) < reached and not self._tracker.merges
                    one = (key, window)
                    again = (key is not None and one in panes) or timings.get(window, pane.timing) != pane.timing
                    if at is None or overlaps or again:
                        at, reached = self._next(), MIN_MICROS
                        timings, panes = {}, set()
                    last, reached = window, max(reached, window_end(window))
                    timings[window] = pane.timing
                    panes.add(one)
                    self._fired(at, key, value, t, window, pane)
            yield collection, block

    def _pane_of(self, value: Any) -> tuple[TrackedKey | None, Any]:
        """The record of the emitted key, if the output shows it, and the value."""
        if not isinstance(self._node, ParDo):
            return (self._tracker.unkeyed, value) if self._key_of == "none" else (self._tracker.key(value[0]), value[1])
        if isinstance(value, tuple) and len(value) == 2:
            found = self._tracker.key(value[0], new=False)
            if found is not None and self._key in (None, found):
                return found, value[1]
        return self._key or self._tracker.unkeyed, value

    def _fired(self, at: Moment, key: TrackedKey | None, value: Any, t: int, window: Any, pane: PaneInfo) -> None:
        self._counts["panes"] += 1
        if key is None:
            return
        opened = key.windows.get(window)
        number = key.number

        def made() -> tuple[Firing, TrackedWindow | None]:
            start, end = _bounds(window)
            firing = Firing(
                at, number, text_of(value), t, None, _name(window), start, end, pane.timing.value,
                pane.index, pane.nonspeculative_index, pane.is_first, pane.is_last,
            )  # fmt: skip
            return firing, opened

        self._firings.offer(made)

    # -- moments

    def _next(self) -> Moment:
        self._event += 1
        return self._now()

    def _now(self) -> Moment:
        return Moment(self._event, self._clock.now())

    # -- the record

    def traced(self) -> Traced:
        """What has been recorded so far."""
        keys = [self._tracker.unkeyed, *self._tracker.keys.values()]
        numbers: dict[TrackedWindow, int] = {}
        for opened in (
            *self._tracker.windows.kept,
            *(opened for _, opened in self._firings.kept if opened is not None),
        ):
            following: TrackedWindow | None = opened
            while following is not None and following not in numbers:
                numbers[following] = len(numbers)
                following = following.into
        advances = list(self._advances.kept)
        if self._last_advance is not None and advances[-1] != self._last_advance:
            advances.append(self._last_advance)
        plain, every_plain = drawn([key.plain for key in keys])
        marked, every_marked = drawn([key.marked for key in keys])
        arrivals = sorted((*plain, *marked), key=lambda a: a.at.event)
        firings = [replace(f, window=None if o is None else numbers[o]) for f, o in self._firings.kept]
        every = {
            "element": max(every_plain, self._interval),
            "late or dropped element": max(every_marked, self._interval) if marked else 1,
            "window": self._tracker.windows.every,
            "pane": self._firings.every,
            "advance of the watermark": self._advances.every,
        }
        return Traced(
            label=self._label,
            where=str(self._node.where),
            facts=(*self._computes, *_facts(self._node, self._strategy)),
            bounded=self._input.bounded,
            merging=self._tracker.merges,
            keys=tuple(key.text for key in self._tracker.keys.values()),
            arrivals=tuple(arrivals),
            windows=tuple(_window(opened, numbers) for opened in numbers),
            firings=tuple(firings),
            watermark=tuple(advances),
            counts={**self._counts, "keys": self._tracker.key_count},
            every={name: n for name, n in every.items() if n > 1},
        )


def _of_relation(plan: Plan, label: str, composite: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The label that the author knows: of a part of a relational step, that of the step, with what it computes."""
    for decision in plan.decisions:
        if decision.choice == RELATION and decision.step in (label, composite):
            return decision.step, (("computes", decision.reason),)
    return label, ()


def _window(opened: TrackedWindow, numbers: dict[TrackedWindow, int]) -> Window:
    start, end = _bounds(opened.window)
    into = None if opened.into is None else numbers[opened.into]
    return Window(opened.key.number, _name(opened.window), start, end, opened.opened, opened.closed, into)


def _bounds(window: Any) -> tuple[int | None, int | None]:
    """The start and the end of a window (µs); None where it is unbounded."""
    end = window_end(window)
    start = window.start_micros if type(window) is IntervalWindow else MIN_MICROS
    return None if start <= MIN_MICROS else start, None if end >= MAX_MICROS else end


def _start(window: Any) -> int:
    return window.start_micros if type(window) is IntervalWindow else MIN_MICROS


def _name(window: Any) -> str:
    return "global window" if window == GLOBAL_WINDOW else text_of(window)


def _facts(node: GroupByKey | CombinePerKey | ParDo, strategy: WindowingStrategy) -> Iterator[tuple[str, str]]:
    match node:
        case GroupByKey():
            yield "step", "GroupByKey"
        case CombinePerKey():
            yield "step", "Combine"
        case ParDo():
            yield "step", "stateful DoFn"
    yield "windows", describe(strategy.assigner)
    if not isinstance(node, ParDo):
        yield "trigger", describe(strategy.trigger)
        yield "panes", describe(strategy.accumulation)
    if strategy.allowed_lateness.micros:
        yield "allowed lateness", describe(strategy.allowed_lateness)
    if strategy.evictor is not None:
        yield "evictor", describe(strategy.evictor)
