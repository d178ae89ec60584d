"""SEMANTICS, TestStream: each event is settled before the next; the end of the script is the end of input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import (
    PaneRecorder,
    TestPipeline,
    TestStream,
    assert_that,
    early,
    equal_to,
    fired,
    is_empty,
    late,
    on_time,
)

TEN = tg.FixedWindows(10)


def at(value: Any, timestamp: float, key: Any = "k") -> Any:
    return tg.TimestampedValue((key, value), timestamp)


def test_the_end_of_the_script_is_the_end_of_input(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = pipeline | TestStream().add_elements([at(1, 1)])
        grouped = stream | tg.WindowInto(TEN) | tg.GroupByKey()
        assert_that(grouped, equal_to([on_time(("k", [1]), (0, 10), is_last=True)]), panes=True)


def test_an_empty_script_ends_at_once(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        nothing = (pipeline | TestStream()).pipeline | "other" >> TestStream().advance_watermark_to_infinity()
        assert_that(nothing, is_empty())


def test_plain_elements_have_no_timestamp_or_the_given_one(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = pipeline | TestStream().add_elements(["a"]).add_elements(
            ["b", tg.TimestampedValue("c", 7)], timestamp=5
        )
        expected = [
            fired("a", timestamp=tg.MIN_TIMESTAMP),
            fired("b", timestamp=5),
            fired("c", timestamp=7),
        ]
        assert_that(stream, equal_to(expected), panes=True)


def test_everything_an_event_causes_is_settled_before_the_next(stream_runner: str) -> None:
    """Through two shuffles: the second grouping has its pane before the next element enters."""
    with TestPipeline(stream_runner) as pipeline:
        stream = pipeline | TestStream().add_elements([at(1, 1)]).advance_watermark_to(10).add_elements([at(2, 2)])
        into = tg.WindowInto(TEN, accumulation=tg.DISCARDING, allowed_lateness=100)
        grouped = stream | into | tg.GroupByKey() | tg.Reshuffle() | "again" >> tg.GroupByKey()
        expected = [on_time(("k", [[1]]), index=0), late(("k", [[2]]), index=1)]
        assert_that(grouped | tg.Reshuffle(), equal_to(expected), panes=True)


def test_clock_advances_reach_every_step(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = pipeline | TestStream().add_elements([at(1, 1)]).advance_processing_time(5).add_elements([at(2, 2)])
        into = tg.WindowInto(TEN, tg.Repeatedly(tg.AfterProcessingTime(5)), accumulation=tg.DISCARDING)
        grouped = stream | tg.Reshuffle() | into | tg.GroupByKey()
        assert_that(grouped, equal_to([early(("k", [1])), on_time(("k", [2]))]), panes=True)


class Bundles(tg.DoFn):
    """Gives the size of each bundle."""

    def start_bundle(self) -> None:
        self.size = 0

    def process(self, element: Any) -> None:
        self.size += 1

    def finish_bundle(self) -> Iterable[int]:
        return [self.size] if self.size else []


def test_a_watermark_and_a_clock_advance_end_bundles(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = TestStream().add_elements([1, 2]).advance_watermark_to(1).add_elements([3]).advance_processing_time(1)
        sizes = pipeline | stream.add_elements([4, 5, 6]) | tg.ParDo(Bundles())
        assert_that(sizes, equal_to([2, 1, 3]))


def test_every_event_ends_bundles(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        sizes = pipeline | TestStream().add_elements([1, 2]).add_elements([3]) | tg.ParDo(Bundles())
        assert_that(sizes, equal_to([2, 1]))


def test_each_output_has_its_own_watermark(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        out = pipeline | (
            TestStream()
            .add_elements([at("main", 1)])
            .add_elements([at("other", 1)], tag="other")
            .advance_watermark_to(10)
            .add_elements([at("late", 2)])
            .add_elements([at("in time", 2)], tag="other")
            .advance_watermark_to(10, tag="other")
        )
        main = out.main | tg.WindowInto(TEN) | tg.GroupByKey()
        other = out.other | "window other" >> tg.WindowInto(TEN) | "group other" >> tg.GroupByKey()
        assert_that(main, equal_to([("k", ["main"])]))
        assert_that(other, equal_to([("k", ["other", "in time"])]))


def test_a_stream_may_be_read_by_several_steps(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = pipeline | TestStream().add_elements([1, 2])
        assert_that(stream | tg.Map(lambda n: 2 * n), equal_to([2, 4]))
        assert_that(stream | "other" >> tg.Map(str), equal_to(["1", "2"]))


def test_a_pipeline_with_a_test_stream_and_a_list_runs(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = pipeline | TestStream().add_elements([1])
        assert_that((stream, pipeline | tg.Create([2])) | tg.Flatten(), equal_to([1, 2]))


def test_an_error_stops_the_script(stream_runner: str) -> None:
    pipeline = TestPipeline(stream_runner)
    recorder = PaneRecorder()
    _ = pipeline | TestStream().add_elements([1]).add_elements([0]) | tg.Map(lambda n: 1 // n) | recorder
    with pytest.raises(tg.UserCodeError, match="ZeroDivisionError"):
        pipeline.run()
    with pytest.raises(tg.BuildError, match="nothing has been recorded"):
        recorder.records()
