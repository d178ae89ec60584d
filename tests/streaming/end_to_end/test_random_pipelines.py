"""Random pipelines on the streaming runner give what they give on the direct one, and what the list-based model says.

`--streaming-pipelines 200` compares that many, in batch mode and with their input taken for a stream. Several run as
one pipeline, which is also how levels of unlike pipelines come to share tasks.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from tests.support.random_pipelines import Description, expected, outcome, pipelines, run, run_together

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

TOGETHER = 6


def drawn(number: int, strategy: SearchStrategy[Description]) -> list[Description]:
    """Generate `number` descriptions of pipelines."""
    found: list[Description] = []

    @settings(max_examples=number, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(strategy)
    def draw(description: Description) -> None:
        found.append(description)

    draw()
    return found


def shows_order(description: Description) -> bool:
    """Whether a step's result depends on the order of elements: only bounded input is brought into that of time."""
    return any(step.op in ("panes", "state") for step in description.steps)


def compare(descriptions: list[Description], *flags: str) -> None:
    """Run them on both runners, and ask the model."""
    for first in range(0, len(descriptions), TOGETHER):
        some = descriptions[first : first + TOGETHER]
        found = run_together(some, options=["--runner", "streaming", *flags])
        for description, one in zip(some, found, strict=True):
            streamed = outcome(description, one)
            assert streamed == outcome(description, run(description)), description
            assert streamed == expected(description), description


@pytest.mark.parametrize("workers", [2, 3])
def test_random_pipelines_give_what_direct_gives(workers: int, request: pytest.FixtureRequest) -> None:
    descriptions = drawn(request.config.getoption("--streaming-pipelines"), pipelines())
    compare(descriptions, "--workers", str(workers))


@pytest.mark.parametrize("workers", [2, 3])
def test_random_pipelines_that_do_not_fit_in_memory_give_what_direct_gives(
    workers: int, request: pytest.FixtureRequest
) -> None:
    descriptions = drawn(request.config.getoption("--streaming-pipelines"), pipelines())
    compare(descriptions, "--workers", str(workers), "--memory_budget", str(workers), "--block_size", "1")


@pytest.mark.parametrize("workers", [1, 2])
def test_random_pipelines_whose_order_does_not_show_are_the_same_as_streams(
    workers: int, request: pytest.FixtureRequest
) -> None:
    strategy = pipelines().filter(lambda description: not shows_order(description))
    descriptions = drawn(request.config.getoption("--streaming-pipelines"), strategy)
    compare(descriptions, "--workers", str(workers), "--mode", "streaming")
