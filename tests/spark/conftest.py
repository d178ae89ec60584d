"""The tests of this folder share one Spark session with all other tests on Spark, and one cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.spark.standalone import Standalone, standalone

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture
def flags(spark_session: Any) -> list[str]:
    """The flags that select the runner; it uses the shared session."""
    return ["--runner", "spark", "--spark_master", "local[2]", "--spark_partitions", "3"]


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory, spark_classes: None) -> Iterator[Standalone]:
    """A standalone cluster; the applications of each test are its own, and may lose executors."""
    from tidegate.runners.spark.driver.session import missing

    lacks = missing()
    if lacks:
        pytest.skip("; ".join(lacks))
    if sys.platform != "linux":
        pytest.skip("other hosts than 127.0.0.1 need Linux")
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running
