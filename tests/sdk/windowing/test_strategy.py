from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable
from typing import Any

import pytest

from tidegate.sdk.data.panes import NO_PANE, PaneInfo, Timing
from tidegate.sdk.errors import BuildError
from tidegate.sdk.time import Duration, Timestamp
from tidegate.sdk.windowing.assigners import (
    FixedWindows,
    GlobalWindows,
    GlobalWindowsSince,
    Merged,
    Sessions,
    WindowAssigner,
)
from tidegate.sdk.windowing.evictors import KeepLast
from tidegate.sdk.windowing.presets import (
    CountWindows,
    DeltaWindows,
    LandmarkWindows,
    PunctuationWindows,
    SlidingCountWindows,
)
from tidegate.sdk.windowing.strategy import (
    ACCUMULATING,
    DISCARDING,
    GLOBAL_DEFAULT,
    TimestampCombiner,
    WindowingStrategy,
    after_grouping,
    build_strategy,
    can_fire_twice,
    compatible,
    is_global,
    together,
    why_not_side_input,
    why_not_stateful,
    why_not_unbounded_group,
)
from tidegate.sdk.windowing.triggers import (
    AfterCount,
    AfterDelta,
    AfterElement,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    EveryEventTime,
    Never,
    Repeatedly,
)
from tidegate.sdk.windowing.window import IntervalWindow


def distance(a: Any, b: Any) -> Any:
    return abs(a - b)


class Mine(WindowAssigner):
    def assign(self, timestamp: Timestamp, element: Any) -> Iterable[Any]:
        return [IntervalWindow(timestamp, timestamp + 1)]


# ---- building strategies


def test_by_default_a_window_fires_on_time_and_accumulates() -> None:
    assert build_strategy(FixedWindows(60)) == WindowingStrategy(
        FixedWindows(60), DefaultTrigger(), ACCUMULATING, Duration(0), TimestampCombiner.END_OF_WINDOW, None, "emit"
    )
    assert build_strategy(GlobalWindows()) == GLOBAL_DEFAULT


def test_the_default_trigger_may_discard() -> None:
    assert build_strategy(FixedWindows(60), accumulation=DISCARDING).accumulation is DISCARDING


def test_the_example_of_the_dataflow_paper_is_accepted() -> None:
    strategy = build_strategy(GlobalWindows(), Repeatedly(AfterCount(1000)), KeepLast(100), ACCUMULATING)
    assert strategy.evictor == KeepLast(100)


def test_window_into_inherits_only_the_lateness_unless_it_is_given() -> None:
    before = build_strategy(
        Sessions(5),
        AfterWatermark(late=AfterCount(1)),
        KeepLast(5),
        DISCARDING,
        allowed_lateness=60,
        timestamp_combiner=TimestampCombiner.EARLIEST,
    )
    assert build_strategy(FixedWindows(10), inherited=before) == build_strategy(FixedWindows(10), allowed_lateness=60)
    assert build_strategy(FixedWindows(10), allowed_lateness=5, inherited=before).allowed_lateness == Duration(5)
    assert build_strategy(FixedWindows(10), allowed_lateness=0, inherited=before).allowed_lateness == Duration(0)


# ---- refused strategies


def test_accumulation_must_be_given_if_a_trigger_can_fire_more_than_once() -> None:
    with pytest.raises(BuildError, match=r"can fire more than once per window: .*tg.DISCARDING .*tg.ACCUMULATING"):
        build_strategy(FixedWindows(60), AfterWatermark(early=AfterCount(1)))
    with pytest.raises(BuildError, match="can fire more than once"):
        build_strategy(GlobalWindows(), Repeatedly(DefaultTrigger()))
    assert build_strategy(FixedWindows(60), AfterWatermark()).accumulation is DISCARDING
    assert build_strategy(FixedWindows(60), Never()).accumulation is DISCARDING


def test_a_trigger_that_can_finish_before_the_window_expires_is_refused() -> None:
    with pytest.raises(
        BuildError, match=r"unsafe trigger: AfterCount\(n=2\) .* Use Repeatedly.*--allow_unsafe_triggers"
    ):
        build_strategy(FixedWindows(60), AfterCount(2))
    with pytest.raises(BuildError, match=r"allowed_lateness lets elements come for 5 s more.*late=AfterCount\(1\)"):
        build_strategy(FixedWindows(60), AfterWatermark(), allowed_lateness=5)
    assert build_strategy(FixedWindows(60), AfterCount(2), allow_unsafe_triggers=True).trigger == AfterCount(2)


def test_an_inherited_lateness_counts_for_the_rule_of_unsafe_triggers() -> None:
    late = build_strategy(FixedWindows(60), allowed_lateness=5)
    with pytest.raises(BuildError, match="unsafe trigger"):
        build_strategy(FixedWindows(60), AfterWatermark(), inherited=late)


