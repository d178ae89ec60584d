"""A step that fails repeatedly and resumes from its last checkpoint has the output of one that never fails.

Checkpoints build on one another; some are aborted, some are reported complete late, and files that no checkpoint needs
any more are deleted. With RocksDB, keys are loaded and evicted all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.engine.grouping.test_grouping_paths import operator as grouping
from tests.engine.stateful import test_timers as timers
from tests.engine.test_rescale import Make, answer, by_key, on_time, windowed
from tests.streaming.state.test_backend import Disk, awaited
from tests.support.operator_driver import SECOND, Clock, Elements, Event, Watermark, operator_factory
from tests.support.window_operators import group, window_operator
from tidegate.runners.checkpoint.state_files import StateFile
from tidegate.runners.engine.operator import KeyedOperator, Operator
from tidegate.runners.engine.state import tiered
from tidegate.runners.streaming.state import memory
from tidegate.runners.streaming.state.backend import StateBackend
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.rocksdb import RocksBackend
from tidegate.runners.streaming.state.uploads import DirectFileStore
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.time import Duration
from tidegate.sdk.windowing.assigners import FixedWindows
from tidegate.sdk.windowing.strategy import ACCUMULATING, WindowingStrategy
from tidegate.sdk.windowing.triggers import AfterCount, AfterWatermark
from tidegate.sdk.windowing.window import IntervalWindow

LENIENT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

Page = Callable[[str, KeyedOperator], Operator] | None
Build = Callable[[Page], Operator]
"""Builds an operator, of which the keyed part may be paged."""
Backend = Literal["memory", "rocksdb"]
Action = Literal["nothing", "checkpoint", "checkpoint, reported late", "aborted", "savepoint", "failure"]
BACKENDS: tuple[Backend, ...] = ("memory", "rocksdb")
ACTIONS: tuple[Action, ...] = (
    "nothing",
    "nothing",
    "checkpoint",
    "checkpoint",
    "checkpoint, reported late",
    "aborted",
    "savepoint",
    "failure",
)


@dataclass(frozen=True)
class Case:
    """How state is stored: `budget` (bytes) for the keys in memory, and `full_every` as in `IncrementalChain`."""

    backend: Backend
    budget: int
    full_every: int


@st.composite
def cases(draw: Any) -> Case:
    """Any way to store state."""
    budget = draw(st.sampled_from([0, 600, 1 << 20]))
    return Case(draw(st.sampled_from(BACKENDS)), budget, draw(st.sampled_from([2, 4, 9])))


class Attempt:
    """One attempt of a step: from its start, or from a checkpoint, to its failure."""

    def __init__(self, case: Case, build: Build, disk: Disk, folder: Path) -> None:
        folder.mkdir(parents=True)
        files = DirectFileStore(disk, disk.root, lambda: folder)
        steps: dict[str, Operator] = {}
        if case.backend == "rocksdb":
            rocks = RocksBackend(lambda: steps, files, lambda: folder, budget=case.budget, full_every=case.full_every)
            self.backend: StateBackend = rocks
            self.step = build(rocks.page)
        else:
            self.backend = MemoryBackend(lambda: steps, files, forks=False, full_every=case.full_every)
            self.step = build(None)
        steps["step"] = self.step
        self.step.open()
        self._disk = disk
        self._counts: dict[str, int] = {}

    def restore(self, files: tuple[StateFile, ...]) -> None:
        self.backend.restore([files], self._disk.read, None)

    def output_of(self, event: Event | None) -> Any:
        """The output for an event by key, the counters, and the watermark hold after it."""
        rows = by_key(answer(self.step, event))
        counted = counts(self.step)
        new = {name: n - self._counts.get(name, 0) for name, n in counted.items() if n != self._counts.get(name, 0)}
        self._counts = counted
        return rows, new, self.step.hold()


def counts(step: Any) -> dict[str, int]:
    """The number of elements that an operator has dropped so far."""
    while not hasattr(step, "context"):
        step = step.inner
    metrics: MetricCells = step.context.metrics
    return {key.name: n for key, n in metrics.counters.items() if key.name.startswith("dropped")}


class Run:
    """A job of one task with such a step."""

    def __init__(self, case: Case, build: Build, root: Path) -> None:
        self._case = case
        self._build = build
        self._root = root
        self.disk = Disk(root / "checkpoints")
        self._attempts = self._checkpoints = 0
        self._late: list[int] = []
        self.complete: tuple[int, tuple[StateFile, ...]] = 0, ()
        """The number of events before the last complete checkpoint, and its files."""
        self.attempt = self._begin()

    def _begin(self) -> Attempt:
        self._attempts += 1
        return Attempt(self._case, self._build, self.disk, self._root / f"attempt-{self._attempts}")

    def fail(self) -> int:
        """Start the next attempt; returns the number of events before its checkpoint."""
        self.attempt.step.close()
        self.attempt.backend.close()
        self.attempt = self._begin()
        self._late = []
        after, files = self.complete
        if files:
            self.attempt.restore(files)
        return after

    def perform(self, action: Action, after: int) -> int:
        """Perform an action after `after` events; returns the number of events that the job is then past."""
        match action:
            case "nothing":
                return after
            case "failure":
                return self.fail()
            case _:
                self._checkpoint(action, after)
                return after

    def _checkpoint(self, action: Action, after: int) -> None:
        backend, whole = self.attempt.backend, action == "savepoint"
        self._checkpoints += 1
        number = self._checkpoints
        list(self.attempt.step.finish_bundle())
        files = awaited(backend.capture(number, f"chk-{number}/0.0.{self._attempts}.data", whole=whole))
        for late in self._late:
            backend.completed(late)
        self._late = []
        match action:
            case "checkpoint" | "checkpoint, reported late":
                self.complete = after, files
                for name in {*self.disk.list("")} - {name for name, _, _ in files}:
                    self.disk.delete(name)
                if action == "checkpoint":
                    backend.completed(number)
                else:
                    self._late.append(number)
            case "savepoint":
                if files:
                    restored = Attempt(self._case, self._build, self.disk, self._root / f"savepoint-{number}")
                    restored.restore(files)
                    assert restored.step.hold() == self.attempt.step.hold()
                    restored.backend.close()

    def close(self) -> None:
        self.attempt.backend.close()


def check_failures_change_nothing(build: Build, script: list[tuple[Event, Action]], case: Case, root: Path) -> None:
    """Run events with an action after each; at the end, the job fails and resumes once more."""
    reference = Attempt(replace(case, backend="memory"), build, Disk(root), root / "reference")
    events: list[Event | None] = [event for event, _ in script]
    expected = [reference.output_of(event) for event in (*events, None)]
    run = Run(case, build, root)
    at = 0
    actions = [action for _, action in script]
    while at < len(events):
        assert run.attempt.output_of(events[at]) == expected[at], at
        action, actions[at] = actions[at], "nothing"
        at = run.perform(action, at + 1)
    at = run.fail()
    for number in range(at, len(expected)):
        assert run.attempt.output_of((*events, None)[number]) == expected[number], number
    run.close()


def scripted(events: st.SearchStrategy[list[Event]]) -> st.SearchStrategy[list[tuple[Event, Action]]]:
    """Events, each with the action after it."""
    return events.flatmap(
        lambda drawn: st.tuples(*[st.tuples(st.just(each), st.sampled_from(ACTIONS)) for each in drawn])
    ).map(list)


def paged(make: Make) -> Build:
    return lambda page: make() if page is None else page("step", make())  # type: ignore[arg-type]


@pytest.fixture(params=[0, 1 << 20], ids=["little by little", "at once"], autouse=True)
def keys_per_lookup(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of keys that are looked up, or whose state is copied, at once."""
    monkeypatch.setattr(memory, "AT_ONCE", request.param)
    monkeypatch.setattr(tiered, "MAX_SYNCHRONOUS", request.param)
    monkeypatch.setattr(tiered, "BATCH", 3)


