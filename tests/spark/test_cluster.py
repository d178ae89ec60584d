"""A standalone cluster: a master and two workers with hosts of their own, whose Python has no Tidegate.

Executors die by SIGKILL in each stage, from inside the author's code, once: what comes out is right and complete.
"""

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

from tidegate.runners.spark.session import missing

SCRIPT = '''
import os, pathlib, signal, sys
import tidegate as tg, tidegate.io

folder = sys.argv[1]

def die_once(element, here, stage):
    """Kill this task's executor: the parent of the daemon that forked this process."""
    if here == stage:
        try:
            os.close(os.open(f"{folder}/died-{stage}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return element
        stat = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(stat.rsplit(")", 1)[1].split()[1]), signal.SIGKILL)
    return element

for stage in ("none", "map", "middle", "result"):
    with tg.Pipeline(options=sys.argv[2:]) as p:
        numbers = p | tg.Create(range(4000)) | "map" >> tg.Map(die_once, "map", stage)
        sums = numbers | "pair" >> tg.Map(lambda x: (x % 50, x)) | tg.CombinePerKey(sum)
        again = sums | "middle" >> tg.Map(die_once, "middle", stage) | tg.MapTuple(lambda k, v: (k % 5, v))
        lines = again | tg.GroupByKey() | "result" >> tg.Map(die_once, "result", stage)
        _ = lines | tg.Map(lambda pair: f"{pair[0]} {sum(pair[1])}") | tg.io.WriteToText(f"{folder}/{stage}/sums")
'''
EXPECTED = sorted(f"{key} {sum(x for x in range(4000) if x % 5 == key)}" for key in range(5))

WITHOUT_TIDEGATE = """
import os, sys
sys.path[:] = [path for path in sys.path if path and not os.path.exists(os.path.join(path, "tidegate"))]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    lacks = missing()
    if lacks:
        pytest.skip("; ".join(lacks))
    if sys.platform != "linux":
        pytest.skip("other hosts than 127.0.0.1 need Linux")
    home = tmp_path_factory.mktemp("cluster")
    (home / "sitecustomize.py").write_text(WITHOUT_TIDEGATE)
    python = home / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{home}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    port = _free_port()
    processes = [_start(home, "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")]
    try:
        _await(lambda: _answers("127.0.0.1", port))
        for host in ("127.0.0.1", "127.0.0.2"):
            options = ["--host", host, "-c", "1", "-m", "1g", "--webui-port", "0", "-d", str(home / host)]
            processes.append(_start(home, "worker.Worker", *options, f"spark://127.0.0.1:{port}"))
        flags = {"spark_master": f"spark://127.0.0.1:{port}", "worker_python": str(python), "spark_partitions": "3"}
        conf = ["spark.executor.memory=512m", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"]
        yield [
            "--runner", "spark",
            *(part for name, value in flags.items() for part in (f"--{name}", value)),
            *(part for pair in conf for part in ("--spark_conf", pair)),
        ]  # fmt: skip
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _start(home: Path, daemon: str, *options: str) -> subprocess.Popen[bytes]:
    import pyspark

    spark = os.path.dirname(pyspark.__file__)
    with (home / "log").open("ab") as log:
        return subprocess.Popen(
            [os.path.join(spark, "bin", "spark-class"), f"org.apache.spark.deploy.{daemon}", *options],
            stdout=log, stderr=log, cwd=home, start_new_session=True, env={**os.environ, "SPARK_HOME": spark},
        )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def _answers(host: str, port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex((host, port)) == 0


def _await(true: Any) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_the_output_is_right_and_complete_whichever_executor_dies(cluster: list[str], tmp_path: Path) -> None:
    stages = ["none", "map", "middle", "result"]
    for stage in stages:
        (tmp_path / stage).mkdir()
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *cluster],
        capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for stage in stages:
        assert (tmp_path / f"died-{stage}").exists() == (stage != "none")
        files = list((tmp_path / stage).iterdir())
        assert sorted(line for path in files for line in path.read_text().splitlines()) == EXPECTED
        assert all(path.name.startswith("sums-") for path in files)
