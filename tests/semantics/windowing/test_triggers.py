"""SEMANTICS, Triggers: refused combinations, and the input of triggers. The table of corner cases has the firings."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tests.support.stream_scripts import INFINITY, AdvanceClock, Watermark, panes_of_script, run_script
from tidegate.testing import TestPipeline, early, on_time

TEN = tg.FixedWindows(10)


def build(trigger: Any, assigner: Any = TEN, options: Any = None, **parts: Any) -> Any:
    return tg.Pipeline(options=options) | tg.Create([("k", 1)]) | tg.WindowInto(assigner, trigger, **parts)


FINISHES_EARLY = [
    tg.AfterCount(2),
    tg.AfterProcessingTime(5),
    tg.AfterElement(bool),
    tg.AfterDelta(1, max),
    tg.AfterAny(tg.AfterCount(2), tg.AfterWatermark()),
    tg.AfterAll(tg.AfterCount(2), tg.AfterProcessingTime(5)),
    tg.AfterEach(tg.AfterCount(1), tg.AfterCount(2)),
    tg.Repeatedly(tg.AfterCount(1)).or_finally(tg.AfterCount(5)),
]


@pytest.mark.parametrize("trigger", FINISHES_EARLY, ids=repr)
def test_a_trigger_that_can_finish_before_expiry_is_refused_unless_allowed(trigger: Any) -> None:
    with pytest.raises(tg.BuildError, match="allow_unsafe_triggers"):
        build(trigger, accumulation=tg.DISCARDING)
    allowed = build(trigger, accumulation=tg.DISCARDING, options={"allow_unsafe_triggers": True})
    assert allowed.windowing.trigger == trigger


def test_a_bare_after_watermark_is_refused_when_elements_may_be_late() -> None:
    with pytest.raises(tg.BuildError, match=r"late=AfterCount\(1\)"):
        build(tg.AfterWatermark(), allowed_lateness=1)
    build(tg.AfterWatermark(late=tg.AfterCount(1)), allowed_lateness=1, accumulation=tg.DISCARDING)
    build(tg.AfterWatermark(), allowed_lateness=0)


@pytest.mark.parametrize(
    "trigger",
    [
        tg.Repeatedly(tg.AfterCount(1)),
        tg.EveryEventTime(1),
        tg.EveryProcessingTime(1),
        tg.AfterWatermark(early=tg.AfterCount(1)),
        tg.AfterWatermark(late=tg.AfterCount(1)),
    ],
    ids=repr,
)
def test_accumulation_is_required_when_a_trigger_can_fire_more_than_once(trigger: Any) -> None:
    with pytest.raises(tg.BuildError, match="accumulation"):
        build(trigger)
    build(trigger, accumulation=tg.ACCUMULATING)


def test_the_default_trigger_accumulates() -> None:
    assert build(None).windowing.accumulation is tg.ACCUMULATING


def test_after_delta_is_refused_with_windows_that_merge() -> None:
    with pytest.raises(tg.BuildError, match="AfterDelta"):
        build(tg.Repeatedly(tg.AfterDelta(1, max)), tg.Sessions(5), accumulation=tg.DISCARDING)


def test_only_the_last_part_of_after_each_may_never_finish() -> None:
    with pytest.raises(tg.BuildError, match="never finishes"):
        tg.AfterEach(tg.Repeatedly(tg.AfterCount(1)), tg.AfterCount(2))
    tg.AfterEach(tg.AfterCount(2), tg.Repeatedly(tg.AfterCount(1)))


@pytest.mark.parametrize(
    "grouping", [tg.GroupByKey(), tg.CombinePerKey(list), tg.CombinePerKey(tuple)], ids=["group", "list", "plain"]
)
def test_predicates_see_the_value_that_the_group_will_contain(stream_runner: str, grouping: Any) -> None:
    into = tg.WindowInto(TEN, tg.Repeatedly(tg.AfterElement(lambda value: value == "!")), accumulation=tg.DISCARDING)
    found = panes_of_script(
        stream_runner, [("a", 1), ("!", 2), Watermark(10)], into, grouping, then=lambda out: out | tg.MapTuple(listed)
    )
    assert found == [early(["a", "!"])]


def test_predicates_of_a_combine_without_keys_see_the_element(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, tg.Repeatedly(tg.AfterElement(lambda e: e == ("k", "!"))), accumulation=tg.DISCARDING)
    grouping = tg.CombineGlobally(list).without_defaults()
    ran = run_script(
        stream_runner,
        [("a", 1), ("!", 2), Watermark(10)],
        into,
        grouping,
        then=lambda out: out | tg.Map(lambda all: ("k", all)),
    )
    assert ran.of_key == [early([("k", "a"), ("k", "!")])]


def test_predicates_of_a_cogroup_see_values_without_their_collections_mark(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, tg.Repeatedly(tg.AfterElement(lambda value: value == "!")), accumulation=tg.DISCARDING)
    found = panes_of_script(stream_runner, [("a", 1), ("!", 2), ("b", 3), Watermark(10)], into, Halved())
    assert found == [early((["a"], ["!"])), on_time((["b"], []))]


class Halved(tg.PTransform[Any, Any]):
    """Groups those "!" and the others as two collections."""

    def expand(self, input: Any) -> Any:
        others = input | "others" >> tg.Filter(lambda pair: pair[1] != "!")
        return (others, input | "marks" >> tg.Filter(lambda pair: pair[1] == "!")) | tg.CoGroupByKey()


def listed(key: Any, values: Any) -> Any:
    return key, list(values)


def test_assigners_see_the_element_at_the_window_into(stream_runner: str) -> None:
    into = tg.WindowInto(tg.Sessions(lambda element: element[1]))
    found = panes_of_script(stream_runner, [(5, 0), (1, 10), INFINITY], into)
    assert found == [on_time([5], (0, 5)), on_time([1], (10, 11))]


def test_each_key_and_window_has_its_own_trigger(stream_runner: str) -> None:
    into = tg.WindowInto(TEN, tg.Repeatedly(tg.AfterCount(2)), accumulation=tg.DISCARDING)
    script = [(1, 1, "x"), (2, 1, "y"), (3, 12, "x"), (4, 2, "x"), (5, 3, "y"), (6, 13, "x"), INFINITY]
    ran = run_script(stream_runner, script, into)
    assert ran.panes == {
        "x": [early([1, 4], (0, 10), 0), early([3, 6], (10, 20), 0)],
        "y": [early([2, 5], (0, 10), 0)],
    }


def test_one_event_evaluates_a_key_and_window_once(stream_runner: str) -> None:
    trigger = tg.Repeatedly(tg.AfterAny(tg.AfterProcessingTime(1), tg.AfterProcessingTime(2)))
    into = tg.WindowInto(TEN, trigger, accumulation=tg.DISCARDING)
    assert panes_of_script(stream_runner, [("a", 1), AdvanceClock(100), AdvanceClock(100), Watermark(10)], into) == [
        early(["a"], index=0)
    ]


def test_one_watermark_over_several_windows_fires_them_by_their_ends(stream_runner: str) -> None:
    into = tg.WindowInto(tg.SlidingWindows(10, 5))
    found = panes_of_script(stream_runner, [("c", 21), ("a", 1), ("b", 11), INFINITY], into)
    assert [record.window.end.seconds() for record in found] == [5, 10, 15, 20, 25, 30]


def boom(*args: Any) -> Any:
    raise ZeroDivisionError("boom")


@pytest.mark.parametrize(
    "trigger",
    [tg.Repeatedly(tg.AfterElement(boom)), tg.Repeatedly(tg.AfterDelta(1, boom))],
    ids=["predicate", "delta"],
)
def test_an_error_in_a_trigger_names_the_step_and_the_key(stream_runner: str, trigger: Any) -> None:
    into = tg.WindowInto(TEN, trigger, accumulation=tg.DISCARDING)
    with pytest.raises(tg.UserCodeError, match="ZeroDivisionError: boom") as caught:
        run_script(stream_runner, [("a", 1, "the key"), ("b", 2, "the key"), Watermark(10)], into)
    assert caught.value.step == "GroupByKey"
    assert "the key" in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_triggers_on_bounded_input_are_checked_the_same() -> None:
    pipeline = TestPipeline()
    source = pipeline | tg.Create([("k", 1)])
    with pytest.raises(tg.BuildError, match="unsafe trigger"):
        _ = source | tg.WindowInto(TEN, tg.AfterCount(2))
