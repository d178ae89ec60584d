"""Side inputs: views, their windows, waiting main elements, updates, snapshots and restores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
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
    feed,
    operator,
    operator_factory,
    run,
    run_restored,
)
from tidegate.sdk.metrics import ENGINE, MetricKey
from tidegate.sdk.time import MAX_MICROS
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow
from tidegate.testing import TestPipeline, assert_that, equal_to

STEP = "step"
SIDE = f"{STEP}:0"
GLOBAL = (GLOBAL_WINDOW,)


def windows_of(t: float, size: int) -> tuple[Any, ...]:
    start = t // size * size
    return (IntervalWindow(start, start + size),)


def main(*items: tuple[Any, float], size: int = 0) -> Elements:
    return Elements(tuple((v, int(t * SECOND), windows_of(t, size) if size else GLOBAL) for v, t in items))


def side(*items: tuple[Any, float], size: int = 0) -> Elements:
    return Elements(main(*items, size=size).items, SIDE)


SIDE_ENDS = Watermark(MAX_MICROS, SIDE)


def pairing_with(
    view: Any, *, main_windows: Any = None, side_windows: Any = None, fn: Any = None, **windowing: Any
) -> Any:
    """A function that builds a pipeline whose step pairs each element with the value of its side input."""

    def make(p: tg.Pipeline) -> Any:
        values = p | "main input" >> tg.Create([1])
        other = p | "side input" >> tg.Create([(1, 2)])
        if main_windows is not None:
            values = values | "main windows" >> tg.WindowInto(main_windows)
        if side_windows is not None:
            other = other | "side windows" >> tg.WindowInto(side_windows, **windowing)
        return values | STEP >> tg.Map(fn or (lambda x, seen: (x, seen)), view(other))

    return make


def values(out: list[Out]) -> list[Any]:
    return [value for _, value, _, _ in out]


@pytest.mark.parametrize(
    ("view", "elements", "seen"),
    [
        (tg.AsSingleton, [7], 7),
        (lambda pcoll: tg.AsSingleton(pcoll, default=None), [], None),
        (tg.AsIter, [3, 1], (3, 1)),
        (tg.AsList, [3, 1], [3, 1]),
        (tg.AsList, [], []),
        (tg.AsDict, [("a", 1), ("b", 2)], {"a": 1, "b": 2}),
        (tg.AsMultiMap, [("a", 1), ("b", 2), ("a", 3)], {"a": [1, 3], "b": [2]}),
    ],
)
def test_each_view_contains_the_whole_collection(view: Any, elements: list[Any], seen: Any) -> None:
    for streaming in (True, False):
        op = operator(pairing_with(view), STEP, streaming=streaming)
        events = [side(*((value, 0) for value in elements)), SIDE_ENDS, main(("x", 1))]
        assert values(run(op, events)) == [("x", seen)]


@pytest.mark.parametrize(
    ("view", "elements", "message"),
    [
        (tg.AsSingleton, [], "AsSingleton of nothing; give AsSingleton"),
        (tg.AsSingleton, [1, 2], "AsSingleton of 2 values, 1 and 2 among them"),
        (tg.AsDict, [("a", 1), ("a", 2)], "AsDict has the key 'a' twice"),
        (tg.AsDict, [7], r"AsDict takes pairs \(key, value\) with hashable keys, not 7"),
        (tg.AsMultiMap, [([], 1)], r"AsMultiMap takes pairs \(key, value\) with hashable keys, not \(\[\], 1\)"),
    ],
)
def test_contents_that_do_not_fit_the_view_are_an_error_that_names_the_step(
    view: Any, elements: list[Any], message: str
) -> None:
    op = operator(pairing_with(view), STEP)
    events = [side(*((value, 0) for value in elements)), SIDE_ENDS, main(("x", 1))]
    with pytest.raises(tg.RunError, match=message) as caught:
        run(op, events)
    assert f"in step '{STEP}', applied at" in str(caught.value)
    assert "side input 'side input'" in str(caught.value)


def test_a_main_window_sees_the_side_window_that_contains_its_last_instant() -> None:
    op = operator(pairing_with(tg.AsList, main_windows=tg.FixedWindows(10), side_windows=tg.FixedWindows(20)), STEP)
    events = [side(("early", 5), ("late", 25), size=20), SIDE_ENDS, main(("x", 3), ("y", 19), ("z", 20), size=10)]
    assert values(run(op, events)) == [("x", ["early"]), ("y", ["early"]), ("z", ["late"])]


def test_an_element_of_several_side_windows_sees_the_earliest() -> None:
    make = pairing_with(tg.AsList, main_windows=tg.FixedWindows(10), side_windows=tg.SlidingWindows(20, 10))
    both = (IntervalWindow(-10, 10), IntervalWindow(0, 20))
    events = [Elements((("s", 5 * SECOND, both),), SIDE), Elements((("t", 15 * SECOND, both[1:]),), SIDE), SIDE_ENDS]
    out = run(operator(make, STEP), [*events, main(("x", 3), ("y", 13), size=10)])
    assert values(out) == [("x", ["s"]), ("y", ["s", "t"])]


def test_an_element_of_several_windows_is_processed_once_for_each() -> None:
    make = pairing_with(tg.AsList, main_windows=tg.SlidingWindows(20, 10), side_windows=tg.FixedWindows(10))
    both = (IntervalWindow(-10, 10), IntervalWindow(0, 20))
    op = operator(make, STEP)
    out = run(
        op, [side(("s", 5), size=10), Watermark(10 * SECOND, SIDE), Elements((("x", 5 * SECOND, both),))], end=False
    )
    assert [(v, w) for _, v, _, w in out] == [(("x", ["s"]), (both[0],))]
    out = run(op, [Watermark(20 * SECOND, SIDE)], end=False)
    assert [(v, w) for _, v, _, w in out] == [(("x", []), (both[1],))]


def test_elements_wait_by_window_hold_the_watermark_and_never_block_others() -> None:
    make = pairing_with(tg.AsList, main_windows=tg.FixedWindows(10), side_windows=tg.FixedWindows(10))
    op = operator(make, STEP)
    first = [side(("s", 1), size=10), main(("a", 1), ("b", 12), ("c", 2), size=10)]
    assert run(op, first, end=False) == []
    assert run(op, [Watermark(9 * SECOND)], end=False) == []
    assert op.hold() == SECOND
    assert values(run(op, [Watermark(10 * SECOND, SIDE)], end=False)) == [("a", ["s"]), ("c", ["s"])]
    assert op.hold() == 12 * SECOND
    assert values(run(op, [main(("d", 3), ("e", 13), size=10)], end=False)) == [("d", ["s"])]
    assert values(run(op, [Watermark(20 * SECOND, SIDE)], end=False)) == [("b", []), ("e", [])]
    assert op.hold() == MAX_MICROS


def test_a_side_window_with_pending_elements_is_not_ready_until_it_fires_or_expires() -> None:
    make = pairing_with(
        tg.AsList,
        main_windows=tg.FixedWindows(10),
        side_windows=tg.FixedWindows(10),
        trigger=tg.Repeatedly(tg.AfterCount(2)),
        accumulation=tg.DISCARDING,
        allowed_lateness=5,
    )
    events = [side(("s", 1), size=10), main(("a", 1), ("b", 12), size=10), Watermark(10 * SECOND, SIDE)]
    assert values(run(operator(make, STEP), events, end=False)) == []
    fires = [*events, side(("t", 2), size=10)]
    assert values(run(operator(make, STEP), fires, end=False)) == [("a", ["s", "t"])]
    expires = [*events, Watermark(15 * SECOND, SIDE)]
    assert values(run(operator(make, STEP), expires, end=False)) == [("a", ["s"])]
    nothing = [*events, Watermark(20 * SECOND, SIDE)]
    assert values(run(operator(make, STEP), nothing, end=False)) == [("a", ["s"]), ("b", [])]


@pytest.mark.parametrize(
    ("view", "accumulation", "expected"),
    [
        (tg.AsList, tg.DISCARDING, [[(1, "a")], [(1, "a"), (2, "b")]]),
        (tg.AsList, tg.ACCUMULATING, [[(1, "a")], [(1, "a"), (2, "b")]]),
        (tg.AsSingleton, tg.DISCARDING, [(1, "a"), (2, "b")]),
        (tg.AsDict, tg.DISCARDING, [{1: "a"}, {1: "a", 2: "b"}]),
    ],
)
def test_a_later_firing_replaces_or_extends_the_value_of_a_view(
    view: Any, accumulation: Any, expected: list[Any]
) -> None:
    make = pairing_with(
        view,
        side_windows=tg.GlobalWindows(),
        trigger=tg.Repeatedly(tg.AfterCount(1)),
        accumulation=accumulation,
    )
    op = operator(make, STEP)
    found = []
    for pair in ((1, "a"), (2, "b")):
        out = run(op, [side((pair, 0)), main(("x", 0), ("y", 0))], end=False)
        found += [value for _, value in values(out)][:1]
    assert found == expected


def test_a_singleton_of_two_values_in_one_accumulated_pane_is_an_error() -> None:
    make = pairing_with(
        tg.AsSingleton,
        side_windows=tg.GlobalWindows(),
        trigger=tg.Repeatedly(tg.AfterCount(1)),
        accumulation=tg.ACCUMULATING,
    )
    with pytest.raises(tg.RunError, match="AsSingleton of 2 values"):
        run(operator(make, STEP), [side((1, 0), (2, 0)), main(("x", 0))])


def test_a_clock_can_make_a_side_input_ready() -> None:
    make = pairing_with(
        tg.AsList,
        side_windows=tg.GlobalWindows(),
        trigger=tg.Repeatedly(tg.AfterProcessingTime(5)),
        accumulation=tg.DISCARDING,
    )
    op = operator(make, STEP)
    assert run(op, [Clock(0), main(("x", 0)), side(("s", 0))], end=False) == []
    assert op.next_clock() == 5 * SECOND
    assert values(run(op, [Clock(5 * SECOND)], end=False)) == [("x", ["s"])]


def test_elements_whose_side_window_has_expired_are_dropped_and_counted() -> None:
    world = context()
    make = pairing_with(tg.AsList, main_windows=tg.FixedWindows(10), side_windows=tg.FixedWindows(10))
    op = operator(make, STEP, world=world)
    events = [side(("s", 1), size=10), Watermark(30 * SECOND, SIDE)]
    run(op, events, end=False)
    assert values(run(op, [Watermark(9 * SECOND), main(("a", 1), size=10)], end=False)) == [("a", ["s"])]
    assert run(op, [Watermark(10 * SECOND), main(("b", 1), size=10)], end=False) == []
    assert world.metrics.counters[MetricKey(STEP, ENGINE, "dropped_late")] == 1
    assert not op.snapshot().sides[SIDE][0], "the state of an expired side window is kept"


def test_elements_wait_for_the_last_of_several_side_inputs_after_all_others_have_ended() -> None:
    def make(p: tg.Pipeline) -> Any:
        windows = "windows" >> tg.WindowInto(tg.FixedWindows(10))
        first, second, values = (p | name >> tg.Create([1]) | f"{name} {windows.label}" >> windows for name in "abc")
        return values | STEP >> tg.Map(lambda x, a, b: (x, a, b), tg.AsList(first), tg.AsList(second))

    late = f"{STEP}:1"
    events: list[Event] = [
        side(("s", 1), size=10),
        SIDE_ENDS,
        main(("x", 2), size=10),
        Watermark(15 * SECOND),
        Watermark(MAX_MICROS),
        Elements(side(("t", 3), size=10).items, late),
    ]
    op = operator(make, STEP)
    assert run(op, events, end=False) == []
    assert op.hold() == 2 * SECOND
    assert values(run(op, [Watermark(10 * SECOND, late)], end=False)) == [("x", ["s"], ["t"])]
    for position in range(len(events) + 1):
        assert values(run_restored(operator_factory(make, STEP), events, position)) == [("x", ["s"], ["t"])]


def test_waiting_elements_are_not_late_for_a_stateful_step_when_released() -> None:
    count = tg.ValueStateSpec("count")
    alarm = tg.EventTimer("alarm")

    class Counts(tg.DoFn):
        def process(
            self,
            element: Any,
            seen: Any,
            cell: Any = tg.DoFn.StateParam(count),
            window: Any = tg.DoFn.WindowParam,
            end: Any = tg.DoFn.TimerParam(alarm),
        ) -> Iterator[Any]:
            cell.write((cell.read() or 0) + 1)
            end.set(window.end)
            yield element, seen, cell.read()

        @tg.on_timer(alarm)
        def ring(self, key: Any = tg.DoFn.KeyParam, cell: Any = tg.DoFn.StateParam(count)) -> Iterator[Any]:
            yield key, "end", cell.read()

    def make(p: tg.Pipeline) -> Any:
        other = p | "side input" >> tg.Create([1]) | "side windows" >> tg.WindowInto(tg.FixedWindows(10))
        pairs = p | "main input" >> tg.Create([("k", 1)]) | "main windows" >> tg.WindowInto(tg.FixedWindows(10))
        return pairs | STEP >> tg.ParDo(Counts(), tg.AsSingleton(other))

    events: list[Event] = [
        main((("k", 1), 1), (("k", 2), 2), size=10),
        Watermark(50 * SECOND),
        side((7, 3), size=10),
        Watermark(10 * SECOND, SIDE),
    ]
    expected = [(("k", 1), 7, 1), (("k", 2), 7, 2), ("k", "end", 2)]
    assert values(run(operator(make, STEP), events)) == expected
    for position in range(len(events) + 1):
        assert values(run_restored(operator_factory(make, STEP), events, position)) == expected


def test_extra_arguments_of_a_combiner_may_be_side_inputs_that_differ_by_window() -> None:
    class Above(tg.CombineFn[int, list[int], tuple[int, int]]):
        def create_accumulator(self, limit: int) -> list[int]:
            return []

        def add_input(self, accumulator: list[int], element: int, limit: int) -> list[int]:
            return [*accumulator, element] if element > limit else accumulator

        def merge_accumulators(self, accumulators: Any, limit: int) -> list[int]:
            return [value for part in accumulators for value in part]

        def compact(self, accumulator: list[int], limit: int) -> list[int]:
            return accumulator

        def extract_output(self, accumulator: list[int], limit: int) -> tuple[int, int]:
            return limit, len(accumulator)

    def make(p: tg.Pipeline) -> Any:
        limits = p | "side input" >> tg.Create([1]) | "side windows" >> tg.WindowInto(tg.FixedWindows(10))
        pairs = p | "main input" >> tg.Create([("k", 1)]) | "main windows" >> tg.WindowInto(tg.FixedWindows(10))
        return pairs | STEP >> tg.CombinePerKey(Above(), tg.AsSingleton(limits)) | "reads" >> tg.Map(str)

    events = [
        side((2, 1), (5, 11), size=10),
        main((("k", 3), 1), (("k", 4), 11), (("k", 6), 12), (("k", 1), 2), size=10),
        SIDE_ENDS,
    ]
    out = run(operator(make, STEP, streaming=False), events)
    assert [(v, w) for _, v, _, w in out] == [(("k", (2, 1)), windows_of(0, 10)), (("k", (5, 1)), windows_of(10, 10))]


def test_waiting_elements_spill_beyond_the_memory_budget(tmp_path: Path) -> None:
    world = context()
    world.memory_budget = 20_000
    world.temp_dir = lambda: tmp_path
    make = pairing_with(tg.AsList, main_windows=tg.FixedWindows(10), side_windows=tg.FixedWindows(10))
    op = operator(make, STEP, world=world)
    items = [(f"element {n}", n % 30) for n in range(600)]
    run(op, [main(*items, size=10)], end=False)
    assert list(tmp_path.iterdir()), "nothing was written to disk"
    saved = op.snapshot()
    out = run(op, [Watermark(20 * SECOND, SIDE)], end=False)
    assert [v for v, _ in values(out)] == [v for v, t in items if t < 10] + [v for v, t in items if 10 <= t < 20]
    assert values(run(op, []))[-1][0] == "element 599"
    assert list(tmp_path.iterdir()) == []
    restored = operator(make, STEP)
    restored.restore(saved)
    assert len(run(restored, [])) == 600


def test_a_collection_may_be_its_own_side_input() -> None:
    def make(p: tg.Pipeline) -> Any:
        numbers = p | "numbers" >> tg.Create([1])
        return numbers | STEP >> tg.Map(lambda x, all: x / sum(all), tg.AsList(numbers))

    op = operator(make, STEP)
    elements = Elements(((1, 0, GLOBAL), (3, 0, GLOBAL)), "numbers")
    assert feed(op, elements) == []
    assert feed(op, Elements(elements.items, SIDE)) == []
    assert values(run(op, [])) == [0.25, 0.75]


event = st.one_of(
    st.lists(st.integers(0, 39), min_size=1, max_size=4).map(lambda ts: main(*((f"m{t}", t) for t in ts), size=10)),
    st.lists(st.integers(0, 39), min_size=1, max_size=3).map(lambda ts: side(*((f"s{t}", t) for t in ts), size=20)),
    st.integers(0, 50).map(lambda t: Watermark(t * SECOND)),
    st.integers(0, 50).map(lambda t: Watermark(t * SECOND, SIDE)),
)
sliding = pairing_with(tg.AsList, main_windows=tg.FixedWindows(10), side_windows=tg.FixedWindows(20))


def by_window(out: list[Out]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for _, value, t, windows in out:
        found.setdefault(windows, []).append((value, t))
    return found


@settings(max_examples=40)
@given(st.lists(event, max_size=10), st.integers(1, 3))
def test_neither_block_boundaries_nor_restores_change_the_result(events: list[Event], cut: int) -> None:
    step = operator_factory(sliding, STEP)
    expected = by_window(run(step(), events))
    assert by_window(run(step(), events, cut=cut)) == expected
    for position in range(len(events) + 1):
        assert by_window(run_restored(step, events, position)) == expected


@given(st.lists(event, max_size=10))
def test_each_element_sees_the_side_window_of_a_simple_model(events: list[Event]) -> None:
    """The model: main elements in order by window, with the side elements that arrived before the side window ended."""
    seen: dict[int, list[str]] = {0: [], 20: []}
    main_watermark = side_watermark = -1
    expected: dict[Any, list[Any]] = {}
    for each in events:
        match each:
            case Watermark(micros=micros, side=""):
                main_watermark = max(main_watermark, micros)
            case Watermark(micros=micros):
                side_watermark = max(side_watermark, micros)
            case Elements(items=items, collection="main"):
                for value, t, (window,) in items:
                    end = (t // SECOND // 20 * 20 + 20) * SECOND
                    if not (side_watermark >= end and main_watermark >= end):
                        expected.setdefault((window,), []).append(((value, seen[end // SECOND - 20]), t))
            case Elements(items=items):
                for value, t, _ in items:
                    start = t // SECOND // 20 * 20
                    if side_watermark < (start + 20) * SECOND:
                        seen[start].append(value)
    assert by_window(run(operator(sliding, STEP), events)) == expected


def test_elements_that_wait_in_a_whole_run_are_spilled_into_its_directory() -> None:
    with TestPipeline("direct", {"memory_budget": 1}) as p:
        numbers = p | tg.Create(range(100))
        total = tg.AsSingleton(numbers | tg.CombineGlobally(sum))
        assert_that(numbers | tg.Map(lambda n, total: n + total, total), equal_to([n + 4_950 for n in range(100)]))
