"""SEMANTICS, Windows: assigners, and the windows of elements between steps and after a grouping."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import tidegate as tg
from tests.semantics.corner_cases import ByName
from tests.support.stream_scripts import INFINITY, Watermark, run_script
from tidegate.testing import (
    ANY,
    PaneRecorder,
    TestPipeline,
    TestStream,
    assert_that,
    early,
    equal_to,
    equal_to_per_window,
    fired,
    late,
    on_time,
)

TEN = tg.FixedWindows(10)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tg.FixedWindows(0),
        lambda: tg.FixedWindows(-1),
        lambda: tg.FixedWindows(10, offset=10),
        lambda: tg.FixedWindows(10, offset=-10),
        lambda: tg.SlidingWindows(0, 5),
        lambda: tg.SlidingWindows(10, 0),
        lambda: tg.SlidingWindows(10, 5, offset=5),
        lambda: tg.CumulativeWindows(10, 3),
        lambda: tg.CumulativeWindows(10, 0),
        lambda: tg.Sessions(0),
        lambda: tg.Sessions(-1),
        lambda: tg.CalendarWindows.days(0),
    ],
)
def test_sizes_offsets_and_gaps_that_make_no_windows_are_errors_at_construction(make: Callable[[], Any]) -> None:
    with pytest.raises(tg.BuildError):
        make()


@pytest.mark.parametrize(
    "beside",
    [
        {"trigger": tg.AfterWatermark()},
        {"evictor": tg.KeepLast(1)},
        {"accumulation": tg.DISCARDING},
    ],
    ids=lambda beside: next(iter(beside)),
)
def test_a_preset_is_a_whole_strategy(beside: dict[str, Any]) -> None:
    with pytest.raises(tg.BuildError, match="whole strategy"):
        _ = tg.Pipeline() | tg.Create([("k", 1)]) | tg.WindowInto(tg.CountWindows(2), **beside)


def test_the_last_instant_of_a_window_is_a_microsecond_before_its_end() -> None:
    assert tg.IntervalWindow(0, 10).max_timestamp() == tg.Timestamp(micros=9_999_999)


def test_assigners_window_bounded_data_too(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        stamped = pipeline | tg.Create([tg.TimestampedValue(n, n) for n in (-1, 0, 9, 10)])
        expected = {(-10, 0): [-1], (0, 10): [0, 9], (10, 20): [10]}
        assert_that(stamped | tg.WindowInto(TEN), equal_to_per_window(expected))
        sliding = stamped | tg.Filter(lambda n: n == 9) | tg.WindowInto(tg.SlidingWindows(10, 5), name="sliding")
        assert_that(sliding, equal_to_per_window({(0, 10): [9], (5, 15): [9]}))
        assert_that(sliding, equal_to([9]))


# ---- timestamps that change after assignment


def restamp(element: Any) -> Any:
    return tg.TimestampedValue(element, 25)


def test_a_new_timestamp_is_given_the_windows_of_the_collections_assigner(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        windowed = pipeline | tg.Create([tg.TimestampedValue("a", 1)]) | tg.WindowInto(TEN)
        assert_that(windowed | tg.Map(restamp), equal_to([fired("a", (20, 30), timestamp=25)]), panes=True)


def test_a_new_timestamp_keeps_windows_that_an_author_assigned(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        windowed = pipeline | tg.Create([tg.TimestampedValue(("k", "x1"), 1)]) | tg.WindowInto(ByName())
        recorder = PaneRecorder()
        _ = windowed | tg.Map(restamp) | recorder
    [record] = recorder.records()
    assert (record.window.end, record.window.name, record.timestamp) == (tg.Timestamp(20), "x", tg.Timestamp(25))


def test_a_new_timestamp_keeps_windows_that_have_merged(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        grouped = (
            pipeline
            | tg.Create([tg.TimestampedValue(("k", 1), 0), tg.TimestampedValue(("k", 2), 3)])
            | tg.WindowInto(tg.Sessions(5))
            | tg.GroupByKey()
            | tg.Map(restamp)
        )
        assert_that(grouped, equal_to([fired(("k", [1, 2]), (0, 8), timestamp=25)]), panes=True)


def test_reshuffle_keeps_timestamps_windows_and_panes(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = pipeline | TestStream().add_elements([tg.TimestampedValue(("k", 1), 3)]).advance_watermark_to(10)
        trigger = tg.AfterWatermark(early=tg.AfterCount(1))
        windowed = stream | tg.WindowInto(TEN, trigger, accumulation=tg.DISCARDING)
        before, after = PaneRecorder("before"), PaneRecorder("after")
        grouped = windowed | tg.GroupByKey()
        _ = grouped | before
        _ = grouped | tg.Reshuffle() | after
    redistributed = sorted(after.records(), key=lambda record: record.pane.index)
    assert redistributed == before.records()
    assert [record.timing for record in redistributed] == [tg.Timing.EARLY, tg.Timing.ON_TIME]


class Calls(tg.DoFn):
    def process(self, element: Any) -> Iterable[Any]:
        return [element]


class CallsWithWindow(tg.DoFn):
    def process(self, element: Any, window: Any = tg.DoFn.WindowParam) -> Iterable[Any]:
        return [(element, window.start.seconds())]


def test_a_step_that_sees_the_window_is_called_once_per_window_and_any_other_once(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        element = pipeline | tg.Create([tg.TimestampedValue("a", 7)]) | tg.WindowInto(tg.SlidingWindows(10, 5))
        assert_that(element | tg.ParDo(Calls()), equal_to(["a"]))
        seen = element | tg.ParDo(CallsWithWindow())
        assert_that(seen, equal_to([("a", 0.0), ("a", 5.0)]))
        assert_that(seen, equal_to_per_window({(0, 10): [("a", 0.0)], (5, 15): [("a", 5.0)]}))


# ---- after a grouping


def regroup(grouped: Any) -> Any:
    return grouped | "again" >> tg.GroupByKey()


def test_a_further_grouping_of_sessions_uses_the_exact_windows_and_never_merges(stream_runner: str) -> None:
    script = [("a", 0), ("b", 2), ("c", 20), INFINITY]
    ran = run_script(stream_runner, script, tg.WindowInto(tg.Sessions(5)), then=regroup)
    assert ran.of_key == [on_time([["a", "b"]], (0, 7)), on_time([["c"]], (20, 25))]
    # Overlapping windows of different keys are not merged.
    script = [("a", 0, "x"), ("b", 2, "y"), INFINITY]
    ran = run_script(
        stream_runner,
        script,
        tg.WindowInto(tg.Sessions(5)),
        then=lambda grouped: regroup(grouped | tg.Map(lambda pair: ("k", pair[0]))),
    )
    assert ran.of_key == [on_time(["x"], (0, 5)), on_time(["y"], (2, 7))]


def test_sessions_merge_again_once_they_are_windowed_again(stream_runner: str) -> None:
    ran = run_script(
        stream_runner,
        [("a", 0, "x"), ("b", 2, "y"), INFINITY],
        tg.WindowInto(tg.Sessions(5)),
        then=lambda grouped: regroup(
            grouped | tg.Map(lambda pair: ("k", pair[0])) | "re-window" >> tg.WindowInto(tg.Sessions(5))
        ),
    )
    # The panes are stamped with the last instants of [0, 5) and [2, 7).
    assert ran.of_key == [on_time(["x", "y"], (4.999999, 11.999999))]


one = tg.AfterCount(1)
soon = tg.Repeatedly(one)


@pytest.mark.parametrize(
    ("trigger", "continuation"),
    [
        (tg.DefaultTrigger(), tg.DefaultTrigger()),
        (tg.Never(), tg.Never()),
        (tg.Repeatedly(tg.AfterCount(7)), soon),
        (tg.Repeatedly(tg.AfterElement(bool)), soon),
        (tg.Repeatedly(tg.AfterDelta(1, max)), soon),
        (tg.Repeatedly(tg.AfterProcessingTime(5)), tg.Repeatedly(soon)),
        (tg.EveryEventTime(5), soon),
        (tg.EveryProcessingTime(5), soon),
        (tg.AfterWatermark(early=tg.AfterCount(7), late=tg.AfterCount(3)), tg.AfterWatermark(early=one, late=one)),
        (tg.AfterWatermark(early=tg.AfterProcessingTime(5)), tg.AfterWatermark(early=soon)),
        (tg.Repeatedly(tg.AfterAny(tg.AfterCount(7), tg.AfterCount(8))), tg.Repeatedly(tg.AfterAny(one, one))),
        (tg.Repeatedly(tg.AfterAll(tg.AfterCount(7), tg.AfterCount(8))), tg.Repeatedly(tg.AfterAll(one, one))),
        (tg.AfterEach(tg.AfterCount(7), tg.EveryEventTime(5)), tg.Repeatedly(tg.AfterAny(one, soon))),
        (tg.EveryEventTime(5).or_finally(tg.AfterWatermark()), soon.or_finally(tg.AfterWatermark())),
    ],
    ids=repr,
)
def test_a_grouping_is_followed_by_the_continuation_trigger(trigger: Any, continuation: Any) -> None:
    windowed = tg.Pipeline() | tg.Create([("k", 1)]) | tg.WindowInto(TEN, trigger, accumulation=tg.DISCARDING)
    grouped = windowed | tg.GroupByKey()
    assert grouped.windowing.trigger == continuation


def test_a_grouping_keeps_accumulation_timestamp_combiner_and_lateness_but_no_evictor() -> None:
    windowed = (
        tg.Pipeline()
        | tg.Create([("k", 1)])
        | tg.WindowInto(
            TEN,
            tg.AfterWatermark(late=tg.AfterCount(1)),
            evictor=tg.KeepLast(3),
            accumulation=tg.DISCARDING,
            allowed_lateness=60,
            timestamp_combiner=tg.TimestampCombiner.LATEST,
        )
    )
    before, after = windowed.windowing, (windowed | tg.GroupByKey()).windowing
    assert (after.accumulation, after.timestamp_combiner, after.allowed_lateness, after.assigner) == (
        before.accumulation,
        before.timestamp_combiner,
        before.allowed_lateness,
        before.assigner,
    )
    assert before.evictor is not None
    assert after.evictor is None


def test_window_into_inherits_nothing_but_the_lateness() -> None:
    first = tg.Pipeline() | tg.Create([("k", 1)]) | tg.WindowInto(TEN, tg.Never(), allowed_lateness=60)
    second = (first | "again" >> tg.WindowInto(tg.FixedWindows(5))).windowing
    assert second.trigger == tg.DefaultTrigger()
    assert second.allowed_lateness == tg.Duration(60)
    given = (first | "less" >> tg.WindowInto(tg.FixedWindows(5), allowed_lateness=1)).windowing
    assert given.allowed_lateness == tg.Duration(1)


def test_early_panes_go_on_to_a_further_grouping_as_they_come(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, tg.AfterWatermark(early=tg.AfterCount(2)), accumulation=tg.DISCARDING)
    ran = run_script(stream_runner, [("a", 1), ("b", 2), ("c", 3), Watermark(10)], into, then=regroup)
    # The on-time pane arrives before the watermark that caused it, so it is early there.
    assert ran.of_key == [early([["a", "b"]], index=0), early([["c"]], index=1), on_time([], index=2)]


def test_late_panes_go_on_to_a_further_grouping_as_they_come(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, accumulation=tg.DISCARDING, allowed_lateness=100)
    ran = run_script(stream_runner, [("a", 1), Watermark(10), ("b", 2), Watermark(11)], into, then=regroup)
    assert ran.of_key == [on_time([["a"]], index=0), late([["b"]], index=1)]


@pytest.mark.parametrize(
    "other",
    [
        tg.WindowInto(tg.FixedWindows(20)),
        tg.WindowInto(TEN, tg.Never()),
    ],
    ids=["assigners", "triggers"],
)
@pytest.mark.parametrize("join", [tg.Flatten, tg.CoGroupByKey])
def test_inputs_of_flatten_and_cogroup_must_have_equal_assigners_and_triggers(other: Any, join: Any) -> None:
    source = tg.Pipeline() | tg.Create([("k", 1)])
    with pytest.raises(tg.BuildError, match=r"windows differ|triggers differ"):
        _ = (source | tg.WindowInto(TEN), source | "other" >> other) | join()


def test_unbounded_data_in_the_global_window_is_not_grouped_unless_the_trigger_can_fire() -> None:
    stream = TestPipeline() | TestStream().add_elements([("k", 1)])
    for trigger in (tg.DefaultTrigger(), tg.AfterWatermark(), tg.Never()):
        silent = stream | f"{trigger}" >> tg.WindowInto(tg.GlobalWindows(), trigger)
        with pytest.raises(tg.BuildError, match="global window"):
            _ = silent | tg.GroupByKey()
    speaks = stream | tg.WindowInto(tg.GlobalWindows(), tg.Repeatedly(tg.AfterCount(1)), accumulation=tg.DISCARDING)
    assert not (speaks | "fine" >> tg.GroupByKey()).is_bounded


def test_a_window_of_a_user_defined_type_survives_between_steps(stream_runner: str) -> None:
    ran = run_script(stream_runner, [("x1", 1), INFINITY], tg.WindowInto(ByName()), then=regroup)
    assert ran.of_key == [on_time([["x1"]], ANY, 0)]
    assert ran.of_key[0].window.name == "x"


@pytest.mark.parametrize(
    ("assigner", "problem"),
    [
        (tg.Sessions(lambda element: 1 / 0), "ZeroDivisionError"),
        (tg.Sessions(lambda element: -5), "gap"),
    ],
)
def test_an_error_in_an_assigner_names_the_step(stream_runner: str, assigner: Any, problem: str) -> None:
    with pytest.raises(tg.UserCodeError, match=problem) as caught:
        run_script(stream_runner, [("a", 1), INFINITY], tg.WindowInto(assigner, name="by hand"))
    assert caught.value.step == "by hand"
