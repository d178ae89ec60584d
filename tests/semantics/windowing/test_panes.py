"""SEMANTICS, Panes: the pane info of each firing, and the output watermark after it."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.support.stream_scripts import INFINITY, Watermark, run_script, to_test_stream
from tidegate.testing import (
    PaneRecorder,
    TestPipeline,
    assert_that,
    each,
    early,
    equal_to,
    fired,
    late,
    on_time,
)

TEN = tg.FixedWindows(10)
BOTH = tg.AfterWatermark(early=tg.AfterCount(1), late=tg.AfterCount(1))
UNTOUCHED = tg.PaneInfo(True, True, tg.Timing.UNKNOWN, 0, 0)


def test_elements_no_grouping_has_touched_carry_the_only_unknown_pane(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        windowed = pipeline | tg.Create([1, 2]) | tg.WindowInto(TEN) | tg.Map(str)
        assert_that(windowed, each(lambda record: record.pane == UNTOUCHED), panes=True)


def test_a_bounded_window_has_one_pane_on_time_first_and_last(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        grouped = pipeline | tg.Create([("k", 1)]) | tg.GroupByKey()
        only = tg.PaneInfo(True, True, tg.Timing.ON_TIME, 0, 0)
        assert_that(grouped, each(lambda record: record.pane == only), panes=True)


def test_element_wise_steps_keep_the_pane(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, BOTH, accumulation=tg.DISCARDING)
    ran = run_script(
        stream_runner,
        [("a", 1), Watermark(10)],
        into,
        then=lambda out: out | tg.Filter(bool) | tg.Map(lambda pair: (pair[0], len(pair[1]))),
    )
    assert ran.of_key == [early(1, index=0), on_time(0, index=1)]


def test_indices_are_of_one_key_and_window(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, tg.Repeatedly(tg.AfterCount(1)), accumulation=tg.DISCARDING)
    ran = run_script(stream_runner, [(1, 1, "x"), (2, 2, "x"), (3, 3, "y"), (4, 11, "x"), INFINITY], into)
    assert ran.panes == {
        "x": [early([1], (0, 10), 0), early([2], (0, 10), 1), early([4], (10, 20), 0)],
        "y": [early([3], (0, 10), 0)],
    }


@pytest.mark.parametrize(
    ("accumulation", "expected"),
    [
        (tg.DISCARDING, [[1], [2], [3], [4]]),
        (tg.ACCUMULATING, [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]]),
    ],
)
def test_discarding_panes_contain_new_elements_and_accumulating_panes_all(
    stream_runner: str, accumulation: object, expected: list[list[int]]
) -> None:
    into = tg.WindowInto(TEN, tg.Repeatedly(tg.AfterCount(1)), accumulation=accumulation)
    ran = run_script(stream_runner, [(n, n) for n in (1, 2, 3, 4)], into)
    assert [record.value for record in ran.of_key] == expected


def test_results_are_emitted_before_the_watermark_that_caused_them(stream_runner: str) -> None:
    # In the same windows downstream they are on time, not late.
    again = "again" >> tg.WindowInto(TEN)
    ran = run_script(
        stream_runner,
        [("a", 1), Watermark(10), ("b", 11), Watermark(20)],
        tg.WindowInto(TEN),
        then=lambda out: out | again | "group" >> tg.GroupByKey(),
    )
    assert ran.of_key == [on_time([["a"]], (0, 10)), on_time([["b"]], (10, 20))]


def test_a_pending_earliest_timestamp_holds_the_output_watermark(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, timestamp_combiner=tg.TimestampCombiner.EARLIEST)
    seconds = "seconds" >> tg.WindowInto(tg.FixedWindows(1))
    ran = run_script(
        stream_runner,
        [("a", 3), ("b", 7), Watermark(9), Watermark(10)],
        into,
        then=lambda out: out | seconds | "group" >> tg.GroupByKey(),
    )
    assert ran.of_key == [on_time([["a", "b"]], (3, 4))]
    assert ran.counted("dropped_late") == 0


def test_an_end_of_window_stamp_holds_the_output_watermark_only_at_the_end(stream_runner: str) -> None:
    seconds = "seconds" >> tg.WindowInto(tg.FixedWindows(1))
    ran = run_script(
        stream_runner,
        [("a", 3), Watermark(10)],
        tg.WindowInto(TEN),
        then=lambda out: out | seconds | "group" >> tg.GroupByKey(),
    )
    assert ran.of_key == [on_time([["a"]], (9, 10))]


def test_late_elements_do_not_hold_the_watermark_so_a_late_pane_may_be_late_downstream(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, None, accumulation=tg.DISCARDING, allowed_lateness=100)
    strict = "strict" >> tg.WindowInto(TEN, allowed_lateness=0)
    ran = run_script(
        stream_runner,
        [("a", 1), Watermark(10), ("b", 2), Watermark(11)],
        into,
        then=lambda out: out | strict | "group" >> tg.GroupByKey(),
    )
    assert ran.of_key == [on_time([["a"]], (0, 10))]
    assert ran.counted("dropped_late") == 1


def test_a_late_element_that_waits_does_not_hold_the_output_watermark(stream_runner: str) -> None:
    into = tg.WindowInto(
        TEN, tg.AfterWatermark(late=tg.AfterCount(2)), accumulation=tg.DISCARDING, allowed_lateness=100
    )
    strict = "strict" >> tg.WindowInto(TEN, allowed_lateness=0)
    ran = run_script(
        stream_runner,
        # "b" waits for another late element while the watermark advances: "c" and "d" are late downstream.
        [("a", 1), Watermark(10), ("b", 2), ("x", 11), Watermark(20), ("c", 12), ("d", 13), Watermark(40)],
        into,
        then=lambda out: out | strict | "group" >> tg.GroupByKey(),
    )
    assert ran.of_key == [on_time([["a"]], (0, 10)), on_time([["x"]], (10, 20))]
    assert ran.counted("dropped_late") == 2


def test_early_and_on_time_panes_are_never_behind_the_output_watermark(stream_runner: str) -> None:
    into = tg.WindowInto(
        tg.FixedWindows(100), BOTH, accumulation=tg.ACCUMULATING, timestamp_combiner=tg.TimestampCombiner.EARLIEST
    )
    seconds = "seconds" >> tg.WindowInto(tg.FixedWindows(1), accumulation=tg.DISCARDING)
    script = [("a", 3), Watermark(5), ("b", 7), Watermark(8), ("c", 9), ("d", 2), Watermark(100)]
    ran = run_script(stream_runner, script, into, then=lambda out: out | seconds | "group" >> tg.GroupByKey())
    assert ran.counted("dropped_late") == 0


def test_panes_are_seen_by_a_dofn(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        into = tg.WindowInto(TEN, BOTH, accumulation=tg.DISCARDING, allowed_lateness=50)
        grouped = pipeline | to_test_stream([("a", 1), Watermark(10), ("b", 2)]) | into | tg.GroupByKey()
        timings = grouped | tg.Map(lambda pair, pane=tg.DoFn.PaneInfoParam: pane.timing.name)
        assert_that(timings, equal_to(["EARLY", "ON_TIME", "LATE"]))


def test_a_run_gives_the_same_panes_wherever_blocks_end(stream_runner: str) -> None:
    into = tg.WindowInto(tg.Sessions(5), BOTH, accumulation=tg.ACCUMULATING, allowed_lateness=20)
    script = [(n, t) for n, t in enumerate([1, 9, 4, 3, 30, 28, 2, 33])] + [
        Watermark(12),
        (8, 6),
        (9, 13),
        Watermark(40),
        (10, 31),
    ]
    apart = run_script(stream_runner, script, into)
    together = run_script(stream_runner, script, into, together=True)
    assert together.of_key == apart.of_key
    assert apart.of_key != []


def test_a_recorded_pane_equals_the_pattern_it_prints_as(stream_runner: str) -> None:
    pipeline = TestPipeline(stream_runner)
    recorder = PaneRecorder()
    _ = pipeline | to_test_stream([("a", 1), Watermark(10)]) | tg.WindowInto(TEN) | tg.GroupByKey() | recorder
    pipeline.run()
    [record] = recorder.records()
    assert repr(record) == "fired(('k', ['a']), window=(0, 10), timing='on_time', index=0, is_last=True)"
    assert record == eval(repr(record), {"fired": fired})
    assert record != late(("k", ["a"]))
