"""Files that Spark keeps for workers that join later: named by content, said when they are many, removed on request."""

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


def given(spark: Any) -> list[str]:
    """The files that Spark has executors fetch."""
    names = (url.rpartition("/")[2] for url in spark.sparkContext.listFiles)
    return sorted(name for name in names if name.startswith("tidegate-"))


def content_read(spark: Any, name: str) -> list[bytes]:
    """What a task reads from a file it was sent."""

    def read(_: int) -> bytes:
        from pyspark import SparkFiles

        return Path(SparkFiles.get(name)).read_bytes()

    return spark.sparkContext.parallelize([0], 1).map(read).collect()  # type: ignore[no-any-return]


def test_what_is_given_twice_is_one_file_which_outlives_both_runs(spark: Any) -> None:
    names = []
    for _ in range(2):
        run = Artifacts(spark, local=False)
        names.append(run.publish_bytes(b"the same"))
        run.close()
    assert names[0] == names[1]
    assert given(spark) == [names[0][0]]
    assert content_read(spark, names[0][0]) == [b"the same"]


def test_what_is_cleared_is_gone_from_spark_and_disk_and_can_be_given_again(spark: Any) -> None:
    run = Artifacts(spark, local=False)
    name, _ = run.publish_bytes(b"once more")
    folder = module.spark_files_folder(spark.sparkContext)
    with pytest.raises(RunError, match="can't be removed while a run uses it"):
        clear_artifacts(spark)
    run.close()
    assert clear_artifacts(spark) == len(b"once more")
    assert given(spark) == []
    assert name not in os.listdir(folder)
    assert spark.sparkContext.parallelize(range(3)).sum() == 3
    run = Artifacts(spark, local=False)
    assert run.publish_bytes(b"once more") == (name, "")
    run.close()
    assert content_read(spark, name) == [b"once more"]


def test_a_run_that_gives_nothing_away_leaves_no_folder(spark: Any) -> None:
    folder = module.spark_files_folder(spark.sparkContext)
    before = os.listdir(folder)
    for local in (True, False):
        run = Artifacts(spark, local=local)
        run.new_file().write_bytes(b"half a file")
        run.close()
    assert os.listdir(folder) == before


def test_that_a_session_holds_much_is_said_once(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY_BYTES", 10**6)
    said: list[str] = []
    monkeypatch.setattr(module, "notify", said.append)
    run = Artifacts(spark, local=False)
    for byte in b"abca":
        run.publish_bytes(bytes([byte]) * 700_000)
    run.close()
    (line,) = said
    assert line.startswith("this Spark session holds 1 MB of large values and side inputs of its runs (2 files)")
    assert "clear_artifacts(spark)" in line


def test_a_pipeline_that_is_run_again_gives_spark_the_same_files(
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
        found.append(given(spark))
    assert found[0] == found[1]
    assert len(found[0]) >= 3  # values, side inputs, and what levels must know


def test_files_that_a_server_keeps_are_cleared_by_ending_its_session() -> None:
    with pytest.raises(UnsupportedError, match="until their session ends"):
        clear_artifacts(object())
