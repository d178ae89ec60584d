"""Random loops hold the same elements on the streaming runner, with any number of workers and next to no memory, as
their unrolling; and random loops with a solution the same as rounds that make the solution anew (SEMANTICS, D5).

`--streaming-loops 500` compares 500 of each. Several run as one pipeline.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.random_pipelines.bodies import bodies, inputs, iterated, unrolled
from tests.support.random_pipelines.delta_bodies import by_bulk, by_delta, delta_bodies
from tidegate.testing import PaneRecorder, TestPipeline

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

LOOPS_PER_RUN = 5
PAIRS = tuple[int, int]
WORKERS = [(1, False), (2, False), (2, True), (3, True)]


def drawn(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """So many examples."""
    found: list[Any] = []

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(strategy)
    def draw(example: Any) -> None:
        found.append(example)

    draw()
    return found


def options(workers: int, *, tiny: bool) -> dict[str, Any]:
    return {"workers": workers, **({"memory_budget": workers, "block_size": 1} if tiny else {})}


def start_of(pipeline: Any, name: str, elements: Any, *, windowed: bool) -> Any:
    stamped = [tg.TimestampedValue(pair, at) for at, pair in elements]
    start = pipeline | name >> tg.Create(stamped).with_output_types(PAIRS)
    return start | f"{name} in windows" >> tg.WindowInto(tg.FixedWindows(10)) if windowed else start


def compare(
    examples: list[Any],
    workers: int,
    *,
    tiny: bool,
    build: Callable[[Any, str, Any, Any], tuple[Any, Any]],
) -> None:
    """Compare two forms of each example, as `build` makes them of a pipeline, a name, a constant and the example."""
    for first in range(0, len(examples), LOOPS_PER_RUN):
        batch = examples[first : first + LOOPS_PER_RUN]
        pipeline = TestPipeline("streaming", options(workers, tiny=tiny))
        constant = pipeline | "constant" >> tg.Create([(0, 1), (1, 2), (1, 3), (2, 5)]).with_output_types(PAIRS)
        recorders = []
        for number, example in enumerate(batch):
            pair = PaneRecorder(f"a{number}"), PaneRecorder(f"b{number}")
            for recorder, form in zip(pair, build(pipeline, str(number), constant, example), strict=True):
                _ = form | recorder
            recorders.append(pair)
        pipeline.run()
        for example, (one, other) in zip(batch, recorders, strict=True):
            assert records_of(one) == records_of(other), example


def records_of(recorder: PaneRecorder) -> list[str]:
    """What has been recorded, without panes: those of elements that are looked up are not those of grouped ones."""
    return sorted(repr((each.value, each.timestamp.micros, each.window)) for each in recorder.records())


@pytest.mark.parametrize(("workers", "tiny"), WORKERS)
def test_random_loops_hold_what_their_unrolling_holds(workers: int, tiny: bool, request: pytest.FixtureRequest) -> None:
    def build(pipeline: Any, name: str, constant: Any, example: Any) -> tuple[Any, Any]:
        body, elements, rounds, windowed = example
        start = start_of(pipeline, f"start {name}", elements, windowed=windowed)
        return (
            start | f"loop {name}" >> tg.ptransform_fn(iterated)(body, constant, rounds),
            start | f"rounds {name}" >> tg.ptransform_fn(unrolled)(body, constant, rounds),
        )

    examples = drawn(
        st.tuples(bodies(), inputs(), st.integers(0, 4), st.booleans()), request.config.getoption("--streaming-loops")
    )
    compare(examples, workers, tiny=tiny, build=build)


@pytest.mark.parametrize(("workers", "tiny"), WORKERS)
def test_random_loops_with_a_solution_hold_what_rounds_in_bulk_hold(
    workers: int, tiny: bool, request: pytest.FixtureRequest
) -> None:
    def build(pipeline: Any, name: str, constant: Any, example: Any) -> tuple[Any, Any]:
        body, known, left, rounds, windowed = example
        starts = (
            start_of(pipeline, f"solution {name}", known, windowed=windowed),
            start_of(pipeline, f"work {name}", left, windowed=windowed),
        )
        return (
            starts | f"delta {name}" >> tg.ptransform_fn(by_delta)(body, constant, rounds),
            starts | f"bulk {name}" >> tg.ptransform_fn(by_bulk)(body, constant, rounds),
        )

    examples = drawn(
        st.tuples(delta_bodies(), inputs(), inputs(), st.integers(0, 4), st.booleans()),
        request.config.getoption("--streaming-loops"),
    )
    compare(examples, workers, tiny=tiny, build=build)