def test_allowed_lateness_makes_no_trigger_unsafe_in_the_global_window() -> None:
    assert build_strategy(GlobalWindows(), AfterWatermark(), allowed_lateness=5).trigger == AfterWatermark()


def test_after_delta_with_merging_windows_is_refused() -> None:
    trigger = Repeatedly(AfterDelta(5, distance))
    with pytest.raises(BuildError, match="AfterDelta can't be used with windows that merge"):
        build_strategy(Sessions(5), trigger, accumulation=DISCARDING)
    assert build_strategy(FixedWindows(5), trigger, accumulation=DISCARDING).trigger == trigger


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"trigger": 5}, "trigger: 5 is not a trigger"),
        ({"trigger": DefaultTrigger}, r"write DefaultTrigger\(\.\.\.\)"),
        ({"evictor": 5}, "5 is not an evictor"),
        ({"accumulation": "discarding"}, "accumulation must be tg.DISCARDING or tg.ACCUMULATING, not 'discarding'"),
        ({"allowed_lateness": -1}, "WindowInto: allowed_lateness must be 0 or more, not -1"),
        ({"allowed_lateness": "1h"}, "WindowInto: allowed_lateness must be a duration"),
        ({"timestamp_combiner": "latest"}, r"must be one of tg.TimestampCombiner \(END_OF_WINDOW, EARLIEST, LATEST\)"),
    ],
)
def test_a_component_of_the_wrong_type_is_refused(parts: dict[str, Any], message: str) -> None:
    with pytest.raises(BuildError, match=message):
        build_strategy(FixedWindows(60), **parts)


def test_a_value_that_is_no_assigner_is_refused() -> None:
    with pytest.raises(BuildError, match="not by the class FixedWindows"):
        build_strategy(FixedWindows)  # type: ignore[arg-type]
    with pytest.raises(BuildError, match="not by the class CountWindows"):
        build_strategy(CountWindows)  # type: ignore[arg-type]


# ---- presets


