from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sdk.errors import BuildError
from tidegate.sdk.time import Duration
from tidegate.sdk.windowing.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterDelta,
    AfterEach,
    AfterElement,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    EveryEventTime,
    EveryProcessingTime,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    can_finish_before_expiry,
    can_fire_before_end_of_time,
    contains_delta,
    continuation,
    fires_more_than_once,
    is_data_driven,
    never_finishes,
    parts_of,
)


def holds(element: Any) -> bool:
    return bool(element)


def distance(a: Any, b: Any) -> float:
    return abs(b - a)  # type: ignore[no-any-return]


ONE = AfterCount(1)
DATA = Repeatedly(ONE)
LEAVES: list[Trigger] = [
    AfterWatermark(),
    DefaultTrigger(),
    AfterCount(3),
    AfterProcessingTime(5),
    EveryEventTime(60),
    EveryProcessingTime(60),
    AfterElement(holds),
    AfterDelta(2, distance),
    Never(),
]


def grow(inner: st.SearchStrategy[Trigger]) -> st.SearchStrategy[Trigger]:
    some = st.lists(inner, min_size=1, max_size=3)
    finishing = st.lists(inner.filter(lambda t: not never_finishes(t)), max_size=2)
    return st.one_of(
        inner.map(Repeatedly),
        some.map(lambda parts: AfterAny(*parts)),
        some.map(lambda parts: AfterAll(*parts)),
        st.tuples(finishing, inner).map(lambda p: AfterEach(*p[0], p[1])),
        st.tuples(inner, inner).map(lambda p: p[0].or_finally(p[1])),
        st.tuples(st.none() | inner, st.none() | inner).map(lambda p: AfterWatermark(*p)),
    )


triggers = st.recursive(st.sampled_from(LEAVES), grow, max_leaves=6)


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        (AfterCount(5), ONE),
        (AfterElement(holds), ONE),
        (AfterDelta(1, distance), ONE),
        (AfterProcessingTime(5), DATA),
        (EveryEventTime(5), DATA),
        (EveryProcessingTime(5), DATA),
        (AfterWatermark(), AfterWatermark()),
        (AfterWatermark(AfterCount(5), AfterProcessingTime(5)), AfterWatermark(ONE, DATA)),
        (DefaultTrigger(), DefaultTrigger()),
        (Never(), Never()),
        (Repeatedly(AfterCount(5)), DATA),
        (AfterAny(AfterCount(5), Never()), AfterAny(ONE, Never())),
        (AfterAll(AfterCount(5), AfterElement(holds)), AfterAll(ONE, ONE)),
        (AfterEach(AfterCount(5), AfterWatermark()), Repeatedly(AfterAny(ONE, AfterWatermark()))),
        (Repeatedly(AfterCount(5)).or_finally(AfterCount(50)), DATA.or_finally(ONE)),
    ],
    ids=repr,
)
def test_the_continuation_of_each_trigger_is_that_of_the_table(trigger: Trigger, expected: Trigger) -> None:
    assert continuation(trigger) == expected


@given(triggers)
def test_a_continuation_contains_no_author_code_and_is_its_own_continuation(trigger: Trigger) -> None:
    once = continuation(trigger)
    assert "UserFn" not in repr(once)
    assert not contains_delta(once)
    assert continuation(once) == once


