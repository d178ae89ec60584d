"""Edge cases of the window operator: errors in author code, late data, clocks, blocks, minimum and maximum times."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pytest

from tests.engine.grouping.test_grouping_paths import operator
from tests.support.window_operators import (
    ASSIGNERS,
    Mean,
    Trips,
    combine,
    context,
    difference,
    group,
    micros,
    read,
    window_operator,
)
from tidegate.runners.engine.checks.contracts import Checks
from tidegate.runners.engine.operator import Context
from tidegate.sdk.authoring.combine import CombineFn
from tidegate.sdk.data.block import Block, DerivedFrom, Each, Same
from tidegate.sdk.errors import KeyEncodingError, RunError, UserCodeError
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS
from tidegate.sdk.windowing.assigners import FixedWindows, GlobalWindows, as_assigner
from tidegate.sdk.windowing.evictors import Evictor, as_evictor
from tidegate.sdk.windowing.strategy import ACCUMULATING, DISCARDING, TimestampCombiner, WindowingStrategy
from tidegate.sdk.windowing.triggers import (
    AfterCount,
    AfterDelta,
    AfterElement,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    EveryProcessingTime,
    Repeatedly,
)
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow

GLOBAL = GlobalWindows()
TEN = IntervalWindow.of_micros(0, 10)


def broken(*_: Any) -> Any:
    raise ZeroDivisionError("on purpose")


def fails_on_two(x: int) -> bool:
    return x == 2 and broken()


class BrokenEvictor(Evictor):
    def keep(self, elements: Any) -> Any:
        return [len(elements)]


class BrokenMerge(Trips):
    def merge(self, windows: Any) -> Any:
        broken()


class Broken(CombineFn[int, int, int]):
    def __init__(self, method: str) -> None:
        self.method = method

    def _fails(self, method: str) -> None:
        if method == self.method:
            broken()

    def create_accumulator(self) -> int:
        self._fails("create_accumulator")
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        self._fails("add_input")
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        self._fails("merge_accumulators")
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        self._fails("extract_output")
        return accumulator


def feed(op: Any, *elements: Any, windows: Any = None, times: Any = 0) -> list[Any]:
    """Process one block, in the global window unless `windows` are given, and return the output."""
    return list(op.process(Block(list(elements), times, windows or Same((GLOBAL_WINDOW,))), "in"))


def feed_to_the_end(op: Any, *elements: Any, windows: Any, times: Any = 0) -> None:
    feed(op, *elements, windows=windows, times=times)
    list(op.on_watermark(MAX_MICROS))


@pytest.mark.parametrize(
    ("strategy", "function"),
    [
        (
            WindowingStrategy(GLOBAL, Repeatedly(AfterElement(fails_on_two)), DISCARDING),
            "the predicate of AfterElement",
        ),
        (WindowingStrategy(GLOBAL, Repeatedly(AfterDelta(1, broken)), DISCARDING), "the delta_fn of AfterDelta"),
        (
            WindowingStrategy(GLOBAL, Repeatedly(AfterCount(2)), DISCARDING, evictor=as_evictor(BrokenEvictor())),
            "the evictor",
        ),
    ],
)
def test_an_error_in_a_trigger_or_evictor_names_the_step_the_key_and_the_element(
    strategy: WindowingStrategy, function: str
) -> None:
    op = window_operator(group(), strategy)
    with pytest.raises(UserCodeError) as raised:
        feed(op, ("a", 1), ("a", 2))
    lines = str(raised.value).split("\n")
    assert lines[1:] == [
        "  in step 'Group', applied at script.py:7",
        f"  while calling {function}",
        "  element: ('a', 2)",
        "  key: 'a'",
    ]


def test_an_error_in_an_evictor_on_a_watermark_names_the_key() -> None:
    strategy = WindowingStrategy(GLOBAL, evictor=as_evictor(BrokenEvictor()))
    op = window_operator(group(), strategy)
    feed(op, ("a", 1))
    with pytest.raises(
        UserCodeError, match=r"must give positions from 0 to 0, not 1\n.*'Group'.*\n.*evictor\n  key: 'a'"
    ):
        list(op.on_watermark(MAX_MICROS))


def test_an_error_in_the_merge_of_an_assigner_names_the_step_and_the_key() -> None:
    assigner = as_assigner(BrokenMerge())
    op = window_operator(group(), WindowingStrategy(assigner))
    windows = Each([tuple(Trips().assign(timestamp_of(5), ("a", 1)))])
    with pytest.raises(UserCodeError, match=r"ZeroDivisionError(.|\n)*the merge of the window assigner(.|\n)*key: 'a'"):
        feed(op, ("a", 1), windows=windows, times=5)


def timestamp_of(t: int) -> Any:
    from tidegate.sdk.time import Timestamp

    return Timestamp(micros=t)


@pytest.mark.parametrize("path", ["general", "sessions", "live_sessions"])
@pytest.mark.parametrize("at", ["create_accumulator", "add_input", "merge_accumulators", "extract_output"])
def test_an_error_in_a_combiner_names_its_method_and_the_key(path: Any, at: str) -> None:
    op = operator(path, combine(Broken(at)), WindowingStrategy(ASSIGNERS["sessions"]))
    with pytest.raises(UserCodeError) as raised:
        feed_to_the_end(op, ("a", 1), ("a", 2), ("a", 3), windows=DerivedFrom(ASSIGNERS["sessions"]), times=[0, 8, 4])
    assert f"while calling Broken.{at}\n" in str(raised.value)
    assert str(raised.value).endswith("key: 'a'")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("path", ["general", "sessions", "live_sessions", "ordered"])
@pytest.mark.parametrize("bad", [1, ("a", 1, 2)])
def test_an_element_that_is_not_a_pair_is_refused(path: Any, bad: Any) -> None:
    op = operator_of(path)
    with pytest.raises(RunError, match=r"takes pairs \(key, value\)(.|\n)*'Group'"):
        feed(op, ("a", 1), bad, windows=DerivedFrom(ASSIGNERS["sessions"]))


@pytest.mark.parametrize("path", ["general", "sessions", "live_sessions", "ordered"])
def test_an_unhashable_key_is_refused(path: Any) -> None:
    with pytest.raises(KeyEncodingError, match=r"list(.|\n)*'Group'"):
        feed(operator_of(path), ("a", 1), (["b"], 1), windows=DerivedFrom(ASSIGNERS["sessions"]))


@pytest.mark.parametrize("path", ["general", "sessions", "live_sessions", "ordered"])
def test_a_key_without_an_encoding_is_refused_by_the_checks(path: Any) -> None:
    ctx = Context(1 << 40, context().temp_dir, checks=Checks())
    op = operator_of(path, ctx)
    with pytest.raises(KeyEncodingError, match=r"(?i)nan(.|\n)*'Group'"):
        feed_to_the_end(op, (math.nan, 1), windows=DerivedFrom(ASSIGNERS["sessions"]))


def operator_of(path: Any, ctx: Context | None = None) -> Any:
    if path == "ordered":
        return operator("general", group(), WindowingStrategy(ASSIGNERS["sessions"]), ctx, ordered=True)
    return operator(path, group(), WindowingStrategy(ASSIGNERS["sessions"]), ctx)


# ---- late data


def test_late_data_is_emitted_to_its_output_in_the_global_window_with_its_timestamp() -> None:
    op = window_operator(group("late"), WindowingStrategy(FixedWindows(micros(10))), late="behind")
    list(op.on_watermark(12))
    emitted = feed(op, ("a", 1), ("a", 2), ("b", 3), windows=DerivedFrom(FixedWindows(micros(10))), times=[3, 13, 4])
    ((collection, block),) = emitted
    assert collection == "behind"
    assert (block.values, block.timestamps) == ([("a", 1), ("b", 3)], [3, 4])
    assert block.window_list() == [(GLOBAL_WINDOW,)] * 2
    assert not op.context.metrics.counters


def test_late_data_for_an_unused_output_is_not_counted_as_dropped() -> None:
    op = window_operator(group("late"), WindowingStrategy(FixedWindows(micros(10))))
    list(op.on_watermark(12))
    assert not feed(op, ("a", 1), windows=Same((TEN,)), times=3)
    assert not op.context.metrics.counters


def test_an_element_without_windows_is_not_late() -> None:
    op = window_operator(group(), WindowingStrategy(FixedWindows(micros(10))))
    assert not feed(op, ("a", 1), windows=Same(()), times=3)
    assert not op.context.metrics.counters
    assert not list(op.on_watermark(MAX_MICROS))


# ---- clocks


def test_without_a_clock_triggers_on_processing_time_never_fire() -> None:
    trigger = AfterWatermark(early=AfterProcessingTime(0))
    op = window_operator(combine(sum), WindowingStrategy(GLOBAL, trigger, ACCUMULATING))
    assert not feed(op, ("a", 1), ("a", 2))
    assert op.next_clock() is None
    (pane,) = read(op.on_watermark(MAX_MICROS))
    assert pane[1] == 3


def test_the_next_processing_time_with_work_to_do_is_reported() -> None:
    op = window_operator(group(), WindowingStrategy(GLOBAL, Repeatedly(AfterProcessingTime(micros(7))), DISCARDING))
    list(op.on_clock(100))
    assert op.next_clock() is None
    feed(op, ("a", 1))
    assert op.next_clock() == 107
    assert not read(op.on_clock(106))
    assert [pane[1] for pane in read(op.on_clock(107))] == [[1]]
    assert op.next_clock() is None


def test_a_clock_that_goes_back_changes_nothing() -> None:
    op = window_operator(group(), WindowingStrategy(GLOBAL, EveryProcessingTime(micros(10)), DISCARDING))
    list(op.on_clock(15))
    feed(op, ("a", 1))
    assert not list(op.on_clock(3))
    assert [pane[1] for pane in read(op.on_clock(20))] == [[1]]


def test_a_watermark_that_goes_back_changes_nothing() -> None:
    op = window_operator(group(), WindowingStrategy(FixedWindows(micros(10))))
    list(op.on_watermark(20))
    assert not list(op.on_watermark(5))
    feed(op, ("a", 1), windows=Same((TEN,)))
    assert [key.name for key in op.context.metrics.counters] == ["dropped_late"]


# ---- blocks, and the minimum and maximum of time


def test_one_block_may_fire_more_panes_than_fit_in_a_block() -> None:
    op = window_operator(
        group(), WindowingStrategy(GLOBAL, Repeatedly(AfterCount(1)), DISCARDING), context(block_size=3)
    )
    blocks = [block for _, block in feed(op, *[("a", i) for i in range(10)])]
    assert [len(block) for block in blocks] == [3, 3, 3, 1]
    assert [value for block in blocks for value in block.values] == [("a", [i]) for i in range(10)]


def test_a_window_with_more_keys_than_fit_in_a_block_fires_in_several_blocks() -> None:
    op = window_operator(combine(len), WindowingStrategy(), context(block_size=4))
    feed(op, *[(i, 0) for i in range(9)])
    assert [len(block) for _, block in op.on_watermark(MAX_MICROS)] == [4, 4, 1]


def test_panes_of_one_window_share_their_columns() -> None:
    op = window_operator(combine(len), WindowingStrategy(FixedWindows(micros(10))))
    feed(op, ("a", 1), ("b", 1), windows=Same((TEN,)))
    ((_, block),) = op.on_watermark(10)
    assert block.windows == Same((TEN,))
    assert block.timestamps == 9
    assert not isinstance(block.panes, list)


def test_expiry_saturates_at_the_maximum_timestamp() -> None:
    window = IntervalWindow.of_micros(MAX_MICROS - 10, MAX_MICROS - 2)
    op = window_operator(
        group(), WindowingStrategy(FixedWindows(micros(8)), DefaultTrigger(), allowed_lateness=micros(100))
    )
    feed(op, ("a", 1), windows=Same((window,)), times=MAX_MICROS - 9)
    assert len(read(op.on_watermark(MAX_MICROS - 1))) == 1
    assert len(read(feed(op, ("a", 2), windows=Same((window,)), times=MAX_MICROS - 9))) == 1
    assert not list(op.on_watermark(MAX_MICROS))
    assert not len(op.snapshot())


def test_expired_windows_leave_no_state() -> None:
    for assigner in (ASSIGNERS["fixed"], ASSIGNERS["sessions"]):
        strategy = WindowingStrategy(assigner, timestamp_combiner=TimestampCombiner.EARLIEST)
        op = window_operator(combine(sum), strategy)
        for t in range(0, 100, 20):
            feed(op, ("a", 1), ("b", 1), windows=DerivedFrom(assigner), times=[t, t + 1])
            list(op.on_watermark(t + 15))
        assert not len(op.snapshot())
        assert op.hold() == MAX_MICROS


def test_an_emitted_value_does_not_change_when_more_elements_arrive() -> None:
    for combiner in (None, list, set, Mean(), (list, set)):
        node = group() if combiner is None else combine(combiner)
        op = window_operator(node, WindowingStrategy(GLOBAL, Repeatedly(AfterCount(1)), ACCUMULATING))
        first = read(feed(op, ("a", 1)))
        text = repr(first)
        feed(op, ("a", 2))
        assert repr(first) == text


def test_a_snapshot_shares_nothing_mutable_with_the_operator() -> None:
    for combiner in (None, list, set, Mean(), (list, set)):
        node = group() if combiner is None else combine(combiner)
        op = window_operator(node, WindowingStrategy(GLOBAL, AfterWatermark(early=AfterCount(5)), ACCUMULATING))
        feed(op, ("a", 1), ("a", 2))
        state = op.snapshot()
        text = repr(state)
        feed(op, ("a", 3))
        assert repr(state) == text
        restored = window_operator(node, WindowingStrategy(GLOBAL, AfterWatermark(early=AfterCount(5)), ACCUMULATING))
        restored.restore(state)
        feed(restored, ("a", 3))
        assert repr(state) == text


def test_after_delta_keeps_its_reference_value_across_a_snapshot() -> None:
    strategy = WindowingStrategy(GLOBAL, Repeatedly(AfterDelta(3, difference)), DISCARDING)
    op, restored = window_operator(group(), strategy), window_operator(group(), strategy)
    feed(op, ("a", 1), ("a", 9))
    restored.restore(op.snapshot())
    assert not feed(restored, ("a", 10))
    assert [pane[1] for pane in read(feed(restored, ("a", 13)))] == [[10, 13]]


def test_an_operator_without_input_does_not_hold_the_watermark() -> None:
    op = window_operator(group(), WindowingStrategy())
    assert op.hold() == MAX_MICROS
    assert op.snapshot().watermark == MIN_MICROS
