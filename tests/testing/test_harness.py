"""The operator harness: it passes operators that keep the contract and catches each way of breaking it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.sdk.data.block import Block, DerivedFrom
from tidegate.sdk.time import SECOND
from tidegate.testing import TestStream
from tidegate.testing.harness import (
    Clock,
    Feed,
    Watermark,
    check_operator,
    feed,
    outputs,
    run_operator,
    step_operator,
)


class Sums(Operator):
    """Emits running sums, and the total at each watermark."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.total = 0

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        for value in block.values:
            self.total += value
            yield "out", Block([self.total])

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        yield "out", Block([("total", self.total)], micros)

    def on_clock(self, micros: int) -> Iterator[Emitted]:
        yield "out", Block([("clock", micros)])

    def hold(self) -> int:
        return self.total

    def snapshot(self) -> Any:
        return self.total

    def restore(self, state: Any) -> None:
        self.total = state


EVENTS = [feed([1, 2, 3]), Watermark(5), feed([4, 5]), Clock(7), feed([6])]


def test_an_operator_that_keeps_the_contract_passes() -> None:
    answers = check_operator(Sums, EVENTS)
    values = [output.value for output in outputs(answers)]
    assert values[:4] == [1, 3, 6, ("total", 6)]
    assert values[4:] == [10, 15, ("clock", 7), 21, ("total", 21)]
    assert [answer.hold for answer in answers] == [6, 6, 15, 15, 21, 21]


def test_a_run_may_stop_before_the_end_of_input() -> None:
    assert len(run_operator(Sums, EVENTS, end=False)) == len(EVENTS)


class Forgetful(Sums):
    def snapshot(self) -> Any:
        return 0


class ForgetsToRestore(Sums):
    def restore(self, state: Any) -> None:
        pass


class SharesItsState(Sums):
    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.totals = [0]

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        for value in block.values:
            self.totals[0] += value
            yield "out", Block([self.totals[0]])

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        yield "out", Block([self.totals[0]])

    def snapshot(self) -> Any:
        return self.totals

    def restore(self, state: Any) -> None:
        self.totals = state


class Unpicklable(Sums):
    def snapshot(self) -> Any:
        return lambda: 0


class DependsOnBlocks(Sums):
    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        yield "out", Block([sum(block.values)])


class EmitsLargeBlocks(Sums):
    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        yield "out", Block([1, 2, 3, 4, 5])


class SharesStateBetweenInstances(Sums):
    values_seen: list[int] = []  # noqa: RUF012

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self.values_seen.clear()
        for value in block.values:
            self.values_seen.append(value)
            yield "out", Block([len(self.values_seen)])


