"""Checkpoints in an object store: Spark's machines reach it with Hadoop's client, and over Connect this process with
fsspec's. The client's jars come from Maven's registry."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

import tidegate as tg
from tests.support.object_store import s3_bucket
from tests.support.spark.connect import connect_server
from tests.support.spark.live_numbers import build, lines, lines_on_direct
from tests.support.spark.stream_runs import wait_for_end, wait_until
from tidegate.runners.spark.driver.session import missing, stop
from tidegate.sdk.runner import PipelineState

ROOT = Path(__file__).resolve().parents[3]
COUNT = 200
SDK = "2.35.4"
"""The version of Amazon's client that Hadoop's was made for."""

LACKS = [name for name in ("s3fs", "moto", "flask") if find_spec(name) is None]
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(bool(LACKS), reason=f"needs s3fs and moto[server]: {', '.join(LACKS)} not installed"),
]


def hadoop_version() -> str:
    """The version of the Hadoop client that PySpark brings."""
    from tests.support.spark.daemons import spark_home

    (jar,) = (spark_home() / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Spark's settings for a store that has an empty bucket named `jobs`."""
    lacks = missing(stream=True)
    if lacks:
        pytest.skip("; ".join(lacks))
    amazon = [f"software.amazon.awssdk:{name}:{SDK}" for name in ("s3", "s3-transfer-manager")]
    with s3_bucket("jobs"):
        yield {
            "spark.ui.enabled": "false",
            "spark.jars.ivy": str(tmp_path_factory.mktemp("ivy")),
            "spark.jars.packages": ",".join([f"org.apache.hadoop:hadoop-aws:{hadoop_version()}", *amazon]),
            "spark.jars.excludes": "software.amazon.awssdk:bundle",  # 640 MB
            "spark.hadoop.fs.s3a.endpoint": os.environ["AWS_ENDPOINT_URL"],
            "spark.hadoop.fs.s3a.endpoint.region": os.environ["AWS_DEFAULT_REGION"],
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.connection.expect.continue": "false",  # moto answers it as an error
            "spark.hadoop.fs.s3a.optimized.copy.from.local.enabled": "false",  # its client expects that, too
        }


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the direct runner writes."""
    return lines_on_direct(tmp_path_factory.mktemp("direct"), COUNT)


FLAGS = [
    *("--runner", "spark", "--spark_partitions", "2"),
    *("--spark_trigger_interval", "100ms", "--spark_batch_elements", "60"),
]


def test_over_connect_a_cancelled_stream_goes_on_from_the_store_exactly_once(
    store: Mapping[str, str], complete: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with connect_server(tmp_path, settings=store) as address:
        flags = [*FLAGS, "--spark_remote", address, "--spark_checkpoint_dir", "s3a://jobs/connect"]
        first = tg.Pipeline(options=flags)
        build(first, str(out), COUNT)
        result = first.run()
        wait_until(result, lambda: bool(lines(out)), "the first line of output")
        assert result.cancel() is PipelineState.CANCELLED
        assert 0 < len(lines(out)) < len(complete)
        second = tg.Pipeline(options=flags)
        build(second, str(out), COUNT)
        assert wait_for_end(second.run()) is PipelineState.DONE
        stop()
    assert lines(out) == complete


CLASSIC = """
import json, sys, tidegate as tg
from pyspark.sql import SparkSession
from tests.support.spark.live_numbers import build

out, count, settings, *flags = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "512m")
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
builder.getOrCreate()
pipeline = tg.Pipeline(options=flags)
build(pipeline, out, int(count))
pipeline.run().wait_until_finish()
"""


def test_a_killed_classic_driver_is_followed_by_another_exactly_once(
    store: Mapping[str, str], complete: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    flags = [*FLAGS, "--spark_checkpoint_dir", "s3a://jobs/classic"]
    command = [sys.executable, "-c", CLASSIC, str(out), str(COUNT), json.dumps(dict(store)), *flags]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    first = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        while not lines(out):
            with pytest.raises(subprocess.TimeoutExpired):  # it runs
                first.wait(0.1)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert 0 < len(lines(out)) < len(complete)
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    assert lines(out) == complete