@pytest.mark.parametrize(
    ("preset", "assigner", "trigger", "accumulation", "evictor"),
    [
        (CountWindows(5), GlobalWindows(), Repeatedly(AfterCount(5)), DISCARDING, None),
        (SlidingCountWindows(100, 10), GlobalWindows(), Repeatedly(AfterCount(10)), ACCUMULATING, KeepLast(100)),
        (PunctuationWindows(bool), GlobalWindows(), Repeatedly(AfterElement(bool)), DISCARDING, None),
        (DeltaWindows(3, distance), GlobalWindows(), Repeatedly(AfterDelta(3, distance)), DISCARDING, None),
        (LandmarkWindows(50, 10), GlobalWindowsSince(50), EveryEventTime(10), ACCUMULATING, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_preset_is_a_complete_strategy_with_the_latest_timestamp(
    preset: Any, assigner: Any, trigger: Any, accumulation: Any, evictor: Any
) -> None:
    expected = WindowingStrategy(
        assigner, trigger, accumulation, timestamp_combiner=TimestampCombiner.LATEST, evictor=evictor
    )
    assert build_strategy(preset) == expected
    assert why_not_unbounded_group(expected) is None
    beside: dict[str, Any] = {"trigger": Never(), "evictor": KeepLast(1), "accumulation": DISCARDING}
    for name, value in beside.items():
        with pytest.raises(BuildError, match=rf"is a whole strategy and brings its own {name}: leave {name}= out"):
            build_strategy(preset, **{name: value})


def test_count_windows_may_drop_incomplete_windows() -> None:
    strategy = build_strategy(CountWindows(5, partial="drop"), timestamp_combiner=TimestampCombiner.EARLIEST)
    assert (strategy.partial, strategy.timestamp_combiner) == ("drop", TimestampCombiner.EARLIEST)
    assert after_grouping(strategy).partial == "emit"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CountWindows(0), "CountWindows: n must be"),
        (lambda: CountWindows(1, partial="keep"), "CountWindows: partial must be 'emit' or 'drop'"),  # type: ignore[arg-type]
        (lambda: SlidingCountWindows(1, 0), "SlidingCountWindows: every must be"),
        (lambda: PunctuationWindows(";"), "PunctuationWindows: predicate must be a function"),  # type: ignore[arg-type]
        (lambda: DeltaWindows("x", distance), "DeltaWindows: threshold must be a number"),  # type: ignore[arg-type]
        (lambda: LandmarkWindows("today", 5), "LandmarkWindows: since must be a timestamp"),  # type: ignore[arg-type]
        (lambda: LandmarkWindows(0, 0), "LandmarkWindows: every must be longer than 0"),
    ],
)
def test_invalid_presets_are_refused(make: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        make()


# ---- strategies downstream


def test_after_a_grouping_windows_are_merged_the_trigger_continues_and_no_evictor_is_left() -> None:
    before = build_strategy(
        Sessions(5),
        AfterWatermark(AfterProcessingTime(5), AfterCount(3)),
        KeepLast(1),
        DISCARDING,
        60,
        TimestampCombiner.LATEST,
    )
    after = after_grouping(before)
    assert after == WindowingStrategy(
        Merged(Sessions(5)),
        AfterWatermark(Repeatedly(AfterCount(1)), AfterCount(1)),
        DISCARDING,
        Duration(60),
        TimestampCombiner.LATEST,
    )
    assert after_grouping(after).assigner == Merged(Sessions(5))
    assert after_grouping(GLOBAL_DEFAULT) == GLOBAL_DEFAULT


def test_flattened_inputs_need_equal_assigners_and_triggers() -> None:
    fixed = build_strategy(FixedWindows(60))
    assert compatible(fixed, build_strategy(FixedWindows(60), allowed_lateness=5)) is None
    assert compatible(fixed, after_grouping(fixed)) is None
    windows = compatible(fixed, build_strategy(FixedWindows(30)))
    assert windows is not None
    assert "their windows differ" in windows
    triggers = compatible(fixed, build_strategy(FixedWindows(60), AfterWatermark()))
    assert triggers is not None
    assert "their triggers differ" in triggers


def test_properties_visible_in_panes_must_be_equal_in_flattened_inputs() -> None:
    early = AfterWatermark(early=AfterCount(1))
    adding = build_strategy(FixedWindows(60), early, accumulation=ACCUMULATING)
    reason = compatible(adding, build_strategy(FixedWindows(60), early, accumulation=DISCARDING))
    assert reason is not None
    assert "their accumulation modes differ: ACCUMULATING and DISCARDING" in reason
    fixed = build_strategy(FixedWindows(60))
    latest = build_strategy(FixedWindows(60), timestamp_combiner=TimestampCombiner.LATEST)
    assert "timestamp combiners differ" in (compatible(fixed, latest) or "")
    assert "evictors differ" in (compatible(fixed, build_strategy(FixedWindows(60), evictor=KeepLast(2))) or "")
    once = build_strategy(FixedWindows(60), accumulation=DISCARDING)
    assert compatible(fixed, once) is None  # nothing fires twice


def test_flattened_inputs_wait_for_late_data_as_long_as_any_of_them() -> None:
    parts = [build_strategy(FixedWindows(60), allowed_lateness=seconds) for seconds in (5, 30, 0)]
    for order in itertools.permutations(parts):
        assert together(order) == parts[1]


def test_the_reason_why_windows_differ_says_what_to_do() -> None:
    sessions = build_strategy(Sessions(5))
    reason = compatible(sessions, after_grouping(sessions))
    assert reason is not None
    assert "One of them has been grouped" in reason
    reason = compatible(build_strategy(Mine()), build_strategy(Mine()))
    assert reason is not None
    assert "make it once and use it for both" in reason
    mine = Mine()
    assert compatible(build_strategy(mine), build_strategy(mine)) is None


def test_an_unbounded_grouping_in_the_global_window_needs_a_trigger_that_fires_before_the_end_of_time() -> None:
    reason = why_not_unbounded_group(GLOBAL_DEFAULT)
    assert reason is not None
    assert "would never emit anything" in reason
    assert why_not_unbounded_group(build_strategy(FixedWindows(5))) is None
    early = build_strategy(GlobalWindows(), AfterWatermark(early=AfterCount(1)), accumulation=DISCARDING)
    assert why_not_unbounded_group(early) is None


def test_windows_that_merge_are_refused_as_side_inputs_and_under_state() -> None:
    sessions = build_strategy(Sessions(5))
    assert "can't have windows that merge" in str(why_not_side_input(sessions))
    assert "can't have windows that merge" in str(why_not_side_input(after_grouping(sessions)))
    assert why_not_side_input(GLOBAL_DEFAULT) is None
    assert "a stateful DoFn can't run" in str(why_not_stateful(sessions))
    assert why_not_stateful(after_grouping(sessions)) is None


def test_can_fire_twice_tells_whether_a_window_can_emit_more_than_once() -> None:
    assert not can_fire_twice(build_strategy(FixedWindows(5)))
    assert can_fire_twice(build_strategy(FixedWindows(5), allowed_lateness=1))
    assert not can_fire_twice(build_strategy(GlobalWindows(), allowed_lateness=1))
    assert can_fire_twice(build_strategy(CountWindows(5)))
    assert is_global(build_strategy(LandmarkWindows(0, 5)))


# ---- panes


def test_elements_before_any_grouping_have_the_only_pane_of_unknown_timing() -> None:
    assert PaneInfo(True, True, Timing.UNKNOWN, 0, 0) == NO_PANE
    assert hash(pickle.loads(pickle.dumps(NO_PANE))) == hash(NO_PANE)
    with pytest.raises(AttributeError):
        NO_PANE.index = 5  # type: ignore[misc]
