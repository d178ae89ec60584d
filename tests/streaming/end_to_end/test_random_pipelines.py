"""Random pipelines have the same output on the streaming runner as on the direct one and in the list-based model.

`--streaming-pipelines 200` compares 200 of them, in batch mode and in streaming mode. Several run as one pipeline, so
that steps of different pipelines share tasks.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from tests.support.random_pipelines import Description, expected, outcome, pipelines, run, run_together

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

PIPELINES_PER_RUN = 6


def draw_pipelines(number: int, strategy: SearchStrategy[Description]) -> list[Description]:
    """Generate `number` descriptions of pipelines."""
    found: list[Description] = []

    @settings(max_examples=number, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(strategy)
    def draw(description: Description) -> None:
        found.append(description)

    draw()
    return found


def shows_order(description: Description) -> bool:
    """True if a step's result depends on the order of elements, which only bounded input has: that of timestamps."""
    return any(step.op in ("panes", "state") for step in description.steps)


def compare(descriptions: list[Description], *flags: str) -> None:
    """Compare the output of both runners and of the model."""
    for first in range(0, len(descriptions), PIPELINES_PER_RUN):
        batch = descriptions[first : first + PIPELINES_PER_RUN]
        found = run_together(batch, options=["--runner", "streaming", *flags])
        for description, one in zip(batch, found, strict=True):
            streamed = outcome(description, one)
            assert streamed == outcome(description, run(description)), description
            assert streamed == expected(description), description


@pytest.mark.parametrize("workers", [2, 3])
def test_random_pipelines_have_the_same_output_as_on_the_direct_runner(
    workers: int, request: pytest.FixtureRequest
) -> None:
    descriptions = draw_pipelines(request.config.getoption("--streaming-pipelines"), pipelines())
    compare(descriptions, "--workers", str(workers))


@pytest.mark.parametrize("workers", [2, 3])
def test_random_pipelines_that_exceed_memory_have_the_same_output_as_on_the_direct_runner(
    workers: int, request: pytest.FixtureRequest
) -> None:
    descriptions = draw_pipelines(request.config.getoption("--streaming-pipelines"), pipelines())
    compare(descriptions, "--workers", str(workers), "--memory_budget", str(workers), "--block_size", "1")


@pytest.mark.parametrize("workers", [1, 2])
def test_random_order_insensitive_pipelines_have_the_same_output_in_streaming_mode(
    workers: int, request: pytest.FixtureRequest
) -> None:
    strategy = pipelines().filter(lambda description: not shows_order(description))
    descriptions = draw_pipelines(request.config.getoption("--streaming-pipelines"), strategy)
    compare(descriptions, "--workers", str(workers), "--mode", "streaming")
