"""SEMANTICS, Windows: WindowInto sees the window. An element in several windows is one element for each, and each of
them is assigned reassign; so a step that only looks at its window changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.support.stream_scripts import INFINITY, Watermark, to_test_stream
from tidegate.testing import PaneRecorder, Recorded, TestPipeline, TestStream, on_time

TEN = tg.FixedWindows(10)


class Both(tg.WindowAssigner):
    """The ten seconds that an element is in and the ten after them."""

    def assign(self, timestamp: tg.Timestamp, element: Any) -> Iterable[Any]:
        start = int(timestamp.seconds() // 10 * 10)
        return [tg.IntervalWindow(start, start + 10), tg.IntervalWindow(start + 10, start + 20)]


class Growing(tg.WindowAssigner):
    """A window of ten seconds from the element on, merged with those that it overlaps."""

    def assign(self, timestamp: tg.Timestamp, element: Any) -> Iterable[Any]:
        return [tg.IntervalWindow(timestamp, timestamp + 10)]

    def merge(self, windows: Any) -> Iterable[Any]:
        first, last = windows[0], windows[-1]
        whole = tg.IntervalWindow(min(w.start for w in windows), last.end)
        return [(whole, windows)] if first is not last else []


SEVERAL = {
    "sliding": tg.SlidingWindows(4, 2),
    "cumulative": tg.CumulativeWindows(4, 2),
    "custom": Both(),
}
"""Assigners that give an element at 1 s two windows."""
REASSIGNED: dict[str, Any] = {
    "fixed": TEN,
    "calendar": tg.CalendarWindows.days(1),
    "sliding": tg.SlidingWindows(4, 2),
    "gaps": tg.SlidingWindows(2, 10),
    "custom": Both(),
    "by element": tg.Sessions(lambda pair: 5),
    "sessions": tg.Sessions(5),
    "merged by the author": Growing(),
    "global": tg.GlobalWindows(),
}


def looks(element: Any, window: Any = tg.DoFn.WindowParam) -> Any:
    assert window.end is not None
    return element


def recorded(pipeline: Any, pcoll: Any) -> list[Recorded]:
    recorder = PaneRecorder()
    _ = pcoll | recorder
    pipeline.run()
    return sorted(recorder.records(), key=repr)


def counted(runner: str, elements: Iterable[Any], *steps: Any, options: Any = None) -> list[Recorded]:
    """The results of `CombinePerKey(len)` after some steps over bounded input."""
    pipeline = TestPipeline(runner, options)
    pcoll: Any = pipeline | tg.Create([tg.TimestampedValue(value, at) for value, at in elements])
    for number, step in enumerate(steps):
        pcoll = pcoll | f"step {number}" >> step
    return recorded(pipeline, pcoll | tg.CombinePerKey(len))


def test_an_element_in_two_windows_counts_twice(runner: str) -> None:
    found = counted(runner, [(("k", 1), 3)], tg.WindowInto(tg.SlidingWindows(4, 2)), tg.WindowInto(TEN))
    assert found == [on_time(("k", 2), (0, 10))]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("after", REASSIGNED)
@pytest.mark.parametrize("before", SEVERAL)
def test_a_step_that_only_looks_at_its_window_changes_nothing(runner: str, before: str, after: str) -> None:
    elements = [(("k", 1), 1), (("k", 2), 5), (("other", 3), 1)]
    into, reassign = tg.WindowInto(SEVERAL[before]), tg.WindowInto(REASSIGNED[after])
    plain = counted(runner, elements, into, reassign)
    assert plain == counted(runner, elements, into, tg.Map(looks), reassign)
    many = 2 if after in ("sliding", "custom") else 1
    assert sum(record.value[1] for record in plain if record.value[0] == "other") == 2 * many


def test_elements_in_overlapping_windows_are_reassigned_once_per_window(runner: str) -> None:
    found = counted(
        runner,
        [(("k", 1), 3)],
        tg.WindowInto(tg.SlidingWindows(4, 2)),
        tg.WindowInto(tg.SlidingWindows(6, 2)),
        tg.WindowInto(tg.GlobalWindows()),
    )
    assert found == [on_time(("k", 6))]


def test_elements_are_not_repeated_where_windows_are_not_reassigned(runner: str) -> None:
    found = counted(runner, [(("k", 1), 3)], tg.WindowInto(tg.SlidingWindows(4, 2)), tg.Map(lambda pair: pair))
    assert found == [on_time(("k", 1), (0, 4)), on_time(("k", 1), (2, 6))]


@pytest.mark.parametrize("between", [tg.Reshuffle(), tg.Filter(bool)], ids=["reshuffle", "filter"])
def test_windows_are_reassigned_behind_other_steps(runner: str, between: Any) -> None:
    found = counted(runner, [(("k", 1), 3)], tg.WindowInto(tg.SlidingWindows(4, 2)), between, tg.WindowInto(TEN))
    assert found == [on_time(("k", 2), (0, 10))]


def test_a_step_before_is_called_once_for_an_element(runner: str) -> None:
    calls = tg.Metrics.counter("test", "calls")

    def twice(pair: Any) -> Iterator[Any]:
        calls.inc()
        yield pair
        yield pair

    pipeline = TestPipeline(runner)
    windowed = pipeline | tg.Create([tg.TimestampedValue(("k", 1), 3)]) | tg.WindowInto(tg.SlidingWindows(4, 2))
    again = windowed | "twice" >> tg.FlatMap(twice) | "again" >> tg.WindowInto(TEN)
    recorder = PaneRecorder()
    _ = again | "seen" >> tg.Map(lambda pair: pair) | tg.CombinePerKey(len) | recorder
    result = pipeline.run()
    assert recorder.records() == [on_time(("k", 4), (0, 10))]
    elements_out = {step: result.metrics().counter("elements_out", step=step) for step in ("twice", "again", "seen")}
    assert (result.metrics().counter("calls"), elements_out) == (1, {"twice": 2, "again": 4, "seen": 4})


def test_metrics_count_an_element_once_for_each_window(runner: str) -> None:
    pipeline = TestPipeline(runner)
    windowed = pipeline | tg.Create([tg.TimestampedValue(("k", 1), 3)]) | tg.WindowInto(tg.SlidingWindows(4, 2))
    again = windowed | "first" >> tg.Filter(bool) | "again" >> tg.WindowInto(TEN)
    recorder = PaneRecorder()
    _ = again | "last" >> tg.Map(lambda pair: pair) | recorder
    result = pipeline.run()
    assert len(recorder.records()) == 2
    elements_out = {step: result.metrics().counter("elements_out", step=step) for step in ("first", "again", "last")}
    assert elements_out == {"first": 1, "again": 2, "last": 2}


def restamped(pair: Any) -> Any:
    return tg.TimestampedValue(pair, 5)


def test_an_element_with_a_new_timestamp_is_in_as_many_windows_as_that_has(runner: str) -> None:
    elements = [(("k", 1), 1), (("k", 2), 1)]
    sliding = tg.WindowInto(tg.SlidingWindows(4, 2))
    assert counted(runner, elements, sliding, tg.Map(restamped), tg.WindowInto(TEN)) == [on_time(("k", 4), (0, 10))]
    # After a grouping each element is in one window, until a step changes its timestamp.
    grouped = [sliding, tg.GroupByKey(), tg.MapTuple(lambda key, values: (key, len(list(values))))]
    assert counted(runner, elements, *grouped, tg.WindowInto(tg.GlobalWindows())) == [on_time(("k", 2))]
    again = [*grouped, tg.Map(restamped), tg.WindowInto(tg.GlobalWindows())]
    assert counted(runner, elements, *again) == [on_time(("k", 4))]


class InThree(tg.DoFn):
    """Emits each element in three windows, regardless of the collection's assigner."""

    def process(self, pair: Any) -> Iterator[Any]:
        yield tg.WindowedValue(pair, 1, [tg.IntervalWindow(start, start + 5) for start in (0, 5, 10)])


