"""Joins by columns, within windows or a distance of timestamps, first elements, and columns of windows."""

from __future__ import annotations

import datetime
from dataclasses import astuple, dataclass
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import PaneRecorder, TestPipeline, TestStream, assert_that, equal_to


@dataclass(frozen=True)
class Click:
    user: str | None
    page: str
    at: int


@dataclass(frozen=True)
class Order:
    user: str | None
    price: float
    at: int


CLICKS = [Click("ada", "a", 1), Click("ada", "b", 65), Click("max", "c", 2), Click(None, "d", 3)]
ORDERS = [Order("ada", 1.0, 4), Order("ada", 2.0, 61), Order("eve", 3.0, 5), Order(None, 4.0, 6)]
PAIRS = [("ada", "a", 1, 1.0, 4), ("ada", "b", 65, 2.0, 61)]
LEFT = [("max", "c", 2, None, None), (None, "d", 3, None, None)]
RIGHT = [("eve", None, None, 3.0, 5), (None, None, None, 4.0, 6)]
EXPECTED: dict[str, list[Any]] = {
    "inner": PAIRS,
    "left": PAIRS + LEFT,
    "right": PAIRS + RIGHT,
    "full": PAIRS + LEFT + RIGHT,
    "semi": [("ada", "a", 1), ("ada", "b", 65)],
    "anti": [("max", "c", 2), (None, "d", 3)],
}


def stamped(pipeline: Any, elements: list[Any]) -> Any:
    kind = type(elements[0])
    timed = tg.Map(lambda each: tg.TimestampedValue(each, each.at)).with_output_types(kind)
    return pipeline | kind.__name__ >> tg.Create(elements) | f"Time of {kind.__name__}" >> timed


