"""SEMANTICS, Iterations I1: `Iterate(body, rounds=n)` holds what n applications of `body` hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.random_pipelines.bodies import Body, bodies, inputs, iterated, unrolled
from tidegate.testing import PaneRecorder, TestPipeline

LOOPS = st.tuples(bodies(), inputs(), st.integers(0, 4), st.booleans())


def differences(runner: str, loops: list[tuple[Body, Any, int, bool]]) -> list[Any]:
    """The loops whose elements, timestamps, windows or panes are not those of their unrolling, in one run."""
    pipeline = TestPipeline(runner)
    constant = pipeline | "constant" >> tg.Create([(0, 1), (1, 2), (1, 3), (2, 5)]).with_output_types(tuple[int, int])
    compared = []
    for number, (body, elements, rounds, windowed) in enumerate(loops):
        stamped = [tg.TimestampedValue(pair, at) for at, pair in elements]
        start = pipeline | f"start {number}" >> tg.Create(stamped).with_output_types(tuple[int, int])
        if windowed:
            start = start | f"windows {number}" >> tg.WindowInto(tg.FixedWindows(10))
        recorders = PaneRecorder(f"a{number}"), PaneRecorder(f"b{number}")
        for recorder, build in zip(recorders, (iterated, unrolled), strict=True):
            _ = start | f"{build.__name__} {number}" >> tg.ptransform_fn(build)(body, constant, rounds) | recorder
        compared.append(recorders)
    pipeline.run()
    return [
        (loop, looped, by_hand)
        for loop, (a, b) in zip(loops, compared, strict=True)
        if (looped := sorted(map(repr, a.records()))) != (by_hand := sorted(map(repr, b.records())))
    ]


def drawn(count: int) -> list[tuple[Body, Any, int, bool]]:
    """Random loops: bodies, inputs, numbers of rounds, and whether the input is in windows."""
    found: list[tuple[Body, Any, int, bool]] = []

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(LOOPS)
    def draw(loop: tuple[Body, Any, int, bool]) -> None:
        found.append(loop)

    draw()
    return found


def test_random_loops_hold_what_their_unrolling_holds(runner: str, pytestconfig: pytest.Config) -> None:
    count = pytestconfig.getoption("--loops")
    loops = drawn(count if runner == "direct" else max(1, count // 4))
    assert differences(runner, loops) == []
