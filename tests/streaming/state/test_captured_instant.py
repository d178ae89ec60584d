"""A capture has the state of one instant, whatever its operators do before it is written.

Checked for every operator and backend, with state that fits in memory and with state that is spilled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import tidegate as tg
from tests.engine.test_rescale import answer
from tests.streaming.state.test_backend import Disk, awaited
from tests.support.operator_driver import Clock, Elements, Event, Watermark, context
from tests.support.streaming.threads import new_threads
from tidegate.runners.checkpoint import state_files
from tidegate.runners.engine.memory.spill_file import SpillFile, keep_removed_files
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.streaming.state import memory, writers
from tidegate.runners.streaming.state.backend import StateBackend
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.rocksdb import RocksBackend
from tidegate.runners.streaming.state.uploads import DirectFileStore
from tidegate.sdk.windowing.window import GLOBAL_WINDOW
from tidegate.testing.harness import step_operator

Kind = Literal["forked", "sliced", "sliced in between", "rocksdb"]
InputForm = Literal["unwindowed", "without keys", "windowed", "in sessions"]
SECOND = 1_000_000
SIDE = "step:0"
WINDOWS = tg.FixedWindows(10)
EARLY = tg.AfterWatermark(early=tg.Repeatedly(tg.AfterCount(7)), late=tg.Repeatedly(tg.AfterCount(1)))

VALUE = tg.ValueStateSpec("value")
BAG = tg.BagStateSpec("bag")
DISTINCT = tg.SetStateSpec("distinct")
BY_DIGIT = tg.MapStateSpec("by_digit")
IN_ORDER = tg.OrderedListStateSpec("in_order")
TOTAL = tg.CombiningStateSpec("total", list)
LATER = tg.EventTimer("later")


class Cells(tg.DoFn):
    """Uses every kind of cell."""

    def process(
        self,
        element: Any,
        value: Any = tg.DoFn.StateParam(VALUE),
        bag: Any = tg.DoFn.StateParam(BAG),
        distinct: Any = tg.DoFn.StateParam(DISTINCT),
        by_digit: Any = tg.DoFn.StateParam(BY_DIGIT),
        in_order: Any = tg.DoFn.StateParam(IN_ORDER),
        total: Any = tg.DoFn.StateParam(TOTAL),
        later: Any = tg.DoFn.TimerParam(LATER),
        t: Any = tg.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        _, x = element
        value.write((value.read() or 0) + x)
        bag.add(x)
        distinct.add(x % 7)
        by_digit.put(x % 10, x)
        in_order.add(t, x)
        total.add(x)
        later.set(tg.Timestamp(micros=t.micros + 5 * SECOND))
        return iter(())

    @tg.on_timer(LATER)
    def fire(
        self,
        key: Any = tg.DoFn.KeyParam,
        value: Any = tg.DoFn.StateParam(VALUE),
        bag: Any = tg.DoFn.StateParam(BAG),
        distinct: Any = tg.DoFn.StateParam(DISTINCT),
        by_digit: Any = tg.DoFn.StateParam(BY_DIGIT),
        in_order: Any = tg.DoFn.StateParam(IN_ORDER),
        total: Any = tg.DoFn.StateParam(TOTAL),
    ) -> Iterator[Any]:
        cells = bag.read(), distinct.read(), dict(by_digit.items()), list(in_order.read()), total.read()
        yield key, (value.read(), *map(repr, cells))


Make = Callable[[Any, Any], Any]
"""From pairs and another collection to the output of the step named `step`."""


@dataclass(frozen=True)
class Case:
    """A step, and its input.

    `streaming`: the input is a stream. `spills`: the step can spill. `form`: the form of the elements of its input.
    `sides`: it has a side input.
    """

    make: Make
    streaming: bool = True
    spills: bool = False
    form: InputForm = "unwindowed"
    sides: bool = False

    def operator(self, step_context: Context) -> Operator:
        p = tg.Pipeline()
        made = self.make(p | "main" >> tg.Create([("a", 1)]), p | "other" >> tg.Create([("a", 1)]))
        _ = made | "elsewhere" >> tg.Reshuffle() | "read" >> tg.Map(str)  # a collection without a reader is not planned
        operator = step_operator(p, "step", streaming=self.streaming)(step_context)
        operator.open()
        return operator

    def events(self) -> list[Event]:
        """Events, of which the second half repeats the keys, windows and timestamps of the first."""
        events: list[Event] = [Clock(0)]
        for half in range(2):
            for turn in range(3):
                if self.sides:
                    events.append(elements(SIDE, "windowed", turn, 6))
                events.append(elements("main", self.form, turn, 40))
                if self.streaming and half:
                    events.append(Clock(turn * SECOND))
                    events += [Watermark(turn * 8 * SECOND, SIDE)] if self.sides else []
                    events.append(Watermark(turn * 7 * SECOND))
        return events


def elements(collection: str, form: InputForm, turn: int, n: int) -> Elements:
    return Elements(tuple(element(form, x, (x * 7 + turn) % 30) for x in range(n)), collection)


def element(form: InputForm, x: int, t: int) -> tuple[Any, int, tuple[Any, ...]]:
    pair = f"key {x % 23}", x
    match form:
        case "unwindowed":
            return pair, t * SECOND, (GLOBAL_WINDOW,)
        case "without keys":
            return x, t * SECOND, (GLOBAL_WINDOW,)
        case "windowed":
            return pair, t * SECOND, (tg.IntervalWindow(t // 10 * 10, t // 10 * 10 + 10),)
        case "in sessions":
            return pair, t * SECOND, (tg.IntervalWindow(t, t + 3),)


def grouped(windows: Any, *combiner: Any, **windowing: Any) -> Make:
    """A grouping in these windows, combined if a combiner is given."""

    def make(main: Any, other: Any) -> Any:
        windowed = main | "windows" >> tg.WindowInto(windows, **windowing)
        return windowed | "step" >> (tg.CombinePerKey(*combiner) if combiner else tg.GroupByKey())

    return make


def exchanged(*combiner: Any) -> Make:
    def make(main: Any, other: Any) -> Any:
        spread = main | "windows" >> tg.WindowInto(WINDOWS) | "spread" >> tg.Reshuffle()
        return spread | "step" >> (tg.CombinePerKey(*combiner) if combiner else tg.GroupByKey())

    return make


def with_side_input(step: Callable[[Any], Any]) -> Make:
    def make(main: Any, other: Any) -> Any:
        side = other | "side windows" >> tg.WindowInto(WINDOWS)
        return main | "windows" >> tg.WindowInto(WINDOWS) | "spread" >> tg.Reshuffle() | "step" >> step(side)

    return make


def seen(pair: Any, *sides: Any) -> Any:
    return pair[0], (pair[1], *map(len, sides))


class WithSideInput(tg.DoFn):
    def process(self, element: Any, side: Any, bag: Any = tg.DoFn.StateParam(BAG)) -> Iterator[Any]:
        bag.add(element[1])
        yield element[0], (len(side), sorted(bag.read()))


EARLY_PANES: dict[str, Any] = {"trigger": EARLY, "accumulation": tg.ACCUMULATING, "allowed_lateness": 30}
GROUPINGS: dict[str, Make] = {
    "groups": grouped(WINDOWS),
    "groups in sliding windows": grouped(tg.SlidingWindows(20, 10)),
    "groups in sessions": grouped(tg.Sessions(3)),
    "sums": grouped(WINDOWS, sum),
    "lists": grouped(WINDOWS, list),
    "sets": grouped(WINDOWS, set),
    "means": grouped(WINDOWS, tg.combiners.MeanFn()),
    "the largest": grouped(WINDOWS, tg.combiners.TopFn(3)),
    "quantiles": grouped(WINDOWS, tg.combiners.ApproximateQuantilesFn(5, 0.01, None, False)),
    "several": grouped(WINDOWS, (sum, tg.combiners.TopFn(2), list)),
    "sums in sessions": grouped(tg.Sessions(3), sum),
    "lists in sessions": grouped(tg.Sessions(3), list),
    "counts in sessions": grouped(tg.Sessions(3), len),
    "early panes": grouped(WINDOWS, **EARLY_PANES),
    "early sums": grouped(WINDOWS, sum, **EARLY_PANES),
    "early lists": grouped(WINDOWS, list, **EARLY_PANES),
    "early sessions": grouped(tg.Sessions(3), set, **EARLY_PANES),
    "with an evictor": grouped(WINDOWS, evictor=tg.KeepLast(4), **EARLY_PANES),
    "one sum": lambda main, other: main | tg.Values() | "step" >> tg.CombineGlobally(sum),
    "one list": lambda main, other: main | tg.Values() | "step" >> tg.CombineGlobally(tg.combiners.TopFn(5)),
    "cells": lambda main, other: main | "step" >> tg.ParDo(Cells()),
}
EXCHANGED: dict[str, Make] = {
    "groups by key": exchanged(),
    "lists by key": exchanged(list),
    "means by key": exchanged(tg.combiners.MeanFn()),
    "quantiles by key": exchanged(tg.combiners.ApproximateQuantilesFn(5, 0.01, None, False)),
}
"""Groupings behind an exchange, so that they are alone in their loop."""
SIDES: dict[str, Make] = {
    "with a list": with_side_input(lambda side: tg.Map(seen, tg.AsList(side))),
    "with an iterable": with_side_input(lambda side: tg.Map(seen, tg.AsIter(side))),
    "with a multimap": with_side_input(lambda side: tg.Map(seen, tg.AsMultiMap(side))),
    "cells with a side input": with_side_input(lambda side: tg.ParDo(WithSideInput(), tg.AsList(side))),
}
SPILLS = {"groups", "groups in sliding windows", "groups in sessions", "early panes", "cells"}


def input_form(name: str) -> InputForm:
    return "in sessions" if "sessions" in name else "without keys" if name.startswith("one ") else "unwindowed"


CASES = (
    {name: Case(make, form=input_form(name)) for name, make in GROUPINGS.items()}
    | {f"bounded: {name}": Case(make, False, name in SPILLS, input_form(name)) for name, make in GROUPINGS.items()}
    | {name: Case(make, form="windowed") for name, make in EXCHANGED.items()}
    | {name: Case(make, spills=True, form="windowed", sides=True) for name, make in SIDES.items()}
)


class Latch(Operator):
    """State of which a child's snapshot waits until its parent lets it continue."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parent = os.getpid()
        os.mkfifo(path)

    def snapshot(self, keys: Collection[Any] | None = None) -> Any:
        if os.getpid() != self._parent:
            self._path.read_bytes()
        return ()

    def open_for_child(self) -> None:
        """Let the child continue."""
        self._path.write_bytes(b"")


