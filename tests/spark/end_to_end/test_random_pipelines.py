"""Random pipelines give the same results on Spark, on the direct runner and in a list-based model.

`--spark-pipelines 200` compares 200 of them. Several run as one pipeline, in one action, so that levels of different
pipelines share tasks.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.support.random_pipelines import Description, expected, outcome, pipelines, run, run_together

TOGETHER = 6


def draw_descriptions(number: int) -> list[Description]:
    """Generate `number` descriptions of pipelines."""
    found: list[Description] = []

    @settings(max_examples=number, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(pipelines())
    def draw(description: Description) -> None:
        found.append(description)

    draw()
    return found


def test_random_pipelines_give_the_same_results_as_on_the_direct_runner(
    flags: list[str], request: pytest.FixtureRequest
) -> None:
    descriptions = draw_descriptions(request.config.getoption("--spark-pipelines"))
    for first in range(0, len(descriptions), TOGETHER):
        batch = descriptions[first : first + TOGETHER]
        for description, found in zip(batch, run_together(batch, options=flags), strict=True):
            on_spark = outcome(description, found)
            assert on_spark == outcome(description, run(description)), description
            assert on_spark == expected(description), description
