"""Watching an operator for a trace: what goes in, what becomes of it, what comes out.

A watcher hands its operator one element at a time, which changes nothing (SEMANTICS: blocks may be cut anywhere), and
so sees what became of each. What it keeps is bounded however long the run: evenly spread samples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.plan import Plan, Step
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.drawing.graph import spoken
from tidegate.sdk.errors import shorten
from tidegate.sdk.metrics import ENGINE, MetricKey
from tidegate.sdk.portable.model import CombinePerKey, GroupByKey, ParDo
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.windowing.assigners import is_merging
from tidegate.sdk.windowing.strategy import WindowingStrategy
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow, window_end
from tidegate.sdk.windowing.window_merging import merge_windows
from tidegate.testing.trace.model import UNSTAMPED, Arrival, Firing, Moment, Standing, Traced, Window
from tidegate.testing.trace.sampling import Sample, drawn

MOST_SINGLE: Final = 20_000
"""When so many elements have come one at a time, one of two comes alone; after as many again, one of three; …"""
MOST_KEYS: Final = 60
"""Keys beyond these are counted, not shown."""
MOST_PER_KEY: Final = 400
MOST_MARKED: Final = 200
"""Of late and dropped elements, which are kept apart lest thinning lose them."""
MOST_WINDOWS: Final = 1500
MOST_OPEN: Final = 20_000
MOST_FIRINGS: Final = 1500
MOST_ADVANCES: Final = 2000
VALUE_LENGTH: Final = 100


@dataclass(slots=True, eq=False)
class _Open:
    """A window of a key while it lives, and what has become of it."""

    key: _Key
    window: Any
    opened: Moment
    expiry: int
    closed: Moment | None = None
    into: _Open | None = None


class _Key:
    """What is known of one key."""

    def __init__(self, number: int, text: str) -> None:
        self.number = number
        self.text = text
        self.windows: dict[Any, _Open] = {}
        self.plain: Sample[Arrival] = Sample(MOST_PER_KEY)
        self.marked: Sample[Arrival] = Sample(MOST_MARKED)


class Watcher(Operator):
    """An operator, and a record of what goes in and comes out."""

    def __init__(self, step: Step, plan: Plan, operator: Operator, context: Context, clock: Clock) -> None:
        node = step.tail
        assert isinstance(node, (GroupByKey, CombinePerKey, ParDo))
        self._inner = operator
        self._node = node
        self._input = plan.pipeline.collection(node.inputs[0])
        self._context = context
        self._clock = clock
        self._main = set(node.inputs) | {edge.collection for edge in plan.inputs(step.id) if edge.side is None}
        self._late = next((out.collection for out in node.outputs if out.tag == getattr(node, "late_tag", None)), None)
        self._key_of = node.key if isinstance(node, CombinePerKey) else "first"
        strategy = self._input.windowing
        self._strategy = strategy
        self._lateness = strategy.allowed_lateness.micros
        self._merges = merge_windows(strategy.assigner) if is_merging(strategy.assigner) else None
        self._watermark = MIN_MICROS
        self._event = 0
        self._spacing = 0.0
        self._keys: dict[Any, _Key] = {}
        self._without = _Key(-1, "")
        self._others: set[Any] = set()
        self._expiries: list[tuple[int, int, _Open]] = []
        self._serial = count()
        self._key: _Key | None = None
        self._windows: Sample[_Open] = Sample(MOST_WINDOWS)
        self._firings: Sample[tuple[Firing, _Open | None]] = Sample(MOST_FIRINGS)
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
            if self._apart > 1 and i < len(block) and (gap := self._gap()):
                others = block.slice(i, i + gap)
                yield from self._pass(others, collection)
                i += len(others)

    def process_keyed(self, keyed: KeyedBatch, collection: str) -> Iterator[Emitted]:
        return super().process_keyed(keyed, collection)  # as blocks, whose elements can be looked at

    def finish_bundle(self) -> Iterator[Emitted]:
        return self._seen(self._inner.finish_bundle())

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        at = self._next()
        self._watermark = micros
        self._key = None
        self._last_advance = (at, micros)
        self._advances.offer(lambda: (at, micros))
        yield from self._seen(self._inner.on_watermark(micros), at)
        if micros < MAX_MICROS:  # then the end of input follows, which may fire
            self._expire(self._now())

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

    def finish(self) -> Iterator[Emitted]:
        self._key = None
        yield from self._seen(self._inner.finish(), self._now())
        self._expire(self._now())

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
    def _apart(self) -> int:
        """One of how many elements comes alone."""
        return 1 + self._counts["elements"] // MOST_SINGLE

    def _gap(self) -> int:
        """How many elements pass before the next comes alone: `_apart - 1` on average, and never in step with keys that
        take turns. Multiples of the golden ratio are spread evenly."""
        self._spacing = (self._spacing + 0.618033988749895) % 1.0
        return int(self._spacing * (2 * self._apart - 1))

    def _pass(self, block: Block, collection: str) -> Iterator[Emitted]:
        """Elements that are only counted. They are events like those that are looked at, so that equal distances in a
        picture are equal numbers of elements."""
        self._event += len(block)
        self._key = None
        before = self._dropped()
        yield from self._seen(self._inner.process(block, collection))
        late, closed = (now - then for now, then in zip(self._dropped(), before, strict=True))
        self._counts["elements"] += len(block)
        self._counts["dropped_late"] += late
        self._counts["dropped_closed"] += closed

    def _arrive(self, block: Block, windows: tuple[Any, ...], collection: str) -> Iterator[Emitted]:
        """One element through the operator; then it is known whether it was dropped."""
        (element,), (t,) = block.values, block.timestamp_column()
        at = self._next()
        key, value = self._of_key(element)
        self._key = key
        before = self._dropped()
        refused = False
        entered: list[_Open] | None = None
        try:
            for emitted in self._inner.process(block, collection):
                if emitted[0] == self._late:
                    refused = True
                elif entered is None:
                    entered = self._enter(key, windows, at)
                yield from self._seen(iter((emitted,)))
        finally:
            late, closed = (now - then for now, then in zip(self._dropped(), before, strict=True))
            kept: list[_Open] | None = None
            if closed == 0 or entered:
                kept = entered if entered is not None or late or refused else self._enter(key, windows, at)
            standing = self._standing(t, windows, kept, closed=closed > 0 and not kept)
            self._count(standing)
            if key is not None:
                sample = key.plain if standing in ("in time", "behind") else key.marked
                sample.offer(lambda: Arrival(at, key.number, _text(value), t, standing), self._apart)

    def _standing(self, t: int, windows: tuple[Any, ...], kept: list[_Open] | None, *, closed: bool) -> Standing:
        if not windows:
            return "no window"
        if closed:
            return "dropped closed"
        if not kept:
            return "dropped late"
        if all(window_end(opened.window) <= self._watermark for opened in kept):
            return "late"
        return "behind" if t < self._watermark and t != UNSTAMPED else "in time"

    def _count(self, standing: Standing) -> None:
        self._counts["elements"] += 1
        name = standing.replace(" ", "_")
        if name in self._counts:
            self._counts[name] += 1

    def _of_key(self, element: Any) -> tuple[_Key | None, Any]:
        """What is known of the element's key, None of one too many, and the element without it."""
        key, value = element, element
        match self._key_of:
            case "none":
                return self._without, element
            case "first":
                try:
                    key, value = element
                except (TypeError, ValueError):  # the operator says what is wrong with it
                    return self._without, element
        return self._known(key), value

    def _known(self, key: Any, *, new: bool = True) -> _Key | None:
        try:
            found = self._keys.get(key)
        except TypeError:
            return self._without
        if found is not None or not new:
            return found
        if len(self._keys) < MOST_KEYS:
            found = self._keys[key] = _Key(len(self._keys), _text(key))
        elif len(self._others) < MOST_OPEN:
            self._others.add(key)
        return found

    def _dropped(self) -> tuple[int, int]:
        counted = self._context.metrics.counters
        late, closed = self._counters
        return counted.get(late, 0), counted.get(closed, 0)

    # -- windows

    def _enter(self, key: _Key | None, windows: Iterable[Any], at: Moment) -> list[_Open]:
        """The windows that take an element, as far as they have not expired; merged first, where they merge."""
        if key is None:
            live = [(window, expiry) for window in windows if (expiry := self._expiry(window)) > self._watermark]
            return [_Open(self._without, window, at, expiry) for window, expiry in live]
        if self._merges is not None:
            windows = self._merged(key, tuple(windows), at)
        found = (key.windows.get(window) or self._opened(key, window, at) for window in windows)
        return [opened for opened in found if opened is not None]

    def _merged(self, key: _Key, windows: tuple[Any, ...], at: Moment) -> Iterable[Any]:
        assert self._merges is not None
        try:
            merges = self._merges([*key.windows, *windows])
        except Exception:  # the author's merge: the operator blames it
            return windows
        placed = {}
        for whole, parts in merges:
            placed.update(dict.fromkeys(parts, whole))
            olds = [key.windows[part] for part in parts if part in key.windows and part != whole]
            into = key.windows.get(whole) or self._opened(key, whole, at)
            for old in olds:
                if into is not None:
                    del key.windows[old.window]
                    old.closed, old.into = at, into
        return dict.fromkeys(placed.get(window, window) for window in windows)

    def _expiry(self, window: Any) -> int:
        return min(window_end(window) + self._lateness, MAX_MICROS)

    def _opened(self, key: _Key, window: Any, at: Moment) -> _Open | None:
        expiry = self._expiry(window)
        if expiry <= self._watermark:
            return None
        opened = _Open(key, window, at, expiry)
        if len(self._expiries) < MOST_OPEN:
            key.windows[window] = opened
            heappush(self._expiries, (expiry, next(self._serial), opened))
            self._windows.offer(lambda: opened)
        return opened

    def _expire(self, at: Moment) -> None:
        """Close the windows that the watermark has taken."""
        while self._expiries and self._expiries[0][0] <= self._watermark:
            opened = heappop(self._expiries)[2]
            if opened.closed is None:
                opened.closed = at
                opened.key.windows.pop(opened.window, None)

    # -- what comes out

    def _seen(self, emitted: Iterator[Emitted], at: Moment | None = None) -> Iterator[Emitted]:
        """The same, recorded. Panes of one event are at one moment, `at`, unless they would hide each other.

        That is so of a key's next pane of the same window, of another timing, and of windows that overlap.
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
                    overlaps = window != last and _start(window) < reached and self._merges is None
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

    def _pane_of(self, value: Any) -> tuple[_Key | None, Any]:
        """The key of what was emitted, as far as it shows, and the rest."""
        if not isinstance(self._node, ParDo):
            return (self._without, value) if self._key_of == "none" else (self._known(value[0]), value[1])
        if isinstance(value, tuple) and len(value) == 2:
            found = self._known(value[0], new=False)
            if found is not None and self._key in (None, found):
                return found, value[1]
        return self._key or self._without, value

    def _fired(self, at: Moment, key: _Key | None, value: Any, t: int, window: Any, pane: PaneInfo) -> None:
        self._counts["panes"] += 1
        if key is None:
            return
        opened = key.windows.get(window)
        number = key.number

        def made() -> tuple[Firing, _Open | None]:
            start, end = _bounds(window)
            firing = Firing(
                at, number, _text(value), t, None, _name(window), start, end, pane.timing.value,
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
        """What has been seen so far."""
        keys = [self._without, *self._keys.values()]
        numbers: dict[_Open, int] = {}
        for opened in (*self._windows.kept, *(opened for _, opened in self._firings.kept if opened is not None)):
            following: _Open | None = opened
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
            "element": max(every_plain, self._apart),
            "late or dropped element": max(every_marked, self._apart) if marked else 1,
            "window": self._windows.every,
            "pane": self._firings.every,
            "advance of the watermark": self._advances.every,
        }
        return Traced(
            label=self._node.label,
            where=str(self._node.where),
            facts=tuple(_facts(self._node, self._strategy)),
            bounded=self._input.bounded,
            merging=self._merges is not None,
            keys=tuple(key.text for key in self._keys.values()),
            arrivals=tuple(arrivals),
            windows=tuple(_window(opened, numbers) for opened in numbers),
            firings=tuple(firings),
            watermark=tuple(advances),
            counts={**self._counts, "keys": len(self._keys) + len(self._others)},
            every={name: n for name, n in every.items() if n > 1},
        )


def _window(opened: _Open, numbers: dict[_Open, int]) -> Window:
    start, end = _bounds(opened.window)
    into = None if opened.into is None else numbers[opened.into]
    return Window(opened.key.number, _name(opened.window), start, end, opened.opened, opened.closed, into)


def _bounds(window: Any) -> tuple[int | None, int | None]:
    """Where a window starts and ends (µs), None for where it does not."""
    end = window_end(window)
    start = window.start_micros if type(window) is IntervalWindow else MIN_MICROS
    return None if start <= MIN_MICROS else start, None if end >= MAX_MICROS else end


def _start(window: Any) -> int:
    return window.start_micros if type(window) is IntervalWindow else MIN_MICROS


def _name(window: Any) -> str:
    return "global window" if window == GLOBAL_WINDOW else _text(window)


def _text(value: Any) -> str:
    return shorten(value, VALUE_LENGTH)


def _facts(node: GroupByKey | CombinePerKey | ParDo, strategy: WindowingStrategy) -> Iterator[tuple[str, str]]:
    match node:
        case GroupByKey():
            yield "step", "GroupByKey"
        case CombinePerKey():
            yield "step", "Combine"
        case ParDo():
            yield "step", "stateful DoFn"
    yield "windows", spoken(strategy.assigner)
    if not isinstance(node, ParDo):
        yield "trigger", spoken(strategy.trigger)
        yield "panes", spoken(strategy.accumulation)
    if strategy.allowed_lateness.micros:
        yield "allowed lateness", spoken(strategy.allowed_lateness)
    if strategy.evictor is not None:
        yield "evictor", spoken(strategy.evictor)
