"""The operator of stateful DoFns: the function is called per element and window, with its key's state and timers.

One watermark or clock event evaluates each window and key that has something due once: windows by (end, start); keys
in the order in which they first set a timer, or, with `@on_window_expiration`, by first arrival; timers by (timestamp,
declaration, tag), including those that callbacks set for the past. `@on_window_expiration` follows if the window has
expired. The state of an expired window is dropped after all its keys have been evaluated.

The end of input is the watermark at the end of time: processing-time timers then fire once, after event-time timers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from tidegate.runners.engine.elementwise.fused_node import Link
from tidegate.runners.engine.errors.attribution import guarded
from tidegate.runners.engine.operator import Context, Emitted, KeyedOperator, Wakeups
from tidegate.runners.engine.state.cells import CombiningCell
from tidegate.runners.engine.state.copy_on_write import CHUNK, CopyOnWrite
from tidegate.runners.engine.state.keyed_state import KeyedState, Touched, TouchedKeys, first_of
from tidegate.runners.engine.state.tables import StateTables
from tidegate.runners.engine.state.timers import DROPPED_TIMERS, FULL_KEYS, Pending, Timers
from tidegate.runners.engine.stateful.loops import KeyedContext, StatefulLoops
from tidegate.runners.engine.stateful.snapshots import StatefulSnapshots
from tidegate.runners.engine.stateful.windows import StatefulWindows
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, Timestamp
from tidegate.sdk.windowing.window import window_end, window_order

_NO_ELEMENTS: Final = Block(())


class StatefulOperator(KeyedOperator):
    """A ParDo with state cells or timers. Its input is partitioned by key, so it receives all elements of a key.

    `bounded`: the rules for bounded input apply, so processing time does not advance and no time-to-live ends.
    Otherwise the runner calls `on_clock` before the first block.
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
        self.bounded = bounded
        self._callbacks = {callback.timer: callback for callback in node.callbacks if callback.timer is not None}
        self._on_expiration = next((callback for callback in node.callbacks if callback.timer is None), None)
        self._copies: Final = CopyOnWrite()
        self._tables = StateTables(node.states, expiring=not bounded, copies=self._copies)
        self._timers = Timers(node.timers, bounded=bounded, max_end_timers=context.max_end_timers, copies=self._copies)
        self._windows = StatefulWindows(
            self._tables,
            self._timers,
            link.windowing.allowed_lateness.micros,
            tracks_arrivals=self._on_expiration is not None,
        )
        keyed = KeyedContext(self._tables, self._timers, self._windows, self._fire_overdue, self._processing_time)
        self._loops = StatefulLoops(link, context, main, keyed, exits=exits or {}, sides=sides or {})
        self._snapshots = StatefulSnapshots(link, self._tables, self._timers, self._windows)
        self._paused = False
        self._touched_keys = TouchedKeys()
        """Keys whose timers, arrivals or times-to-live may have changed; the tables track changes of cells."""
        self._tracks_touched = bool(
            node.timers or self._on_expiration or any(self._tables.expires(spec.name) for spec in node.states)
        )

    # -- events

    def open(self) -> None:
        self._loops.fused.open()
        for number, fn in enumerate(self._combiners()):
            self.context.life.set_up(f"{self.link.label}~{number}", partial(self._call, fn, "setup"))

    def close(self) -> None:
        self._loops.fused.close()
        for number, fn in enumerate(self._combiners()):
            self.context.life.tear_down(f"{self.link.label}~{number}", partial(self._call, fn, "teardown"))

    def _call(self, fn: Any, method: str) -> None:
        kind = type(fn).__name__
        guarded(getattr(fn, method), step=self.link.label, where=self.link.where, method=f"{kind}.{method}")

    def _combiners(self) -> Iterator[Any]:
        return (cell.fn for cell in self._tables.cells.values() if isinstance(cell, CombiningCell))

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if not len(block):
            return
        if self._copies.active:
            self._copies.copy(self.keys_of(block))
        yield from self._loops.process(block)
        if self._tracks_touched and self._touched_keys.on:
            self._touched_keys.note(self.keys_of(block))

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        timers = self._timers
        if micros <= timers.watermark and not self._paused:
            return
        timers.watermark = micros
        self._paused = False
        due = timers.due()
        at_end = timers.at_end() if micros == MAX_MICROS else {}
        expired = self._windows.pop_expired(micros)
        for window in sorted({*due, *at_end, *expired}, key=window_order):
            of_window = due.get(window, {}), at_end.get(window, {})
            if not self._paused:
                yield from self._evaluate(window, *of_window, expired=window in expired)
            if self._paused:
                self._put_back(window, *of_window, expired=window in expired)
        yield from self._loops.flush()
        self._report()

    @property
    def paused(self) -> bool:
        return self._paused

    def _put_back(
        self, window: Any, due: dict[Any, list[Pending]], at_end: dict[Any, list[Pending]], *, expired: bool
    ) -> None:
        """Queue a window's remaining timers and its expiry again, for after the pause."""
        for timers in (*due.values(), *at_end.values()):
            self._timers.put_back(timers)
        if expired:
            self._windows.queue(window, MAX_MICROS)

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        if micros <= self._timers.clock:
            return
        self._timers.clock = micros
        if self.bounded or self._paused:  # a paused end of input fires all timers, whatever the clock
            return
        self._tables.sweep(micros)
        due = self._timers.due()
        for window in sorted(due, key=window_order):
            yield from self._evaluate(window, due[window], {}, expired=False)
        yield from self._loops.flush()
        self._report()

    def next_clock(self) -> int | None:
        if self.bounded or self._paused:
            return None
        clocks = (self._timers.next_clock(), self._tables.next_sweep())
        return min((at for at in clocks if at is not None), default=None)

    def hold(self) -> int:
        """The least output timestamp of a timer or of `@on_window_expiration`."""
        return min(self._timers.hold(), self._windows.hold())

    def under_way(self) -> int:
        return MAX_MICROS if self._timers.next_clock() is None else self._timers.hold()

    def finish_bundle(self) -> Iterator[Emitted]:
        fused = self._loops.fused
        yield from fused.finish_bundle()
        if self.link.catches:
            fused.check_threshold(0, *fused.counters.attempts(0))
        self._report()

    def finish(self) -> Iterator[Emitted]:
        yield from self.finish_bundle()
        yield from self.on_watermark(MAX_MICROS)

    def _processing_time(self) -> Timestamp:
        return Timestamp.of_micros(self.context.now() if self.bounded else self._timers.clock)

    def _report(self) -> None:
        timers = self._timers
        self.context.count(self.link.label, DROPPED_TIMERS, timers.dropped)
        self.context.count(self.link.label, FULL_KEYS, timers.full_keys)
        timers.dropped = timers.full_keys = 0
        self._loops.fused.checks.verify()
        self._loops.fused.report()

    # -- timers and expiration

    def _evaluate(
        self, window: Any, due: dict[Any, list[Pending]], at_end: dict[Any, list[Pending]], *, expired: bool
    ) -> Iterator[Emitted]:
        """Fire a window's `due` timers, then its processing-time timers `at_end` of input, key by key.

        It removes keys from both tables as it evaluates them, so that they hold the rest if it pauses.
        """
        timers = self._timers
        self._windows.enter_to_fire(window)
        keys = self._keys_to_evaluate(window, due, at_end, expired=expired)
        if self._touched_keys.on:
            self._touched_keys.note(keys)
        for n, key in enumerate(keys):
            if self._copies.active and n % CHUNK == 0:
                self._copies.copy(keys[n : n + CHUNK])
            timers.begin_key(key)
            for by_key in (due, at_end):
                timers.make_overdue(by_key.pop(key, ()))
                yield from self._fire_timers(key, window)
                if self._paused:
                    timers.put_back_overdue()
                    return
            if expired and self._on_expiration is not None:
                timers.closing = True
                yield from self._loops.call(self._on_expiration, key, window, window_end(window) - 1, "")
                timers.closing = False
                if timers.watermark == MAX_MICROS:
                    del self._windows.arrivals_in(window)[key]  # a later pause must not have it called twice
        if expired:
            self._windows.collect(window)

    def _keys_to_evaluate(
        self, window: Any, due: dict[Any, list[Pending]], at_end: dict[Any, list[Pending]], *, expired: bool
    ) -> list[Any]:
        if self._on_expiration is None:
            return [*dict.fromkeys([*due, *at_end])]
        arrivals = self._windows.arrivals_in(window)
        return sorted(arrivals if expired else {*due, *at_end}, key=arrivals.__getitem__)

    def _fire_overdue(self, window: Any) -> Iterator[Emitted]:
        """Fire the timers that the call for an element has set for the past."""
        yield from self._fire_timers(self._timers.key, window)
        yield from self._loops.flush()

    def _fire_timers(self, key: Any, window: Any) -> Iterator[Emitted]:
        while (timer := self._timers.next_overdue()) is not None:
            callback = self._callbacks[self._timers.specs[timer.order].name]
            yield from self._loops.call(callback, key, window, timer.output, timer.tag)
            if self._timers.watermark == MAX_MICROS:
                # There may be very many timers: between two, the runner gets control and can ask for a pause.
                yield self.main, _NO_ELEMENTS
                if self.context.should_pause():
                    self._paused = True
                    return

    # -- state by key

    @property
    def copies(self) -> CopyOnWrite:
        return self._copies

    def keys_of(self, block: Block) -> Iterable[Any]:
        return map(first_of, block.values)

    def snapshot(self, keys: Collection[Any] | None = None) -> KeyedState:
        return self._snapshots.take(keys)

    def restore(self, state: KeyedState) -> None:
        self._paused = self._snapshots.restore(state) or self._paused

    def touched(self) -> Touched | None:
        changed, touched = self._tables.changed(), self._touched_keys.take()
        if changed is None or touched is None:
            return None
        return [changed, *touched] if self._tracks_touched else [changed]

    def next_event(self) -> int:
        at = self._timers.next_clock()
        if at is not None and at <= self._timers.clock:
            return MIN_MICROS  # timers on the clock that are already due fire with the next event
        timer = self._timers.next_event()
        expiry = self._windows.next_expiry()
        return expiry if timer is None else min(expiry, timer)

    def evict(self, keys: Collection[Any]) -> None:
        self._tables.evict(keys)
        self._timers.evict(keys)
        self._windows.evict(keys)

    def wakeups(self, state: KeyedState) -> dict[Any, Wakeups]:
        return self._snapshots.wakeups(state)