class ForgetsWhenSuspended(Sums):
    """Returns another hold after its iterator has been left suspended."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.calls = 0

    def hold(self) -> int:
        self.calls += 1
        return self.calls if self.calls < 2 else 7

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        for value in block.values:
            yield "out", Block([value])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (Forgetful, "restored after 1 of 5 events"),
        (ForgetsToRestore, "restored after 1 of 5 events"),
        (SharesItsState, "from a snapshot in memory"),
        (Unpicklable, "the snapshot can't be pickled"),
        (DependsOnBlocks, r"with blocks cut as \[\[.*\]\]"),
        (EmitsLargeBlocks, "emitted a block of 5"),
        (SharesStateBetweenInstances, "nearly always full"),
        (ForgetsWhenSuspended, "the hold is"),
    ],
)
def test_an_operator_that_breaks_the_contract_is_caught(make: Any, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        check_operator(make, EVENTS)


def test_a_failure_names_the_event_and_the_output() -> None:
    with pytest.raises(AssertionError) as caught:
        check_operator(Forgetful, EVENTS)
    text = str(caught.value)
    assert "at Watermark(micros=5) (number 1)" in text or "at Feed([4, 5])" in text
    assert "output 1 is Output(" in text
    assert "instead of Output(" in text


def test_long_scripts_are_cut_into_a_sample_of_block_sizes() -> None:
    check_operator(Sums, [feed(list(range(40))), Watermark(5), feed(list(range(30)))])
    with pytest.raises(AssertionError, match="with blocks cut as"):
        check_operator(DependsOnBlocks, [feed(list(range(40)))])


# ---- the engine's own operators


def check(transform: Any, label: str, into: Any = None) -> list[Any]:
    """Check the operator that ends in the node `label` on the script, windowed by `into`; return its output."""
    pipeline = tg.Pipeline()
    stream = pipeline | TestStream().add_elements([("k", 1)])
    windowed = stream if into is None else stream | into
    _ = windowed | transform | tg.Map(str)
    windows = DerivedFrom(windowed.windowing.assigner)
    events = [windowed_by(windows, event) if isinstance(event, Feed) else event for event in SCRIPT]
    return outputs(check_operator(step_operator(pipeline, label), events))


def windowed_by(windows: DerivedFrom, event: Feed) -> Feed:
    return feed(event.block.values, event.block.timestamps, windows)


def pairs(*elements: tuple[Any, Any, float]) -> Feed:
    """Elements as (key, value, seconds)."""
    return feed([(key, value) for key, value, _ in elements], [round(at * SECOND) for *_, at in elements])


TEN = tg.FixedWindows(10)
BOTH = tg.AfterWatermark(early=tg.AfterCount(2), late=tg.AfterCount(1))
SCRIPT = [
    Clock(0),
    pairs(("a", 1, 1), ("b", 2, 2), ("a", 3, 12)),
    Watermark(5 * SECOND),
    pairs(("a", 4, 4), ("a", 5, 6), ("b", 6, 13)),
    Clock(30 * SECOND),
    Watermark(11 * SECOND),
    pairs(("a", 7, 3), ("b", 8, 14)),
    Watermark(60 * SECOND),
    pairs(("a", 9, 13)),
]


@pytest.mark.parametrize(
    "into",
    [
        tg.WindowInto(TEN),
        tg.WindowInto(tg.SlidingWindows(10, 5)),
        tg.WindowInto(TEN, BOTH, accumulation=tg.ACCUMULATING, allowed_lateness=100),
        tg.WindowInto(tg.Sessions(5), BOTH, accumulation=tg.DISCARDING, allowed_lateness=100),
        tg.WindowInto(TEN, tg.Repeatedly(tg.AfterProcessingTime(20)), accumulation=tg.DISCARDING),
        tg.WindowInto(TEN, evictor=tg.KeepLast(2), timestamp_combiner=tg.TimestampCombiner.EARLIEST),
        tg.WindowInto(tg.CountWindows(2)),
        tg.WindowInto(tg.Sessions(5), tg.EveryEventTime(7), accumulation=tg.DISCARDING),
    ],
    ids=lambda into: f"{type(into.assigner).__name__}-{into.parts['trigger']!r}",
)
@pytest.mark.parametrize(
    ("grouping", "label"),
    [(tg.GroupByKey(), "GroupByKey"), (tg.CombinePerKey(sum), "CombinePerKey(sum)")],
    ids=["group", "sum"],
)
def test_the_grouping_operators_keep_the_contract(into: Any, grouping: Any, label: str) -> None:
    assert len(check(grouping, label, into)) > 1


def test_a_chain_keeps_the_contract() -> None:
    assert len(check(tg.FlatMap(lambda pair: [pair, pair], name="twice"), "Map(str)")) == 18


class Running(tg.DoFn):
    TOTAL, TIMER = tg.CombiningStateSpec("total", sum), tg.EventTimer("timer")

    def process(
        self,
        element: Any,
        total: tg.CombiningState[int, int] = tg.DoFn.StateParam(TOTAL),
        timer: tg.Timer = tg.DoFn.TimerParam(TIMER),
        at: tg.Timestamp = tg.DoFn.TimestampParam,
    ) -> Iterator[Any]:
        total.add(element[1])
        timer.set(at + 5)
        yield element[0], total.read()

    @tg.on_timer(TIMER)
    def on_timer(
        self, key: Any = tg.DoFn.KeyParam, total: tg.CombiningState[int, int] = tg.DoFn.StateParam(TOTAL)
    ) -> Iterator[Any]:
        yield key, "timer", total.read()


def test_a_stateful_operator_keeps_the_contract() -> None:
    assert len(check(tg.ParDo(Running()), "ParDo(Running)")) > 9


def test_the_error_of_an_unknown_step_lists_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"Map\(str\)"):
        check(tg.GroupByKey(), "no such step", tg.WindowInto(TEN))