class BackedStep:
    """A step with a backend of some kind that captures its state, all in one folder."""

    def __init__(self, case: Case, kind: Kind, folder: Path, budget: int) -> None:
        folder.mkdir()
        self.spilled = folder / "spilled"
        self.spilled.mkdir()
        self.disk = Disk(folder / "checkpoints")
        self.latch = Latch(folder / "latch")
        self.steps: dict[str, Operator] = {}
        local = folder / "parts"
        local.mkdir()
        stored = DirectFileStore(self.disk, self.disk.root, lambda: local)
        step_context = context()
        step_context.memory_budget = budget
        step_context.temp_dir = lambda: self.spilled
        if kind == "rocksdb":
            rocks = RocksBackend(lambda: self.steps, stored, lambda: local, budget=2_000, full_every=3)
            step_context.wrap_keyed = rocks.page
            self.backend: StateBackend = rocks
        else:
            forks = kind == "forked"
            self.backend = MemoryBackend(lambda: self.steps, stored, forks=forks, full_every=3)
        self.step = case.operator(step_context)
        if kind == "forked":
            self.steps["latch"] = self.latch
        self.steps["step"] = self.step


@pytest.fixture(autouse=True)
def gradual_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy and write all state piece by piece or in a child, and fork despite threads that earlier tests have left."""
    new = new_threads()
    monkeypatch.setattr(memory, "can_fork", lambda: not new())
    monkeypatch.setattr(memory, "AT_ONCE", 0)
    monkeypatch.setattr(writers, "_FEW", 0)
    monkeypatch.setattr(writers, "PIECE", 1)
    monkeypatch.setattr(state_files, "PIECE", 1)


def output_to_the_end(step: Operator, events: list[Event]) -> list[str]:
    """The output for these events and the end of input, sorted, since spilled state is emitted in another order."""
    return sorted(repr(row) for event in (*events, None) for row in answer(step, event))


@pytest.mark.parametrize("kind", ["forked", "sliced", "sliced in between", "rocksdb"])
@pytest.mark.parametrize(
    ("name", "spilled"), [(name, spilled) for name, case in CASES.items() for spilled in {False, case.spills}]
)
def test_changes_after_a_capture_are_not_in_it(name: str, spilled: bool, kind: Kind, tmp_path: Path) -> None:
    case, budget = CASES[name], 1 if spilled else 1 << 26
    events = case.events()
    before, after = events[: len(events) // 2], events[len(events) // 2 :]
    backed, reference = (
        BackedStep(case, kind, tmp_path / "backed", budget),
        BackedStep(case, "sliced", tmp_path / "reference", budget),
    )
    for event in before:
        answer(backed.step, event)
        answer(reference.step, event)
    list(backed.step.finish_bundle())
    assert bool(list(backed.spilled.iterdir())) == spilled
    capture = backed.backend.capture(1, "chk-1/0.0.1.state", whole=False)
    output, stored = [], None
    for event in (*after, None):
        output += answer(backed.step, event)
        if kind == "sliced in between" and stored is None:
            stored = capture.poll()
    assert output
    backed.step.close()
    if kind == "forked":
        backed.latch.open_for_child()
    stored = awaited(capture) if stored is None else stored
    restored = BackedStep(case, kind, tmp_path / "restored", budget)
    restored.backend.restore([stored], backed.disk.read, None)
    assert output_to_the_end(restored.step, after) == output_to_the_end(reference.step, after)
    for each in (backed, reference, restored):
        each.backend.close()


@pytest.mark.parametrize("aborted", [False, True])
def test_spilled_files_stay_until_no_child_needs_them(aborted: bool, tmp_path: Path) -> None:
    case = CASES["with a list"]
    backed = BackedStep(case, "forked", tmp_path / "backed", 1)
    for event in case.events()[:5]:
        answer(backed.step, event)
    before = set(backed.spilled.iterdir())
    assert before
    capture = backed.backend.capture(1, "chk-1/0.0.1.state", whole=False)
    answer(backed.step, None)
    assert set(backed.spilled.iterdir()) == before
    if aborted:
        capture.abandon()
    else:
        backed.latch.open_for_child()
        awaited(capture)
    assert not list(backed.spilled.iterdir())


def test_a_removed_file_is_deleted_when_all_earlier_keepers_have_released_it(tmp_path: Path) -> None:
    made = [SpillFile(tmp_path / name) for name in "abc"]
    for file in made:
        file.append([b"some"])
    release_first = keep_removed_files()
    made[0].remove()
    release_second = keep_removed_files()
    made[1].remove()
    release_first()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["b", "c"]
    release_first()
    release_second()
    made[2].remove()
    assert not list(tmp_path.iterdir())
