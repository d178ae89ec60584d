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
from tidegate.runners.spark.worker import daemon

needs_spark = pytest.mark.skipif(bool(session.missing()), reason="; ".join(session.missing()))


def output_when_a_worker_loses_its_connection(*program: str) -> str:
    """The output of a daemon whose only worker loses its connection before it receives a task."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        environment = {
            **os.environ,
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
            "SPARK_REUSE_WORKER": "1",
            "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
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
def test_a_worker_that_loses_its_connection_exits_silently() -> None:
    assert output_when_a_worker_loses_its_connection(str(Path(daemon.__file__))) == ""


@needs_spark
@pytest.mark.skipif(sys.platform != "linux", reason="waits for a grandchild by its file descriptor")
def test_pysparks_own_daemon_prints_a_traceback_when_a_worker_loses_its_connection() -> None:
    assert "BrokenPipeError" in output_when_a_worker_loses_its_connection("-m", "pyspark.daemon")


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
