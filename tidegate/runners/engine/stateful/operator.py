"""The operator of stateful DoFns: the author's function runs per element and window, with its key's state and timers.

One watermark or clock event evaluates each window and key that has something due once: windows by (end, start), keys
in the order in which they came to have timers (by arrival, where a window's expiration is the author's concern),
timers by (timestamp, declaration, tag), those set meanwhile for the past among them; then, if the window has expired,
`@on_window_expiration`. An expired window's state is collected after all its keys.

The end of input is the watermark at the end of time: there timers on the clock fire once, after event-time ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Literal

from tidegate.runners.engine.checks.contracts import check_pair, check_travels
from tidegate.runners.engine.elementwise.code_writer import Source
from tidegate.runners.engine.elementwise.compiled import LoopPosition
from tidegate.runners.engine.elementwise.fused_loop import FusedLoop
from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.elementwise.side_exits import ElementContext
from tidegate.runners.engine.errors.attribution import guarded, has_author_frames, not_pairs, rethrow, user_error
from tidegate.runners.engine.operator import NEVER, Context, Emitted, KeyedOperator, Wakeups
from tidegate.runners.engine.state.cells import CombiningCell
from tidegate.runners.engine.state.keyed_state import KeyedState, Touched, TouchedKeys, first_of, of_keys, without
from tidegate.runners.engine.state.tables import StateTables
from tidegate.runners.engine.state.timers import DROPPED_TIMERS, FULL_KEYS, Pending, Timers
from tidegate.runners.engine.stateful.codegen import (
    KEY_LINK,
    Facts,
    StateShape,
    generate_callback,
    generate_process,
)
from tidegate.sdk.data.block import Block, DerivedFrom, Each, Same
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.data.values import SPECIAL
from tidegate.sdk.errors import RunError
from tidegate.sdk.portable.model import Callback, ParDo
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, Timestamp
from tidegate.sdk.windowing.assigners import GlobalWindows
from tidegate.sdk.windowing.assignment import assign_windows, single_window
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow, window_end

_serial: Final = count()

_NO_ELEMENTS: Final = Block(())

_CELL: Final = "cell/"
_ENDS: Final = "ends/"
_TIMERS: Final = "timers"
_ARRIVED: Final = "arrived"
"""Tables of a snapshot: of each cell what is stored, and when that outlives its time-to-live; timers; arrivals."""


class StatefulOperator(KeyedOperator):
    """A ParDo with state cells or timers. Its input comes by key: all elements of a key meet here.

    `bounded`: the rules for bounded input hold, so the clock is silent and nothing outlives a time-to-live. Otherwise
    the runner tells the time by `on_clock` before the first block.
    """

    def __init__(
        self,
        link: Link,
        context: Context,
        main: str,
        *,
        bounded: bool,
        exits: Mapping[tuple[str, str], str] | None = None,
        sides: dict[str, Callable[[Any], Any]] | None = None,
    ) -> None:
        node = link.node
        assert isinstance(node, ParDo)
        self.link = link
        self.context = context
        self.main = main
        self._loop = FusedLoop(
            (link,),
            context,
            main,
            exits=exits or {},
            sides=sides or {},
            rest=self._emitted,
            environment=self._environment,
            attribute=self._blamed_on_key,
        )
        self._exits = self._loop.exits
        self.bounded = bounded
        self.tables = StateTables(node.states, expiring=not bounded)
        self.timers = Timers(node.timers, bounded=bounded, most_at_end=context.max_end_timers)
        self._paused = False
        self._callbacks = {callback.timer: callback for callback in node.callbacks if callback.timer is not None}
        self._expiration = next((callback for callback in node.callbacks if callback.timer is None), None)
        self._lateness = link.windowing.allowed_lateness.micros
        self._arrivals: dict[Any, dict[Any, int]] = {}
        self._facts = Facts(
            tuple(spec.name for spec in node.states),
            frozenset(spec.name for spec in node.states if self.tables.mortal(spec.name)),
            tuple(spec.name for spec in node.timers),
            self._expiration is not None,
        )
        self._processing: dict[StateShape, Callable[..., Iterator[Emitted]]] = {}
        self._callers: dict[tuple[str, bool], Callable[..., Iterator[Any]]] = {}
        self._called = 0
        self._expiries: dict[Any, int] = {}
        self._by_expiry: list[tuple[int, int, int, Any]] = []
        """Windows by their expiry; of those that expire at once, the one that ends first comes first."""
        self._places: tuple[Any, Callable[[int], tuple[int, int]] | None] = (None, None)
        self._touches = TouchedKeys()
        """Of keys whose timers, arrivals or times-to-live may have changed; what is in cells is noted there."""
        self._noting = bool(node.timers or self._expiration or self._facts.mortal)
        self._out: list[Any] = []
        self._out_t: list[int] = []
        self._out_w: list[tuple[Any, ...]] = []

    # -- the life of the step

    def open(self) -> None:
        self._loop.open()
        for fn in self._combiners():
            guarded(fn.setup, step=self.link.label, where=self.link.where, method=f"{type(fn).__name__}.setup")

    def close(self) -> None:
        self._loop.close()
        for fn in self._combiners():
            guarded(fn.teardown, step=self.link.label, where=self.link.where, method=f"{type(fn).__name__}.teardown")

    def _combiners(self) -> Iterator[Any]:
        return (cell.fn for cell in self.tables.cells.values() if isinstance(cell, CombiningCell))

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        timers = self.timers
        if micros <= timers.watermark and not self._paused:
            return
        timers.watermark = micros
        self._paused = False
        due = timers.due()
        last = timers.at_end() if micros == MAX_MICROS else {}
        expired = self._pop_expired(micros)
        for window in sorted({*due, *last, *expired}, key=_window_order):
            of_window = due.get(window, {}), last.get(window, {})
            if not self._paused:
                yield from self._evaluate(window, *of_window, expired=window in expired)
            if self._paused:
                self._put_back(window, *of_window, expired=window in expired)
        yield from self._flush()
        self._report()

    @property
    def paused(self) -> bool:
        return self._paused

    def _put_back(
        self, window: Any, due: dict[Any, list[Pending]], last: dict[Any, list[Pending]], *, expired: bool
    ) -> None:
        """Leave what a window has still to do for later."""
        for timers in (*due.values(), *last.values()):
            self.timers.put_back(timers)
        if expired:
            self._await(window, MAX_MICROS)

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        if micros <= self.timers.clock:
            return
        self.timers.clock = micros
        if self.bounded or self._paused:  # what is due waits for the rest of the end of input
            return
        self.tables.sweep(micros)
        due = self.timers.due()
        for window in sorted(due, key=_window_order):
            yield from self._evaluate(window, due[window], {}, expired=False)
        yield from self._flush()
        self._report()

    def _processing_time(self) -> Timestamp:
        return Timestamp.of_micros(self.context.now() if self.bounded else self.timers.clock)

    def next_clock(self) -> int | None:
        if self.bounded or self._paused:
            return None
        return min((at for at in (self.timers.next_clock(), self.tables.next_sweep()) if at is not None), default=None)

    def hold(self) -> int:
        """The least output timestamp of a timer. Results of `@on_window_expiration` stand at a window's
        `max_timestamp`, so that holds the watermark too.
        """
        held = self.timers.hold()
        if self._expiration is not None and self._by_expiry:
            held = min(held, self._by_expiry[0][1] - 1)
        return held

    def finish(self) -> Iterator[Emitted]:
        yield from self.finish_bundle()
        yield from self.on_watermark(MAX_MICROS)

    # -- state by key

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if not len(block):
            return
        self._loop.start_bundle()
        for part, checked in self._loop.checks.sampled(block):
            found = _found_windows(part)
            self._loop.counters.received += len(found)
            yield from self._loop.run(self._compiled(found, checked), found)
        if self._noting and self._touches.on:
            self._touches.note(self.keys_of(block))

    def keys_of(self, block: Block) -> Iterable[Any]:
        return map(first_of, block.values)

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        cells = self.tables.snapshot(keys)
        tables = {f"{_CELL}{name}": tables for name, tables in cells.items()}
        tables |= {f"{_ENDS}{name}": tables for name, tables in self.tables.dates(keys).items()}
        if self.timers.specs:
            tables[_TIMERS] = self.timers.snapshot(keys)
        if self._expiration is not None:
            tables[_ARRIVED] = {window: of_keys(seen, keys, None) for window, seen in self._arrivals.items()}
        return KeyedState(
            tables,
            self.timers.watermark,
            self.timers.clock,
            keys=None if keys is None else self.tables.replaced(keys),
            windows=None if keys is None else list(self._expiries),
        )

    def restore(self, state: KeyedState) -> None:
        cells = {name[len(_CELL) :]: tables for name, tables in state.tables.items() if name.startswith(_CELL)}
        ends = {name[len(_ENDS) :]: tables for name, tables in state.tables.items() if name.startswith(_ENDS)}
        clock = MIN_MICROS if state.clock is None else state.clock
        try:
            self.tables.restore(cells, ends, max(clock, 0))
            self.timers.restore(state.tables.get(_TIMERS, {}))
        except KeyError as error:
            raise RunError(
                f"the snapshot holds state of {self.link.label!r} under the name {error}, which the step, applied at "
                f"{self.link.where}, no longer declares: declare it again, or start from no snapshot"
            ) from None
        if self._expiration is not None:
            for window, seen in state.tables.get(_ARRIVED, {}).items():
                known = self._arrivals.get(window)
                if known is None:
                    # Numbers may be those of several tasks, or have gaps: new ones go on from how many there are.
                    in_order = sorted(seen, key=seen.__getitem__)
                    self._arrivals[window] = {key: n for n, key in enumerate(in_order)}
                else:
                    known.update(seen)
        self.timers.watermark, self.timers.clock = state.watermark, clock
        for window in {*self.tables.windows(), *self.timers.windows(), *self._arrivals}:
            if state.watermark == MAX_MICROS:
                self._paused = True  # else nothing would be left of any window
                self._await(window, MAX_MICROS)
            else:
                self._expiry(window)

    def touched(self) -> Touched | None:
        changed, touched = self.tables.changed(), self._touches.take()
        if changed is None or touched is None:
            return None
        return [changed, *touched] if self._noting else [changed]

    def next_event(self) -> int:
        at = self.timers.next_clock()
        if at is not None and at <= self.timers.clock:
            return MIN_MICROS  # they are looked at with any event
        timer = self.timers.next_event()
        expiry = self._by_expiry[0][0] if self._by_expiry else MAX_MICROS
        return min(expiry, MAX_MICROS if timer is None else timer)

    def evict(self, keys: Collection[Any]) -> None:
        self.tables.evict(keys)
        self.timers.evict(keys)
        for seen in self._arrivals.values():
            without(seen, keys)

    def wakeups(self, state: KeyedState) -> dict[Any, Wakeups]:
        """Timers, times-to-live, and ends of windows: of the global one, where nothing else is done, for a callback."""
        found: dict[Any, Wakeups] = {}

        def note(key: Any, event: int = NEVER, clock: int = NEVER, hold: int = MAX_MICROS) -> None:
            known = found.get(key)
            if known is not None:
                event, clock, hold = min(event, known.event), min(clock, known.clock), min(hold, known.hold)
            found[key] = Wakeups(event, clock, hold)

        for name, tables in state.tables.items():
            for window, table in tables.items():
                expiry = self._expiry(window)
                if expiry < MAX_MICROS or (name == _ARRIVED and table):
                    for key in table:
                        note(key, event=expiry)
                if name == _ARRIVED:
                    for key in table:
                        note(key, hold=window_end(window) - 1)
                elif name.startswith(_ENDS):
                    for key, end in table.items():
                        note(key, clock=end)
                elif name == _TIMERS:
                    for key, (_, timers, *_) in table.items():
                        for timer, _, at, output, *_ in timers:
                            if self.timers.specs[self.timers.handles[timer].order].domain == "event":
                                note(key, event=at, hold=output)
                            else:
                                note(key, event=MAX_MICROS, clock=at, hold=output)  # it fires at the end of input, too
        return found

    # -- windows

    def _enter(self, window: Any) -> bool:
        """Point at a window; False if it has expired."""
        expiry = self._expiry(window)
        if expiry <= self.timers.watermark:
            return False
        self.tables.enter(window)
        self.timers.enter(window, expiry)
        return True

    def _expiry(self, window: Any) -> int:
        """When a window expires (µs); one that is new is noted, if it has not."""
        expiry = self._expiries.get(window)
        if expiry is None:
            expiry = min(window_end(window) + self._lateness, MAX_MICROS)
            if expiry > self.timers.watermark:
                self._await(window, expiry)
        return expiry

    def _await(self, window: Any, expiry: int) -> None:
        """Have a window wait for its expiry (µs)."""
        if window not in self._expiries:
            self._expiries[window] = expiry
            heappush(self._by_expiry, (expiry, window_end(window), next(_serial), window))

    def _place(self, t: int) -> tuple[int, int, Any, bool]:
        """The bounds of the one window that holds `t`, itself, and whether it has not expired."""
        bounds = self._places[1]
        assert bounds is not None
        low, high = bounds(t)
        window = IntervalWindow.of_micros(low, high)
        return low, high, window, self._enter(window)

    def _seen_in(self, window: Any) -> dict[Any, int]:
        return self._arrivals.setdefault(window, {})

    def _refused(self, n: int) -> None:
        self.context.count(self.link.label, "dropped_late", n)

    def _pop_expired(self, watermark: int) -> dict[Any, None]:
        expired: dict[Any, None] = {}
        while self._by_expiry and self._by_expiry[0][0] <= watermark:
            window = heappop(self._by_expiry)[-1]
            del self._expiries[window]
            expired[window] = None
        return expired

    # -- timers and expiration

    def _evaluate(
        self, window: Any, due: dict[Any, list[Pending]], last: dict[Any, list[Pending]], *, expired: bool
    ) -> Iterator[Emitted]:
        """One window of one event: `due` timers, `last` those on the clock at the end of input."""
        timers = self.timers
        self.tables.enter(window)
        timers.enter(window, min(window_end(window) + self._lateness, MAX_MICROS))
        keys = self._keys(window, due, last, expired=expired)
        at_end = timers.watermark == MAX_MICROS
        if self._touches.on:
            self._touches.note(keys)
        for key in keys:
            timers.begin_key(key)
            for some in (due, last):
                timers.owe(some.pop(key, ()))
                yield from self._fire_overdue(key, window)
                if self._paused:
                    timers.put_back_overdue()
                    return
            if expired and self._expiration is not None:
                timers.closing = True
                yield from self._call(self._expiration, key, window, window_end(window) - 1, "")
                timers.closing = False
                if at_end:
                    del self._arrivals[window][key]  # should the rest be left for later, it is not called again
        if expired:
            self.tables.collect(window)
            timers.collect(window)
            self._arrivals.pop(window, None)

    def _keys(
        self, window: Any, due: dict[Any, list[Pending]], last: dict[Any, list[Pending]], *, expired: bool
    ) -> list[Any]:
        if self._expiration is None:
            return [*dict.fromkeys([*due, *last])]
        arrived = self._arrivals.get(window, {})
        return sorted(arrived if expired else {*due, *last}, key=arrived.__getitem__)

    def _fire(self, window: Any) -> Iterator[Emitted]:
        """What has become overdue during an element, whose key is in hand."""
        yield from self._fire_overdue(self.timers.key, window)
        yield from self._flush()

    def _fire_overdue(self, key: Any, window: Any) -> Iterator[Emitted]:
        while (timer := self.timers.next_overdue()) is not None:
            callback = self._callbacks[self.timers.specs[timer.order].name]
            yield from self._call(callback, key, window, timer.output, timer.tag)
            if self.timers.watermark == MAX_MICROS:
                # There may be very many: whoever drives this gets control between two of them, and may have it pause.
                yield self.main, _NO_ELEMENTS
                if self.context.should_pause():
                    self._paused = True
                    return

    def _call(self, callback: Callback, key: Any, window: Any, t: int, tag: str) -> Iterator[Emitted]:
        """Run a callback; what it gives stands at `t` (µs) in `window`."""
        self._called += 1
        checks = self.context.checks
        watched = checks is not None and checks.elements_to_check(self._called - 1, self._called, 1) > 0
        try:
            for made in self._caller(callback, watched)(key, window, t, tag):
                if type(made) in SPECIAL:
                    yield from self._flush()
                    at = ElementContext(0, t, (window,), -1, -1, Block([None], t, Same((window,))))
                    yield from self._exits.special(made, at)
                    continue
                if self.context.runtime_types and self.link.hint is not None:
                    self._loop.checks.typed(0, made)
                self._out.append(made)
                self._out_t.append(t)
                self._out_w.append((window,))
                if len(self._out) >= self.context.block_size:
                    yield from self._flush()
        except GeneratorExit:
            raise
        except BaseException as error:
            rethrow(user_error(error, step=self.link.label, where=self.link.where, method=callback.method, key=key))

    def _flush(self) -> Iterator[Emitted]:
        if self._out:
            values, times, windows = self._out, self._out_t, self._out_w
            self._out, self._out_t, self._out_w = [], [], []
            self._loop.counters.emitted += len(values)
            same = all(some == windows[0] for some in windows)
            yield self.main, Block(values, times, Same(windows[0]) if same else Each(windows))

    def _report(self) -> None:
        self.context.count(self.link.label, DROPPED_TIMERS, self.timers.dropped)
        self.context.count(self.link.label, FULL_KEYS, self.timers.full)
        self.timers.dropped = self.timers.full = 0
        self._loop.checks.verify()
        self._loop.report()

    # -- the generated loops

    def finish_bundle(self) -> Iterator[Emitted]:
        yield from self._loop.finish_bundle()
        if self.link.catches:
            self._loop.check_threshold(0, *self._loop.counters.attempts(0))
        self._report()

    def _compiled(self, block: Block, checked: bool) -> Callable[..., Iterator[Emitted]]:
        """The loop for blocks such as this one."""
        shape = StateShape(
            windows=self._windows_shape(block),
            timed=not isinstance(block.timestamps, int),
            indexed=not isinstance(block.panes, PaneInfo),
            stamps=bool(self._exits.stamps),
            checked=checked,
            typed=self.context.runtime_types,
            first=self._loop.first,
        )
        loop = self._processing.get(shape)
        if loop is None:
            loop = self._processing[shape] = self._made(generate_process(self.link, self._facts, shape))
        return loop

    def _windows_shape(self, block: Block) -> Literal["one", "single", "each"]:
        match block.windows:
            case Same((_,)):
                return "one"
            case DerivedFrom(assigner):
                if self._places[0] is not assigner:
                    self._places = assigner, single_window(assigner)
                return "each" if self._places[1] is None else "single"
            case _:
                return "each"

    def _caller(self, callback: Callback, watched: bool) -> Callable[..., Iterator[Any]]:
        caller = self._callers.get((callback.method, watched))
        if caller is None:
            node = self.link.node
            assert isinstance(node, ParDo)
            number = node.callbacks.index(callback)
            source = generate_callback(callback, self._facts, number, watched=watched)
            caller = self._callers[callback.method, watched] = self._made(source)
        return caller

    def _made(self, source: Source) -> Callable[..., Iterator[Any]]:
        return self._loop.compile(source, [self.link.label] * (KEY_LINK + 1))

    def _environment(self) -> dict[str, Any]:
        env: dict[str, Any] = {f"cell_{n}": cell for n, cell in enumerate(self.tables.cells.values())}
        env |= {f"watched_{n}": cell for n, cell in enumerate(self.tables.watched.values())}
        env |= {f"timer_{n}": handle for n, handle in enumerate(self.timers.handles.values())}
        node = self.link.node
        assert isinstance(node, ParDo)
        for number, callback in enumerate(node.callbacks):
            env[f"callback_{number}"] = getattr(self.link.dofn, callback.method)
        return env | {
            "timers": self.timers,
            "overdue": self.timers.overdue,
            "enter": self._enter,
            "place": self._place,
            "arrivals": self._seen_in,
            "refused": self._refused,
            "fire": self._fire,
            "verify": self.tables.verify,
            "arrives": _arrives,
            "check_pair": check_pair,
            "instant": Timestamp.of_micros,
            "watermark": lambda: Timestamp.of_micros(self.timers.watermark),
            "processing_time": self._processing_time,
        }

    def _blamed_on_key(self, error: BaseException, place: LoopPosition) -> BaseException | None:
        no_pair = isinstance(error, (TypeError, ValueError)) and not has_author_frames(error)
        return (
            not_pairs(place.element, self.link.label, self.link.where) if no_pair and place.link == KEY_LINK else None
        )

    def _emitted(self, k: int, block: Block) -> Iterator[Emitted]:
        """What has left the loop by a side exit: there are no links behind this one."""
        yield self.main, block


def _found_windows(block: Block) -> Block:
    """The block with the one list of windows that all its elements share, where there is one."""
    if isinstance(block.windows, DerivedFrom):
        assigner = block.windows.assigner
        if isinstance(assigner, GlobalWindows):
            return Block(block.values, block.timestamps, Same((GLOBAL_WINDOW,)), block.panes)
        if isinstance(block.timestamps, int):
            return Block(block.values, block.timestamps, Same(assign_windows(assigner)(block.timestamps)), block.panes)
    return block


def _arrives(element: Any) -> None:
    """The checks of an element that came by key: it can travel, and its key has an encoding."""
    check_travels(element)
    check_key(element[0])


def _window_order(window: Any) -> tuple[int, Any]:
    return window_end(window), window