def test_elements_that_a_step_emits_in_several_windows_are_reassigned_for_each(runner: str) -> None:
    for steps in ([], [tg.Reshuffle()]):
        found = counted(runner, [(("k", 1), 1)], tg.WindowInto(TEN), tg.ParDo(InThree()), *steps, tg.WindowInto(TEN))
        assert found == [on_time(("k", 3), (0, 10))]


def test_each_of_several_windows_of_a_session_that_is_not_merged_yet_counts(runner: str) -> None:
    elements = [(("k", 1), 1), (("k", 2), 3)]
    sessions = tg.WindowInto(tg.Sessions(5))
    # Before a grouping an element is in one window, even if that would merge with others.
    assert counted(runner, elements, sessions, tg.WindowInto(TEN)) == [on_time(("k", 2), (0, 10))]
    twice = counted(runner, elements, tg.WindowInto(tg.SlidingWindows(4, 2)), sessions)
    assert twice == [on_time(("k", 4), (1, 8))]
    grouped = [sessions, tg.GroupByKey(), tg.MapTuple(lambda key, values: (key, len(list(values))))]
    assert counted(runner, elements, *grouped, tg.WindowInto(TEN)) == [on_time(("k", 1), (0, 10))]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("after", REASSIGNED)
@pytest.mark.parametrize("before", SEVERAL)
def test_a_step_that_only_looks_at_its_window_changes_nothing_in_a_stream(
    stream_runner: str, before: str, after: str, together: bool
) -> None:
    if after == "global":
        reassign = tg.WindowInto(tg.GlobalWindows(), tg.Repeatedly(tg.AfterCount(1)), accumulation=tg.DISCARDING)
    else:
        reassign = tg.WindowInto(REASSIGNED[after])
    script = [(1, 1), (2, 5), (3, 1, "other"), INFINITY]

    def run(*between: Any) -> list[Recorded]:
        pipeline = TestPipeline(stream_runner)
        pcoll: Any = pipeline | to_test_stream(script, together=together) | "before" >> tg.WindowInto(SEVERAL[before])
        for step in between:
            pcoll = pcoll | step
        return recorded(pipeline, pcoll | "reassign" >> reassign | tg.CombinePerKey(len))

    plain = run()
    assert plain == run(tg.Map(looks))
    assert sum(record.value[1] for record in plain if record.value[0] == "other") in (2, 4)


