"""State can be restored by any number of operators, each with some of the keys, and from incremental snapshots."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.engine.grouping.test_grouping_paths import fired_on_time
from tests.engine.grouping.test_grouping_paths import operator as grouping
from tests.engine.stateful import test_timers as timers
from tests.support.operator_driver import SECOND, Clock, Elements, Event, Watermark, operator_factory
from tests.support.window_operators import (
    ASSIGNERS,
    RESULTS,
    combine,
    context,
    group,
    strategies,
    streams,
    window_operator,
)
from tidegate.runners.engine.operator import Emitted, Operator
from tidegate.runners.engine.rescale import overlaid, rescaled, select_keys
from tidegate.runners.engine.state.keyed_state import distinct
from tidegate.sdk.data.block import Block, Each
from tidegate.sdk.data.keys import key_group
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.assigners import FixedWindows
from tidegate.sdk.windowing.assignment import assign
from tidegate.sdk.windowing.strategy import DISCARDING, WindowingStrategy
from tidegate.sdk.windowing.triggers import AfterCount, Repeatedly
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

Make = Callable[[], Operator]
Row = tuple[Any, ...]
GROUPS = 128


def answer(operator: Operator, event: Event | None) -> list[Row]:
    """The rows that an operator emits for an event, or (None) for the end of input."""

    def emitted() -> Iterator[Emitted]:
        match event:
            case Elements(items=items, collection=collection):
                windows = Each([windows for _, _, windows in items])
                yield from operator.process(
                    Block([v for v, _, _ in items], [t for _, t, _ in items], windows), collection
                )
                return
        yield from operator.finish_bundle()
        match event:
            case Watermark(micros=micros, side=""):
                yield from operator.on_watermark(micros)
            case Watermark(micros=micros, side=side):
                yield from operator.on_side_watermark(side, micros)
            case Clock(micros=micros):
                yield from operator.on_clock(micros)
            case None:
                yield from operator.on_watermark(MAX_MICROS)
                yield from operator.finish()

    return [
        (collection, value, t, tuple(windows), pane)
        for collection, block in emitted()
        for value, t, windows, pane in zip(
            block.values, block.timestamp_column(), block.window_list(), block.pane_list(), strict=True
        )
    ]


def keeps(index: int, n: int) -> Callable[[Any], bool]:
    """A predicate: true if a key belongs to task `index` of `n`."""
    return lambda key: key_group(key, GROUPS) * n // GROUPS == index


class Tasks:
    """The operators of one step: an element goes to the operator that owns its key, other events go to all."""

    def __init__(self, make: Make, n: int) -> None:
        self.make = make
        self.out: dict[Any, list[Row]] = {}
        self.operators = self._open(n)

    def _open(self, n: int) -> list[Operator]:
        operators = [self.make() for _ in range(n)]
        for operator in operators:
            operator.open()
        return operators

    def feed(self, event: Event) -> None:
        for index, operator in enumerate(self.operators):
            match event:
                case Elements(items=items, collection="main"):
                    owned = [item for item in items if keeps(index, len(self.operators))(item[0][0])]
                    self._collect(answer(operator, Elements(tuple(owned))) if owned else [])
                case other:
                    self._collect(answer(operator, other))

    def end(self) -> dict[Any, list[Row]]:
        """End the input, and return all output by key, in order."""
        for operator in self.operators:
            self._collect(answer(operator, None))
        return self.out

    def rescale(self, n: int) -> None:
        """Continue with `n` operators, restored from snapshots of the present ones."""
        for operator in self.operators:
            assert not list(operator.finish_bundle()), "nothing here emits at the end of a bundle"
        saved = [pickle.dumps(operator.snapshot()) for operator in self.operators]
        self.operators = self._open(n)
        for index, operator in enumerate(self.operators):
            state = rescaled([pickle.loads(data) for data in saved], keeps(index, n) if n > 1 else lambda key: True)
            if state is not None:
                operator.restore(state)

    def _collect(self, rows: list[Row]) -> None:
        for row in rows:
            self.out.setdefault(row[1][0], []).append(row)


def keys_of(touched: Any) -> Any:
    return None if touched is None else distinct(touched)


def by_key(rows: list[Row]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[1][0], []).append(row)
    return found


def run_alone(make: Make, events: Sequence[Event]) -> dict[Any, list[Row]]:
    """The output of one operator, by key."""
    return run_rescaled(make, events, len(events), (1, 1))


def run_rescaled(make: Make, events: Sequence[Event], at: int, sizes: tuple[int, int]) -> dict[Any, list[Row]]:
    """The output, by key, of `sizes[0]` operators that are rescaled to `sizes[1]` after `at` events."""
    tasks = Tasks(make, sizes[0])
    for number, event in enumerate(events):
        if number == at:
            tasks.rescale(sizes[1])
        tasks.feed(event)
    return tasks.end()


def unordered(output: dict[Any, list[Row]]) -> dict[Any, list[str]]:
    """The output of a step that is not partitioned by key, which has no order."""
    return {key: sorted(map(repr, rows)) for key, rows in output.items()}


Observation = tuple[dict[Any, list[Row]], int]
"""The output for one event, by key, and the watermark hold after it."""


def observe(operator: Operator, events: Sequence[Event]) -> list[Observation]:
    """The output and the hold of an operator for each event and for the end of input."""
    return [(by_key(answer(operator, event)), operator.hold()) for event in (*events, None)]


def restored(make: Make, state: Any) -> Operator:
    operator = make()
    operator.open()
    if state is not None:
        operator.restore(state)
    return operator


def runs_from_snapshots(
    make: Make, events: Sequence[Event], places: frozenset[int]
) -> tuple[list[list[Observation]], list[list[Observation]]]:
    """At each of `places`, restore an operator from incremental snapshots and one from a full snapshot.

    Returns the runs of the former over the remaining events, and those of the latter.
    """
    operator = restored(make, None)
    state: Any = None
    from_incremental, from_full = [], []
    for number, event in enumerate(events):
        if number in places:
            list(operator.finish_bundle())
            changes = pickle.loads(pickle.dumps(operator.snapshot(keys_of(operator.touched()))))
            state = overlaid(state, changes)
            from_incremental.append(observe(restored(make, pickle.loads(pickle.dumps(state))), events[number:]))
            full = None if state is None else operator.snapshot()
            from_full.append(observe(restored(make, full), events[number:]))
        answer(operator, event)
    return from_incremental, from_full


sizes = st.tuples(st.integers(1, 3), st.integers(1, 3))
ats = st.integers(0, 12)
some_places = st.frozensets(st.integers(0, 14), max_size=5)


def as_events(events: Sequence[Any]) -> list[Event]:
    """Convert events of tests/support/window_operators to events of the driver, with a block for each element."""
    made: list[Event] = []
    for event in events:
        match event:
            case ("element", key, x, t, windows):
                made.append(Elements((((key, x), t, windows),)))
            case ("watermark", micros):
                made.append(Watermark(micros))
            case ("clock", micros):
                made.append(Clock(micros))
    return [Clock(0), *made]


@st.composite
def windowed(draw: Any) -> tuple[Make, list[Event]]:
    """The general window operator with some strategy, and a stream for it."""
    strategy = draw(strategies())
    name = draw(st.sampled_from(sorted(RESULTS)))
    combiner = RESULTS[name][0]
    node = group() if combiner is None else combine(combiner)
    return lambda: window_operator(node, strategy), as_events(draw(streams(strategy)))


@settings(max_examples=150, deadline=None)
@given(windowed(), ats, sizes)
def test_open_windows_can_be_restored_by_any_number_of_tasks(case: Any, at: int, sizes: tuple[int, int]) -> None:
    assert run_rescaled(*case, at, sizes) == run_alone(*case)


@settings(max_examples=100, deadline=None)
@given(windowed(), some_places)
def test_open_windows_can_be_restored_from_incremental_snapshots(case: Any, places: frozenset[int]) -> None:
    from_incremental, from_full = runs_from_snapshots(*case, places)
    assert from_incremental == from_full


@st.composite
def on_time(draw: Any) -> tuple[Make, list[Event]]:
    """A grouping whose tables the watermark fires, and a stream for it."""
    strategy, events, _ = draw(fired_on_time())
    name = draw(st.sampled_from(["group", "sum", "mean", "list", "count"]))
    combiner = len if name == "count" else RESULTS[name][0]
    node = group() if combiner is None else combine(combiner)
    return lambda: grouping("window_major", node, strategy), as_events(events)


@settings(max_examples=80, deadline=None)
@given(on_time(), ats, sizes)
def test_tables_can_be_restored_by_any_number_of_tasks(case: Any, at: int, sizes: tuple[int, int]) -> None:
    assert run_rescaled(*case, at, sizes) == run_alone(*case)


@settings(max_examples=80, deadline=None)
@given(on_time(), some_places)
def test_tables_can_be_restored_from_incremental_snapshots(case: Any, places: frozenset[int]) -> None:
    from_incremental, from_full = runs_from_snapshots(*case, places)
    assert from_incremental == from_full


@settings(max_examples=80, deadline=None)
@given(timers.scripts, ats, sizes)
def test_state_and_timers_can_be_restored_by_any_number_of_tasks(events: Any, at: int, sizes: tuple[int, int]) -> None:
    case = timers.step, [Clock(0), *events]
    assert run_rescaled(*case, at, sizes) == run_alone(*case)


@settings(max_examples=80, deadline=None)
@given(timers.scripts, some_places)
def test_state_and_timers_can_be_restored_from_incremental_snapshots(events: Any, places: frozenset[int]) -> None:
    from_incremental, from_full = runs_from_snapshots(timers.step, [Clock(0), *events], places)
    assert from_incremental == from_full


# -- side inputs

SIDE = "step:0"
COUNT = tg.ValueStateSpec("count")


class Seen(tg.DoFn):
    """Counts the elements of each key, and emits the count with the values of a side input."""

    def process(self, element: Any, seen: Any, count: Any = tg.DoFn.StateParam(COUNT)) -> Iterator[Any]:
        n = (count.read() or 0) + 1
        count.write(n)
        yield element[0], n, tuple(seen)


class SumPlusSide(tg.CombineFn):
    """Sums the elements, each plus the values of a side input."""

    def create_accumulator(self, seen: Any) -> int:
        return 0

    def add_input(self, accumulator: int, element: int, seen: Any) -> int:
        return accumulator + element + sum(seen)

    def merge_accumulators(self, accumulators: Any, seen: Any) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int, seen: Any) -> int:
        return accumulator


def stateful_with_side(p: tg.Pipeline) -> Any:
    windows = tg.FixedWindows(10)
    side = p | "side" >> tg.Create([1]) | "side windows" >> tg.WindowInto(windows)
    values = p | "main" >> tg.Create([("a", 1)]) | "main windows" >> tg.WindowInto(windows)
    return values | "step" >> tg.ParDo(Seen(), tg.AsList(side))


def plain_with_side(p: tg.Pipeline) -> Any:
    windows = tg.FixedWindows(10)
    side = p | "side" >> tg.Create([1]) | "side windows" >> tg.WindowInto(windows)
    values = p | "main" >> tg.Create([("a", 1)]) | "main windows" >> tg.WindowInto(windows)
    return values | "step" >> tg.Map(lambda x, seen: (*x, tuple(seen)), tg.AsList(side))


def combined_with_side(p: tg.Pipeline) -> Any:
    windows = tg.FixedWindows(10)
    side = p | "side" >> tg.Create([1]) | "side windows" >> tg.WindowInto(windows)
    values = p | "main" >> tg.Create([("a", 1)]) | "main windows" >> tg.WindowInto(windows)
    return values | "step" >> tg.CombinePerKey(SumPlusSide(), tg.AsList(side)) | "reads" >> tg.Map(str)


def at_second(value: Any, t: int, collection: str = "main") -> Elements:
    return Elements(((value, t * SECOND, assign(FixedWindows(TEN))(t * SECOND, None)),), collection)


TEN = tg.Duration(micros=10 * SECOND)
side_events = st.lists(
    st.one_of(
        st.builds(
            lambda key, x, t: at_second((key, x), t), st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 29)
        ),
        st.builds(lambda x, t: at_second(x, t, SIDE), st.integers(0, 9), st.integers(0, 29)),
        st.sampled_from([5, 10, 15, 20, 30]).map(lambda t: Watermark(t * SECOND)),
        st.sampled_from([5, 10, 15, 20, 30]).map(lambda t: Watermark(t * SECOND, SIDE)),
    ),
    max_size=14,
)


def without_late_elements(events: list[Event]) -> list[Event]:
    """Filter out late elements and watermarks that go back.

    Whether a late element is still accepted may depend on the other elements that wait in its task.
    """
    watermarks: dict[str, int] = {}
    selected = []
    for event in events:
        if isinstance(event, Watermark):
            if event.micros <= watermarks.get(event.side, -1):
                continue
            watermarks[event.side] = event.micros
        if isinstance(event, Elements) and event.items[0][1] < watermarks.get(event.collection.removeprefix("main"), 0):
            continue
        selected.append(event)
    return selected


PIPELINES = [stateful_with_side, plain_with_side, combined_with_side]


@pytest.mark.parametrize("pipeline", PIPELINES, ids=["stateful", "plain", "combined"])
@settings(max_examples=60, deadline=None)
@given(events=side_events, at=ats, sizes=sizes)
def test_elements_that_wait_for_side_inputs_can_be_restored_by_any_number_of_tasks(
    pipeline: Any, events: list[Event], at: int, sizes: tuple[int, int]
) -> None:
    case = operator_factory(pipeline, "step"), without_late_elements(events)
    output, expected = run_rescaled(*case, at, sizes), run_alone(*case)
    if pipeline is plain_with_side:
        assert unordered(output) == unordered(expected)
    else:
        assert output == expected


@pytest.mark.parametrize("pipeline", PIPELINES, ids=["stateful", "plain", "combined"])
@settings(max_examples=60, deadline=None)
@given(events=side_events, places=some_places)
def test_elements_that_wait_for_side_inputs_can_be_restored_from_incremental_snapshots(
    pipeline: Any, events: list[Event], places: frozenset[int]
) -> None:
    from_incremental, from_full = runs_from_snapshots(
        operator_factory(pipeline, "step"), without_late_elements(events), places
    )
    assert from_incremental == from_full


def test_a_side_input_that_has_not_changed_is_not_in_an_incremental_snapshot() -> None:
    operator = operator_factory(stateful_with_side, "step")()
    answer(operator, at_second(7, 3, SIDE))
    assert operator.touched() is None
    answer(operator, Watermark(5 * SECOND, SIDE))
    answer(operator, at_second(("a", 1), 3))
    incremental = operator.snapshot(keys_of(operator.touched()))
    assert incremental.sides == {}
    assert incremental.side_watermarks == {SIDE: 5 * SECOND}
    answer(operator, Watermark(10 * SECOND, SIDE))
    assert list(operator.snapshot(keys_of(operator.touched())).sides) == [SIDE]


# -- bounded input


BOUNDED: dict[str, Callable[..., Operator]] = {
    "table": lambda ctx: grouping("table", group(), WindowingStrategy(ASSIGNERS["fixed"]), ctx),
    "combined": lambda ctx: grouping("table", combine(RESULTS["mean"][0]), WindowingStrategy(ASSIGNERS["fixed"]), ctx),
    "sessions": lambda ctx: grouping("sessions", group(), WindowingStrategy(ASSIGNERS["sessions"]), ctx),
    "session sums": lambda ctx: grouping("sessions", combine(sum), WindowingStrategy(ASSIGNERS["sessions"]), ctx),
    "session counts": lambda ctx: grouping("sessions", combine(len), WindowingStrategy(ASSIGNERS["sessions"]), ctx),
    "in time order": lambda ctx: grouping(
        "general",
        group(),
        WindowingStrategy(ASSIGNERS["fixed"], Repeatedly(AfterCount(2)), DISCARDING),
        ctx,
        ordered=True,
    ),
}


@pytest.mark.parametrize("memory", [1 << 40, 2_000], ids=["in memory", "spilled"])
@pytest.mark.parametrize("name", BOUNDED)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_bounded_input_can_be_continued_by_any_number_of_tasks(
    name: str, memory: int, data: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assigner = ASSIGNERS["sessions" if "session" in name else "fixed"]
    element = st.tuples(st.sampled_from("abcdef"), st.integers(0, 9), st.integers(0, 40))
    blocks = data.draw(st.lists(st.lists(element, min_size=1, max_size=9), min_size=8, max_size=12))
    windows = assign(assigner)
    events = [Elements(tuple(((k, x), t, windows(t, None)) for k, x, t in block)) for block in blocks]
    directory: Path = tmp_path_factory.mktemp("spilled")

    def make() -> Operator:
        return BOUNDED[name](context(memory_budget=memory, temp_dir=directory))

    one_task, tasks = (Tasks(make, n) for n in (1, data.draw(st.integers(1, 3))))
    position, n = data.draw(ats), data.draw(st.integers(1, 3))
    for number, event in enumerate(events):
        if number == position:
            tasks.rescale(n)
        one_task.feed(event)
        tasks.feed(event)
    assert in_windows(tasks.end()) == in_windows(one_task.end())


def in_windows(rows: dict[Any, list[Row]]) -> dict[Any, list[Row]]:
    """Sort the rows of each key by window: spilled data is emitted by partition."""
    return {key: sorted(found, key=lambda row: row[2]) for key, found in rows.items()}


def test_a_global_combine_is_continued_by_one_task() -> None:
    strategy = WindowingStrategy(ASSIGNERS["fixed"])
    for path in ("table", "window_major", "general"):
        make = lambda path=path: grouping(path, combine(sum, key="none"), strategy)  # noqa: E731
        operator = make()
        answer(operator, Elements(((4, 3, assign(strategy.assigner)(3, None)),)))
        restored_operator = make()
        restored_operator.restore(rescaled([operator.snapshot()], lambda key: True))
        answer(restored_operator, Elements(((5, 4, assign(strategy.assigner)(4, None)),)))
        assert [row[1] for row in answer(restored_operator, None)] == [9]


def test_rescaling_no_state_gives_no_state() -> None:
    assert rescaled([None, None], lambda key: True) is None
    assert select_keys(None, lambda key: True) is None
    assert overlaid(None, None) is None


def test_a_rescaled_operator_has_the_minimum_watermark_and_the_maximum_clock() -> None:
    states = []
    for watermark, clock in ((20, 3), (10, 5)):
        operator = window_operator(group(), WindowingStrategy(ASSIGNERS["fixed"]))
        answer(operator, Clock(clock))
        answer(operator, Watermark(watermark))
        states.append(operator.snapshot())
    state = rescaled(states, lambda key: True)
    assert (state.watermark, state.clock) == (10, 5)
    assert GLOBAL_WINDOW not in state.tables["cells"]
