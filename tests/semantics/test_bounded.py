"""SEMANTICS, Bounded input: the same rules with a watermark that jumps, and order where order can show."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tests.support.stream_scripts import INFINITY, panes_of_script
from tidegate.testing import PaneRecorder, Recorded, TestPipeline, TestStream, assert_that, early, equal_to, on_time

TEN = tg.FixedWindows(10)


def bounded(runner: str, elements: Iterable[tuple[Any, float]], into: Any, options: Any = None) -> list[Recorded]:
    """The panes of one key of bounded input."""
    pipeline = TestPipeline(runner, options)
    source = pipeline | tg.Create([tg.TimestampedValue(("k", value), at) for value, at in elements])
    recorder = PaneRecorder()
    _ = source | into | tg.GroupByKey() | recorder
    pipeline.run()
    return recorder.per_key().get("k", [])


def test_boundedness_belongs_to_a_collection() -> None:
    pipeline = TestPipeline()
    list_ = pipeline | tg.Create([("k", 1)])
    stream = pipeline | TestStream()
    assert (list_.is_bounded, stream.is_bounded) == (True, False)
    assert (list_ | tg.Map(str)).is_bounded
    assert (list_ | tg.GroupByKey()).is_bounded
    assert not ((list_, stream) | tg.Flatten()).is_bounded
    assert not (stream | tg.WindowInto(TEN)).is_bounded


def test_nothing_is_late(runner: str) -> None:
    found = bounded(runner, [("a", 25), ("b", 1)], tg.WindowInto(TEN))
    assert found == [on_time(["b"], (0, 10)), on_time(["a"], (20, 30))]


@pytest.mark.parametrize(
    "trigger",
    [
        tg.AfterWatermark(early=tg.AfterProcessingTime(0)),
        tg.AfterWatermark(early=tg.EveryProcessingTime(1)),
        tg.AfterWatermark(early=tg.EveryEventTime(1)),
        tg.EveryEventTime(1),
        tg.Repeatedly(tg.AfterProcessingTime(0)),
    ],
    ids=repr,
)
def test_triggers_on_a_clock_give_no_early_panes(runner: str, trigger: Any) -> None:
    into = tg.WindowInto(TEN, trigger, accumulation=tg.DISCARDING)
    assert bounded(runner, [("a", 1), ("b", 5)], into) == [on_time(["a", "b"], index=0)]


def test_data_driven_triggers_give_early_panes(runner: str) -> None:
    into = tg.WindowInto(TEN, tg.AfterWatermark(early=tg.AfterCount(1)), accumulation=tg.DISCARDING)
    assert bounded(runner, [("a", 1), ("b", 5)], into) == [early(["a"]), early(["b"]), on_time([])]


ORDERED = [(n, float(n)) for n in range(12)]
SHUFFLED = random.Random(1).sample(ORDERED, len(ORDERED))
ORDER_SHOWS = {
    "count": tg.WindowInto(tg.CountWindows(5)),
    "delta": tg.WindowInto(tg.DeltaWindows(3, lambda a, b: b - a)),
    "punctuation": tg.WindowInto(tg.PunctuationWindows(lambda n: n % 4 == 3)),
    "sliding count": tg.WindowInto(tg.SlidingCountWindows(4, every=3)),
    "evictor": tg.WindowInto(TEN, evictor=tg.KeepLast(3)),
    "count in sessions": tg.WindowInto(tg.Sessions(5), tg.Repeatedly(tg.AfterCount(4)), accumulation=tg.DISCARDING),
    "early counts": tg.WindowInto(TEN, tg.AfterWatermark(early=tg.AfterCount(3)), accumulation=tg.ACCUMULATING),
}


@pytest.mark.parametrize("into", ORDER_SHOWS.values(), ids=ORDER_SHOWS)
def test_where_order_can_show_elements_come_in_timestamp_order(runner: str, into: Any) -> None:
    assert bounded(runner, SHUFFLED, into) == bounded(runner, ORDERED, into)


@pytest.mark.parametrize("into", ORDER_SHOWS.values(), ids=ORDER_SHOWS)
def test_bounded_panes_are_those_of_a_stream_that_arrived_in_order(stream_runner: str, into: Any) -> None:
    streamed = panes_of_script(stream_runner, [*ORDERED, INFINITY], into)
    assert bounded(stream_runner, SHUFFLED, into) == streamed
    assert streamed != []


def test_ties_come_in_source_order(runner: str) -> None:
    found = bounded(runner, [(n, 1) for n in range(7)], tg.WindowInto(tg.CountWindows(3)))
    assert [record.value for record in found] == [[0, 1, 2], [3, 4, 5], [6]]


class Order(tg.DoFn):
    SEEN = tg.BagStateSpec("seen")
    END, CLOCK = tg.EventTimer("end"), tg.ProcessingTimer("clock")

    def process(
        self,
        element: Any,
        seen: tg.BagState[Any] = tg.DoFn.StateParam(SEEN),
        end: tg.Timer = tg.DoFn.TimerParam(END),
        clock: tg.Timer = tg.DoFn.TimerParam(CLOCK),
    ) -> None:
        seen.add(element[1])
        end.set(10**6)
        clock.set(dt.datetime.now(dt.UTC))

    @tg.on_timer(CLOCK)
    def on_clock(self, seen: tg.BagState[Any] = tg.DoFn.StateParam(SEEN)) -> Iterator[Any]:
        seen.add("clock")
        yield "clock"

    @tg.on_timer(END)
    def on_end(self, seen: tg.BagState[Any] = tg.DoFn.StateParam(SEEN)) -> Iterator[Any]:
        yield list(seen.read())


def test_a_stateful_step_sees_elements_in_timestamp_order_and_its_clock_fires_once_at_the_end(runner: str) -> None:
    pipeline = TestPipeline(runner)
    recorder = PaneRecorder()
    source = pipeline | tg.Create([tg.TimestampedValue(("k", n), at) for n, at in SHUFFLED])
    _ = source | tg.ParDo(Order()) | recorder
    pipeline.run()
    assert recorder.values() == [list(range(12)), "clock"]


def test_mode_streaming_treats_bounded_input_as_a_stream(stream_runner: str) -> None:
    into = tg.WindowInto(tg.CountWindows(2))
    elements = [("b", 2), ("a", 1)]
    assert bounded(stream_runner, elements, into) == [early(["a", "b"])]
    assert bounded(stream_runner, elements, into, {"mode": "streaming", "runner": stream_runner}) == [early(["b", "a"])]


def test_a_bounded_only_runner_refuses_streams(bounded_only_runner: str) -> None:
    pipeline = TestPipeline(bounded_only_runner)
    _ = pipeline | TestStream().add_elements([1]) | tg.Map(str)
    with pytest.raises(tg.UnsupportedError, match="TestStream") as caught:
        pipeline.run()
    assert bounded_only_runner in str(caught.value)


def test_an_unbounded_group_without_windows_is_refused_naming_the_step() -> None:
    stream = TestPipeline() | TestStream().add_elements([("k", 1)])
    with pytest.raises(tg.BuildError, match="global window") as caught:
        _ = stream | "by key" >> tg.GroupByKey()
    assert "'by key'" in str(caught.value)


def test_bounded_and_unbounded_steps_follow_their_own_rules_in_one_pipeline(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        table = pipeline | tg.Create([tg.TimestampedValue(("k", n), at) for n, at in SHUFFLED])
        counted = table | tg.WindowInto(tg.CountWindows(6)) | tg.GroupByKey()
        assert_that(counted, equal_to([("k", list(range(6))), ("k", list(range(6, 12)))]))
        stream = pipeline | TestStream().add_elements([tg.TimestampedValue(("k", n), at) for n, at in SHUFFLED])
        in_arrival_order = stream | "stream" >> tg.WindowInto(tg.CountWindows(12)) | "group" >> tg.GroupByKey()
        assert_that(in_arrival_order, equal_to([("k", [n for n, _ in SHUFFLED])]))


def test_processing_time_is_the_machines_clock(runner: str) -> None:
    class Now(tg.DoFn):
        def process(self, element: int, now: tg.Timestamp = tg.DoFn.ProcessingTimeParam) -> Iterator[bool]:
            yield now.micros > 1_600_000_000_000_000

    with TestPipeline(runner) as pipeline:
        assert_that(pipeline | tg.Create([1]) | tg.ParDo(Now()), equal_to([True]))
