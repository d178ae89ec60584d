"""The timers of a stateful step, by key and window: pending timers, due timers, and the watermark hold.

A timer is one entry under its window, key, declaration and tag. It is in two queues, by the time when it fires and by
its output timestamp. Moving or deleting a timer marks the old entry dead; a queue drops dead entries when they come to
its front, and all of them when they are the majority.

>>> timers = Timers([TimerSpec("flush")], bounded=False, max_end_timers=10)
>>> timers.enter("window", expiry=100)
>>> timers.key = "a"
>>> timers.set(0, at=30, tag="", output=None)
>>> timers.hold(), timers.next_event()
(30, 30)
>>> timers.watermark = 40
>>> [(key, timer.at) for keys in timers.due().values() for key, [timer] in keys.items()]
[('a', 30)]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.state.copy_on_write import CopyOnWrite
from tidegate.runners.engine.state.keyed_state import Tables
from tidegate.sdk.authoring.state import TimerSpec
from tidegate.sdk.data.timestamps import warn_about_delay, warn_about_unit
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, TimestampLike, format_micros, timestamp_micros

Due: TypeAlias = "dict[Any, dict[Any, list[Pending]]]"
"""Timers by window, then by key. Keys are in the order in which they first set a timer."""

DROPPED_TIMERS: Final = "dropped_timers"
FULL_KEYS: Final = "keys_at_max_end_timers"
"""Counters: timers that could no longer fire when they were set, and keys that had more than `--max_end_timers`."""

LAST_OUTPUT: Final = MAX_MICROS - 1
"""The greatest timestamp an element can have (µs)."""


@dataclass(slots=True, eq=False)
class Pending:
    """A timer that is set: `order` is its declaration, `queues` are those that count it; times are µs."""

    at: int
    order: int
    tag: str
    output: int
    key: Any
    window: Any
    at_end: bool = False
    """Whether the timer was set after the end of input, in a window that has no end."""
    queues: tuple[Queue, ...] = ()
    alive: bool = True

    def kill(self) -> None:
        """Mark the timer dead: it has fired or is deleted."""
        self.alive = False
        for queue in self.queues:
            queue.live -= 1


@dataclass(slots=True)
class Queue:
    """Timers as a heap by a time, the earliest first. `live` counts the timers in it that are not dead."""

    items: list[tuple[int, int, Pending]] = field(default_factory=list)
    live: int = 0

    def push(self, at: int, serial: int, timer: Pending) -> None:
        """Add a timer; of equal times the lower serial comes first."""
        if len(self.items) > 64 and len(self.items) > 2 * self.live:
            self.items = [item for item in self.items if item[2].alive]
            heapify(self.items)
        heappush(self.items, (at, serial, timer))
        self.live += 1

    def first(self) -> int | None:
        """The earliest time; None if the queue is empty."""
        items = self.items
        while items and not items[0][2].alive:
            heappop(items)
        return items[0][0] if items else None

    def pop_until(self, micros: int) -> Iterator[Pending]:
        """Remove and yield the timers up to `micros`, in order."""
        while (at := self.first()) is not None and at <= micros:
            timer = heappop(self.items)[2]
            timer.queues = tuple(queue for queue in timer.queues if queue is not self)
            self.live -= 1
            yield timer


class _OfKey(dict[tuple[int, str], Pending]):
    """The timers of one key and window by declaration and tag.

    Keys fire in the order of `rank`, in which they first set a timer. `fired` counts the timers that have fired and
    were set after the end of input.
    """

    __slots__ = ("fired", "rank")

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank
        self.fired = 0


class Timers:
    """All timers of a step. `enter` points at a window; `key` and `time` (µs) are the current key and timestamp.

    Timers set to an instant that has passed go to `overdue`, which the operator fires when the author's call returns.
    `copies` decides when snapshots copy the timers of a key.
    """

    def __init__(
        self,
        specs: Iterable[TimerSpec],
        *,
        bounded: bool,
        max_end_timers: int,
        copies: CopyOnWrite | None = None,
    ) -> None:
        self._copies = copies or CopyOnWrite()
        self.specs = tuple(specs)
        self.max_end_timers = max_end_timers
        """How many timers per key fire that were set after the end of input, in windows that have no end."""
        self.bounded = bounded
        self.handles = {spec.name: TimerHandle(self, order, spec) for order, spec in enumerate(self.specs)}
        self.watermark = MIN_MICROS
        self.clock = MIN_MICROS
        self.key: Any = None
        self.time = MIN_MICROS
        self.window: Any = None
        self.expiry = MAX_MICROS
        self.closing = False
        """Whether the current window is being collected, so that timers set now can't fire."""
        self.overdue: list[tuple[int, int, str, int, Pending]] = []
        self.dropped = 0
        """The number of timers that could no longer fire when they were set; the operator resets it."""
        self.full_keys = 0
        """The number of keys that reached `max_end_timers`; the operator resets it."""
        self._rank = self._fired = 0
        """The attributes of the `_OfKey` whose timers are firing, which may have been removed."""
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
        """Set or move a timer of the current key and window. ValueError for an instant after the window's expiry."""
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
        """Add a timer to both of its queues."""
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
        """Delete a timer of the current key and window, if it is set."""
        of_key = self._table.get(self.key)
        timer = of_key.get((order, tag)) if of_key is not None else None
        if timer is not None:
            self._remove(timer)

    def _remove(self, timer: Pending) -> None:
        table = self._tables[timer.window]
        of_key = table[timer.key]
        del of_key[timer.order, timer.tag]
        if not of_key:
            del table[timer.key]
        timer.kill()

    def due(self) -> Due:
        """Remove from the queues, and return, the timers that the watermark or the clock has passed."""
        due = [*self._by_event.pop_until(self.watermark)]
        if not self.bounded:
            due += self._by_clock.pop_until(self.clock)
        return self._by_window(due)

    def at_end(self) -> Due:
        """Remove and return all processing-time timers, at the end of input."""
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
        """Begin to fire the timers of a key in the current window."""
        self.key = key
        before = self._table.get(key)
        self._rank, self._fired = (0, 0) if before is None else (before.rank, before.fired)

    def put_back(self, timers: Iterable[Pending]) -> None:
        """Return due timers to the queues, so that a later call of `due` or `at_end` returns them again."""
        for timer in timers:
            if timer.alive:
                self._enqueue(timer, self._next_serial())

    def put_back_overdue(self) -> None:
        """Return the overdue timers of the current key to the queues; the key keeps its rank."""
        self.put_back([item[4] for item in self.overdue])
        self.overdue.clear()
        of_key = self._table.get(self.key)
        if of_key is not None:
            of_key.rank, of_key.fired = self._rank, self._fired

    def make_overdue(self, timers: Iterable[Pending]) -> None:
        """Make due timers overdue, so that they fire in order with the timers that are set while they fire."""
        for timer in timers:
            heappush(self.overdue, (timer.at, timer.order, timer.tag, self._next_serial(), timer))

    def next_overdue(self) -> Pending | None:
        """Remove and return the first overdue timer, in the order of (timestamp, declaration, tag)."""
        while self.overdue:
            timer = heappop(self.overdue)[4]
            if not timer.alive:
                continue
            self._remove(timer)
            if timer.at_end and not self._fires_at_end():
                continue
            return timer
        return None

    def _fires_at_end(self) -> bool:
        """Whether the current key may fire another timer that was set after the end of input; counts it."""
        self._fired += 1
        if self._fired <= self.max_end_timers:
            return True
        self.dropped += 1
        if self._fired == self.max_end_timers + 1:
            self.full_keys += 1
        return False

    def collect(self, window: Any) -> None:
        """Drop the timers of an expired window."""
        for of_key in self._tables.pop(window, {}).values():
            for timer in of_key.values():
                timer.kill()

    def hold(self) -> int:
        """The earliest output timestamp of any timer; MAX_MICROS for none."""
        first = self._by_output.first()
        return MAX_MICROS if first is None else first

    def next_event(self) -> int | None:
        """When the first event-time timer fires; None if there is none."""
        return self._by_event.first()

    def next_clock(self) -> int | None:
        """When the first processing-time timer fires; None if there is none, or if it fires at the end of input."""
        return None if self.bounded else self._by_clock.first()

    def windows(self) -> Iterator[Any]:
        """Every window in which timers have been set."""
        return iter(self._tables)

    def snapshot(self, keys: Collection[Any] | None = None) -> Tables:
        """By window and key: (rank, ((name, tag, time, output timestamp), ...)).

        A timer that was set after the end of input has a fifth item, True. The number of such timers that have fired
        follows the timers of the key if it is not 0.
        """

        def copied(of_key: _OfKey) -> tuple[Any, ...]:
            timers = [
                (self.specs[t.order].name, t.tag, t.at, t.output, *((True,) if t.at_end else ()))
                for t in of_key.values()
            ]
            return of_key.rank, tuple(timers), *((of_key.fired,) if of_key.fired else ())

        of_keys = self._copies.of_keys
        return {window: of_keys(table, keys, copied) for window, table in self._tables.items() if table}

    def restore(self, tables: Tables) -> None:
        """Restore what `snapshot` returned. KeyError for a timer that is not declared."""
        for window, table in tables.items():
            self.enter(window, self.expiry)
            for key, (rank, timers, *fired) in table.items():
                for name, tag, at, output, *at_end in timers:
                    # No timer is overdue between events: one that is due already stays in its queue until the next.
                    order = self.handles[name].order
                    self._add(Pending(at, order, tag, output, key, window, bool(at_end)), overdue=False)
                self._table[key].rank = rank
                self._table[key].fired = fired[0] if fired else 0
                self._serial = max(self._serial, rank)

    def evict(self, keys: Collection[Any]) -> None:
        """Drop the timers of these keys from memory."""
        for table in self._tables.values():
            for key in keys:
                for timer in table.pop(key, {}).values():
                    timer.kill()


