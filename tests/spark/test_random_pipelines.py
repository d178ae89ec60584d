"""Random pipelines on Spark give what the list-based model gives. `--spark-pipelines 200` compares that many."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from model import Description, expected, outcome, pipelines, run


def test_random_pipelines_give_what_the_model_gives(flags: list[str], request: pytest.FixtureRequest) -> None:
    @settings(
        max_examples=request.config.getoption("--spark-pipelines"),
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(pipelines())
    def compare(description: Description) -> None:
        assert outcome(description, run(description, options=flags)) == expected(description)

    compare()
