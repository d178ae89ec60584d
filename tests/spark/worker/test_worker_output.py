"""Workers write nothing to the author's terminal except what the author prints."""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tidegate.runners.spark.driver import session
from tidegate.runners.spark.worker import daemon, site

needs_spark = pytest.mark.skipif(bool(session.missing()), reason="; ".join(session.missing()))


FAILS = {"PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1"}
"""Spark sets this for workers of bounded data, but not for those of streams."""


def output_when_a_worker_loses_its_connection(*program: str, **variables: str) -> str:
    """The output of a daemon whose only worker loses its connection before it receives a task."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        environment = {
            **os.environ,
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
            "SPARK_REUSE_WORKER": "1",
            **variables,
        }
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen([sys.executable, *program, "pyspark.worker"], env=environment, **pipes) as forking:  # type: ignore[call-overload]
            (length,) = struct.unpack("!i", forking.stdout.read(4))
            path = forking.stdout.read(length)
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
                (pid,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
                worker = os.pidfd_open(pid)
            select.select([worker], [], [])
            os.close(worker)
            _, output = forking.communicate()
    return str(output, "utf-8")


@needs_spark
@pytest.mark.skipif(sys.platform != "linux", reason="waits for a grandchild by its file descriptor")
@pytest.mark.parametrize("variables", [{}, FAILS], ids=["of a stream", "of bounded data"])
def test_a_worker_that_loses_its_connection_exits_silently(variables: dict[str, str]) -> None:
    assert output_when_a_worker_loses_its_connection(str(Path(daemon.__file__)), **variables) == ""


@needs_spark
@pytest.mark.skipif(sys.platform != "linux", reason="waits for a grandchild by its file descriptor")
def test_pysparks_own_daemon_is_silent_if_it_starts_with_our_site(tmp_path: Path) -> None:
    """As it does for the source of ticks."""
    (tmp_path / "sitecustomize.py").write_bytes(Path(site.__file__).read_bytes())
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert output_when_a_worker_loses_its_connection("-m", "pyspark.daemon", PYTHONPATH=path) == ""


@needs_spark
@pytest.mark.skipif(sys.platform != "linux", reason="waits for a grandchild by its file descriptor")
@pytest.mark.parametrize("variables", [{}, FAILS], ids=["of a stream", "of bounded data"])
def test_pysparks_own_daemon_prints_a_traceback_when_a_worker_loses_its_connection(variables: dict[str, str]) -> None:
    assert "BrokenPipeError" in output_when_a_worker_loses_its_connection("-m", "pyspark.daemon", **variables)


@needs_spark
@pytest.mark.skipif(sys.platform != "linux", reason="PySpark connects to Unix sockets")
@pytest.mark.parametrize("with_site", [True, False])
def test_the_source_of_a_stream_that_stops_is_silent_if_it_starts_with_our_site(
    with_site: bool, tmp_path: Path
) -> None:
    if with_site:
        (tmp_path / "sitecustomize.py").write_bytes(Path(site.__file__).read_bytes())
    address = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as spark:
        spark.bind(address)
        spark.listen()
        variables = {"PYTHON_WORKER_FACTORY_SOCK_PATH": address, "PYTHONPATH": str(tmp_path)}
        command = [sys.executable, "-m", "pyspark.sql.streaming.python_streaming_source_runner"]
        with subprocess.Popen(command, env={**os.environ, **variables}, stderr=subprocess.PIPE, text=True) as source:
            connection, _ = spark.accept()
            connection.recv(4, socket.MSG_WAITALL)  # the number of the process
            connection.close()
            _, printed = source.communicate()
    assert printed == "" if with_site else "BrokenPipeError" in printed


SCRIPT = """\
import sys

import tidegate as tg


def share(x, total, last):
    if x == last:
        raise ValueError("this one")
    return str(x / total)


for last in sys.argv[2:]:
    p = tg.Pipeline(options=["--runner", "spark", "--spark_master", "local[2]", "--spark_partitions", "2"])
    numbers = p | tg.Create(range(100)) | tg.Reshuffle()
    total = tg.AsSingleton(numbers | tg.CombineGlobally(sum))
    _ = numbers | tg.Map(share, total, int(last)) | tg.io.WriteToText(sys.argv[1])
    try:
        p.run()
    except tg.UserCodeError:
        print("failed")
    else:
        print("done")
"""


@needs_spark
@pytest.mark.parametrize(
    ("last_lines", "output"),
    [(["7", "-1"], "failed\ndone\n"), (["-1", "7"], "done\nfailed\n")],
    ids=["ends after a success", "ends after a failure"],
)
def test_a_small_script_prints_nothing_on_standard_error(last_lines: list[str], output: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "out" / "part"), *last_lines]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (output, "")
