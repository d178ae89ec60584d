"""SEMANTICS, Lateness: the late elements. The table of corner cases has those that are not late."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import tidegate as tg
from tests.semantics.corner_cases import ByName
from tests.support.stream_scripts import INFINITY, Watermark, run_script, to_test_stream
from tidegate.testing import (
    PaneRecorder,
    TestPipeline,
    TestStream,
    assert_that,
    equal_to,
    fired,
    is_empty,
    late,
    on_time,
)

TEN = tg.FixedWindows(10)
LATE_SCRIPT = [("a", 1), Watermark(10), ("b", 2), ("c", 11), INFINITY]


def test_elements_dropped_by_all_their_windows_are_counted(stream_runner: str) -> None:
    ran = run_script(stream_runner, LATE_SCRIPT, tg.WindowInto(TEN))
    assert ran.of_key == [on_time(["a"], (0, 10)), on_time(["c"], (10, 20))]
    assert ran.counted("dropped_late") == 1


LATE_TOGETHER = [(1, 1), Watermark(10), (2, 2), (4, 3), (4, 3), (16, 5, "other"), (32, 15, "other"), (64, 12), INFINITY]
"""Of the elements that arrive together behind the watermark, three have the same key, and two of those are equal."""


@pytest.mark.parametrize(
    ("combine", "expected"),
    [(sum, [1, 64]), (list, [[1], [64]]), (len, [1, 1]), (max, [1, 64]), (tg.combiners.MeanFn(), [1, 64])],
    ids=["sum", "list", "len", "max", "mean"],
)
def test_late_elements_are_counted_one_by_one_however_they_are_combined(
    stream_runner: str, combine: Any, expected: list[Any]
) -> None:
    ran = run_script(stream_runner, LATE_TOGETHER, tg.WindowInto(TEN), tg.CombinePerKey(combine), together=True)
    assert [pane.value for pane in ran.of_key] == expected
    assert ran.counted("dropped_late") == 4


@pytest.mark.parametrize("windows", [TEN, tg.SlidingWindows(10, 10), ByName()], ids=["fixed", "sliding", "by name"])
def test_late_elements_of_a_combine_without_keys_are_counted_one_by_one(stream_runner: str, windows: Any) -> None:
    named = isinstance(windows, ByName)
    with TestPipeline(stream_runner) as pipeline:
        script = [("x" if named else 1, at) for at in (1, 2, 3)]
        late = to_test_stream([script[0], Watermark(100), *script[1:], INFINITY], together=True)
        out = pipeline | late | tg.WindowInto(windows) | tg.CombineGlobally(len).without_defaults()
        assert_that(out, equal_to([1]))
    assert pipeline.result.metrics().counter("dropped_late") == 2


def test_late_elements_that_are_their_own_keys_are_counted_one_by_one(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        elements = pipeline | to_test_stream(LATE_TOGETHER, together=True) | tg.WindowInto(TEN)
        assert_that(
            elements | tg.CombinePerElement(len),
            equal_to([(("k", 1), 1), (("other", 32), 1), (("k", 64), 1)]),
        )
    assert pipeline.result.metrics().counter("dropped_late") == 4


@pytest.mark.parametrize("grouping", [tg.CombinePerKey(list), tg.CombinePerKey(sum)], ids=["list", "sum"])
def test_an_element_that_some_window_took_is_not_counted_as_late_however_it_is_combined(
    stream_runner: str, grouping: Any
) -> None:
    script = [(1, 7), Watermark(10), (2, 8), (4, 11), (8, 9), (16, 3), (32, 4), (64, 12), INFINITY]
    ran = run_script(stream_runner, script, tg.WindowInto(tg.SlidingWindows(10, 5)), grouping, together=True)
    expected: dict[tuple[int, int], list[int]] = {(0, 10): [1], (5, 15): [1, 2, 4, 8, 64], (10, 20): [4, 64]}
    result: Any = sum if ran.of_key[0].value == 1 else list
    assert ran.of_key == [on_time(result(values), window) for window, values in expected.items()]
    assert ran.counted("dropped_late") == 2


class Filtered(tg.PTransform[Any, Any]):
    """Windows that are looked up when they are assigned, then a filter in the same loop as the grouping."""

    def __init__(self, grouping: Any) -> None:
        self.grouping = grouping

    def expand(self, input: Any) -> Any:
        return input | tg.WindowInto(ByName()) | tg.Filter(lambda pair: pair[1] != "x") | self.grouping


@pytest.mark.parametrize("grouping", [tg.GroupByKey(), tg.CombinePerKey(list)], ids=["GroupByKey", "CombinePerKey"])
def test_only_elements_that_reach_a_grouping_are_late_for_it(stream_runner: str, grouping: Any) -> None:
    script = [("y", 1), Watermark(100), ("x", 2), ("y", 3), ("x", 4), INFINITY]
    ran = run_script(stream_runner, script, None, Filtered(grouping), together=True)
    assert ran.counted("dropped_late") == 1


@pytest.mark.parametrize(
    ("grouping", "expected"),
    [
        (tg.GroupByKey(), [("k", ["a"]), ("k", ["c"])]),
        (tg.CombinePerKey(len), [("k", 1), ("k", 1)]),
        (tg.CombinePerElement(len), [(("k", "a"), 1), (("k", "c"), 1)]),
        (tg.CombineGlobally(len).without_defaults(), [1, 1]),
    ],
    ids=["GroupByKey", "CombinePerKey", "CombinePerElement", "CombineGlobally"],
)
def test_late_data_is_emitted_in_the_global_window_with_its_timestamp(
    stream_runner: str, grouping: Any, expected: list[Any]
) -> None:
    with TestPipeline(stream_runner) as pipeline:
        out = pipeline | to_test_stream(LATE_SCRIPT) | tg.WindowInto(TEN) | grouping.with_late_data("late")
        assert_that(out.main, equal_to(expected))
        assert_that(out.late, equal_to([fired(("k", "b"), tg.GlobalWindow(), timestamp=2)]), panes=True)
    assert pipeline.result.metrics().counter("dropped_late") == 0


def test_an_element_that_some_window_took_is_not_late_data(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        script = [("a", 7), Watermark(10), ("b", 8), INFINITY]
        windowed = pipeline | to_test_stream(script) | tg.WindowInto(tg.SlidingWindows(10, 5))
        out = windowed | tg.GroupByKey().with_late_data("late")
        assert_that(
            out.main, equal_to([on_time(("k", ["a"]), (0, 10)), on_time(("k", ["a", "b"]), (5, 15))]), panes=True
        )
        assert_that(out.late, is_empty())


def test_an_element_assigned_to_no_window_is_not_late_data(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        script = [("nowhere", 3), Watermark(100), ("nowhere", 4), ("x", 5), INFINITY]
        out = pipeline | to_test_stream(script) | tg.WindowInto(ByName()) | tg.GroupByKey().with_late_data("late")
        assert_that(out.main, is_empty())
        assert_that(out.late, equal_to([("k", "x")]))


def test_late_data_of_sessions_are_elements_that_no_live_session_absorbed(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        script = [("a", 5), Watermark(12), ("joins", 1), ("late", -20), INFINITY]
        out = (
            pipeline | to_test_stream(script) | tg.WindowInto(tg.Sessions(10)) | tg.GroupByKey().with_late_data("late")
        )
        assert_that(out.main, equal_to([("k", ["a", "joins"])]))
        assert_that(out.late, equal_to([("k", "late")]))


def test_elements_after_a_finished_trigger_are_counted_separately(stream_runner: str) -> None:
    options = {"allow_unsafe_triggers": True}
    into = tg.WindowInto(TEN, tg.AfterCount(1))
    ran = run_script(stream_runner, [("a", 1), ("b", 2), Watermark(10), ("c", 3)], into, options=options)
    assert (ran.counted("dropped_closed"), ran.counted("dropped_late")) == (1, 1)


class Seen(tg.DoFn):
    COUNT = tg.ValueStateSpec("count")

    def process(self, element: Any, count: tg.ValueState[int] = tg.DoFn.StateParam(COUNT)) -> Iterable[Any]:
        count.write((count.read() or 0) + 1)
        return [(element[0], (element[1], count.read()))]


def test_dropping_applies_to_state_too(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        seen = pipeline | to_test_stream(LATE_SCRIPT) | tg.WindowInto(TEN) | tg.ParDo(Seen())
        assert_that(seen, equal_to([("k", ("a", 1)), ("k", ("c", 1))]))
    assert pipeline.result.metrics().counter("dropped_late") == 1


def test_state_of_each_of_several_windows_is_late_by_itself(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        script = [("a", 7), Watermark(10), ("b", 8), Watermark(15), ("c", 9), INFINITY]
        seen = pipeline | to_test_stream(script) | tg.WindowInto(tg.SlidingWindows(10, 5)) | tg.ParDo(Seen())
        expected = [
            fired(("k", ("a", 1)), (0, 10)),
            fired(("k", ("a", 1)), (5, 15)),
            fired(("k", ("b", 2)), (5, 15)),
        ]
        assert_that(seen, equal_to(expected), panes=True)
    assert pipeline.result.metrics().counter("dropped_late") == 1


def test_element_wise_steps_drop_nothing(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        mapped = pipeline | to_test_stream(LATE_SCRIPT) | tg.WindowInto(TEN) | tg.Map(lambda pair: pair[1])
        assert_that(mapped, equal_to(["a", "b", "c"]))


def test_state_is_collected_at_expiry_and_a_key_starts_without_state_in_the_next_window(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, allowed_lateness=5)
    ran = run_script(stream_runner, [("a", 1), Watermark(15), ("b", 11), Watermark(20), ("c", 12), Watermark(25)], into)
    assert ran.of_key == [on_time(["a"], (0, 10), 0), on_time(["b"], (10, 20), 0), late(["b", "c"], (10, 20), 1)]


def test_late_data_of_a_cogroup_is_the_pair_as_it_came(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        to_test_stream = pipeline | TestStream().add_elements([tg.TimestampedValue(("k", 1), 1)]).advance_watermark_to(
            10
        ).add_elements([tg.TimestampedValue(("k", 2), 2)])
        left = to_test_stream | tg.WindowInto(tg.FixedWindows(10))
        right = left | tg.Filter(lambda pair: pair[1] > 5)
        out = (left, right) | tg.CoGroupByKey().with_late_data("late")
        assert_that(out.main, equal_to([("k", ([1], []))]), label="main")
        assert_that(out.late, equal_to([("k", 2)]), label="late")


def test_late_data_of_a_group_by_is_the_element_as_it_came(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        to_test_stream = pipeline | TestStream().add_elements([tg.TimestampedValue("ab", 1)]).advance_watermark_to(
            10
        ).add_elements([tg.TimestampedValue("cd", 2)])
        out = to_test_stream | tg.WindowInto(tg.FixedWindows(10)) | tg.GroupBy(len).with_late_data("late")
        assert_that(out.main, equal_to([(2, ["ab"])]), label="main")
        assert_that(out.late, equal_to(["cd"]), label="late")


class Mean(tg.CombineFn[float, tuple[float, int], float]):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add_input(self, accumulator: tuple[float, int], element: float) -> tuple[float, int]:
        return accumulator[0] + element, accumulator[1] + 1

    def merge_accumulators(self, accumulators: Iterable[tuple[float, int]]) -> tuple[float, int]:
        totals, counts = zip(*accumulators, strict=True)
        return sum(totals), sum(counts)

    def extract_output(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]


AGGREGATES: dict[str, tuple[Any, dict[str, Any]]] = {
    "one field": (tg.GroupBy("user").aggregate_field("price", sum, "total"), {"total": 8}),
    "a callable": (
        tg.GroupBy("user").aggregate_field(lambda sale: -sale.price, lambda prices: list(prices), "negated"),
        {"negated": [-3, -5]},
    ),
    "a CombineFn": (tg.GroupBy("user").aggregate_field("price", Mean(), "mean"), {"mean": 4.0}),
    "several fields": (
        tg.GroupBy("user", "day")
        .aggregate_field("price", sum, "total")
        .aggregate_field("price", max, "most")
        .aggregate_field("price", Mean(), "mean")
        .aggregate_field("price", list, "prices")
        .aggregate_field(lambda sale: sale.price % 2, lambda values: sorted(values), "odd"),
        {"day": 1, "total": 8, "most": 5, "mean": 4.0, "prices": [3, 5], "odd": [1, 1]},
    ),
}


@pytest.mark.parametrize("asked", ["first", "last"])
@pytest.mark.parametrize("assigner", [tg.FixedWindows(10), tg.Sessions(10)], ids=["fixed", "sessions"])
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_late_elements_of_aggregates_come_whole(
    stream_runner: str, aggregate: str, assigner: tg.WindowAssigner, asked: str
) -> None:
    step, expected = AGGREGATES[aggregate]
    if asked == "first":
        by = tg.GroupBy(*step.by.keys).with_late_data("late")
        for (dest, field), combiner in zip(step.fields.items(), step.combiners, strict=True):
            by = by.aggregate_field(field, combiner, dest)
        step = by
    else:
        step = step.with_late_data("late")

    def sale(price: int, at: int) -> Any:
        return tg.TimestampedValue(tg.Row(user="ann", day=1, price=price), at)

    to_test_stream = (
        TestStream()
        .add_elements([sale(3, 1), sale(5, 2)])
        .advance_watermark_to(20)
        .add_elements([sale(7, 3)])
        .advance_watermark_to_infinity()
    )
    main, refused = PaneRecorder("main"), PaneRecorder("late")
    pipeline = TestPipeline(stream_runner, {"checks": "all"} if stream_runner == "direct" else None)
    out = pipeline | to_test_stream.with_output_types(tg.Row) | tg.WindowInto(assigner) | step
    _ = out.main | main
    _ = out.late | refused
    result = pipeline.run()
    assert [row.as_dict() for row in main.values()] == [{"user": "ann", **expected}]
    [record] = refused.records()
    assert (record.value, record.timestamp) == (tg.Row(user="ann", day=1, price=7), tg.Timestamp(3))
    assert result.metrics().counter("dropped_late") == 0
