"""SEMANTICS, Evictors. The table of corner cases has the elements that each one leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

import tidegate as tg
from tests.support.stream_scripts import Watermark, panes_of_script, run_script, to_test_stream
from tidegate.testing import TestPipeline, assert_that, equal_to, late, on_time

TEN = tg.FixedWindows(10)


class Spy(tg.Evictor):
    """Evicts nothing, and fails unless its input is what the contract specifies."""

    def keep(self, elements: Sequence[tuple[Any, tg.Timestamp]]) -> Iterable[int]:
        assert elements == [("b", tg.Timestamp(7)), ("a", tg.Timestamp(3))]
        return range(len(elements))


class Broken(tg.Evictor):
    def __init__(self, positions: list[Any]) -> None:
        self.positions = positions

    def keep(self, elements: Sequence[tuple[Any, tg.Timestamp]]) -> Iterable[int]:
        return self.positions if self.positions else [1 // 0]


def test_elements_are_offered_in_arrival_order_with_their_timestamps(stream_runner: str) -> None:
    found = panes_of_script(stream_runner, [("b", 7), ("a", 3), Watermark(10)], tg.WindowInto(TEN, evictor=Spy()))
    assert found == [on_time(["b", "a"])]


@pytest.mark.parametrize("positions", [[], [5], [-1], ["x"]], ids=["raises", "beyond", "before", "no number"])
def test_an_error_in_an_evictor_names_the_step_and_the_key(stream_runner: str, positions: list[Any]) -> None:
    with pytest.raises(tg.UserCodeError) as caught:
        run_script(stream_runner, [("a", 1, "the key"), Watermark(10)], tg.WindowInto(TEN, evictor=Broken(positions)))
    assert caught.value.step == "GroupByKey"
    assert "the key" in str(caught.value)


def test_each_key_and_window_evicts_by_itself(stream_runner: str) -> None:
    script = [(1, 1, "x"), (2, 2, "y"), (3, 3, "x"), (4, 12, "x"), Watermark(20)]
    ran = run_script(stream_runner, script, tg.WindowInto(TEN, evictor=tg.KeepLast(1)))
    assert ran.panes == {"x": [on_time([3], (0, 10)), on_time([4], (10, 20))], "y": [on_time([2])]}


def test_a_combiner_with_an_evictor_is_not_combined_before(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, evictor=tg.KeepLast(1, when="after"), allowed_lateness=100)
    script = [(1, 1), (2, 2), Watermark(10), (10, 3), Watermark(11)]
    assert panes_of_script(stream_runner, script, into, tg.CombinePerKey(sum)) == [
        on_time(3, index=0),
        late(12, index=1),
    ]


def test_an_evictor_of_a_cogroup_sees_values_without_their_collections_mark(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, evictor=tg.KeepWithinDelta(3, lambda value, last: abs(value - last)))
    with TestPipeline(stream_runner) as pipeline:
        windowed = pipeline | to_test_stream([(1, 1), (5, 2), (6, 3), Watermark(10)]) | into
        odd = windowed | "odd" >> tg.Filter(lambda pair: pair[1] % 2 == 1)
        even = windowed | "even" >> tg.Filter(lambda pair: pair[1] % 2 == 0)
        assert_that((odd, even) | tg.CoGroupByKey(), equal_to([on_time(("k", ([5], [6])))]), panes=True)


def test_the_papers_example_evaluates_the_last_few_of_many(runner: str) -> None:
    into = tg.WindowInto(
        tg.GlobalWindows(), tg.Repeatedly(tg.AfterCount(1000)), evictor=tg.KeepLast(100), accumulation=tg.ACCUMULATING
    )
    with TestPipeline(runner) as pipeline:
        events = pipeline | tg.Create([tg.TimestampedValue(("k", n), n) for n in range(2000)])
        sums = events | into | tg.CombinePerKey(sum)
        assert_that(sums, equal_to([("k", sum(range(900, 1000))), ("k", sum(range(1900, 2000)))]))