# -- any window operator


@settings(max_examples=40, deadline=None, suppress_health_check=LENIENT)
@given(drawn=windowed(), actions=st.lists(st.sampled_from(ACTIONS), max_size=20), case=cases())
def test_windows_survive_failures(
    drawn: Any, actions: list[Action], case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    make, events = drawn
    script = list(zip(events, (*actions, *["nothing"] * len(events)), strict=False))
    check_failures_change_nothing(paged(make), script, case, tmp_path_factory.mktemp("state"))


@settings(max_examples=40, deadline=None, suppress_health_check=LENIENT)
@given(drawn=on_time(), actions=st.lists(st.sampled_from(ACTIONS), max_size=20), case=cases())
def test_tables_survive_failures(
    drawn: Any, actions: list[Action], case: Case, tmp_path_factory: pytest.TempPathFactory
) -> None:
    make, events = drawn
    script = list(zip(events, (*actions, *["nothing"] * len(events)), strict=False))
    check_failures_change_nothing(paged(make), script, case, tmp_path_factory.mktemp("state"))


@settings(max_examples=40, deadline=None, suppress_health_check=LENIENT)
@given(script=scripted(timers.scripts), case=cases())
def test_timers_survive_failures(script: Any, case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    build = paged(timers.step)
    check_failures_change_nothing(build, [(Clock(0), "nothing"), *script], case, tmp_path_factory.mktemp("state"))


# -- cells of every kind

CELLS: dict[str, Any] = {
    "value": tg.ValueStateSpec("value"),
    "brief": tg.ValueStateSpec("brief", ttl=6),
    "bag": tg.BagStateSpec("bag"),
    "brief bag": tg.BagStateSpec("brief bag", ttl=9),
    "set": tg.SetStateSpec("set"),
    "map": tg.MapStateSpec("map"),
    "list": tg.OrderedListStateSpec("list"),
    "sum": tg.CombiningStateSpec("sum", sum),
}
VALUE, BRIEF, BAG, BRIEF_BAG, SET, MAP, LIST, SUM = (tg.DoFn.StateParam(spec) for spec in CELLS.values())


class AllCells(tg.DoFn):
    """Reads all cells, and then changes the one that its element names; "drop" removes its contents."""

    def process(
        self,
        element: Any,
        value: Any = VALUE,
        brief: Any = BRIEF,
        bag: Any = BAG,
        brief_bag: Any = BRIEF_BAG,
        set: Any = SET,
        map: Any = MAP,
        list: Any = LIST,
        sum: Any = SUM,
    ) -> Iterator[Any]:
        key, (cell, x) = element
        read = value.read(), brief.read(), bag.read(), brief_bag.read(), set.read(), map.items(), sum.read()
        yield key, (*read, *((t.micros, each) for t, each in list.read()))
        drop = x == "drop"
        match cell:
            case "value":
                value.clear() if drop else value.write(x)
            case "brief":
                brief.clear() if drop else brief.write(x)
            case "bag":
                bag.clear() if drop else bag.add(x)
            case "brief bag":
                brief_bag.clear() if drop else brief_bag.add(x)
            case "set":
                set.discard(1) if drop else set.add(x)
            case "map":
                map.remove(1) if drop else map.put(x, x)
            case "list":
                list.clear_range(0, 2) if drop else list.add(x, x)
            case "sum":
                sum.clear() if drop else sum.add(x)


def all_cells(p: tg.Pipeline) -> Any:
    windows = tg.WindowInto(tg.FixedWindows(10), allowed_lateness=3)
    return p | tg.Create([("a", ("value", 1))]) | windows | "step" >> tg.ParDo(AllCells())


def in_windows(drawn: list[Any]) -> Elements:
    return Elements(
        tuple(
            ((key, change), t * SECOND, (IntervalWindow(t // 10 * 10, t // 10 * 10 + 10),)) for key, change, t in drawn
        )
    )


cell_change = st.tuples(st.sampled_from([*CELLS, "none"]), st.one_of(st.integers(1, 3), st.just("drop")))
any_event = st.one_of(
    st.lists(st.tuples(st.sampled_from("abcd"), cell_change, st.sampled_from([1, 5, 12])), min_size=1, max_size=4).map(
        in_windows
    ),
    st.lists(st.tuples(st.sampled_from("abcd"), cell_change, st.sampled_from([1, 5, 12])), min_size=1, max_size=4).map(
        in_windows
    ),
    st.sampled_from([10, 13, 20, 23]).map(lambda second: Watermark(second * SECOND)),
    st.sampled_from([2, 5, 8, 11, 15]).map(lambda second: Clock(second * SECOND)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=LENIENT)
@given(script=scripted(st.lists(any_event, max_size=12)), case=cases())
def test_cells_survive_failures(script: Any, case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    build = paged(operator_factory(all_cells, "step"))
    check_failures_change_nothing(build, [(Clock(0), "nothing"), *script], case, tmp_path_factory.mktemp("state"))


# -- windows that expire while their keys are in memory

TEN = WindowingStrategy(FixedWindows(Duration(micros=10 * SECOND)))
LATE = replace(
    TEN,
    trigger=AfterWatermark(late=AfterCount(1)),
    allowed_lateness=Duration(micros=5 * SECOND),
    accumulation=ACCUMULATING,
)
STEPS: dict[str, Make] = {
    "tables": lambda: grouping("window_major", group(), TEN),
    "general": lambda: window_operator(group(), TEN),
    "with lateness": lambda: window_operator(group(), LATE),
    "timers": timers.step,
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_state_of_an_expired_window_does_not_reappear(name: str, backend: Backend, tmp_path: Path) -> None:
    """The store still has the state that the keys had when they were evicted."""
    window = (IntervalWindow.of_micros(0, 10 * SECOND),)
    value: Any = (("set", "clock", 20, "", None),) if name == "timers" else 1
    script: list[tuple[Event, Action]] = [
        (Clock(0), "nothing"),
        (Elements(((("a", value), SECOND, window), (("b", value), SECOND, window))), "checkpoint"),
        (Clock(1), "failure"),
        (Clock(2), "checkpoint"),
        (Elements(((("b", value), SECOND, window),)), "checkpoint"),
        (Watermark(10 * SECOND), "checkpoint"),
        (Watermark(16 * SECOND), "checkpoint"),
        (Clock(3), "failure"),
        (Clock(30 * SECOND), "nothing"),
        (Watermark(17 * SECOND), "checkpoint"),
        (Watermark(40 * SECOND), "failure"),
    ]
    check_failures_change_nothing(paged(STEPS[name]), script, Case(backend, 1 << 20, 9), tmp_path)
