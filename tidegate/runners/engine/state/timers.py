"""Timers of a stateful step, per key and window: what is pending, what is due, what holds the watermark.

A timer is one entry under its window, key, declaration and tag, and stands in two queues, by when it is due and by
its output timestamp. Moving or removing one only marks the old entry dead; a queue drops the dead as it meets them,
and all of them when they are most of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.state.keyed_state import Tables, of_keys
from tidegate.sdk.authoring.state import TimerSpec
from tidegate.sdk.data.timestamps import warn_about_delay, warn_about_unit
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, TimestampLike, format_micros, timestamp_micros

Due: TypeAlias = "dict[Any, dict[Any, list[Pending]]]"
"""Timers by window, then by key, keys in the order in which they first set one."""

DROPPED_TIMERS: Final = "dropped_timers"
FULL_KEYS: Final = "keys_at_max_end_timers"
"""Counters: timers that were set and could no longer fire; keys that had more than `--max_end_timers`."""

LAST_OUTPUT: Final = MAX_MICROS - 1
"""The greatest timestamp an element can have (µs)."""


@dataclass(slots=True, eq=False)
class Pending:
    """One timer that is set. `order` is that of its declaration; times are µs; `queues` are those that count it."""

    at: int
    order: int
    tag: str
    output: int
    key: Any
    window: Any
    at_end: bool = False
    """Whether it was set after the end of input, in a window that has no end."""
    queues: tuple[Queue, ...] = ()
    alive: bool = True

    def die(self) -> None:
        """It has fired, or is removed."""
        self.alive = False
        for queue in self.queues:
            queue.live -= 1


@dataclass(slots=True)
class Queue:
    """Timers by a time, the least first. `live` counts those that have not died in it."""

    items: list[tuple[int, int, Pending]] = field(default_factory=list)
    live: int = 0

    def push(self, at: int, serial: int, timer: Pending) -> None:
        """Add one; of equal times the lesser serial comes first."""
        if len(self.items) > 64 and len(self.items) > 2 * self.live:
            self.items = [item for item in self.items if item[2].alive]
            heapify(self.items)
        heappush(self.items, (at, serial, timer))
        self.live += 1

    def first(self) -> int | None:
        """The least time; None if there is none."""
        items = self.items
        while items and not items[0][2].alive:
            heappop(items)
        return items[0][0] if items else None

    def pop_until(self, micros: int) -> Iterator[Pending]:
        """Take those up to `micros`, in order."""
        while (at := self.first()) is not None and at <= micros:
            timer = heappop(self.items)[2]
            timer.queues = tuple(queue for queue in timer.queues if queue is not self)
            self.live -= 1
            yield timer


class _OfKey(dict[tuple[int, str], Pending]):
    """The timers of one key and window by declaration and tag. `rank`: keys go by when they first set one. `fired`: how
    many of its timers have fired that were set after the end of input."""

    __slots__ = ("fired", "rank")

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.fired = 0


class Timers:
    """All timers of a step. `enter` points at a window; `key` and `time` (µs) are the key and timestamp in hand.

    Timers set for what is past go to `overdue`, which the operator empties when the author's call returns.
    """

    def __init__(self, specs: Iterable[TimerSpec], *, bounded: bool, most_at_end: int) -> None:
        self.specs = tuple(specs)
        self.most_at_end = most_at_end
        """How many timers of a key may fire that were set after the end of input, in windows that have no end."""
        self.bounded = bounded
        self.handles = {spec.name: TimerHandle(self, order, spec) for order, spec in enumerate(self.specs)}
        self.watermark = MIN_MICROS
        self.clock = MIN_MICROS
        self.key: Any = None
        self.time = MIN_MICROS
        self.window: Any = None
        self.expiry = MAX_MICROS
        self.closing = False
        """The window in hand is about to be collected: what is set now can't fire."""
        self.overdue: list[tuple[int, int, str, int, Pending]] = []
        self.dropped = 0
        """Timers that were set when they could no longer fire, since this was last set to 0."""
        self.full = 0
        """Keys that had `most_at_end` timers and more, since this was last set to 0."""
        self._rank = self._fired = 0
        """Of the key whose timers are firing, as in its `_OfKey`."""
        self._table: dict[Any, _OfKey] = {}
        self._tables: dict[Any, dict[Any, _OfKey]] = {}
        self._by_event = Queue()
        self._by_clock = Queue()
        self._by_output = Queue()
        self._serial = 0

    def enter(self, window: Any, expiry: int) -> None:
        """Point at a window, which expires at `expiry` (µs)."""
        self.window = window
        self.expiry = expiry
        table = self._tables.get(window)
        if table is None:
            table = self._tables[window] = {}
        self._table = table

    def set(self, order: int, at: int, tag: str, output: int | None) -> None:
        """Set, or move, a timer of the key and window in hand. ValueError if its window will have expired by then."""
        event = self.specs[order].domain == "event"
        if event and at > self.expiry:
            raise ValueError(
                f"the timer {self.specs[order].name!r} can't be set to {format_micros(at)}: its window {self.window!r} "
                f"expires at {format_micros(self.expiry)}"
            )
        ended = self.watermark == MAX_MICROS
        if self.closing or (ended and not event):
            self.dropped += 1
            return
        self.clear(order, tag)
        if output is None:
            output = min(at, LAST_OUTPUT) if event else self.time
        timer = Pending(at, order, tag, output, self.key, self.window, ended and self.expiry == MAX_MICROS)
        passed = at <= self.watermark if event else at <= self.clock and not self.bounded
        self._add(timer, overdue=passed)

    def _add(self, timer: Pending, *, overdue: bool) -> None:
        serial = self._next_serial()
        of_key = self._table.get(timer.key)
        if of_key is None:
            of_key = self._table[timer.key] = _OfKey(serial)
        of_key[timer.order, timer.tag] = timer
        if overdue:
            heappush(self.overdue, (timer.at, timer.order, timer.tag, serial, timer))
        else:
            self._enqueue(timer, serial)

    def _enqueue(self, timer: Pending, serial: int) -> None:
        """Have a timer stand in both of its queues."""
        by_time = self._by_event if self.specs[timer.order].domain == "event" else self._by_clock
        if by_time not in timer.queues:
            by_time.push(timer.at, serial, timer)
        if self._by_output not in timer.queues:
            self._by_output.push(timer.output, serial, timer)
        timer.queues = (by_time, self._by_output)

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def clear(self, order: int, tag: str) -> None:
        """Remove a timer of the key and window in hand, if it is set."""
        of_key = self._table.get(self.key)
        timer = of_key.get((order, tag)) if of_key is not None else None
        if timer is not None:
            self.take(timer)

    def take(self, timer: Pending) -> None:
        """It fires, or is removed: it is set no longer."""
        table = self._tables[timer.window]
        of_key = table[timer.key]
        del of_key[timer.order, timer.tag]
        if not of_key:
            del table[timer.key]
        timer.die()

    def due(self) -> Due:
        """Take from the queues what the watermark or the clock has passed."""
        due = [*self._by_event.pop_until(self.watermark)]
        if not self.bounded:
            due += self._by_clock.pop_until(self.clock)
        return self._by_window(due)

    def at_end(self) -> Due:
        """Take every timer on the clock: input has ended."""
        return self._by_window(self._by_clock.pop_until(MAX_MICROS))

    def _by_window(self, timers: Iterable[Pending]) -> Due:
        found: Due = {}
        for timer in timers:
            found.setdefault(timer.window, {}).setdefault(timer.key, []).append(timer)
        return {window: self._ranked(window, keys) for window, keys in found.items()}

    def _ranked(self, window: Any, keys: dict[Any, list[Pending]]) -> dict[Any, list[Pending]]:
        table = self._tables[window]
        return {key: keys[key] for key in sorted(keys, key=lambda key: table[key].rank)}

    def begin_key(self, key: Any) -> None:
        """The timers of a key in the window in hand are to fire now."""
        self.key = key
        before = self._table.get(key)
        self._rank, self._fired = (0, 0) if before is None else (before.rank, before.fired)

    def put_back(self, timers: Iterable[Pending]) -> None:
        """Have timers wait that were due, for `due` and `at_end` to give them again."""
        for timer in timers:
            if timer.alive:
                self._enqueue(timer, self._next_serial())

    def put_back_overdue(self) -> None:
        """The same with those of the key in hand that are overdue; the key keeps its place among others."""
        self.put_back([item[4] for item in self.overdue])
        self.overdue.clear()
        of_key = self._table.get(self.key)
        if of_key is not None:
            of_key.rank, of_key.fired = self._rank, self._fired

    def owe(self, timers: Iterable[Pending]) -> None:
        """Make timers that are due overdue, so that they fire in their order with those set meanwhile."""
        for timer in timers:
            heappush(self.overdue, (timer.at, timer.order, timer.tag, self._next_serial(), timer))

    def next_overdue(self) -> Pending | None:
        """Take the first of what is overdue, by (timestamp, declaration, tag)."""
        while self.overdue:
            timer = heappop(self.overdue)[4]
            if not timer.alive:
                continue
            self.take(timer)
            if timer.at_end and not self._fires_at_end():
                continue
            return timer
        return None

    def _fires_at_end(self) -> bool:
        """Whether another timer of the key in hand may fire that was set after the end of input."""
        self._fired += 1
        if self._fired <= self.most_at_end:
            return True
        self.dropped += 1
        if self._fired == self.most_at_end + 1:
            self.full += 1
        return False

    def collect(self, window: Any) -> None:
        """Forget a window."""
        for of_key in self._tables.pop(window, {}).values():
            for timer in of_key.values():
                timer.die()

    def hold(self) -> int:
        """The least output timestamp of what is set; MAX_MICROS for none."""
        first = self._by_output.first()
        return MAX_MICROS if first is None else first

    def next_event(self) -> int | None:
        """When the first timer in event time is due; None if there is none."""
        return self._by_event.first()

    def next_clock(self) -> int | None:
        """When the first timer on the clock is due; None if there is none, or it waits for the end of input."""
        return None if self.bounded else self._by_clock.first()

    def windows(self) -> Iterator[Any]:
        """Every window in which timers were set."""
        return iter(self._tables)

    def snapshot(self, keys: Collection[Any] | None = None) -> Tables:
        """By window and key: (rank, ((name, tag, due, output timestamp), ...)), the rank for the order of the keys.

        A timer that was set after the end of input says so by a True behind, and behind the timers of its key comes how
        many of them have fired.
        """

        def copied(of_key: _OfKey) -> tuple[Any, ...]:
            timers = [
                (self.specs[t.order].name, t.tag, t.at, t.output, *((True,) if t.at_end else ()))
                for t in of_key.values()
            ]
            return of_key.rank, tuple(timers), *((of_key.fired,) if of_key.fired else ())

        return {window: of_keys(table, keys, copied) for window, table in self._tables.items() if table}

    def restore(self, tables: Tables) -> None:
        """Take in what `snapshot` gave. KeyError for a timer that is not declared."""
        for window, table in tables.items():
            self.enter(window, self.expiry)
            for key, (rank, timers, *fired) in table.items():
                for name, tag, at, output, *at_end in timers:
                    # Nothing is overdue between events: one due by now waits in its queue for the next event.
                    order = self.handles[name].order
                    self._add(Pending(at, order, tag, output, key, window, bool(at_end)), overdue=False)
                self._table[key].rank = rank
                self._table[key].fired = fired[0] if fired else 0
                self._serial = max(self._serial, rank)

    def evict(self, keys: Collection[Any]) -> None:
        """Forget these keys."""
        for table in self._tables.values():
            for key in keys:
                for timer in table.pop(key, {}).values():
                    timer.die()