@pytest.mark.parametrize(
    ("trigger", "lateness", "unsafe"),
    [
        (AfterCount(2), 0, "Use Repeatedly"),
        (AfterProcessingTime(60), 0, "Use Repeatedly"),
        (AfterElement(holds), 0, "Use Repeatedly"),
        (AfterDelta(2, distance), 0, "Use Repeatedly"),
        (AfterWatermark(), 0, None),
        (AfterWatermark(), 1, "Add late=AfterCount"),
        (AfterWatermark(early=AfterCount(1)), 0, None),
        (AfterWatermark(early=AfterCount(1)), 1, "Add late=AfterCount"),
        (AfterWatermark(late=AfterCount(1)), 10**9, None),
        (DefaultTrigger(), 10**9, None),
        (EveryEventTime(5), 10**9, None),
        (EveryProcessingTime(5), 10**9, None),
        (Never(), 10**9, None),
        (Repeatedly(AfterCount(2)), 10**9, None),
        (AfterAny(AfterCount(2), AfterWatermark()), 0, "can finish before its window ends"),
        (AfterAny(AfterWatermark(early=ONE), Never()), 0, "can finish before its window ends"),
        (AfterAny(AfterWatermark(), Never()), 0, None),
        (AfterAll(AfterCount(2), AfterWatermark()), 0, None),
        (AfterAll(AfterCount(2), AfterWatermark()), 1, "finishes at its window's end"),
        (AfterAll(AfterCount(2), Never()), 10**9, None),
        (AfterEach(AfterCount(2), AfterProcessingTime(5)), 0, "can finish before its window ends"),
        (AfterEach(AfterCount(2), Repeatedly(ONE)), 10**9, None),
        (AfterEach(AfterWatermark(), ONE), 0, None),
        (AfterEach(AfterWatermark(), ONE), 1, "finishes at its window's end"),
        (Repeatedly(ONE).or_finally(AfterCount(9)), 0, "can finish before its window ends"),
        (Repeatedly(ONE).or_finally(AfterWatermark()), 0, None),
        (Repeatedly(ONE).or_finally(AfterWatermark()), 1, "finishes at its window's end"),
        (Repeatedly(ONE).or_finally(Never()), 10**9, None),
    ],
    ids=repr,
)
def test_a_trigger_is_unsafe_if_it_can_finish_before_the_window_expires(
    trigger: Trigger, lateness: int, unsafe: str | None
) -> None:
    reason = can_finish_before_expiry(trigger, lateness)
    assert (reason is None) if unsafe is None else (reason is not None and unsafe in reason)


@pytest.mark.parametrize(
    ("trigger", "several"),
    [
        (AfterWatermark(), False),
        (AfterWatermark(early=AfterCount(1)), True),
        (AfterWatermark(late=AfterCount(1)), True),
        (AfterWatermark(early=Never()), False),
        (DefaultTrigger(), True),
        (AfterCount(3), False),
        (EveryEventTime(5), True),
        (EveryProcessingTime(5), True),
        (Repeatedly(ONE), True),
        (Repeatedly(Never()), False),
        (AfterAny(Repeatedly(ONE), ONE), False),
        (AfterAll(Repeatedly(ONE), ONE), False),
        (AfterEach(ONE, ONE), True),
        (AfterEach(ONE), False),
        (ONE.or_finally(ONE), False),
        (Repeatedly(ONE).or_finally(ONE), True),
        (Never(), False),
    ],
    ids=repr,
)
def test_which_triggers_can_fire_more_than_once(trigger: Trigger, several: bool) -> None:
    assert fires_more_than_once(trigger) is several


@pytest.mark.parametrize(
    ("trigger", "before"),
    [
        (DefaultTrigger(), False),
        (AfterWatermark(), False),
        (AfterWatermark(late=ONE), False),
        (AfterWatermark(early=ONE), True),
        (Never(), False),
        (Repeatedly(ONE), True),
        (EveryEventTime(5), True),
        (EveryProcessingTime(5), True),
        (AfterEach(AfterWatermark(), ONE), False),
        (AfterAll(ONE, AfterWatermark()), False),
        (AfterAny(ONE, AfterWatermark()), True),
        (Never().or_finally(ONE), True),
        (Repeatedly(AfterWatermark()), False),
    ],
    ids=repr,
)
def test_which_triggers_can_fire_before_the_maximum_timestamp(trigger: Trigger, before: bool) -> None:
    assert can_fire_before_end_of_time(trigger) is before


def test_data_driven_triggers_are_those_that_inspect_elements() -> None:
    late = AfterWatermark(early=EveryProcessingTime(5), late=ONE)
    assert is_data_driven(late)
    assert not is_data_driven(late, late=False)
    assert is_data_driven(AfterWatermark(early=ONE), late=False)
    assert is_data_driven(Repeatedly(AfterAny(AfterProcessingTime(5), AfterElement(holds))))
    assert is_data_driven(Repeatedly(AfterProcessingTime(1)).or_finally(AfterDelta(1, distance)))
    assert not is_data_driven(Repeatedly(AfterAll(AfterProcessingTime(5), AfterWatermark())))


