"""SEMANTICS, Side inputs."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import (
    PaneRecorder,
    TestPipeline,
    TestStream,
    assert_that,
    equal_to,
    equal_to_per_window,
    is_empty,
    on_time,
)

TEN = tg.FixedWindows(10)


def at(value: Any, timestamp: float) -> Any:
    return tg.TimestampedValue(value, timestamp)


def beside(element: Any, seen: Any) -> Any:
    """An element with its view of the side input."""
    return element, sorted(seen) if not isinstance(seen, (int, str, dict)) else seen


# ---- views


@pytest.mark.parametrize("view", [tg.AsIter, tg.AsList], ids=["AsIter", "AsList"])
def test_all_elements_of_a_collection(runner: str, view: Any) -> None:
    with TestPipeline(runner) as pipeline:
        side = pipeline | "side" >> tg.Create([3, 1, 2])
        main = pipeline | "main" >> tg.Create(["a", "b"]) | tg.Map(beside, view(side))
        assert_that(main, equal_to([("a", [1, 2, 3]), ("b", [1, 2, 3])]))


def test_an_iterable_may_be_iterated_often_and_a_list_has_a_length(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        side = pipeline | "side" >> tg.Create([3, 1, 2])
        twice = pipeline | "main" >> tg.Create([0]) | tg.Map(lambda x, it: (sum(it), sum(it)), tg.AsIter(side))
        length = pipeline | "other" >> tg.Create([0]) | tg.Map(lambda x, items: len(items), tg.AsList(side))
        assert_that(twice, equal_to([(6, 6)]))
        assert_that(length, equal_to([3]))


def test_a_dict_and_a_multimap(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        pairs = pipeline | "pairs" >> tg.Create([("a", 1), ("b", 2)])
        many = pipeline | "many" >> tg.Create([("a", 1), ("a", 2), ("b", 3)])
        main = pipeline | "main" >> tg.Create(["a", "b"])
        assert_that(main | tg.Map(lambda key, d: d[key], tg.AsDict(pairs)), equal_to([1, 2]))
        assert_that(
            main | "multi" >> tg.Map(lambda key, d: sorted(d[key]), tg.AsMultiMap(many)), equal_to([[1, 2], [3]])
        )


def test_a_singleton_and_its_default(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        one = pipeline | "one" >> tg.Create([7])
        none = one | tg.Filter(lambda n: False)
        main = pipeline | "main" >> tg.Create([1, 2])
        assert_that(main | "there" >> tg.Map(lambda n, s: n * s, tg.AsSingleton(one)), equal_to([7, 14]))
        default = main | "not there" >> tg.Map(lambda n, s: n * s, tg.AsSingleton(none, default=100))
        assert_that(default, equal_to([100, 200]))


@pytest.mark.parametrize(
    ("elements", "view"),
    [
        ([], tg.AsSingleton),
        ([1, 2], tg.AsSingleton),
        ([("a", 1), ("a", 2)], tg.AsDict),
    ],
    ids=["no singleton", "two values", "a key twice"],
)
def test_a_view_that_does_not_fit_is_an_error(runner: str, elements: Any, view: Any) -> None:
    pipeline = TestPipeline(runner)
    side = pipeline | "side" >> tg.Create(elements)
    _ = pipeline | "main" >> tg.Create([1]) | tg.Map(beside, view(side))
    with pytest.raises(tg.RunError):
        pipeline.run()


def test_side_inputs_of_every_element_wise_step_and_of_combines(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        limit = tg.AsSingleton(pipeline | "limit" >> tg.Create([2]))
        numbers = pipeline | "numbers" >> tg.Create([1, 2, 3])
        assert_that(numbers | tg.Filter(lambda n, most: n <= most, limit), equal_to([1, 2]))
        assert_that(numbers | tg.FlatMap(lambda n, most: range(min(n, most)), limit), equal_to([0, 0, 1, 0, 1]))
        top = numbers | tg.CombineGlobally(lambda values, n: sorted(values)[-n:], limit)
        assert_that(top, equal_to([[2, 3]]))


def test_elements_wait_for_the_side_inputs_of_side_inputs(runner: str) -> None:
    with TestPipeline(runner) as p:
        pairs = p | tg.Create([(1, 1), (2, 2)]) | "pairs" >> tg.Map(tuple)
        more = (
            p
            | "more" >> tg.Create([(1, 10)])
            | tg.MapTuple(lambda key, n, known: (key, n + len(known)), tg.AsList(pairs))
        )
        grouped = (pairs, more) | tg.Flatten() | tg.GroupByKey() | tg.MapValues(sorted)
        found = more | "found" >> tg.Map(lambda pair, groups: (pair, sorted(groups)), tg.AsList(grouped))
        assert_that(found, equal_to([((1, 12), [(1, [1, 12]), (2, [2])])]))


def test_a_side_input_of_another_pipeline_is_refused_when_built() -> None:
    other = TestPipeline() | tg.Create([1])
    with pytest.raises(tg.BuildError, match="same pipeline"):
        _ = TestPipeline() | tg.Create([1]) | tg.Map(beside, tg.AsList(other))


def test_sessions_as_side_input_are_refused_when_built() -> None:
    pipeline = TestPipeline()
    side = pipeline | "side" >> tg.Create([1]) | tg.WindowInto(tg.Sessions(5))
    main = pipeline | "main" >> tg.Create([1])
    with pytest.raises(tg.BuildError, match="merge"):
        _ = main | tg.Map(beside, tg.AsList(side))


# ---- windows


def test_a_main_window_sees_the_side_window_that_holds_its_last_instant(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        side = pipeline | "side" >> tg.Create([at(n, n) for n in (1, 12, 25)]) | tg.WindowInto(tg.FixedWindows(20))
        main = pipeline | "main" >> tg.Create([at("a", 2), at("b", 15), at("c", 20)]) | "ten" >> tg.WindowInto(TEN)
        seen = main | tg.Map(beside, tg.AsList(side))
        expected = {(0, 10): [("a", [1, 12])], (10, 20): [("b", [1, 12])], (20, 30): [("c", [25])]}
        assert_that(seen, equal_to_per_window(expected))


def test_of_several_side_windows_the_earliest_is_seen(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        sliding = tg.SlidingWindows(10, 5)
        side = pipeline | "side" >> tg.Create([at(n, n) for n in (1, 7, 12)]) | tg.WindowInto(sliding)
        main = pipeline | "main" >> tg.Create([at("a", 2)]) | "ten" >> tg.WindowInto(TEN)
        # The main window's last instant, 9.999999, is in [0, 10) and in [5, 15).
        assert_that(main | tg.Map(beside, tg.AsList(side)), equal_to([("a", [1, 7])]))


def test_an_element_in_several_windows_sees_the_side_of_each(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        side = pipeline | "side" >> tg.Create([at(n, n) for n in (1, 12)]) | tg.WindowInto(TEN)
        main = pipeline | "main" >> tg.Create([at("a", 7)]) | "sliding" >> tg.WindowInto(tg.SlidingWindows(10, 5))
        seen = main | tg.Map(beside, tg.AsList(side))
        assert_that(seen, equal_to_per_window({(0, 10): [("a", [1])], (5, 15): [("a", [12])]}))


# ---- readiness and updates


def streams(runner: str, script: TestStream, into: Any, view: Any = tg.AsList) -> tuple[TestPipeline, Any]:
    """Main elements with their views of the side output, which is windowed by `into`."""
    pipeline = TestPipeline(runner)
    out = pipeline | script
    side = out.side | "side windows" >> into
    return pipeline, out.main | "main windows" >> tg.WindowInto(TEN) | tg.Map(beside, view(side))


def script() -> TestStream:
    return TestStream().with_outputs("side")


def run(runner: str, events: TestStream, into: Any, view: Any = tg.AsList) -> list[Any]:
    pipeline, seen = streams(runner, events, into, view)
    recorder = PaneRecorder()
    _ = seen | recorder
    pipeline.run()
    return recorder.values()


UPDATES = tg.Repeatedly(tg.AfterCount(1))


def test_an_element_waits_until_the_side_window_has_emitted_a_pane(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, UPDATES, accumulation=tg.ACCUMULATING)
    events = script().add_elements([at("a", 1)]).add_elements([at(7, 1)], tag="side").add_elements([at("b", 2)])
    assert run(stream_runner, events, into) == [("a", [7]), ("b", [7])]


def test_an_element_waits_for_the_end_of_an_empty_side_window(stream_runner: str) -> None:
    events = script().add_elements([at("a", 1)]).advance_watermark_to(10, tag="side")
    assert run(stream_runner, events, tg.WindowInto(TEN)) == [("a", [])]


def test_a_default_trigger_makes_a_side_window_ready_at_its_end(stream_runner: str) -> None:
    events = (
        script()
        .add_elements([at(1, 1), at(2, 2)], tag="side")
        .add_elements([at("a", 1)])
        .advance_watermark_to(10, tag="side")
        .add_elements([at("b", 2)])
    )
    assert run(stream_runner, events, tg.WindowInto(TEN)) == [("a", [1, 2]), ("b", [1, 2])]


def test_other_windows_do_not_wait(stream_runner: str) -> None:
    events = (
        script()
        .add_elements([at("waits", 11), at("goes", 1)])
        .add_elements([at(1, 1)], tag="side")
        .advance_watermark_to(10, tag="side")
        .add_elements([at(2, 12)], tag="side")
    )
    assert run(stream_runner, events, tg.WindowInto(TEN)) == [("goes", [1]), ("waits", [2])]


def test_elements_that_wait_hold_the_output_watermark(stream_runner: str) -> None:
    events = (
        script()
        .add_elements([at("a", 1)])
        .advance_watermark_to(1000)
        .add_elements([at(7, 1)], tag="side")
        .advance_watermark_to(10, tag="side")
    )
    pipeline, seen = streams(stream_runner, events, tg.WindowInto(TEN))
    keyed = seen | tg.Map(lambda pair: ("k", pair))
    assert_that(keyed | tg.GroupByKey(), equal_to([on_time(("k", [("a", [7])]), (0, 10))]), panes=True)
    result = pipeline.run()
    assert result.metrics().counter("dropped_late") == 0


@pytest.mark.parametrize(
    ("accumulation", "second"), [(tg.ACCUMULATING, [1, 2]), (tg.DISCARDING, [1, 2])], ids=["replaces", "adds"]
)
def test_a_later_firing_replaces_the_side_input_or_adds_to_it(
    stream_runner: str, accumulation: Any, second: list[int]
) -> None:
    events = (
        script()
        .add_elements([at(1, 1)], tag="side")
        .add_elements([at("a", 1)])
        .add_elements([at(2, 2)], tag="side")
        .add_elements([at("b", 2)])
    )
    into = tg.WindowInto(TEN, UPDATES, accumulation=accumulation)
    assert run(stream_runner, events, into) == [("a", [1]), ("b", second)]


def test_a_singleton_is_the_latest_panes_only_value(stream_runner: str) -> None:
    events = (
        script()
        .add_elements([at(1, 1)], tag="side")
        .add_elements([at("a", 1)])
        .add_elements([at(2, 2)], tag="side")
        .add_elements([at("b", 2)])
    )
    into = tg.WindowInto(TEN, UPDATES, accumulation=tg.DISCARDING)
    assert run(stream_runner, events, into, tg.AsSingleton) == [("a", 1), ("b", 2)]


def test_an_expired_side_window_is_empty(stream_runner: str) -> None:
    events = script().advance_watermark_to(100, tag="side").add_elements([at("a", 1)])
    assert run(stream_runner, events, tg.WindowInto(TEN)) == [("a", [])]


def test_a_side_input_of_nothing_reaches_a_main_input_of_nothing(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        none = pipeline | tg.Create([1]) | tg.Filter(lambda n: False)
        assert_that(none | tg.Map(beside, tg.AsList(none)), is_empty())


class SumTimes(tg.CombineFn[int, int, int]):
    """The sum of all values times something else."""

    def create_accumulator(self, factor: int = 1) -> int:
        return 0

    def add_input(self, accumulator: int, element: int, factor: int = 1) -> int:
        return accumulator + element * factor

    def merge_accumulators(self, accumulators: Any, factor: int = 1) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int, factor: int = 1) -> int:
        return accumulator


def test_a_combiner_of_the_sessions_of_a_stream_sees_a_side_input(stream_runner: str) -> None:
    script = (
        TestStream()
        .add_elements([at(("k", n), n) for n in (1, 3, 20, 21, 50)])
        .advance_watermark_to(30)
        .add_elements([at(("k", 100), 4), at(("k", 2), 52)])
    )
    with TestPipeline(stream_runner) as pipeline:
        factor = pipeline | "side" >> tg.Create([10])
        sums = pipeline | script | tg.WindowInto(tg.Sessions(5)) | tg.CombinePerKey(SumTimes(), tg.AsSingleton(factor))
        assert_that(sums, equal_to_per_window({(1, 8): [("k", 40)], (20, 26): [("k", 410)], (50, 57): [("k", 520)]}))
    assert pipeline.result.metrics().counter("dropped_late") == 1