class TimerHandle:
    """What a DoFn sees of a timer."""

    __slots__ = ("_timers", "order")

    def __init__(self, timers: Timers, order: int, spec: TimerSpec) -> None:
        self._timers = timers
        self.order = order

    def set(self, at: TimestampLike, *, tag: str = "", output_timestamp: TimestampLike | None = None) -> None:
        """Set, or move, the timer `tag` to `at`. ValueError if that is past the expiry of its window."""
        output = None if output_timestamp is None else timestamp_micros(output_timestamp)
        timers = self._timers
        now = timers.time if timers.specs[self.order].domain == "event" else timers.clock
        timers.set(self.order, _instant(at, now), tag, output)

    def clear(self, *, tag: str = "") -> None:
        """Remove the timer `tag`."""
        self._timers.clear(self.order, tag)


def _instant(at: TimestampLike, now: int) -> int:
    """When a timer that is set at `now` (µs) is to fire (µs)."""
    try:
        if at.__class__ is int or at.__class__ is float:
            warn_about_unit(at)
            warn_about_delay(at, now)
        return timestamp_micros(at)
    except TypeError as error:
        raise TypeError(
            f"{error}. A timer is set to an instant: add how long it is to wait to one, such as a parameter "
            "timestamp=tg.DoFn.TimestampParam, or now=tg.DoFn.ProcessingTimeParam"
        ) from None
