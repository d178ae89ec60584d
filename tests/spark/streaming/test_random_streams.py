"""Random pipelines have the same output in micro-batches, of which each reads a few elements, as on the direct runner.

`--streaming-pipelines 200` compares 200 of them. Between two batches tasks are restored now and then.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.support.random_pipelines import Description, outcome, pipelines, run, run_together
from tests.support.spark.micro_batches import MicroBatches

PIPELINES_PER_RUN = 6


def test_random_pipelines_have_the_same_output_as_on_the_direct_runner(request: pytest.FixtureRequest) -> None:
    descriptions: list[Description] = []
    number = request.config.getoption("--streaming-pipelines")

    @settings(max_examples=number, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(pipelines().filter(lambda each: not any(step.op in ("panes", "state") for step in each.steps)))
    def draw(description: Description) -> None:
        descriptions.append(description)

    draw()
    for first in range(0, len(descriptions), PIPELINES_PER_RUN):
        batch = descriptions[first : first + PIPELINES_PER_RUN]
        expected = [outcome(description, run(description)) for description in batch]
        for tasks in (1, 3):
            runner = MicroBatches(tasks, seed=first, elements=3)
            found = run_together(batch, runner=runner, options=["--mode", "streaming"])
            for description, one, complete in zip(batch, found, expected, strict=True):
                assert outcome(description, one) == complete, (tasks, description)
