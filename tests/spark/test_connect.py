"""The same runner over Spark Connect, against a server of its own: results, errors, files, metrics."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from collect import collect

import tidegate as tg
import tidegate.io
from tidegate.runners.spark.session import missing
from tidegate.sdk.errors import UserCodeError

pytest.importorskip("grpc")


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    lacks = missing()
    if lacks:
        pytest.skip("; ".join(lacks))
    import pyspark

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = os.path.dirname(pyspark.__file__)
    log = tmp_path_factory.mktemp("connect") / "server.log"
    command = [
        os.path.join(home, "bin", "spark-submit"),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master", "local[2]",
        "--conf", "spark.connect.grpc.binding.address=127.0.0.1",
        "--conf", f"spark.connect.grpc.binding.port={port}",
        "--conf", "spark.ui.enabled=false",
        "spark-internal",
    ]  # fmt: skip
    environment = {**os.environ, "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, stdout=out, stderr=out, env=environment, start_new_session=True, cwd=log.parent
        )
    try:
        deadline = time.monotonic() + 120
        while not _answers(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield ["--runner", "spark", "--spark_remote", f"sc://127.0.0.1:{port}", "--spark_partitions", "2"]
    finally:
        from tidegate.runners.spark.session import stop

        stop()
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def test_windows_groups_and_side_inputs_work_over_connect(remote: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        values = p | tg.Create(range(200))
        total = tg.AsSingleton(values | tg.CombineGlobally(sum))
        timed = values | tg.Map(lambda x, total: tg.TimestampedValue((x % 3, total), x), total)
        return {"it": timed | tg.WindowInto(tg.FixedWindows(50)) | tg.CombinePerKey(len)}

    found, wanted = (collect(build, options=options) for options in (remote, None))
    assert sorted(found.values("it")) == sorted(wanted.values("it"))
    assert list(found.result.metrics().all()) == list(wanted.result.metrics().all())


def test_large_created_values_travel_as_rows_over_connect(remote: list[str], tmp_path: Path) -> None:
    with tg.Pipeline(options=remote) as p:
        pairs = p | tg.Create([(i % 10, "x" * 30) for i in range(100_000)])
        _ = pairs | tg.CombinePerKey(len) | tg.Map(repr) | tg.io.WriteToText(str(tmp_path / "out"))
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == [f"({key}, 10000)" for key in range(10)]


def test_the_authors_error_arrives_over_connect(remote: list[str]) -> None:
    p = tg.Pipeline(options=remote)
    _ = p | tg.Create(range(100)) | "boom" >> tg.Map(lambda x: 1 / (x - 50))
    with pytest.raises(UserCodeError) as caught:
        p.run()
    assert (caught.value.step, caught.value.element) == ("boom", "50")
    assert "java" not in str(caught.value).lower()
