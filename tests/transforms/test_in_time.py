"""Transforms in event or processing time, or with state: joins, batches, deduplication, waiting, periodic elements."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.runners.direct import DirectRunner
from tidegate.runners.engine.time.clock import ManualClock
from tidegate.testing import PaneRecorder, TestPipeline, TestStream, assert_that, equal_to

PAIRS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=12)


def stamped(pairs: list[tuple[int, int]]) -> list[Any]:
    """Turn pairs (key, time) into elements with those timestamps."""
    return [tg.TimestampedValue((key, time), time) for key, time in pairs]


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        (tg.Join.inner, [("a", (1, "x")), ("a", (2, "x"))]),
        (tg.Join.left, [("a", (1, "x")), ("a", (2, "x")), ("b", (3, None))]),
        (tg.Join.right, [("a", (1, "x")), ("a", (2, "x")), ("c", (None, "y"))]),
        (tg.Join.full, [("a", (1, "x")), ("a", (2, "x")), ("b", (3, None)), ("c", (None, "y"))]),
    ],
)
def test_a_join_pairs_the_values_of_a_key_with_none_for_a_missing_partner(join: Any, expected: Any) -> None:
    with TestPipeline() as pipeline:
        left = pipeline | "left" >> tg.Create([("a", 1), ("a", 2), ("b", 3)])
        right = pipeline | "right" >> tg.Create([("a", "x"), ("c", "y")])
        assert_that(left | join(right), equal_to(expected))


def test_a_join_is_per_window() -> None:
    with TestPipeline() as pipeline:
        left = pipeline | "left" >> tg.Create(stamped([(1, 1), (1, 11)])) | "lw" >> tg.WindowInto(tg.FixedWindows(10))
        right = pipeline | "right" >> tg.Create(stamped([(1, 2)])) | "rw" >> tg.WindowInto(tg.FixedWindows(10))
        assert_that(left | tg.Join.inner(right), equal_to([(1, (1, 2))]))


@settings(max_examples=40)
@given(PAIRS, PAIRS, st.integers(-6, 6), st.integers(0, 8))
def test_an_interval_join_equals_two_nested_loops(
    lefts: list[tuple[int, int]], rights: list[tuple[int, int]], lower: int, width: int
) -> None:
    upper = lower + width
    expected = [(key, (a, b)) for key, a in lefts for other, b in rights if key == other and lower <= b - a <= upper]
    with TestPipeline() as pipeline:
        left = pipeline | "left" >> tg.Create(stamped(lefts))
        right = pipeline | "right" >> tg.Create(stamped(rights))
        assert_that(left | tg.IntervalJoin(right, lower, upper), equal_to(expected))


def test_an_interval_join_uses_the_later_timestamp_and_drops_late_elements() -> None:
    with TestPipeline() as pipeline:
        streams = pipeline | (
            TestStream()
            .with_outputs("right", main="left")
            .add_elements([tg.TimestampedValue(("k", "l"), 10)], tag="left")
            .add_elements([tg.TimestampedValue(("k", "near"), 12)], tag="right")
            .advance_watermark_to(20, tag="left")
            .advance_watermark_to(20, tag="right")
            .add_elements([tg.TimestampedValue(("k", "too late to meet"), 11)], tag="right")
        )
        recorder = PaneRecorder()
        _ = streams.left | tg.IntervalJoin(streams.right, within=5) | recorder
    assert [(r.value, r.timestamp) for r in recorder.records()] == [(("k", ("l", "near")), tg.Timestamp(12))]


def test_duplicates_within_the_duration_are_dropped_in_event_time() -> None:
    with TestPipeline() as pipeline:
        stream = pipeline | (
            TestStream()
            .add_elements([tg.TimestampedValue("a", 1), tg.TimestampedValue("a", 2), tg.TimestampedValue("b", 2)])
            .advance_watermark_to(8)
            .add_elements([tg.TimestampedValue("a", 9)])
        )
        assert_that(stream | tg.Deduplicate(5), equal_to(["a", "b", "a"]))


def test_duplicates_of_a_key_are_dropped_in_processing_time() -> None:
    with TestPipeline() as pipeline:
        stream = pipeline | (
            TestStream()
            .add_elements([("a", 1), ("a", 2)])
            .advance_processing_time(5)
            .add_elements([("a", 3), ("b", 4)])
        )
        assert_that(stream | tg.DeduplicatePerKey(5, "processing"), equal_to([("a", 1), ("a", 3), ("b", 4)]))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers()), max_size=30), st.integers(1, 5))
@settings(max_examples=30)
def test_batches_have_the_given_size_and_contain_all_values(pairs: list[tuple[int, int]], size: int) -> None:
    by_key: dict[int, list[int]] = {}
    for key, value in pairs:
        by_key.setdefault(key, []).append(value)
    expected = [(k, vs[start : start + size]) for k, vs in by_key.items() for start in range(0, len(vs), size)]
    with TestPipeline() as pipeline:
        assert_that(pipeline | tg.Create(pairs) | tg.GroupIntoBatches(size), equal_to(expected))


def test_batches_are_limited_in_bytes_and_by_the_waiting_time_of_the_first_value() -> None:
    with TestPipeline() as pipeline:
        pairs = pipeline | tg.Create([("k", "aaa"), ("k", "bbb"), ("k", "cc"), ("k", "dddddddd"), ("k", "e")])
        batches = pairs | tg.GroupIntoBatches(batch_size_bytes=6)
        assert_that(batches, equal_to([("k", ["aaa", "bbb"]), ("k", ["cc"]), ("k", ["dddddddd"]), ("k", ["e"])]))
    with TestPipeline() as pipeline:
        stream = pipeline | (
            TestStream().add_elements([("k", 1), ("k", 2)]).advance_processing_time(10).add_elements([("k", 3)])
        )
        waited = stream | tg.GroupIntoBatches(100, max_buffering_duration=10)
        assert_that(waited, equal_to([("k", [1, 2]), ("k", [3])]))


def test_elements_wait_until_their_window_has_closed_in_the_signal() -> None:
    with TestPipeline() as pipeline:
        streams = pipeline | (
            TestStream()
            .with_outputs("signal", main="main")
            .add_elements([tg.TimestampedValue("early", 1)], tag="main")
            .advance_watermark_to(30, tag="main")
            .advance_watermark_to(10, tag="signal")
        )
        ten = tg.FixedWindows(10)
        waiting = streams.main | "mw" >> tg.WindowInto(ten) | tg.WaitOn(streams.signal | "sw" >> tg.WindowInto(ten))
        assert_that(waiting, equal_to(["early"]))


def test_reify_adds_timestamp_window_and_pane_to_the_element() -> None:
    with TestPipeline() as pipeline:
        pairs = pipeline | tg.Create([tg.TimestampedValue(("k", 1), 5)]) | tg.WindowInto(tg.FixedWindows(10))
        timestamp, window = tg.Timestamp(5), tg.IntervalWindow(0, 10)
        pane = tg.PaneInfo(True, True, tg.Timing.UNKNOWN, 0, 0)
        assert_that(pairs | tg.Reify.Timestamp(), equal_to([(("k", 1), timestamp)]), label="timestamp")
        assert_that(pairs | tg.Reify.Window(), equal_to([(("k", 1), timestamp, window, pane)]), label="window")
        assert_that(pairs | tg.Reify.TimestampInValue(), equal_to([("k", (1, timestamp))]), label="in value")
        assert_that(
            pairs | tg.Reify.WindowInValue(), equal_to([("k", (1, timestamp, window, pane))]), label="window in value"
        )


def test_a_periodic_impulse_emits_one_element_per_interval() -> None:
    pipeline = TestPipeline(runner=DirectRunner(clock=ManualClock(5_000_000)))
    impulses = pipeline | tg.PeriodicImpulse(2, start=0, stop=11, apply_windowing=True)
    recorder = PaneRecorder()
    _ = impulses | recorder
    pipeline.run()
    assert [r.value.seconds() for r in recorder.records()] == [0, 2, 4, 6, 8, 10]
    assert all(r.window.start == r.value == r.timestamp for r in recorder.records())


def test_a_periodic_sequence_in_a_stream_is_emitted_when_due_and_holds_the_watermark() -> None:
    with TestPipeline() as pipeline:
        stream = pipeline | (
            TestStream()
            .add_elements([(0, 7, 2)])
            .advance_watermark_to(100)
            .advance_processing_time(3)
            .advance_processing_time(10)
        )
        counted = (
            stream
            | tg.PeriodicSequence()
            | tg.WindowInto(tg.FixedWindows(4))
            | tg.Map(lambda at: ("ticks", at.seconds()))
            | tg.GroupByKey()
        )
        assert_that(counted, equal_to([("ticks", [0.0, 2.0]), ("ticks", [4.0, 6.0])]))


def test_a_periodic_sequence_of_bounded_input_is_emitted_immediately() -> None:
    with TestPipeline() as pipeline:
        ticks = pipeline | tg.Create([(0, 3, 1), (10, 11, 0.5)]) | tg.PeriodicSequence()
        assert_that(ticks | tg.Map(lambda at: at.seconds()), equal_to([0.0, 1.0, 2.0, 10.0, 10.5]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tg.GroupIntoBatches(), "needs batch_size"),
        (lambda: tg.GroupIntoBatches(0), "must be at least 1"),
        (lambda: tg.Deduplicate(0), "must be positive"),
        (lambda: tg.DeduplicatePerKey(1, "wall"), "'event' or 'processing'"),
        (lambda: tg.PeriodicImpulse(0), "must be positive"),
        (lambda: tg.WaitOn(), "at least one"),
        (lambda: tg.IntervalJoin(None, 1), "needs lower and upper"),
        (lambda: tg.IntervalJoin(None, 2, 1), "must not be above"),
        (lambda: tg.IntervalJoin(None, 1, 2, within=3), "not both"),
    ],
)
def test_invalid_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=message):
        make()


def test_equal_elements_of_different_windows_are_not_duplicates() -> None:
    with TestPipeline() as pipeline:
        stamped_words = pipeline | tg.Create([tg.TimestampedValue("a", at) for at in (1, 2, 11)])
        first = stamped_words | tg.WindowInto(tg.FixedWindows(10)) | tg.Deduplicate(100)
        assert_that(first, lambda found: _assert(Counter(found) == Counter({"a": 2}), found))


def _assert(condition: bool, found: Any) -> None:
    assert condition, found
