"""SEMANTICS, Iterations I1: `Iterate(body, rounds=n)` holds what n applications of `body` hold; and D5: `IterateDelta`
holds what a loop holds in which each round groups the whole solution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.random_pipelines.bodies import FORMS, Body, bodies, inputs, iterated, unrolled
from tests.support.random_pipelines.delta_bodies import by_bulk, by_delta, delta_bodies
from tidegate.testing import PaneRecorder, TestPipeline

T = TypeVar("T")

Loop: TypeAlias = tuple[Body, Any, int, bool, str]
"""A body, the elements of its input, a number of rounds, whether the input is in windows, and the form of the loop."""

LOOPS = st.tuples(bodies(), inputs(), st.integers(0, 4), st.booleans(), st.sampled_from(FORMS))

TOGETHER = 50
"""How many loops one run has."""

BUDGETS = (None, 2_000, None, 1)
"""The memory budgets of the runs, in turns; None for the default."""


def differences(runner: str, loops: list[Loop], budget: int | None = None) -> list[Any]:
    """The loops whose elements, timestamps, windows or panes are not those of their unrolling, in one run."""
    pipeline = TestPipeline(runner, {} if budget is None else {"memory_budget": budget})
    constant = pipeline | "constant" >> tg.Create([(0, 1), (1, 2), (1, 3), (2, 5)]).with_output_types(tuple[int, int])
    compared = []
    for number, (body, elements, rounds, windowed, form) in enumerate(loops):
        stamped = [tg.TimestampedValue(pair, at) for at, pair in elements]
        start = pipeline | f"start {number}" >> tg.Create(stamped).with_output_types(tuple[int, int])
        if windowed:
            start = start | f"windows {number}" >> tg.WindowInto(tg.FixedWindows(10))
        recorders = PaneRecorder(f"a{number}"), PaneRecorder(f"b{number}")
        for recorder, build in zip(recorders, (iterated, unrolled), strict=True):
            made = start | f"{build.__name__} {number}" >> tg.ptransform_fn(build)(body, constant, rounds, form)
            _ = made | recorder
        compared.append(recorders)
    pipeline.run()
    return [
        (loop, looped, by_hand)
        for loop, (a, b) in zip(loops, compared, strict=True)
        if (looped := sorted(map(repr, a.records()))) != (by_hand := sorted(map(repr, b.records())))
    ]


def drawn(count: int, loops: st.SearchStrategy[T]) -> list[T]:
    """Random loops."""
    found: list[T] = []

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(loops)
    def draw(loop: T) -> None:
        found.append(loop)

    draw()
    return found


def in_runs(loops: list[T]) -> Iterator[tuple[list[T], int | None]]:
    """The loops of each run, with its memory budget."""
    for number, start in enumerate(range(0, len(loops), TOGETHER)):
        yield loops[start : start + TOGETHER], BUDGETS[number % len(BUDGETS)]


def test_random_loops_hold_what_their_unrolling_holds(runner: str, pytestconfig: pytest.Config) -> None:
    count = pytestconfig.getoption("--loops")
    for loops, budget in in_runs(drawn(count if runner == "direct" else max(1, count // 4), LOOPS)):
        assert differences(runner, loops, budget) == []


def test_what_a_loop_leaves_keeps_timestamps_and_panes_that_its_next_round_does_without(runner: str) -> None:
    elements = [(6, (2, 2)), (3, (2, 2)), (1, (2, 9)), (17, (2, 8))]
    loops: list[Loop] = [((("group", 1), ("add", 3)), elements, 2, windowed, FORMS[0]) for windowed in (False, True)]
    assert differences(runner, loops) == []


# -- D5: loops with a solution

DELTAS = st.tuples(delta_bodies(), inputs(), inputs(), st.integers(0, 4), st.booleans())


def delta_differences(runner: str, loops: list[Any], budget: int | None = None) -> list[Any]:
    """The loops with a solution that give another one, or other elements in a round, than bulk loops in which each
    round groups the whole solution."""
    pipeline = TestPipeline(runner, {} if budget is None else {"memory_budget": budget})
    constant = pipeline | "constant" >> tg.Create([(0, 1), (1, 2), (1, 3), (2, 5)]).with_output_types(tuple[int, int])
    compared = []
    for number, (body, first, second, rounds, windowed) in enumerate(loops):
        starts = []
        for name, elements in (("solution", first), ("work", second)):
            stamped = [tg.TimestampedValue(pair, at) for at, pair in elements]
            start = pipeline | f"{name} {number}" >> tg.Create(stamped).with_output_types(tuple[int, int])
            if windowed:
                start = start | f"windows of {name} {number}" >> tg.WindowInto(tg.FixedWindows(10))
            starts.append(start)
        recorders = PaneRecorder(f"a{number}"), PaneRecorder(f"b{number}")
        for recorder, build in zip(recorders, (by_delta, by_bulk), strict=True):
            made = tuple(starts) | f"{build.__name__} {number}" >> tg.ptransform_fn(build)(body, constant, rounds)
            _ = made | recorder
        compared.append(recorders)
    pipeline.run()
    return [
        (loop, delta, bulk)
        for loop, (a, b) in zip(loops, compared, strict=True)
        if (delta := _without_panes(a)) != (bulk := _without_panes(b))
    ]


def _without_panes(recorder: PaneRecorder) -> list[str]:
    """What has been recorded, without panes: those of elements that are looked up are not those of grouped ones."""
    return sorted(repr((each.value, each.timestamp.micros, each.window)) for each in recorder.records())


def test_random_loops_with_a_solution_hold_what_bulk_loops_hold(runner: str, pytestconfig: pytest.Config) -> None:
    count = pytestconfig.getoption("--loops")
    for loops, budget in in_runs(drawn(count if runner == "direct" else max(1, count // 4), DELTAS)):
        assert delta_differences(runner, loops, budget) == []
