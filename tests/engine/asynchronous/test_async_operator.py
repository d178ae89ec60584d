"""The operator of AsyncMap, with calls that the test ends."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.controlled_calls import Driven, Observed
from tidegate.runners.engine.asynchronous.snapshot import AsyncSnapshot
from tidegate.runners.engine.rescale import rescaled
from tidegate.sdk.data.panes import NO_PANE
from tidegate.sdk.metrics import ENGINE, MetricKey
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS


def doubled(x: int) -> int:
    return 2 * x


def calling(fn: Any = doubled, **settings: Any) -> Driven:
    return Driven(lambda source: (source | "call" >> tg.AsyncMap(fn, **settings),))


def counter(driven: Driven, name: str) -> int:
    return driven.context.metrics.counters.get(MetricKey("call", ENGINE, name), 0)


# ---- the order of results, and watermarks


def test_ordered_results_wait_for_the_elements_before_them() -> None:
    driven = calling()
    driven.push([1, 2, 3])
    driven.end(2, 1)
    assert driven.found() == []
    driven.end(0)
    assert driven.found() == [2, 4, 6]


def test_unordered_results_are_emitted_as_they_arrive() -> None:
    driven = calling(ordered=False)
    driven.push([1, 2, 3])
    driven.end(2)
    assert driven.found() == [6]
    driven.end(0)
    assert driven.found() == [6, 2]


def test_unordered_results_never_cross_a_watermark() -> None:
    driven = calling(ordered=False)
    driven.push([1, 2])
    driven.advance(10)
    driven.push([3])
    driven.end(2, 1)
    assert driven.found() == [4]
    assert driven.watermark() == MIN_MICROS
    driven.end(0)
    assert [(each.value, each.watermark) for each in driven.seen[driven.outputs[0]]] == [
        (4, MIN_MICROS),
        (2, MIN_MICROS),
        (6, 10),
    ]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_watermark_waits_for_the_calls_before_it_and_no_others(ordered: bool) -> None:
    driven = calling(ordered=ordered)
    driven.advance(5)
    driven.push([1])
    driven.advance(10)
    driven.push([2])
    driven.advance(20)
    assert driven.watermark() == 5
    driven.end(0)
    assert driven.watermark() == 10
    driven.end(0)
    assert driven.watermark() == 20


def test_an_idle_input_does_not_make_the_output_idle_before_its_calls_have_ended() -> None:
    driven = calling()
    driven.push([1])
    driven.advance(10, idle=True)
    assert not driven.graph.status(driven.outputs[0]).idle
    driven.end(0)
    assert driven.graph.status(driven.outputs[0]).idle


def test_the_output_ends_with_the_last_call() -> None:
    driven = calling()
    driven.push([1])
    driven.advance(MAX_MICROS, ended=True)
    assert not driven.graph.status(driven.outputs[0]).ended
    driven.end(0)
    assert driven.found() == [2]
    assert driven.graph.status(driven.outputs[0]).ended


def test_results_keep_timestamps_and_windows() -> None:
    driven = Driven(lambda source: (source | tg.WindowInto(tg.FixedWindows(10)) | "call" >> tg.AsyncMap(doubled),))
    driven.push([1, 2], [3_000_000, 13_000_000])
    driven.end(1, 0)
    assert [(each.micros, each.windows) for each in driven.seen[driven.outputs[0]]] == [
        (3_000_000, (tg.IntervalWindow(0, 10),)),
        (13_000_000, (tg.IntervalWindow(10, 20),)),
    ]


Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 5)),
        st.tuples(st.just("watermark"), st.integers(1, 9)),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.booleans(), st.integers(1, 4))
def test_the_results_are_those_of_a_map_in_any_order_of_calls_and_with_any_snapshots(
    steps: list[Step], ordered: bool, capacity: int
) -> None:
    reference = Driven(lambda source: (source | tg.Map(doubled),))
    driven = calling(ordered=ordered, capacity=capacity)
    elements, watermark, restarted = 0, 0, False
    for step, n in steps:
        match step:
            case "push":
                if driven.graph.blocked:
                    continue
                values = list(range(elements, elements + n))
                elements += n
                for each in (reference, driven):
                    each.push(values, values)
            case "watermark":
                watermark += n
                for each in (reference, driven):
                    each.advance(watermark)
            case "end":
                if driven.caller.open:
                    driven.end(n % len(driven.caller.open))
            case "restart":
                driven, restarted = driven.restarted(), True
        assert len(driven.caller.open) <= capacity
    for each in (reference, driven):
        each.advance(MAX_MICROS, ended=True)
    while driven.graph.pending:
        driven.end(0)
    expected, found = reference.seen[reference.outputs[0]], driven.seen[driven.outputs[0]]
    if ordered:
        assert found == expected
    else:
        assert Counter(map(_fields, found)) == Counter(map(_fields, expected))
        assert [each.watermark for each in found] == sorted(each.watermark for each in found)
    assert driven.graph.status(driven.outputs[0]) == reference.graph.status(reference.outputs[0])
    assert restarted or driven.caller.most <= capacity
    assert counter(driven, "calls_in_flight") == 0


def _fields(each: Observed) -> tuple[Any, ...]:
    return each.value, each.micros, each.windows, each.watermark


# ---- capacity


def test_at_most_as_many_calls_as_the_capacity_are_in_flight() -> None:
    driven = calling(capacity=3)
    driven.push(range(10))
    assert list(driven.caller.open.values()) == [0, 1, 2]
    assert driven.graph.blocked
    driven.end(1)  # its result waits for the first one, so it still counts against the capacity
    assert list(driven.caller.open.values()) == [0, 2]
    driven.end(0)
    assert list(driven.caller.open.values()) == [2, 3, 4]
    while driven.graph.pending:
        driven.end(0)
    assert driven.found() == [2 * x for x in range(10)]
    assert driven.caller.most == 3


def fanned_out(capacity: int = 2) -> Driven:
    """Drive a step that emits many results for one element, followed by an asynchronous step."""
    return Driven(
        lambda source: (
            source | tg.FlatMap(range) | tg.Reshuffle() | "call" >> tg.AsyncMap(doubled, capacity=capacity),
        ),
        block_size=5,
    )


def test_the_step_before_it_is_suspended_within_an_element() -> None:
    driven = fanned_out()
    event = driven.graph.pushing(driven.input, driven_block(100))
    for _ in range(10):
        next(event)  # nothing happens: the capacity is used up
    assert driven.caller.open == {0: 0, 1: 1}
    calls = 0
    for _ in event:
        while driven.graph.blocked and not driven.graph.has_results:
            driven.caller.end(0)
            calls += 1
    assert 90 < calls < 100  # the elements of one block were buffered
    while driven.graph.pending:
        driven.end(0)
    assert driven.found() == [2 * x for x in range(100)]


def test_the_suspended_step_continues_if_a_barrier_waits() -> None:
    driven = fanned_out()
    event = driven.graph.pushing(driven.input, driven_block(100))
    next(event)
    driven.must_buffer = True
    for _ in event:
        pass
    assert list(driven.caller.open.values()) == [0, 1]
    driven = driven.restarted()
    while driven.graph.pending:
        driven.end(0)
    assert driven.found() == [2 * x for x in range(100)]


def driven_block(n: int) -> Any:
    from tidegate.sdk.data.block import Block

    return Block([n])


# ---- errors


def inverse(x: int) -> float:
    return 1 / x


def test_an_error_names_step_line_and_element() -> None:
    driven = calling(inverse)
    driven.push([0])
    with pytest.raises(
        tg.UserCodeError, match=r"ZeroDivisionError: division by zero\n  in step 'call', applied at .*\n"
    ) as e:
        driven.end(0)
    assert e.value.element == "0"
    assert "test_async_operator.py" in e.value.where


def test_failures_become_dead_letters_in_order() -> None:
    driven = Driven(lambda source: tuple(source | "call" >> tg.AsyncMap(inverse).with_exception_handling()))
    driven.push([1, 0, 2])
    driven.end(2, 1, 0)
    assert driven.found(0) == [1, 0.5]
    ((element, (kind, text, lines)),) = driven.found(1)
    assert (element, kind) == (0, "ZeroDivisionError")
    assert "division by zero" in text
    assert any("inverse" in line for line in lines)


# ---- the cache


def cached(**settings: Any) -> Driven:
    return calling(cache=tg.Cache(**settings))


def test_equal_elements_share_a_call_and_then_its_result() -> None:
    driven = cached(ttl=None)
    driven.push([7, 7, 8, 7])
    assert list(driven.caller.open.values()) == [7, 8]
    driven.end(0, 0)
    driven.push([7, 8])
    driven.settle()
    assert driven.found() == [14, 14, 16, 14, 14, 16]
    assert driven.caller.open == {}
    assert counter(driven, "cache_hits") == 4


def test_a_result_expires_with_processing_time() -> None:
    driven = cached(ttl=10)
    driven.graph.tick(100_000_000)
    driven.push([7])
    driven.end(0)
    driven.graph.tick(109_999_999)
    driven.push([7])
    assert driven.caller.open == {}
    driven.graph.tick(110_000_000)
    driven.push([7])
    assert list(driven.caller.open.values()) == [7]


def test_the_least_recently_used_result_is_evicted() -> None:
    driven = cached(ttl=None, size=2)
    for x in (1, 2, 1, 3):
        driven.push([x])
        driven.end(*([0] if driven.caller.open else []))
    driven.push([1, 2])
    assert list(driven.caller.open.values()) == [2]


def test_a_failure_is_not_cached() -> None:
    failures = [0]

    def flaky(x: int) -> int:
        failures[0] += 1
        if failures[0] == 1:
            raise ValueError("not yet")
        return x

    driven = Driven(
        lambda source: tuple(source | "call" >> tg.AsyncMap(flaky, cache=tg.Cache(ttl=None)).with_exception_handling())
    )
    driven.push([5, 5])
    driven.end(0)
    assert [element for element, _ in driven.found(1)] == [5, 5]
    driven.push([5])
    driven.end(0)
    assert driven.found(0) == [5]


def test_a_key_that_is_not_hashable_is_an_error_of_the_element() -> None:
    driven = cached(ttl=None)
    driven.push([[1]])
    with pytest.raises(tg.UserCodeError, match=r"unhashable type: 'list'"):
        driven.settle()


def test_the_key_is_the_result_of_the_authors_function() -> None:
    driven = calling(str.upper, cache=tg.Cache(ttl=None), key=str.lower)
    driven.push(["a", "A", "b"])
    driven.end(0, 0)
    assert driven.found() == ["A", "A", "B"]


# ---- lookups


def test_a_lookup_is_called_with_the_key_and_joined_with_the_element() -> None:
    names = {1: "one"}
    driven = Driven(lambda source: (source | "call" >> tg.LookupJoin(lambda key: names.get(key), key=len),))
    driven.push(["a", "bb"])
    assert list(driven.caller.open.values()) == [1, 2]
    driven.end(1, 0)
    assert driven.found() == [("a", "one"), ("bb", None)]


def test_an_error_of_join_names_the_element() -> None:
    driven = Driven(
        lambda source: (
            source | "call" >> tg.LookupJoin(lambda key: None, key=len, join=lambda element, found: element + found),
        )
    )
    driven.push(["a"])
    with pytest.raises(tg.UserCodeError, match="TypeError") as e:
        driven.end(0)
    assert e.value.element == "'a'"


# ---- snapshots


def test_a_restored_operator_repeats_calls_and_counts_them_once() -> None:
    driven = calling(capacity=2)
    driven.push([1, 2, 3])
    assert counter(driven, "calls_in_flight") == 2
    restored = driven.restarted()
    assert list(restored.caller.open.values()) == [1, 2]
    assert counter(restored, "calls_in_flight") == 2


def test_only_a_changed_state_is_in_an_incremental_snapshot() -> None:
    driven = calling()
    (operator,) = driven.graph.operators().values()
    assert operator.touched() == [["elements"]]
    assert operator.touched() == []
    assert operator.snapshot([]) is None
    driven.push([1])
    assert operator.touched() == [["elements"]]


def test_after_a_rescaling_each_element_is_in_one_task() -> None:
    snapshots = [
        AsyncSnapshot([(w, (task, w), 0, (), NO_PANE) for w in range(10)], 9, in_flight=task) for task in (1, 2)
    ]
    parts = [rescaled(snapshots, lambda number, task=task: number % 3 == task) for task in range(3)]  # type: ignore[misc]
    values = [element[1] for part in parts for element in part.elements]
    assert sorted(values) == sorted((task, w) for task in (1, 2) for w in range(10))
    for part in parts:
        assert [element[0] for element in part.elements] == sorted(element[0] for element in part.elements)
    assert sum(part.in_flight for part in parts) == 3
