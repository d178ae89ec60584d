"""Artifacts, which Spark stores for workers that join later: named by content, removed on request."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.spark import clear_artifacts
from tidegate.runners.spark.plan import artifacts as module
from tidegate.runners.spark.plan.artifacts import Artifacts
from tidegate.sdk.errors import RunError, UnsupportedError


@pytest.fixture
def spark(spark_session: Any) -> Iterator[Any]:
    clear_artifacts(spark_session)
    yield spark_session
    clear_artifacts(spark_session)


def artifacts_of(spark: Any) -> list[str]:
    """The names of the artifacts that executors fetch."""
    names = (url.rpartition("/")[2] for url in spark.sparkContext.listFiles)
    return sorted(name for name in names if name.startswith("tidegate-"))


def content_read(spark: Any, name: str) -> list[bytes]:
    """The content of an artifact as a task reads it."""

    def read(_: int) -> bytes:
        from pyspark import SparkFiles

        return Path(SparkFiles.get(name)).read_bytes()

    return spark.sparkContext.parallelize([0], 1).map(read).collect()  # type: ignore[no-any-return]


def test_equal_content_is_published_as_one_file_that_outlives_both_runs(spark: Any) -> None:
    names = []
    for _ in range(2):
        run = Artifacts(spark, local=False)
        names.append(run.publish_bytes(b"the same"))
        run.close()
    assert names[0] == names[1]
    assert artifacts_of(spark) == [names[0][0]]
    assert content_read(spark, names[0][0]) == [b"the same"]


def test_cleared_artifacts_are_removed_from_spark_and_disk_and_can_be_published_again(spark: Any) -> None:
    run = Artifacts(spark, local=False)
    name, _ = run.publish_bytes(b"once more")
    folder = module.spark_files_folder(spark.sparkContext)
    with pytest.raises(RunError, match="can't be removed while a run uses it"):
        clear_artifacts(spark)
    run.close()
    assert clear_artifacts(spark) == len(b"once more")
    assert artifacts_of(spark) == []
    assert name not in os.listdir(folder)
    assert spark.sparkContext.parallelize(range(3)).sum() == 3
    run = Artifacts(spark, local=False)
    assert run.publish_bytes(b"once more") == (name, "")
    run.close()
    assert content_read(spark, name) == [b"once more"]


def test_a_run_that_publishes_nothing_leaves_no_folder(spark: Any) -> None:
    folder = module.spark_files_folder(spark.sparkContext)
    folders = os.listdir(folder)
    for local in (True, False):
        run = Artifacts(spark, local=local)
        run.new_file().write_bytes(b"half a file")
        run.close()
    assert os.listdir(folder) == folders


def test_a_session_with_many_artifacts_gets_one_warning(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_BYTES", 10**6)
    warnings: list[str] = []
    monkeypatch.setattr(module, "notify", warnings.append)
    run = Artifacts(spark, local=False)
    for byte in b"abca":
        run.publish_bytes(bytes([byte]) * 700_000)
    run.close()
    (line,) = warnings
    assert line.startswith("this Spark session holds 1 MB of large values and side inputs of its runs (2 files)")
    assert "clear_artifacts(spark)" in line


def test_a_pipeline_that_runs_again_publishes_the_same_files(
    spark: Any, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.runners.spark.driver.session.workers_are_local", lambda spark: False)
    ballast = os.urandom(3 << 20)
    found = []
    for _ in range(2):
        with tg.Pipeline(options=flags) as p:
            values = p | tg.Create([(n % 7, f"{n} {'x' * 30}") for n in range(40_000)])
            names = p | "names" >> tg.Create([(n, f"{n:0300}") for n in range(5_000)])
            held = tg.AsDict(names)
            sized = values | tg.MapTuple(lambda k, v, held: (k, len(held[k]) + len(ballast)), held)
            _ = sized | tg.CombinePerKey(max) | tg.Map(print)
        found.append(artifacts_of(spark))
    assert found[0] == found[1]
    assert len(found[0]) >= 3  # values, side inputs, and task specifications


def test_clearing_artifacts_over_connect_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="until their session ends"):
        clear_artifacts(object())
