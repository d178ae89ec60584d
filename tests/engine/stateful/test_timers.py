"""Timers compared with a slow model that searches a list of all timers at every event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.operator_driver import (
    SECOND,
    Clock,
    Elements,
    Event,
    Out,
    Watermark,
    context,
    operator,
    operator_factory,
    run,
    run_restored,
)
from tidegate.runners.engine.rescale import merged, select_keys
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.windowing.window import IntervalWindow

FUEL = tg.ValueStateSpec("fuel")
TIMERS = {"late": tg.EventTimer("late"), "early": tg.EventTimer("early"), "clock": tg.ProcessingTimer("clock")}
LATENESS = 4 * SECOND
SIZE = 10


def ops_of(name: str, tag: str) -> list[tuple[Any, ...]]:
    """The operations of a callback, which sets other timers, some of them in the past."""
    match name, tag:
        case "late", "x":
            return [("set", "early", 1, "y", None)]
        case "early", "y":
            return [("set", "late", 12, "", 3), ("clear", "clock", "")]
        case "clock", "":
            return [("set", "early", 6, "x", None), ("set", "clock", 15, "x", None)]
        case _:
            return []


LATE, EARLY, CLOCK = (tg.DoFn.TimerParam(TIMERS[name]) for name in ("late", "early", "clock"))


class Scripted(tg.DoFn):
    """Sets and clears timers as its elements say; a callback emits its timer and performs its `ops_of`."""

    def process(
        self,
        element: Any,
        window: Any = tg.DoFn.WindowParam,
        fuel: Any = tg.DoFn.StateParam(FUEL),
        late: Any = LATE,
        early: Any = EARLY,
        clock: Any = CLOCK,
    ) -> Iterator[Any]:
        fuel.write(3)
        self.do(element[1], window, late=late, early=early, clock=clock)
        yield element[0], "element"

    def do(self, ops: Iterable[tuple[Any, ...]], window: Any, **timers: Any) -> None:
        for kind, name, *rest in ops:
            if kind == "clear":
                timers[name].clear(tag=rest[0])
            else:
                at, tag, output = rest
                start = window.start.seconds()
                shift = 0 if name == "clock" else start
                timers[name].set(at + shift, tag=tag, output_timestamp=None if output is None else start + output)

    def fired(self, name: str, key: Any, tag: str, window: Any, fuel: Any, **timers: Any) -> Iterator[Any]:
        yield key, name, tag
        left = fuel.read() or 0
        if left:
            fuel.write(left - 1)
            self.do(ops_of(name, tag), window, **timers)

    @tg.on_timer(TIMERS["late"])
    def on_late(
        self,
        key: Any = tg.DoFn.KeyParam,
        tag: Any = tg.DoFn.TimerTagParam,
        window: Any = tg.DoFn.WindowParam,
        fuel: Any = tg.DoFn.StateParam(FUEL),
        late: Any = LATE,
        early: Any = EARLY,
        clock: Any = CLOCK,
    ) -> Iterator[Any]:
        return self.fired("late", key, tag, window, fuel, late=late, early=early, clock=clock)

    @tg.on_timer(TIMERS["early"])
    def on_early(
        self,
        key: Any = tg.DoFn.KeyParam,
        tag: Any = tg.DoFn.TimerTagParam,
        window: Any = tg.DoFn.WindowParam,
        fuel: Any = tg.DoFn.StateParam(FUEL),
        late: Any = LATE,
        early: Any = EARLY,
        clock: Any = CLOCK,
    ) -> Iterator[Any]:
        return self.fired("early", key, tag, window, fuel, late=late, early=early, clock=clock)

    @tg.on_timer(TIMERS["clock"])
    def on_clock(
        self,
        key: Any = tg.DoFn.KeyParam,
        tag: Any = tg.DoFn.TimerTagParam,
        window: Any = tg.DoFn.WindowParam,
        fuel: Any = tg.DoFn.StateParam(FUEL),
        late: Any = LATE,
        early: Any = EARLY,
        clock: Any = CLOCK,
    ) -> Iterator[Any]:
        return self.fired("clock", key, tag, window, fuel, late=late, early=early, clock=clock)

    @tg.on_window_expiration
    def expired(self, key: Any = tg.DoFn.KeyParam, fuel: Any = tg.DoFn.StateParam(FUEL)) -> Iterator[Any]:
        yield key, "expired", fuel.read()


ORDER = {"late": 0, "early": 1, "clock": 2}


@dataclass
class Model:
    """A model of one key and one window of the step above."""

    key: str
    window: IntervalWindow
    timers: list[dict[str, Any]] = field(default_factory=list)
    fuel: int = 0
    out: list[Out] = field(default_factory=list)

    def do(self, ops: Iterable[tuple[Any, ...]], t: int, watermark: int, clock: int) -> None:
        for kind, name, *rest in ops:
            if kind == "clear":
                self.timers = [timer for timer in self.timers if (timer["name"], timer["tag"]) != (name, rest[0])]
                continue
            at, tag, output = rest
            if name == "clock" and watermark == MAX_MICROS:
                continue
            self.timers = [timer for timer in self.timers if (timer["name"], timer["tag"]) != (name, tag)]
            start = self.window.start_micros
            due = at * SECOND + (0 if name == "clock" else start)
            default = t if name == "clock" else due
            stamp = default if output is None else start + output * SECOND
            self.timers.append({"name": name, "tag": tag, "at": due, "output": stamp})

    def emit(self, value: Any, t: int) -> None:
        self.out.append(("step", value, t, (self.window,)))

    def fire(self, due: Any, watermark: int, clock: int) -> None:
        """Fire the timers that are due, one by one, by (instant, declaration, tag)."""
        while ready := [timer for timer in self.timers if due(timer)]:
            timer = min(ready, key=lambda timer: (timer["at"], ORDER[timer["name"]], timer["tag"]))
            self.timers.remove(timer)
            self.emit((self.key, timer["name"], timer["tag"]), timer["output"])
            if self.fuel:
                self.fuel -= 1
                self.do(ops_of(timer["name"], timer["tag"]), timer["output"], watermark, clock)


def model(events: list[Event]) -> list[dict[str, list[Out]]]:
    """The output of the step by event and key; the last event is the end of input."""
    parts: dict[tuple[str, IntervalWindow], Model] = {}
    gone: list[Model] = []
    watermark, clock = MIN_MICROS, MIN_MICROS
    steps: list[dict[str, list[Out]]] = []

    def passed(timer: dict[str, Any]) -> bool:
        return bool(timer["at"] <= (clock if timer["name"] == "clock" else watermark))

    for event in [*events, Watermark(MAX_MICROS)]:
        out: dict[str, list[Out]] = {}
        steps.append(out)
        match event:
            case Elements(items=items):
                for (key, ops), t, (window,) in items:
                    if window.end_micros + LATENESS <= watermark:
                        continue
                    part = parts.setdefault((key, window), Model(key, window))
                    part.fuel = 3
                    part.do(ops, t, watermark, clock)
                    part.emit((key, "element"), t)
                    part.fire(passed, watermark, clock)
                    out.setdefault(key, []).extend(part.out)
                    part.out.clear()
                continue
            case Watermark(micros=micros):
                watermark = max(watermark, micros)
            case Clock(micros=micros):
                clock = max(clock, micros)
        for part in sorted(parts.values(), key=lambda part: part.window):
            if part in gone:
                continue
            part.fire(passed, watermark, clock)
            if watermark == MAX_MICROS:
                at_end = [timer for timer in part.timers if timer["name"] == "clock"]
                part.fire(lambda timer, at_end=at_end: timer in at_end or passed(timer), watermark, clock)
            if part.window.end_micros + LATENESS <= watermark:
                part.emit((part.key, "expired", part.fuel), part.window.end_micros - 1)
                gone.append(part)
            if part.out:
                out.setdefault(part.key, []).extend(part.out)
            part.out.clear()
        for part in gone:
            parts.pop((part.key, part.window), None)
        gone.clear()
    return steps


op = st.one_of(
    st.tuples(
        st.just("set"),
        st.sampled_from(sorted(TIMERS)),
        st.sampled_from([0, 3, 10, 14]),
        st.sampled_from(["", "x", "y"]),
        st.one_of(st.none(), st.integers(0, SIZE)),
    ),
    st.tuples(st.just("clear"), st.sampled_from(sorted(TIMERS)), st.sampled_from(["", "x", "y"])),
)
element = st.tuples(st.sampled_from("ab"), st.lists(op, max_size=4), st.sampled_from([0, 1, 5, 9, 12, 20]))


def as_elements(items_drawn: list[Any]) -> Elements:
    items = []
    for key, ops, second in items_drawn:
        start = second // SIZE * SIZE
        items.append(((key, tuple(ops)), second * SECOND, (IntervalWindow(start, start + SIZE),)))
    return Elements(tuple(items))


event = st.one_of(
    st.lists(element, min_size=1, max_size=4).map(as_elements),
    st.sampled_from([1, 3, 9, 10, 13, 14, 15, 24, 30]).map(lambda second: Watermark(second * SECOND)),
    st.sampled_from([1, 3, 9, 10, 15, 20]).map(lambda second: Clock(second * SECOND)),
)
scripts = st.lists(event, max_size=8)


def pipeline(p: tg.Pipeline) -> Any:
    windows = tg.WindowInto(tg.FixedWindows(SIZE), allowed_lateness=LATENESS // SECOND)
    return p | tg.Create([("a", ())]) | windows | "step" >> tg.ParDo(Scripted())


step = operator_factory(pipeline, "step")


def by_key(out: list[Out]) -> dict[str, list[Out]]:
    found: dict[str, list[Out]] = {}
    for emitted in out:
        found.setdefault(emitted[1][0], []).append(emitted)
    return found


@given(scripts)
def test_timers_fire_as_in_the_model(events: list[Event]) -> None:
    op = step()
    found = [by_key(run(op, [event], end=False)) for event in events]
    assert [*found, by_key(run(op, []))] == model(events)


@given(scripts, st.integers(1, 3))
def test_cutting_blocks_differently_changes_nothing(events: list[Event], cut: int) -> None:
    assert run(step(), events, cut=cut) == run(step(), events)


@given(scripts, st.integers(1, 3))
def test_small_output_blocks_change_nothing(events: list[Event], size: int) -> None:
    small = operator(pipeline, "step", world=context(block_size=size))
    assert run(small, events) == run(step(), events)


@settings(max_examples=40)
@given(scripts)
def test_a_restore_at_any_position_changes_nothing(events: list[Event]) -> None:
    expected = by_key(run(step(), events))
    for position in range(len(events) + 1):
        assert by_key(run_restored(step, events, position)) == expected


@settings(max_examples=40)
@given(scripts)
def test_state_split_by_key_gives_the_same_output_as_one_task(events: list[Event]) -> None:
    half = len(events) // 2
    first: Any = step()
    first_half = run(first, events[:half], end=False)
    parts = [select_keys(first.snapshot(), key.__eq__) for key in "ab"]
    second_half: list[Out] = []
    for n, key in enumerate("ab"):
        task: Any = step()
        task.restore(parts[n])
        events_of_key = [
            Elements(tuple(item for item in e.items if item[0][0] == key)) if isinstance(e, Elements) else e
            for e in events[half:]
        ]
        second_half += run(task, events_of_key)
    assert by_key(first_half + second_half) == by_key(run(step(), events))
    merged_task: Any = step()
    merged_task.restore(merged(parts))
    assert by_key(first_half + run(merged_task, events[half:])) == by_key(run(step(), events))
