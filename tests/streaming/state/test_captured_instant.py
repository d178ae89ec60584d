"""A capture has the state of one instant, whatever its operators do before it is written.

Every operator, in every backend, with what is in memory and with what does not fit there.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import tidegate as tg
from tests.engine.test_rescale import answer
from tests.streaming.state.test_backend import Disk, awaited
from tests.support.operator_driver import Clock, Elements, Event, Watermark, context
from tidegate.runners.engine.memory.spill_file import SpillFile, keep_removed_files
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.streaming.state import files, memory, writers
from tidegate.runners.streaming.state.backend import StateBackend
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.rocksdb import RocksBackend
from tidegate.runners.streaming.state.uploads import DirectFileStore
from tidegate.sdk.windowing.window import GLOBAL_WINDOW
from tidegate.testing.harness import step_operator

Kind = Literal["forked", "sliced", "rocksdb"]
Comes = Literal["unwindowed", "without keys", "in spans", "in sessions"]
SECOND = 1_000_000
SIDE = "step:0"
SPANS = tg.FixedWindows(10)
EARLY = tg.AfterWatermark(early=tg.Repeatedly(tg.AfterCount(7)), late=tg.Repeatedly(tg.AfterCount(1)))

VALUE = tg.ValueStateSpec("value")
BAG = tg.BagStateSpec("bag")
THOSE = tg.SetStateSpec("those")
BY_DIGIT = tg.MapStateSpec("by_digit")
IN_ORDER = tg.OrderedListStateSpec("in_order")
TOTAL = tg.CombiningStateSpec("total", list)
LATER = tg.EventTimer("later")


class Cells(tg.DoFn):
    """Every kind of cell."""

    def process(
        self,
        element: Any,
        value: Any = tg.DoFn.StateParam(VALUE),
        bag: Any = tg.DoFn.StateParam(BAG),
        those: Any = tg.DoFn.StateParam(THOSE),
        by_digit: Any = tg.DoFn.StateParam(BY_DIGIT),
        in_order: Any = tg.DoFn.StateParam(IN_ORDER),
        total: Any = tg.DoFn.StateParam(TOTAL),
        later: Any = tg.DoFn.TimerParam(LATER),
        t: Any = tg.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        _, x = element
        value.write((value.read() or 0) + x)
        bag.add(x)
        those.add(x % 7)
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
        those: Any = tg.DoFn.StateParam(THOSE),
        by_digit: Any = tg.DoFn.StateParam(BY_DIGIT),
        in_order: Any = tg.DoFn.StateParam(IN_ORDER),
        total: Any = tg.DoFn.StateParam(TOTAL),
    ) -> Iterator[Any]:
        cells = bag.read(), those.read(), dict(by_digit.items()), list(in_order.read()), total.read()
        yield key, (value.read(), *map(repr, cells))


Make = Callable[[Any, Any], Any]
"""From pairs and a further collection to what the step named `step` gives."""


@dataclass(frozen=True)
class Case:
    """A step, and its input. `streaming`: whether that is a stream; `spills`: whether it goes to disk if it must;
    `comes`: as what elements get there."""

    make: Make
    streaming: bool = True
    spills: bool = False
    comes: Comes = "unwindowed"
    sides: bool = False

    def operator(self, world: Context) -> Operator:
        p = tg.Pipeline()
        made = self.make(p | "main" >> tg.Create([("a", 1)]), p | "other" >> tg.Create([("a", 1)]))
        _ = made | "elsewhere" >> tg.Reshuffle() | "read" >> tg.Map(str)  # what nobody reads is not made
        operator = step_operator(p, "step", streaming=self.streaming)(world)
        operator.open()
        return operator

    def events(self) -> list[Event]:
        """The second half goes back over the keys, the windows and the times of the first one."""
        events: list[Event] = [Clock(0)]
        for half in range(2):
            for turn in range(3):
                if self.sides:
                    events.append(elements(SIDE, "in spans", turn, 6))
                events.append(elements("main", self.comes, turn, 40))
                if self.streaming and half:
                    events.append(Clock(turn * SECOND))
                    events += [Watermark(turn * 8 * SECOND, SIDE)] if self.sides else []
                    events.append(Watermark(turn * 7 * SECOND))
        return events


def elements(collection: str, comes: Comes, turn: int, n: int) -> Elements:
    return Elements(tuple(element(comes, x, (x * 7 + turn) % 30) for x in range(n)), collection)


def element(comes: Comes, x: int, t: int) -> tuple[Any, int, tuple[Any, ...]]:
    pair = f"key {x % 23}", x
    match comes:
        case "unwindowed":
            return pair, t * SECOND, (GLOBAL_WINDOW,)
        case "without keys":
            return x, t * SECOND, (GLOBAL_WINDOW,)
        case "in spans":
            return pair, t * SECOND, (tg.IntervalWindow(t // 10 * 10, t // 10 * 10 + 10),)
        case "in sessions":
            return pair, t * SECOND, (tg.IntervalWindow(t, t + 3),)


def grouped(windows: Any, *how: Any, **windowing: Any) -> Make:
    """A grouping in these windows; `how`: combined."""

    def make(main: Any, other: Any) -> Any:
        there = main | "windows" >> tg.WindowInto(windows, **windowing)
        return there | "step" >> (tg.CombinePerKey(*how) if how else tg.GroupByKey())

    return make


def beside(step: Callable[[Any], Any]) -> Make:
    def make(main: Any, other: Any) -> Any:
        side = other | "side windows" >> tg.WindowInto(SPANS)
        return main | "windows" >> tg.WindowInto(SPANS) | "spread" >> tg.Reshuffle() | "step" >> step(side)

    return make


def seen(pair: Any, *sides: Any) -> Any:
    return pair[0], (pair[1], *map(len, sides))


class Beside(tg.DoFn):
    def process(self, element: Any, side: Any, bag: Any = tg.DoFn.StateParam(BAG)) -> Iterator[Any]:
        bag.add(element[1])
        yield element[0], (len(side), sorted(bag.read()))


EARLY_PANES: dict[str, Any] = {"trigger": EARLY, "accumulation": tg.ACCUMULATING, "allowed_lateness": 30}
GROUPINGS: dict[str, Make] = {
    "groups": grouped(SPANS),
    "groups in sliding windows": grouped(tg.SlidingWindows(20, 10)),
    "groups in sessions": grouped(tg.Sessions(3)),
    "sums": grouped(SPANS, sum),
    "lists": grouped(SPANS, list),
    "sets": grouped(SPANS, set),
    "means": grouped(SPANS, tg.combiners.MeanFn()),
    "the largest": grouped(SPANS, tg.combiners.TopFn(3)),
    "quantiles": grouped(SPANS, tg.combiners.ApproximateQuantilesFn(5, 0.01, None, False)),
    "several": grouped(SPANS, (sum, tg.combiners.TopFn(2), list)),
    "sums in sessions": grouped(tg.Sessions(3), sum),
    "lists in sessions": grouped(tg.Sessions(3), list),
    "counts in sessions": grouped(tg.Sessions(3), len),
    "early panes": grouped(SPANS, **EARLY_PANES),
    "early sums": grouped(SPANS, sum, **EARLY_PANES),
    "early lists": grouped(SPANS, list, **EARLY_PANES),
    "early sessions": grouped(tg.Sessions(3), set, **EARLY_PANES),
    "what an evictor keeps": grouped(SPANS, evictor=tg.KeepLast(4), **EARLY_PANES),
    "one sum": lambda main, other: main | tg.Values() | "step" >> tg.CombineGlobally(sum),
    "one list": lambda main, other: main | tg.Values() | "step" >> tg.CombineGlobally(tg.combiners.TopFn(5)),
    "cells": lambda main, other: main | "step" >> tg.ParDo(Cells()),
}
SIDES: dict[str, Make] = {
    "beside a list": beside(lambda side: tg.Map(seen, tg.AsList(side))),
    "beside an iterable": beside(lambda side: tg.Map(seen, tg.AsIter(side))),
    "beside a multimap": beside(lambda side: tg.Map(seen, tg.AsMultiMap(side))),
    "cells beside": beside(lambda side: tg.ParDo(Beside(), tg.AsList(side))),
}
SPILLS = {"groups", "groups in sliding windows", "groups in sessions", "early panes", "cells"}


def comes(name: str) -> Comes:
    return "in sessions" if "sessions" in name else "without keys" if name.startswith("one ") else "unwindowed"


CASES = (
    {name: Case(make, comes=comes(name)) for name, make in GROUPINGS.items()}
    | {f"bounded: {name}": Case(make, False, name in SPILLS, comes(name)) for name, make in GROUPINGS.items()}
    | {name: Case(make, spills=True, comes="in spans", sides=True) for name, make in SIDES.items()}
)


class Latch(Operator):
    """State that a child can't look up before its parent says so."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parent = os.getpid()
        os.mkfifo(path)

    def snapshot(self, keys: Collection[Any] | None = None) -> Any:
        if os.getpid() != self._parent:
            self._path.read_bytes()
        return ()

    def open_for_child(self) -> None:
        """Let the child go on."""
        self._path.write_bytes(b"")