class TimerHandle:
    """The object that a DoFn gets as a timer parameter."""

    __slots__ = ("_timers", "order")

    def __init__(self, timers: Timers, order: int, spec: TimerSpec) -> None:
        self._timers = timers
        self.order = order

    def set(self, at: TimestampLike, *, tag: str = "", output_timestamp: TimestampLike | None = None) -> None:
        """Set or move the timer `tag` to `at`. ValueError if that is after the expiry of its window."""
        output = None if output_timestamp is None else timestamp_micros(output_timestamp)
        timers = self._timers
        now = timers.time if timers.specs[self.order].domain == "event" else timers.clock
        timers.set(self.order, _instant(at, now), tag, output)

    def clear(self, *, tag: str = "") -> None:
        """Delete the timer `tag`."""
        self._timers.clear(self.order, tag)


def _instant(at: TimestampLike, now: int) -> int:
    """The time (µs) at which a timer fires that is set to `at` when the time is `now` (µs)."""
    try:
        if at.__class__ is int or at.__class__ is float:
            warn_about_unit(at)
            warn_about_delay(at, now)
        return timestamp_micros(at)
    except TypeError as error:
        raise TypeError(
            f"{error}. A timer is set to an instant: add the delay to one, such as a parameter "
            "timestamp=tg.DoFn.TimestampParam, or now=tg.DoFn.ProcessingTimeParam"
        ) from None