@given(triggers)
def test_a_trigger_that_never_finishes_is_never_unsafe(trigger: Trigger) -> None:
    if never_finishes(trigger):
        assert can_finish_before_expiry(trigger, 10**15) is None
    else:
        assert can_finish_before_expiry(trigger, 10**15) is not None


def test_only_the_last_of_after_each_may_never_finish() -> None:
    assert never_finishes(AfterEach(AfterCount(2), DefaultTrigger()))
    with pytest.raises(BuildError, match=r"AfterEach: Repeatedly.* never finishes.*only the last part"):
        AfterEach(Repeatedly(ONE), ONE)
    with pytest.raises(BuildError, match="never finishes"):
        AfterEach(AfterWatermark(late=ONE), ONE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AfterCount(0), "AfterCount: n must be a whole number of at least 1, not 0"),
        (lambda: AfterCount(True), "AfterCount: n must be a whole number"),
        (lambda: AfterCount(2.0), "AfterCount: n must be a whole number"),  # type: ignore[arg-type]
        (lambda: AfterProcessingTime(-1), "AfterProcessingTime: delay must be 0 or more, not -1"),
        (lambda: AfterProcessingTime(1, align_to=0), "AfterProcessingTime: align_to must be longer than 0"),
        (lambda: EveryEventTime(0), "EveryEventTime: period must be longer than 0"),
        (lambda: EveryProcessingTime(-2), "EveryProcessingTime: period must be longer than 0"),
        (lambda: AfterElement(5), "AfterElement: predicate must be a function, not 5"),  # type: ignore[arg-type]
        (lambda: AfterDelta("x", distance), "AfterDelta: threshold must be a number"),  # type: ignore[arg-type]
        (lambda: AfterDelta(float("nan"), distance), "AfterDelta: threshold must be a number"),
        (lambda: AfterDelta(5, None), "AfterDelta: delta_fn must be a function"),  # type: ignore[arg-type]
        (lambda: Repeatedly(5), "Repeatedly: 5 is not a trigger"),  # type: ignore[arg-type]
        (lambda: Repeatedly(DefaultTrigger), r"is not a trigger: write DefaultTrigger\(\.\.\.\)"),  # type: ignore[arg-type]
        (lambda: AfterWatermark(early=5), "AfterWatermark: early=5 is not a trigger"),  # type: ignore[arg-type]
        (lambda: AfterAny(), "AfterAny: give at least one trigger"),
        (lambda: AfterAll(ONE, "x"), "AfterAll: 'x' is not a trigger"),  # type: ignore[arg-type]
        (lambda: ONE.or_finally(5), "or_finally: 5 is not a trigger"),  # type: ignore[arg-type]
    ],
)
def test_the_error_of_an_invalid_argument_names_the_trigger_and_the_argument(make: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        make()


def test_every_trigger_has_a_unique_kind() -> None:
    kinds = [next(f.default for f in fields(cls) if f.name == "kind") for cls in get_args(Trigger)]
    assert len(set(kinds)) == len(kinds) == 14


@given(triggers)
def test_a_copied_trigger_is_equal_to_the_original(trigger: Trigger) -> None:
    assert hash(replace(trigger)) == hash(trigger)
    assert replace(trigger) == trigger
    assert all(part is not None for part in parts_of(trigger))


def test_triggers_are_printed_as_they_are_written() -> None:
    assert AfterProcessingTime(5).delay == Duration(5)
    trigger = AfterWatermark(early=AfterAny(AfterCount(5), EveryProcessingTime(60)).or_finally(Never()))
    assert repr(trigger) == (
        "AfterWatermark(early=AfterAny(AfterCount(n=5), EveryProcessingTime(period=Duration(60s)))"
        ".or_finally(Never()), late=None)"
    )
    assert OrFinally(ONE, Never()) == ONE.or_finally(Never())
