"""One Spark session for all tests of this folder: the runner keeps the one it makes for the first of them."""

from __future__ import annotations

import pytest

from tidegate.runners.spark.session import missing


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tidegate").addoption(
        "--spark-pipelines", type=int, default=12, help="how many random pipelines to compare on Spark"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "spark":
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture
def flags() -> list[str]:
    """What chooses the runner, and the session all tests share."""
    lacks = missing()
    if lacks:
        pytest.skip("; ".join(lacks))
    return ["--runner", "spark", "--spark_master", "local[2]", "--spark_partitions", "3"]
