"""Random pipelines on Spark give what they give on the direct runner, and what the list-based model says.

`--spark-pipelines 200` compares that many. Several run as one pipeline, in one action, which is also how levels of
unlike pipelines come to share tasks.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.support.random_pipelines import Description, expected, outcome, pipelines, run, run_together

TOGETHER = 6


def drawn(number: int) -> list[Description]:
    """Generate `number` descriptions of pipelines."""
    found: list[Description] = []

    @settings(max_examples=number, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(pipelines())
    def draw(description: Description) -> None:
        found.append(description)

    draw()
    return found


def test_random_pipelines_give_what_direct_gives(flags: list[str], request: pytest.FixtureRequest) -> None:
    descriptions = drawn(request.config.getoption("--spark-pipelines"))
    for first in range(0, len(descriptions), TOGETHER):
        some = descriptions[first : first + TOGETHER]
        for description, found in zip(some, run_together(some, options=flags), strict=True):
            on_spark = outcome(description, found)
            assert on_spark == outcome(description, run(description)), description
            assert on_spark == expected(description), description
