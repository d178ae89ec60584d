"""A slow and obvious reference model of grouping, with which tests compare the engine. It follows SEMANTICS alone.

It processes one event at a time, stores everything in lists, and checks every window of every key after each event.

An event is ("element", key, x, t, windows), ("watermark", t) or ("clock", t). Times are µs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tidegate.sdk.windowing.triggers as tr
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.windowing.assigners import CustomAssigner, Sessions
from tidegate.sdk.windowing.evictors import KeepLast, KeepRecent, KeepWithinDelta
from tidegate.sdk.windowing.strategy import ACCUMULATING, TimestampCombiner, WindowingStrategy
from tidegate.sdk.windowing.window import IntervalWindow, window_end

NO, DUE, ON_TIME = 0, 1, 2


@dataclass
class Arrival:
    """An element, its time of arrival, and whether it was behind the watermark or late for its window."""

    number: int
    x: Any
    t: int
    clock: int | None
    behind: bool
    late: bool


@dataclass
class View:
    """The input of a trigger: watermark and clock before and after the event, and the element if the event is one."""

    watermark: int
    watermark_before: int
    clock: int | None
    clock_before: int | None
    end: int
    pane: list[Arrival]
    arrival: Arrival | None

    @property
    def ended(self):
        return self.watermark >= self.end


# ---- triggers, each with the elements since it started


class Node:
    def __init__(self, ended=False):
        self.seen: list[Arrival] = []
        self.born_ended = ended

    def offer(self, arrival, view):
        self.seen.append(arrival)

    def due(self, view):
        return NO

    def fired(self, view):
        """Handle a firing; return whether the trigger has finished."""
        return True

    def join(self, others, view):
        for other in others:
            self.seen += other.seen

    def keep_from(self, old):
        """Keep state of `old`, whose place this newly started trigger takes."""


class Count(Node):
    def __init__(self, n, ended=False):
        super().__init__(ended)
        self.n = n

    def due(self, view):
        return DUE if len(self.seen) >= self.n else NO


class Delay(Node):
    def __init__(self, delay, align, ended=False):
        super().__init__(ended)
        self.delay, self.align = delay, align

    def due(self, view):
        if not self.seen or view.clock is None:
            return NO
        at = min(arrival.clock for arrival in self.seen) + self.delay
        while self.align and at % self.align:
            at += 1
        return DUE if view.clock >= at else NO


class Every(Node):
    def __init__(self, period, clock, ended=False):
        super().__init__(ended)
        self.period, self.clock = period, clock
        self.past_end = ended

    def due(self, view):
        if view.ended and not self.past_end:
            return DUE
        if self.clock == "watermark":
            before, now = view.watermark_before, view.watermark
        else:
            before, now = view.clock_before, view.clock
        passed = now is not None and before // self.period != now // self.period
        return DUE if passed and view.pane else NO

    def fired(self, view):
        self.past_end = self.past_end or view.ended
        return False

    def join(self, others, view):
        super().join(others, view)
        self.past_end = view.ended and any(node.past_end for node in (self, *others))


class Element(Node):
    def __init__(self, predicate, ended=False):
        super().__init__(ended)
        self.predicate = predicate
        self.last = None

    def offer(self, arrival, view):
        self.last = arrival

    def due(self, view):
        return DUE if view.arrival is not None and self.last is view.arrival and self.predicate(view.arrival.x) else NO


class Delta(Node):
    def __init__(self, threshold, fn, ended=False):
        super().__init__(ended)
        self.threshold, self.fn = threshold, fn
        self.reference = None
        self.over = None

    def offer(self, arrival, view):
        if self.reference is None:
            self.reference = (arrival.x,)
        elif self.fn(self.reference[0], arrival.x) > self.threshold:
            self.reference = (arrival.x,)
            self.over = arrival

    def due(self, view):
        return DUE if view.arrival is not None and self.over is view.arrival else NO

    def keep_from(self, old):
        self.reference = old.reference


class Default(Node):
    def __init__(self, ended=False):
        super().__init__(ended)
        self.done = ended

    def due(self, view):
        if not view.ended:
            return NO
        if not self.done:
            return ON_TIME
        return DUE if view.arrival is not None else NO

    def fired(self, view):
        self.done = True
        return False

    def join(self, others, view):
        self.done = view.ended and any(node.done for node in (self, *others))


class Never(Node):
    def fired(self, view):
        raise AssertionError("Never fired")


class Composite(Node):
    def __init__(self, parts, ended=False):
        super().__init__(ended)
        self.triggers = parts
        self.parts = [make(part, ended) for part in parts]

    def keep_from(self, old):
        for mine, theirs in zip(self.parts, old.parts):
            mine.keep_from(theirs)


class Any_(Composite):
    def offer(self, arrival, view):
        for part in self.parts:
            part.offer(arrival, view)

    def due(self, view):
        return max([part.due(view) for part in self.parts])

    def join(self, others, view):
        for i, part in enumerate(self.parts):
            part.join([other.parts[i] for other in others], view)


class All(Any_):
    def __init__(self, parts, ended=False):
        super().__init__(parts, ended)
        self.latched = [False] * len(parts)

    def offer(self, arrival, view):
        for part, latched in zip(self.parts, self.latched):
            if not latched:
                part.offer(arrival, view)

    def due(self, view):
        result = DUE
        for i, part in enumerate(self.parts):
            if not self.latched[i]:
                said = part.due(view)
                if said:
                    self.latched[i] = True
                    result = max(result, said)
        return result if all(self.latched) else NO

    def join(self, others, view):
        super().join(others, view)
        for other in others:
            self.latched = [a or b for a, b in zip(self.latched, other.latched)]


class Each(Composite):
    turn = 0

    def offer(self, arrival, view):
        self.parts[self.turn].offer(arrival, view)

    def due(self, view):
        return self.parts[self.turn].due(view)

    def fired(self, view):
        if not self.parts[self.turn].fired(view):
            return False
        self.turn += 1
        if self.turn == len(self.parts):
            return True
        before = self.parts[self.turn]
        self.parts[self.turn] = make(self.triggers[self.turn], view.ended)
        self.parts[self.turn].keep_from(before)
        return False

    def join(self, others, view):
        furthest = max(node.turn for node in (self, *others))
        nodes = [node.parts[furthest] for node in (self, *others) if node.turn == furthest]
        self.turn = furthest
        self.parts[furthest] = nodes[0]
        nodes[0].join(nodes[1:], view)


class Finally(Composite):
    until_due = False

    def offer(self, arrival, view):
        for part in self.parts:
            part.offer(arrival, view)

    def due(self, view):
        main, until = (part.due(view) for part in self.parts)
        self.until_due = bool(until)
        return max(main, until)

    def fired(self, view):
        return self.until_due or self.parts[0].fired(view)

    def join(self, others, view):
        for i, part in enumerate(self.parts):
            part.join([other.parts[i] for other in others], view)


class Again(Composite):
    """Repeatedly."""

    def offer(self, arrival, view):
        self.parts[0].offer(arrival, view)

    def due(self, view):
        return self.parts[0].due(view)

    def fired(self, view):
        if self.parts[0].fired(view):
            old = self.parts[0]
            self.parts[0] = make(self.triggers[0], view.ended)
            self.parts[0].keep_from(old)
        return False

    def join(self, others, view):
        self.parts[0].join([other.parts[0] for other in others], view)


class Mark(Node):
    """AfterWatermark."""

    def __init__(self, early, late, ended=False):
        super().__init__(ended)
        self.early_trigger, self.late_trigger = early, late
        self.early = Again([early], ended) if early else None
        self.late = None
        self.old_late = None
        self.done = False

    def offer(self, arrival, view):
        if self.done:
            if self.late:
                self.late.offer(arrival, view)
        elif not view.ended and self.early:
            self.early.offer(arrival, view)

    def due(self, view):
        if not self.done:
            if view.ended:
                return NO if self.born_ended and view.arrival is None else ON_TIME
            return self.early.due(view) if self.early else NO
        return self.late.due(view) if self.late else NO

    def fired(self, view):
        if self.done:
            self.late.fired(view)
            return False
        if not view.ended:
            self.early.fired(view)
            return False
        if not self.late_trigger:
            return True
        self.done = True
        self.late = Again([self.late_trigger], True)
        if self.old_late:
            self.late.keep_from(self.old_late)
        return False

    def keep_from(self, old):
        if self.early:
            self.early.keep_from(old.early)
        self.old_late = old.late or old.old_late

    def join(self, others, view):
        nodes = [self, *others]
        done = [node for node in nodes if node.done]
        if done and view.ended:
            self.late = done[0].late
            self.late.join([node.late for node in done[1:]], view)
            self.done = True
            return
        if self.early:
            waiting = [node.early for node in nodes if not node.done]
            self.early = waiting[0] if waiting else Again([self.early_trigger], view.ended)
            self.early.join(waiting[1:], view)
        self.done = False
        self.born_ended = view.ended and all(node.born_ended for node in nodes)


def make(trigger, ended=False) -> Node:
    match trigger:
        case tr.AfterWatermark():
            return Mark(trigger.early, trigger.late, ended)
        case tr.DefaultTrigger():
            return Default(ended)
        case tr.AfterCount():
            return Count(trigger.n, ended)
        case tr.AfterProcessingTime():
            return Delay(trigger.delay.micros, trigger.align_to.micros if trigger.align_to else 0, ended)
        case tr.EveryEventTime():
            return Every(trigger.period.micros, "watermark", ended)
        case tr.EveryProcessingTime():
            return Every(trigger.period.micros, "clock", ended)
        case tr.AfterElement():
            return Element(trigger.predicate.load(), ended)
        case tr.AfterDelta():
            return Delta(trigger.threshold, trigger.delta_fn.load(), ended)
        case tr.Repeatedly():
            return Again([trigger.trigger], ended)
        case tr.AfterAny():
            return Any_(trigger.parts, ended)
        case tr.AfterAll():
            return All(trigger.parts, ended)
        case tr.AfterEach():
            return Each(trigger.parts, ended)
        case tr.OrFinally():
            return Finally([trigger.trigger, trigger.until], ended)
        case tr.Never():
            return Never(ended)
    raise AssertionError(trigger)


# ---- windows


@dataclass
class Cell:
    key: Any
    window: Any
    born: int
    node: Node
    kept: list[Arrival] = field(default_factory=list)
    fresh: list[Arrival] = field(default_factory=list)
    index: int = 0
    settled: int = 0
    finished: bool = False

    @property
    def end(self):
        return window_end(self.window)


@dataclass
class WindowReferenceModel:
    """`result` maps a list of values in order of arrival to a pane's value, for an empty list only if `identity`.

    Without a `clock` there is no processing time, as on bounded input.
    """

    strategy: WindowingStrategy
    result: Any = list
    identity: bool = True
    clock: int | None = 0

    def __post_init__(self):
        self.cells: list[Cell] = []
        self.watermark = MIN_MICROS
        self.out: list[tuple[Any, ...]] = []
        self.late: list[tuple[Any, ...]] = []
        self.closed = 0
        self.arrivals = 0
        self.born: dict[Any, int] = {}

    def run(self, events):
        for event in events:
            self.step(event)
        return self.out

    def step(self, event):
        self.before = self.watermark, self.clock
        match event:
            case ("element", key, x, t, windows):
                self.element(key, x, t, windows)
            case ("watermark", t) if t > self.watermark:
                self.watermark = t
                self.look_at_all()
            case ("clock", t):
                self.clock = max(self.clock, t)
                self.look_at_all()

    # -- elements

    def element(self, key, x, t, windows):
        if not windows:
            return
        merges = self.merges(key, windows)
        entered = []
        for window in windows:
            for whole, parts in merges:
                if window in parts:
                    window = whole
            if window not in entered:
                entered.append(window)
        open_ = [window for window in entered if not self.expired(window)]
        if not open_:
            self.late.append((key, x, t))
            return
        touched = []
        for whole, parts in merges:
            mine = [cell for cell in self.cells if cell.key == key and cell.window in parts]
            if mine and not self.expired(whole):
                touched.append(self.merge(key, whole, mine))
        for window in open_:
            if not any(cell.key == key and cell.window == window for cell in self.cells):
                self.cells.append(Cell(key, window, self.birth(key), make(self.strategy.trigger)))
        self.arrivals += 1
        for cell in sorted(self.cells, key=self.order):
            if cell.key != key:
                continue
            arrival = None
            if cell.window in open_:
                if cell.finished:
                    self.closed += 1
                    continue
                late = self.watermark >= cell.end
                arrival = Arrival(self.arrivals, x, t, self.clock, t < self.watermark, late)
                cell.kept.append(arrival)
                cell.fresh.append(arrival)
                cell.node.offer(arrival, self.view(cell, arrival))
            elif cell.finished or not any(cell is other for other in touched):
                continue
            self.look(cell, arrival, by_watermark=False)

    def birth(self, key):
        if not self.merging:
            self.arrivals += 1
            return self.arrivals
        if not any(cell.key == key for cell in self.cells):
            self.arrivals += 1
            self.born[key] = self.arrivals
        return self.born[key]

    @property
    def merging(self):
        match self.strategy.assigner:
            case Sessions() | CustomAssigner(merges=True):
                return True
        return False

    def merges(self, key, windows):
        """Pairs of a merged window and the windows that it replaces."""
        if not self.merging:
            return []
        groups = [[window] for window in dict.fromkeys([*(c.window for c in self.cells if c.key == key), *windows])]
        if isinstance(self.strategy.assigner, CustomAssigner):
            given = sorted([group[0] for group in groups], key=lambda window: (window_end(window), window))
            return [(whole, tuple(parts)) for whole, parts in self.strategy.assigner.fn.load().merge(given)]
        again = True
        while again:
            again = False
            for a in groups:
                for b in groups:
                    if a is not b and span(a).intersects(span(b)) and not again:
                        groups = [group for group in groups if group is not a and group is not b] + [a + b]
                        again = True
        return [(span(group), tuple(group)) for group in groups if len(group) > 1]

    def merge(self, key, whole, cells):
        for cell in cells:
            if cell.window == whole and len(cells) == 1:
                return cell
        self.cells = [cell for cell in self.cells if not any(cell is part for part in cells)]
        merged = Cell(key, whole, cells[0].born, cells[0].node)
        self.cells.append(merged)
        if any(cell.finished for cell in cells):
            merged.finished = True
            self.closed += sum(len(cell.fresh) for cell in cells if not cell.finished)
            return merged
        merged.kept = sorted([a for cell in cells for a in cell.kept], key=lambda a: a.number)
        merged.fresh = sorted([a for cell in cells for a in cell.fresh], key=lambda a: a.number)
        for cell in cells:
            if cell.window == whole:
                merged.index, merged.settled = cell.index, cell.settled
        merged.node.join([cell.node for cell in cells[1:]], self.view(merged, None))
        return merged

    # -- looking

    def look_at_all(self):
        for cell in sorted(self.cells, key=self.order):
            if not cell.finished:
                self.look(cell, None, by_watermark=self.watermark != self.before[0])
        self.cells = [cell for cell in self.cells if not self.expired(cell.window)]

    def order(self, cell):
        start = cell.window.start_micros if isinstance(cell.window, IntervalWindow) else cell.window
        return cell.end, start, cell.born

    def look(self, cell, arrival, *, by_watermark):
        view = self.view(cell, arrival)
        if self.watermark < cell.end:
            for a in cell.fresh:
                a.late = False
        due = cell.node.due(view)
        expired = self.expired(cell.window)
        if due:
            finished = cell.node.fired(view)
            self.emit(cell, due, by_watermark, finished or expired)
            cell.finished = finished
        elif expired and self.strategy.partial == "emit":
            self.emit(cell, due, by_watermark, True)

    def emit(self, cell, due, by_watermark, last):
        new, fresh = bool(cell.fresh), cell.fresh
        cell.fresh = []
        accumulating = self.strategy.accumulation is ACCUMULATING
        seen = cell.kept
        if not accumulating:
            cell.kept = []
        if not new and not (due == ON_TIME and cell.index and not cell.settled):
            return
        evictor = self.strategy.evictor
        if evictor is not None:
            if evictor.when == "before":
                seen = keep(evictor, seen)
                if accumulating:
                    cell.kept = seen
            if not seen:
                return
        if not seen and not self.identity:
            return
        value = self.result([a.x for a in seen])
        if evictor is not None and evictor.when == "after" and accumulating:
            cell.kept = keep(evictor, seen)
        if self.watermark < cell.end:
            timing, nonspeculative = "EARLY", -1
        else:
            timing = "ON_TIME" if by_watermark and not cell.settled else "LATE"
            nonspeculative = cell.settled
            cell.settled += 1
        pane = (timing, cell.index, nonspeculative, cell.index == 0, last)
        self.out.append((cell.key, value, cell.window, self.stamp(cell, fresh), pane))
        cell.index += 1

    def stamp(self, cell, fresh):
        times = [a.t for a in fresh if not a.behind]
        match self.strategy.timestamp_combiner:
            case TimestampCombiner.EARLIEST if times:
                return min(times)
            case TimestampCombiner.LATEST if times:
                return max(times)
        return cell.end - 1

    def output_watermark(self):
        """The watermark, held at the timestamps of pending panes with elements that were not late."""
        pending = [
            self.stamp(cell, cell.fresh)
            for cell in self.cells
            if not cell.finished and any(not a.late for a in cell.fresh)
        ]
        return min([self.watermark, *pending])

    def view(self, cell, arrival):
        return View(self.watermark, self.before[0], self.clock, self.before[1], cell.end, cell.fresh, arrival)

    def expired(self, window):
        return self.watermark >= min(window_end(window) + self.strategy.allowed_lateness.micros, MAX_MICROS)


def span(windows):
    start = min(window.start_micros for window in windows)
    return IntervalWindow.of_micros(start, max(window.end_micros for window in windows))


def keep(evictor, arrivals):
    match evictor:
        case KeepLast():
            return arrivals[-evictor.n :]
        case KeepRecent():
            return [a for a in arrivals if a.t > max(b.t for b in arrivals) - evictor.duration.micros]
        case KeepWithinDelta():
            return [a for a in arrivals if evictor.delta_fn.load()(a.x, arrivals[-1].x) < evictor.threshold]
    evict = evictor.fn.load()
    positions = set(evict.keep([(a.x, a.t) for a in arrivals])) if arrivals else set()
    return [a for i, a in enumerate(arrivals) if i in positions]
