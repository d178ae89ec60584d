"""The tests of this folder share one Spark session with all other tests on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture
def flags(spark_session: Any) -> list[str]:
    """The flags that select the runner; it uses the shared session."""
    return ["--runner", "spark", "--spark_master", "local[2]", "--spark_partitions", "3"]
