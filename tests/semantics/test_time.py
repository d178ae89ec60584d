"""SEMANTICS, Time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import tidegate as tg
from tests.support.stream_scripts import Watermark, panes_of_script
from tidegate.sdk.connectors.sources import SimpleSource, Split
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

UTC = dt.UTC


@dataclass(frozen=True)
class Numbers(SimpleSource[int]):
    count: int

    def generate(self, split: Split, position: Any) -> Iterator[tuple[int, int]]:
        for n in range(position or 0, self.count):
            yield n + 1, n


@pytest.mark.parametrize(
    ("written", "micros"),
    [
        (3, 3_000_000),
        (0.0000014, 1),
        (0.0000016, 2),
        (-0.0000016, -2),
        (tg.Timestamp(2, 5), 2_000_005),
        (dt.datetime(1970, 1, 1, 0, 1, tzinfo=UTC), 60_000_000),
        (dt.datetime(1970, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), -3_600_000_000),
    ],
)
def test_timestamps_are_whole_microseconds_in_any_accepted_form(runner: str, written: Any, micros: int) -> None:
    with TestPipeline(runner) as pipeline:
        stamped = pipeline | tg.Create([tg.TimestampedValue("a", written)])
        assert_that(stamped, equal_to([fired("a", timestamp=tg.Timestamp(micros=micros))]), panes=True)


def test_a_naive_datetime_is_an_error() -> None:
    with pytest.raises(ValueError, match="time zone"):
        tg.TimestampedValue("a", dt.datetime(2025, 1, 1))


def test_elements_without_a_timestamp_have_the_least_timestamp(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        plain = pipeline | tg.Create(["a"])
        assert_that(plain, equal_to([fired("a", tg.GlobalWindow(), timestamp=tg.MIN_TIMESTAMP)]), panes=True)


def test_settable_times_lie_between_the_ends_of_time() -> None:
    last = tg.GlobalWindow().max_timestamp()
    assert tg.MIN_TIMESTAMP < tg.Timestamp(0) < last < tg.MAX_TIMESTAMP
    assert last.micros == tg.MAX_TIMESTAMP.micros - 1
    with pytest.raises(tg.BuildError, match="at or after the end of time"):
        TestStream().add_elements([tg.TimestampedValue("a", last)])


@pytest.mark.parametrize("stamp", [tg.MAX_TIMESTAMP, float("inf"), 1e300], ids=repr)
def test_no_element_is_stamped_with_the_end_of_time(runner: str, stamp: Any) -> None:
    with pytest.raises(ValueError, match="end of time"):
        tg.TimestampedValue("a", stamp)
    with pytest.raises(ValueError, match="end of time"):
        tg.WindowedValue("a", stamp, (tg.GlobalWindow(),))
    pipeline = TestPipeline(runner)
    assert_that(pipeline | tg.Create(["a"]) | "late" >> tg.Map(lambda e: tg.TimestampedValue(e, stamp)), is_empty())
    with pytest.raises(tg.UserCodeError, match="end of time") as caught:
        pipeline.run()
    assert caught.value.step == "late"


def test_event_time_is_the_default_and_a_step_may_stamp(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        stamped = pipeline | tg.Create([("a", 3), ("b", 12)]) | tg.Map(lambda pair: tg.TimestampedValue(*pair))
        windowed = stamped | tg.WindowInto(tg.FixedWindows(10))
        expected = [fired("a", (0, 10), timestamp=3), fired("b", (10, 20), timestamp=12)]
        assert_that(windowed, equal_to(expected), panes=True)


def test_a_read_stamps_by_the_authors_function(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        read = pipeline | tg.Read(Numbers(3), timestamp=lambda n: 10 * n)
        assert_that(read, equal_to([fired(n, timestamp=10 * n) for n in range(3)]), panes=True)


def test_ingestion_time_stamps_on_entry(runner: str) -> None:
    before = dt.datetime.now(UTC)
    with TestPipeline(runner) as pipeline:
        read = pipeline | tg.Read(Numbers(3), ingestion_time=True)
        recorder = PaneRecorder()
        _ = read | recorder
    entered = [record.timestamp.to_utc_datetime() for record in recorder.records()]
    assert len(entered) == 3
    assert all(before <= at <= dt.datetime.now(UTC) for at in entered)


def test_processing_time_does_not_move_event_time(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        stream = pipeline | TestStream().add_elements([tg.TimestampedValue(("k", 1), 1)]).advance_processing_time(
            1000
        ).add_elements([tg.TimestampedValue(("k", 2), 2)])
        grouped = stream | tg.WindowInto(tg.FixedWindows(10)) | tg.GroupByKey()
        assert_that(grouped, equal_to([on_time(("k", [1, 2]), (0, 10))]), panes=True)


def test_a_watermark_that_is_there_already_changes_nothing(stream_runner: str) -> None:
    trigger = tg.AfterWatermark(early=tg.AfterCount(1))
    into = tg.WindowInto(tg.FixedWindows(10), trigger, accumulation=tg.DISCARDING)
    found = panes_of_script(stream_runner, [Watermark(20), Watermark(20), ("a", 3), Watermark(20), ("b", 25)], into)
    assert found == [early(["b"], (20, 30)), on_time([], (20, 30))]


# ---- several inputs


def group(parts: Any) -> Any:
    """Flatten, window by ten seconds with a pane per element, and group."""
    trigger = tg.AfterWatermark(early=tg.AfterCount(1), late=tg.AfterCount(1))
    into = tg.WindowInto(tg.FixedWindows(10), trigger, accumulation=tg.DISCARDING, allowed_lateness=1000)
    return tuple(parts) | tg.Flatten() | into | tg.GroupByKey()


def at(value: Any, timestamp: float) -> Any:
    return tg.TimestampedValue(("k", value), timestamp)


def timings(runner: str, script: TestStream) -> list[Any]:
    pipeline = TestPipeline(runner)
    recorder = PaneRecorder()
    _ = group(pipeline | script) | recorder
    pipeline.run()
    return recorder.per_key()["k"]


def test_a_step_with_several_inputs_has_the_minimum_of_their_watermarks(stream_runner: str) -> None:
    script = (
        TestStream()
        .with_outputs("other")
        .advance_watermark_to(20)
        .add_elements([at("before", 1)])
        .advance_watermark_to(10, tag="other")
        .add_elements([at("after", 2)])
    )
    assert timings(stream_runner, script) == [early(["before"]), on_time([]), late(["after"])]


def test_an_idle_input_does_not_hold_back_the_watermark(stream_runner: str) -> None:
    script = (
        TestStream()
        .with_outputs("other")
        .idle("other")
        .add_elements([at("before", 1)])
        .advance_watermark_to(10)
        .add_elements([at("after", 2)])
    )
    assert timings(stream_runner, script) == [early(["before"]), on_time([]), late(["after"])]


def test_when_all_inputs_are_idle_the_watermark_stands(stream_runner: str) -> None:
    script = (
        TestStream()
        .with_outputs("other")
        .advance_watermark_to(5)
        .advance_watermark_to(5, tag="other")
        .idle("other")
        .idle()
        .add_elements([at("still early", 6)], tag="other")
    )
    assert timings(stream_runner, script) == [early(["still early"]), on_time([])]


@pytest.mark.parametrize("order", [(None, "other"), ("other", None)], ids=["first to last", "last to first"])
def test_when_all_inputs_are_idle_the_watermark_is_the_greatest_of_theirs_in_whatever_order_they_became_idle(
    stream_runner: str, order: tuple[str | None, str | None]
) -> None:
    script = TestStream().with_outputs("other").add_elements([at("before", 1)])
    script = script.advance_watermark_to(20).advance_watermark_to(5, tag="other")
    for tag in order:
        script = script.idle(tag)
    script = script.add_elements([at("after", 2)], tag="other")
    assert timings(stream_runner, script) == [early(["before"]), on_time([]), late(["after"])]


def test_an_input_that_is_active_again_counts_once_it_has_caught_up(stream_runner: str) -> None:
    script = (
        TestStream()
        .with_outputs("other")
        .idle("other")
        .advance_watermark_to(20)
        .add_elements([at("back", 5)], tag="other")  # its watermark lags: it does not count yet
        .advance_watermark_to(30)
        .add_elements([at("late", 25)])
        .advance_watermark_to(30, tag="other")  # now it does
        .advance_watermark_to(50)
        .add_elements([at("early", 45)])
    )
    found = timings(stream_runner, script)
    assert [(record.value, record.timing) for record in found] == [
        (["back"], tg.Timing.LATE),
        (["late"], tg.Timing.LATE),
        (["early"], tg.Timing.EARLY),
        ([], tg.Timing.ON_TIME),
    ]


def test_an_input_that_has_ended_does_not_hold_back_the_watermark(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        ended = pipeline | tg.Create([at("from a list", 1)])
        stream = pipeline | TestStream().advance_watermark_to(10).add_elements([at("after", 2)])
        grouped = group((stream, ended))
        recorder = PaneRecorder()
        _ = grouped | recorder
    assert recorder.per_key()["k"][-1] == late(["after"], (0, 10))
