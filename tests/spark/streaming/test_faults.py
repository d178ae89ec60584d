"""A stream on a standalone cluster, whose driver and executors are killed, and one of whose workers stands still.

By default a driver and an executor are killed; `--spark-stream-rounds 20` goes through all faults in turn. The output
must be exactly what the direct runner writes: each line of the text files and each row of the Parquet files and of the
Delta table once. The sums of windows that were open, and the counts of keys, say that the state was right.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.support.delta_tables import rows_of
from tests.support.spark.faulty_stream import DRIVER, EXECUTOR, build
from tests.support.spark.live_numbers import is_hidden, lines
from tests.support.spark.small_jvms import jvm_options
from tests.support.spark.standalone import Standalone

PATIENCE = 600.0
"""How long (s) each wait lasts at most."""
PAUSE = 30.0
FEW = ("executor 0", "stored")
MANY = (*DRIVER, *EXECUTOR, "pause")


class Driver:
    """A driver, which is started again after it has died."""

    def __init__(self, folder: Path, master: str, count: int) -> None:
        self.folder = folder
        settings = {
            "spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.extraJavaOptions": jvm_options(),
            "spark.network.timeout": "20s", "spark.network.timeoutInterval": "10s",
            "spark.executor.heartbeatInterval": "4s",
        }  # fmt: skip
        self._command = [
            sys.executable, "-m", "tests.support.spark.faulty_stream", str(folder), str(count),
            "--spark_master", master, "--worker_python", sys.executable, "--spark_partitions", "2",
            "--spark_trigger_interval", "100ms", "--spark_checkpoint_dir", str(folder / "checkpoint"),
            *(part for name, value in settings.items() for part in ("--spark_conf", f"{name}={value}")),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        root = str(Path(__file__).resolve().parents[3])
        with (self.folder / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env={**os.environ, "PYTHONPATH": root}, start_new_session=True, stdout=log, stderr=log
            )

    def wait(self, what: str) -> int:
        """The exit code of the driver. `what`: why it is to end."""
        assert self._process is not None
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"waited {PATIENCE:.0f} s for the driver to end: {what}; {self.log()}") from None

    def wait_for_batches(self, more: int, when: str) -> None:
        """Wait until some more batches are final."""
        before = self.last_batch
        self.wait_until(lambda: self.last_batch >= before + more, f"batch {before + more} to be final, {when}")

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        assert self._process is not None
        while not condition():
            assert self._process.poll() is None, f"the driver has ended; waited for {what}; {self.log()}"
            assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {what}; {self.log()}"
            time.sleep(0.05)

    @property
    def last_batch(self) -> int:
        """The number of the last batch that is final; -1 before the first."""
        folder = self.folder / "checkpoint/spark/commits"
        return max((int(file.name) for file in folder.glob("[0-9]*") if file.name.isdigit()), default=-1)

    def log(self) -> str:
        """The last that the driver has said."""
        return f"its last final batch is {self.last_batch}\n" + (self.folder / "driver.log").read_text()[-5000:]

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _is_gone(path: Path) -> bool:
    return not path.exists()


def written(output: Path) -> list[str]:
    """The lines and rows of all tables, with how often each is there."""
    parquet = [path for path in (output / "sums").glob("out-*") if not is_hidden(path.relative_to(output))]
    sums = [row for path in parquet for row in pq.read_table(path).to_pylist()]
    return sorted([*lines(output / "tracked"), *map(repr, sums), *map(repr, rows_of(output / "thirds"))])


def test_output_is_written_exactly_once_though_processes_die(
    spark_cluster: Standalone, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rounds = request.config.getoption("--spark-stream-rounds")
    faults = FEW if rounds == 0 else tuple(itertools.islice(itertools.cycle(MANY), rounds))
    count = 4000 * (1 + len(faults))
    (tmp_path / "armed").mkdir()
    driver = Driver(tmp_path, spark_cluster.master, count)
    driver.start()
    try:
        for number, fault in enumerate(faults):
            driver.wait_for_batches(2, f"before fault {number}, {fault!r}")
            if fault == "pause":
                worker = spark_cluster.workers[number % len(spark_cluster.workers)]
                worker.send(signal.SIGSTOP)
                time.sleep(PAUSE)  # this is what the round is about
                worker.send(signal.SIGCONT)
                continue
            armed = tmp_path / "armed" / fault
            armed.touch()
            if fault in DRIVER:
                assert driver.wait(f"fault {number}, {fault!r}") == -signal.SIGKILL, driver.log()
                assert not armed.exists()
                driver.start()
            else:
                driver.wait_until(partial(_is_gone, armed), f"an executor to die: fault {number}, {fault!r}")
        driver.wait_for_batches(2, "after the last fault")
        (tmp_path / "may end").touch()
        assert driver.wait("its input has ended") == 0, driver.log()
    finally:
        driver.kill()
    direct = tg.Pipeline(options=["--runner", "direct"])
    build(direct, str(tmp_path), str(tmp_path / "direct"), count)
    direct.run().wait_until_finish()
    expected = written(tmp_path / "direct")
    assert len(expected) > count // 20 * (7 + 3)  # the sums of each window
    assert written(tmp_path / "out") == expected