class Kept:
    """A step whose state a backend of some kind keeps, in a folder."""

    def __init__(self, case: Case, kind: Kind, folder: Path, budget: int) -> None:
        folder.mkdir()
        self.spilled = folder / "spilled"
        self.spilled.mkdir()
        self.disk = Disk(folder / "checkpoints")
        self.latch = Latch(folder / "latch")
        self.steps: dict[str, Operator] = {}
        place = folder / "parts"
        place.mkdir()
        stored = DirectFileStore(self.disk, self.disk.root, lambda: place)
        world = context()
        world.memory_budget = budget
        world.temp_dir = lambda: self.spilled
        if kind == "rocksdb":
            rocks = RocksBackend(lambda: self.steps, stored, lambda: place, budget=2_000, full_every=3)
            world.wrap_keyed = rocks.page
            self.backend: StateBackend = rocks
        else:
            forks = kind == "forked"
            self.backend = MemoryBackend(lambda: self.steps, stored, forks=forks, full_every=3)
        self.step = case.operator(world)
        if kind == "forked":
            self.steps["latch"] = self.latch
        self.steps["step"] = self.step


@pytest.fixture(autouse=True)
def taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little by little, or by a child, whatever there is; threads that other tests have left do not count."""
    before = threading.active_count()
    monkeypatch.setattr(memory, "can_fork", lambda: threading.active_count() == before)
    monkeypatch.setattr(writers, "_FEW", 0)
    monkeypatch.setattr(writers, "PIECE", 1)
    monkeypatch.setattr(files, "PIECE", 1)


def ended(step: Operator, events: list[Event]) -> list[str]:
    """The output for these events and the end of input, sorted, since spilled state is emitted in another order."""
    return sorted(repr(row) for event in (*events, None) for row in answer(step, event))


@pytest.mark.parametrize("kind", ["forked", "sliced", "rocksdb"])
@pytest.mark.parametrize(
    ("name", "spilled"), [(name, spilled) for name, case in CASES.items() for spilled in {False, case.spills}]
)
def test_what_an_operator_does_after_a_capture_is_not_in_it(
    name: str, spilled: bool, kind: Kind, tmp_path: Path
) -> None:
    case, budget = CASES[name], 1 if spilled else 1 << 26
    events = case.events()
    before, after = events[: len(events) // 2], events[len(events) // 2 :]
    kept, plain = Kept(case, kind, tmp_path / "kept", budget), Kept(case, "sliced", tmp_path / "plain", budget)
    for event in before:
        answer(kept.step, event)
        answer(plain.step, event)
    list(kept.step.finish_bundle())
    assert bool(list(kept.spilled.iterdir())) == spilled
    capture = kept.backend.capture(1, "chk-1/0.0.1.state", whole=False)
    assert ended(kept.step, after)
    kept.step.close()
    if kind == "forked":
        kept.latch.open_for_child()
    stored = awaited(capture)
    again = Kept(case, kind, tmp_path / "again", budget)
    again.backend.restore([stored], kept.disk.read, None)
    assert ended(again.step, after) == ended(plain.step, after)
    for each in (kept, plain, again):
        each.backend.close()


@pytest.mark.parametrize("given_up", [False, True])
def test_spilled_files_stay_until_no_child_needs_them(given_up: bool, tmp_path: Path) -> None:
    case = CASES["beside a list"]
    kept = Kept(case, "forked", tmp_path / "kept", 1)
    for event in case.events()[:5]:
        answer(kept.step, event)
    there = set(kept.spilled.iterdir())
    assert there
    capture = kept.backend.capture(1, "chk-1/0.0.1.state", whole=False)
    answer(kept.step, None)
    assert set(kept.spilled.iterdir()) == there
    if given_up:
        capture.abandon()
    else:
        kept.latch.open_for_child()
        awaited(capture)
    assert not list(kept.spilled.iterdir())


def test_a_removed_file_waits_for_those_who_kept_files_before_and_for_no_others(tmp_path: Path) -> None:
    made = [SpillFile(tmp_path / name) for name in "abc"]
    for file in made:
        file.append([b"some"])
    first = keep_removed_files()
    made[0].remove()
    second = keep_removed_files()
    made[1].remove()
    first()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["b", "c"]
    first()
    second()
    made[2].remove()
    assert not list(tmp_path.iterdir())
