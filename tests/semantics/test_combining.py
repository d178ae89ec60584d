"""SEMANTICS, Combining."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import tidegate as tg
from tests.support.stream_scripts import AdvanceClock, Watermark, panes_of_script, to_test_stream
from tidegate.testing import PaneRecorder, TestPipeline, assert_that, early, equal_to, is_empty, is_not_empty, on_time

TEN = tg.FixedWindows(10)
PAIRS = [("a", 3), ("b", 1), ("a", 5), ("a", 4)]


class Mean(tg.CombineFn[float, tuple[float, int], float]):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add_input(self, accumulator: tuple[float, int], value: float) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def merge_accumulators(self, accumulators: Iterable[tuple[float, int]]) -> tuple[float, int]:
        totals, counts = zip(*accumulators, strict=True)
        return sum(totals), sum(counts)

    def extract_output(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1] if accumulator[1] else float("nan")


def spread(values: Iterable[int]) -> int:
    """Returns wrong results if it is ever applied to its own results."""
    found = list(values)
    return 100 * len(found) + max(found) - min(found)


@pytest.mark.parametrize(
    ("combiner", "expected"),
    [
        (sum, 12),
        (min, 3),
        (max, 5),
        (len, 3),
        (any, True),
        (all, True),
        (set, {3, 4, 5}),
        (Mean(), 4.0),
        (spread, 302),
        (tg.associative(lambda values: max(values)), 5),
    ],
    ids=["sum", "min", "max", "len", "any", "all", "set", "CombineFn", "plain", "associative"],
)
def test_combiners_give_one_result_per_key(runner: str, combiner: Any, expected: Any) -> None:
    with TestPipeline(runner) as pipeline:
        combined = pipeline | tg.Create(PAIRS) | tg.CombinePerKey(combiner)
        assert_that(combined | tg.Filter(lambda pair: pair[0] == "a"), equal_to([("a", expected)]))


@pytest.mark.parametrize("combiner", [list, tuple], ids=["list", "tuple"])
def test_list_and_tuple_collect_all_values(runner: str, combiner: Any) -> None:
    with TestPipeline(runner) as pipeline:
        combined = pipeline | tg.Create(PAIRS) | tg.CombinePerKey(combiner)
        kept = combined | tg.MapTuple(lambda key, values: (key, type(values).__name__, sorted(values)))
        assert_that(kept, equal_to([("a", combiner.__name__, [3, 4, 5]), ("b", combiner.__name__, [1])]))


def test_a_plain_callable_is_called_once_per_pane_with_all_values(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, tg.Repeatedly(tg.AfterCount(2)), accumulation=tg.ACCUMULATING)
    found = panes_of_script(
        stream_runner, [(1, 1), (2, 2), (7, 3), (4, 4), Watermark(10)], into, tg.CombinePerKey(spread)
    )
    assert found == [early(201, index=0), early(406, index=1)]


def test_a_combine_fn_under_panes(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, tg.AfterWatermark(early=tg.AfterCount(2)), accumulation=tg.ACCUMULATING)
    found = panes_of_script(stream_runner, [(1, 1), (2, 2), (6, 3), Watermark(10)], into, tg.CombinePerKey(Mean()))
    assert found == [early(1.5, index=0), on_time(3.0, index=1)]


def test_sessions_that_merge_merge_their_accumulators(stream_runner: str) -> None:
    into = tg.WindowInto(tg.Sessions(10))
    found = panes_of_script(stream_runner, [(1, 0), (2, 15), (6, 8), Watermark(100)], into, tg.CombinePerKey(Mean()))
    assert found == [on_time(3.0, (0, 25))]


def test_a_processing_time_trigger_combines_the_elements_so_far(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, tg.Repeatedly(tg.AfterProcessingTime(1)), accumulation=tg.DISCARDING)
    found = panes_of_script(
        stream_runner, [(1, 1), (2, 2), AdvanceClock(1), (3, 3), Watermark(10)], into, tg.CombinePerKey(sum)
    )
    assert found == [early(3), on_time(3)]


@pytest.mark.parametrize(("combiner", "nothing"), [(sum, 0), (len, 0), (any, False), (all, True), (list, [])])
def test_combine_globally_gives_its_default_for_empty_bounded_input(runner: str, combiner: Any, nothing: Any) -> None:
    with TestPipeline(runner) as pipeline:
        empty = pipeline | tg.Create([1]) | tg.Filter(lambda n: False)
        assert_that(empty | tg.CombineGlobally(combiner), equal_to([nothing]))
        assert_that(empty | "none" >> tg.CombineGlobally(combiner).without_defaults(), is_empty())


@pytest.mark.parametrize("where", ["windows", "unbounded"])
def test_combine_globally_must_do_without_defaults_elsewhere(where: str) -> None:
    pipeline = TestPipeline()
    source = (
        pipeline | tg.Create([1]) | tg.WindowInto(TEN) if where == "windows" else pipeline | to_test_stream([(1, 1)])
    )
    with pytest.raises(tg.BuildError, match=r"without_defaults\(\)"):
        _ = source | tg.CombineGlobally(sum)


def test_combine_globally_gives_one_result_per_window(stream_runner: str) -> None:
    with TestPipeline(stream_runner) as pipeline:
        numbers = pipeline | to_test_stream([(1, 1), (2, 11), (4, 12)]) | tg.Map(lambda pair: pair[1])
        sums = numbers | tg.WindowInto(TEN) | tg.CombineGlobally(sum).without_defaults()
        assert_that(sums, equal_to([on_time(1, (0, 10)), on_time(6, (10, 20))]), panes=True)


class Liar(Mean):
    """Merges wrongly, which a run in one go never shows."""

    def merge_accumulators(self, accumulators: Iterable[tuple[float, int]]) -> tuple[float, int]:
        return next(iter(accumulators))


def test_checks_report_a_combine_fn_whose_parts_do_not_add_up() -> None:
    with pytest.raises(tg.CheckError, match="parts"), TestPipeline("direct", {"checks": "all"}) as pipeline:
        assert_that(pipeline | tg.Create(PAIRS) | tg.CombinePerKey(Liar()), is_not_empty())


def timed(times: Iterable[int]) -> list[Any]:
    return [tg.TimestampedValue(("a", t), t) for t in times]


GROUPED: dict[str, Any] = {
    "sessions": tg.WindowInto(tg.Sessions(5)),
    "sessions with lateness": tg.WindowInto(
        tg.Sessions(5), trigger=tg.DefaultTrigger(), accumulation=tg.ACCUMULATING, allowed_lateness=5
    ),
    "a data-driven trigger": tg.WindowInto(
        tg.GlobalWindows(), trigger=tg.Repeatedly(tg.AfterCount(2)), accumulation=tg.ACCUMULATING
    ),
    "an evictor": tg.WindowInto(
        tg.GlobalWindows(),
        trigger=tg.Repeatedly(tg.AfterCount(2)),
        evictor=tg.KeepLast(2),
        accumulation=tg.DISCARDING,
    ),
}


@pytest.mark.parametrize("mode", ["batch", "streaming"])
@pytest.mark.parametrize("windows", GROUPED.values(), ids=GROUPED)
def test_checks_try_other_groupings_whatever_the_windows(windows: Any, mode: str) -> None:
    pipeline = TestPipeline("direct", {"checks": "all", "mode": mode})
    _ = pipeline | tg.Create(timed([1, 2])) | windows | "add up" >> tg.CombinePerKey(Liar()) | tg.Map(str)
    with pytest.raises(tg.CheckError, match=r"(?s)Liar returns 1.5 for 2 inputs.* 2 parts.*key: 'a'.*in step 'add up'"):
        pipeline.run()


@pytest.mark.parametrize("mode", ["batch", "streaming"])
@pytest.mark.parametrize("windows", GROUPED.values(), ids=GROUPED)
def test_checks_change_no_result(windows: Any, mode: str) -> None:
    def panes(checks: str) -> Any:
        pipeline, recorder = TestPipeline("direct", {"checks": checks, "mode": mode}), PaneRecorder()
        elements = timed([1, 2, 4, 20, 3, 12, 8, 7, 21])
        _ = pipeline | tg.Create(elements) | windows | tg.CombinePerKey(Mean()) | recorder
        pipeline.run()
        return recorder.per_key()

    assert panes("all") == panes("sample")


def test_checks_try_a_combine_fn_with_arguments() -> None:
    class Shifted(tg.CombineFn[int, int, int]):
        """Adds the shift for every part."""

        def create_accumulator(self, by: int) -> int:
            return by

        def add_input(self, accumulator: int, element: int, by: int) -> int:
            return accumulator + element

        def merge_accumulators(self, accumulators: Iterable[int], by: int) -> int:
            return sum(accumulators)

        def compact(self, accumulator: int, by: int) -> int:
            return accumulator

        def extract_output(self, accumulator: int, by: int) -> int:
            return accumulator

    for windows in (tg.GlobalWindows(), tg.Sessions(5)):
        pipeline = TestPipeline("direct", {"checks": "all"})
        _ = pipeline | tg.Create(timed([1, 2])) | tg.WindowInto(windows) | tg.CombinePerKey(Shifted(), 10) | tg.Map(str)
        with pytest.raises(tg.CheckError, match="Shifted returns 13 for 2 inputs"):
            pipeline.run()


def test_an_error_in_a_trial_names_the_method() -> None:
    class Unmerged(Mean):
        def merge_accumulators(self, accumulators: Iterable[tuple[float, int]]) -> tuple[float, int]:
            raise ZeroDivisionError("never merged")

    for windows in (tg.GlobalWindows(), tg.Sessions(5)):
        pipeline = TestPipeline("direct", {"checks": "all"})
        _ = pipeline | tg.Create(timed([1, 2])) | tg.WindowInto(windows) | tg.CombinePerKey(Unmerged()) | tg.Map(str)
        with pytest.raises(tg.UserCodeError, match=r"(?s)never merged.*Unmerged\.merge_accumulators"):
            pipeline.run()


class Weighted(tg.CombineFn[int, int, int]):
    """A combiner with an argument and without a `compact`."""

    def create_accumulator(self, weight: int) -> int:
        return 0

    def add_input(self, accumulator: int, element: int, weight: int) -> int:
        return accumulator + element * weight

    def merge_accumulators(self, accumulators: Iterable[int], weight: int) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int, weight: int) -> int:
        return accumulator


def test_a_combiner_with_an_argument_needs_no_compact(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        pairs = pipeline | tg.Create([("a", 1), ("a", 2), ("b", 3)])
        assert_that(pairs | tg.CombinePerKey(Weighted(), 3), equal_to([("a", 9), ("b", 9)]))


class Widest(tg.CombineFn[Any, list[Any], Any]):
    """A combiner of the author's that has no result for no input."""

    has_identity = False

    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], value: Any) -> list[Any]:
        return [*accumulator, value]

    def merge_accumulators(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        return [value for accumulator in accumulators for value in accumulator]

    def extract_output(self, accumulator: list[Any]) -> Any:
        return max(accumulator) - min(accumulator)


@pytest.mark.parametrize(
    ("combiner", "empty"),
    [
        (max, []),
        (min, []),
        (spread, []),
        (tg.associative(lambda values: max(values)), []),
        ((sum, max), []),
        (Widest(), []),
        (sum, [0]),
        (len, [0]),
        (list, [[]]),
        ((sum, len), [(0, 0)]),
    ],
    ids=["max", "min", "plain", "associative", "tuple", "CombineFn", "sum", "len", "list", "tuple with identity"],
)
@pytest.mark.parametrize("as_values", [False, True], ids=["CombinePerKey", "GroupByKey and CombineValues"])
def test_an_empty_on_time_pane_emits_the_result_of_no_input_or_is_skipped(
    stream_runner: str, combiner: Any, empty: list[Any], as_values: bool
) -> None:
    into = tg.WindowInto(TEN, tg.AfterWatermark(early=tg.AfterCount(1)), accumulation=tg.DISCARDING)
    pipeline = TestPipeline(stream_runner)
    windowed = pipeline | to_test_stream([(3, 1), Watermark(10)]) | into
    combined: Any = (
        windowed | tg.GroupByKey() | tg.CombineValues(combiner) if as_values else windowed | tg.CombinePerKey(combiner)
    )
    recorder = PaneRecorder()
    _ = combined | recorder
    pipeline.run()
    found = [(record.timing.value, record.value[1]) for record in recorder.records()]
    assert [timing for timing, _ in found][:1] == ["early"]
    assert [value for timing, value in found if timing == "on_time"] == empty


def test_groups_that_are_made_by_hand_combine_as_others_do(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        groups = pipeline | tg.Create([("a", (3, 5)), ("b", ()), ("c", (1,))])
        assert_that(groups | tg.CombineValues(max), equal_to([("a", 5), ("c", 1)]))


def test_a_group_that_can_be_iterated_once_is_combined_whole() -> None:
    with TestPipeline("direct", {"checks": "off"}) as pipeline:
        groups = pipeline | tg.Create([("a", (3, 5)), ("b", ()), ("c", (1,))])
        once = groups | tg.MapTuple(lambda key, values: (key, (value for value in values)))
        assert_that(once | tg.CombineValues(min), equal_to([("a", 3), ("c", 1)]))