def test_a_join_in_windows_of_each_kind(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        minutes = tg.WindowInto(tg.FixedWindows(60))
        clicks, orders = stamped(pipeline, CLICKS) | "1" >> minutes, stamped(pipeline, ORDERS) | "2" >> minutes
        for kind, expected in EXPECTED.items():
            joined = clicks | kind >> tg.Join.on(orders, "user", how=kind, suffix="_2")
            assert_that(joined, equal_to(expected), label=f"check {kind}")


def test_a_join_within_a_distance_of_timestamps_of_each_kind(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        clicks, orders = stamped(pipeline, CLICKS), stamped(pipeline, ORDERS)
        for kind, expected in EXPECTED.items():
            joined = clicks | kind >> tg.Join.on(orders, "user", how=kind, within=(-4, 3), suffix="_2")
            assert_that(joined, equal_to(expected), label=f"check {kind}")


@pytest.mark.parametrize("kind", ["left", "full", "anti"])
def test_on_a_stream_an_element_is_known_to_have_no_partner_when_the_watermark_says_so(
    stream_runner: str, kind: str
) -> None:
    pipeline = TestPipeline(stream_runner)

    def at(element: Any) -> Any:
        return tg.TimestampedValue(element, element.at)

    clicks = TestStream().add_elements([at(Click("max", "c", 2)), at(Click("ada", "a", 3))]).advance_watermark_to(20)
    clicks = clicks.add_elements([at(Click("ada", "b", 21))]).advance_watermark_to_infinity()
    left = pipeline | "clicks" >> clicks.with_output_types(Click)
    right = stamped(pipeline, [Order("ada", 1.0, 8)])
    recorder = PaneRecorder("joined")
    _ = left | tg.Join.on(right, "user", how=kind, within=(0, 5), suffix="_2") | recorder
    pipeline.run()
    found = [(record.value, record.timestamp.micros // 10**6) for record in recorder.records()]
    alone = () if kind == "anti" else (None, None)
    expected = [(("max", "c", 2, *alone), 2), (("ada", "b", 21, *alone), 21)]
    pairs = [] if kind == "anti" else [(("ada", "a", 3, 1.0, 8), 8)]
    assert sorted(found, key=repr) == sorted(expected + pairs, key=repr)


def test_a_condition_on_both_sides_decides_which_elements_are_pairs(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        clicks, orders = stamped(pipeline, CLICKS), stamped(pipeline, ORDERS)
        later = tg.Join.on(orders, "user", how="full", where=tg.col("at_2") > tg.col("at"), suffix="_2")
        one = [("ada", "a", 1, 1.0, 4), ("ada", "a", 1, 2.0, 61), ("ada", "b", 65, None, None)]
        assert_that(clicks | later, equal_to(one + LEFT + RIGHT))


def test_the_first_elements_of_each_group_with_ties_broken_by_the_other_columns(runner: str) -> None:
    rows = [Order("a", 1.0, 3), Order("a", 2.0, 2), Order("a", 2.0, 1), Order("b", 0.5, 9), Order(None, 1.5, 4)]
    with TestPipeline(runner) as pipeline:
        orders = pipeline | tg.Create(rows)
        per = orders | "per" >> tg.TopN(2, by=tg.col("price").desc(), per="user", number="place")
        expected = [("a", 2.0, 1, 1), ("a", 2.0, 2, 2), ("b", 0.5, 9, 1), (None, 1.5, 4, 1)]
        assert_that(per, equal_to(expected), label="check per")
        users = orders | "all" >> tg.TopN(2, by=[tg.col("user").asc(nulls_first=False), "at"])
        assert_that(users, equal_to([rows[2], rows[1]]), label="check all")


def test_the_columns_of_a_window(runner: str) -> None:
    def minute(number: int) -> datetime.datetime:
        return datetime.datetime(1970, 1, 1, 0, number, tzinfo=datetime.UTC)

    with TestPipeline(runner) as pipeline:
        orders = stamped(pipeline, ORDERS) | tg.WindowInto(tg.FixedWindows(60))
        columns: dict[str, Any] = {"dear": tg.fn.count().filter(tg.col("price") > 1.5), "end": tg.fn.window_end()}
        counts = orders | tg.GroupBy().agg(**columns)
        assert_that(counts, equal_to([(2, minute(1)), (1, minute(2))]), label="check counts")
        starts = orders | tg.Filter(tg.col("user") == "ada") | tg.Select("price", tg.fn.window_start())
        assert_that(starts, equal_to([(1.0, minute(0)), (2.0, minute(1))]), label="check starts")


def test_aggregates_without_keys_have_a_row_for_no_elements(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        none = pipeline | tg.Create(ORDERS) | tg.Filter(tg.col("price") > 100)
        sums = none | tg.GroupBy().agg(n=tg.fn.count(), total=tg.fn.sum("price"))
        assert_that(sums, equal_to([(0, None)]))


def test_keys_arguments_and_conditions_read_the_window(runner: str) -> None:
    def minute(number: int) -> datetime.datetime:
        return datetime.datetime(1970, 1, 1, 0, number, tzinfo=datetime.UTC)

    start, end = tg.fn.window_start(), tg.fn.window_end()
    with TestPipeline(runner) as pipeline:
        minutes = tg.WindowInto(tg.FixedWindows(60))
        clicks, orders = stamped(pipeline, CLICKS) | "1" >> minutes, stamped(pipeline, ORDERS) | "2" >> minutes
        keyed = orders | "keyed" >> tg.GroupBy(w=start).agg(n=tg.fn.count())
        assert_that(keyed, equal_to([(minute(0), 3), (minute(1), 1)]), label="check keyed")
        latest = orders | "latest" >> tg.GroupBy().agg(end=tg.fn.max(end))
        assert_that(latest, equal_to([(minute(1),), (minute(2),)]), label="check latest")
        first = orders | "first" >> tg.TopN(1, by="at", per=start)
        assert_that(first, equal_to([ORDERS[0], ORDERS[1]]), label="check first")
        numbered = orders | "numbered" >> tg.TopN(1, by="at", per=start, number="n")
        assert_that(numbered, equal_to([(*astuple(ORDERS[k]), 1) for k in (0, 1)]), label="check numbered")
        second = start == tg.lit(minute(1))
        conditional = clicks | "where" >> tg.Join.on(orders, "user", where=second, suffix="_2")
        assert_that(conditional, equal_to([PAIRS[1]]), label="check where")
        whole = clicks | "semi" >> tg.Join.on(orders, "user", (start, start), how="semi")
        assert_that(whole, equal_to(EXPECTED["semi"]), label="check semi")


def test_a_step_that_does_not_know_the_window_is_refused() -> None:
    pipeline = TestPipeline("direct")
    orders = stamped(pipeline, ORDERS)
    windowed = orders | tg.WindowInto(tg.FixedWindows(60))
    sessions = orders | "sessions" >> tg.WindowInto(tg.Sessions(60))
    start, end = tg.fn.window_start(), tg.fn.window_end()
    latest = tg.GroupBy("user").agg(end=tg.fn.max(end))
    refused: list[tuple[Any, Any, str]] = [
        (windowed, tg.TopN(1, by=start), "an order doesn't know the window"),
        (windowed, tg.Select(a=start, b=lambda each: 1), "a Select with functions doesn't know the window"),
        (windowed, tg.Filter(start < end).with_exception_handling(), "dead letters doesn't know the window"),
        (windowed, latest.with_late_data("late"), "aggregates with late data don't know the window"),
        (sessions, latest, "windows that have yet to merge"),
        (sessions, tg.GroupBy(w=start).agg(n=tg.fn.count()), "windows that have yet to merge"),
        (sessions, tg.TopN(1, by="at", per=start), "windows that have yet to merge"),
    ]
    for number, (rows, step, message) in enumerate(refused):
        with pytest.raises(tg.BuildError, match=message):
            _ = rows | f"{number}" >> step