def test_every_window_of_a_late_element_is_judged_by_itself_again(stream_runner: str) -> None:
    pipeline = TestPipeline(stream_runner)
    windowed = (
        pipeline | to_test_stream([(1, 1), Watermark(10), (2, 9), INFINITY]) | tg.WindowInto(tg.SlidingWindows(4, 2))
    )
    # At 9 the element is in [6, 10) and in [8, 12). WindowInto drops nothing: both are late for [0, 10).
    result = PaneRecorder()
    _ = windowed | "again" >> tg.WindowInto(TEN) | tg.GroupByKey() | result
    ran = pipeline.run()
    assert result.records() == [on_time(("k", [1, 1]), (0, 10))]
    assert ran.metrics().counter("dropped_late") == 2


def test_an_interval_join_pairs_elements_once_whatever_their_windows(stream_runner: str) -> None:
    pipeline = TestPipeline(stream_runner)
    script = TestStream().with_outputs("right")
    script.add_elements([tg.TimestampedValue(("k", "l"), 3)])
    script.add_elements([tg.TimestampedValue(("k", "r"), 4)], tag="right")
    both = pipeline | script
    left = both.main | "left" >> tg.WindowInto(tg.SlidingWindows(4, 2))
    right = both.right | "right" >> tg.WindowInto(tg.SlidingWindows(6, 2))
    found = recorded(pipeline, left | tg.IntervalJoin(right, within=5))
    assert [(record.value, record.window) for record in found] == [(("k", ("l", "r")), tg.GlobalWindow())]
