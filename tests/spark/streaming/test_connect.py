"""Streams over Spark Connect: what classic sessions write, exactly once, when the client or an executor is killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.spark.connect import connect_server
from tests.support.spark.live_numbers import LiveNumbers, build, is_hidden, lines, lines_on_direct
from tests.support.spark.small_jvms import jvm_options
from tests.support.spark.standalone import Standalone
from tests.support.spark.stream_runs import wait_for_end, wait_until
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.spark.driver.session import missing, stop
from tidegate.runners.spark.streaming.driver.start import refuse_repetition
from tidegate.sdk.errors import OptionsError, RunError, UserCodeError
from tidegate.sdk.runner import PipelineState

pytest.importorskip("grpc")

ROOT = Path(__file__).resolve().parents[3]
COUNT = 400


def flags_of(address: str, folder: Path) -> list[str]:
    return [
        *("--runner", "spark", "--spark_remote", address, "--spark_partitions", "2"),
        *("--spark_trigger_interval", "100ms", "--spark_batch_elements", "60"),
        *("--spark_checkpoint_dir", str(folder / "checkpoint")),
    ]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lacks = missing(stream=True)
    if lacks:
        pytest.skip("; ".join(lacks))
    with connect_server(tmp_path_factory.mktemp("connect")) as started:
        yield started
        stop()


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the direct runner writes."""
    return lines_on_direct(tmp_path_factory.mktemp("direct"), COUNT)


def finished(flags: list[str], folder: Path) -> list[str]:
    """Run the stream to its end; all that it has ever written."""
    pipeline = tg.Pipeline(options=flags)
    build(pipeline, str(folder / "out"), COUNT)
    assert wait_for_end(pipeline.run()) is PipelineState.DONE
    return lines(folder / "out")


def left_over(folder: Path) -> list[Path]:
    """Output that has not been committed."""
    return [path for path in (folder / "out").rglob("*") if is_hidden(path.relative_to(folder))]


def test_a_cancelled_stream_goes_on_from_its_checkpoint_exactly_once(
    address: str, complete: list[str], tmp_path: Path
) -> None:
    flags = flags_of(address, tmp_path)
    first = tg.Pipeline(options=flags)
    build(first, str(tmp_path / "out"), COUNT)
    result = first.run()
    wait_until(result, lambda: bool(lines(tmp_path / "out")), "the first line of output")
    assert result.cancel() is PipelineState.CANCELLED
    assert 0 < len(lines(tmp_path / "out")) < len(complete)
    reading, grouping = result.stages()
    assert all(stage.busy > 0 and stage.behind is not None for stage in (reading, grouping))
    assert finished(flags, tmp_path) == complete
    assert left_over(tmp_path) == []


def test_a_killed_client_is_followed_by_another_exactly_once(address: str, complete: list[str], tmp_path: Path) -> None:
    """The query of the first one goes on for a while, and what it has stored is committed by the second."""
    flags = flags_of(address, tmp_path)
    script = (
        "import sys, tidegate as tg; from tests.support.spark.live_numbers import build; "
        f"p = tg.Pipeline(options=sys.argv[2:]); build(p, sys.argv[1], {COUNT}); p.run().wait_until_finish()"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "out"), *flags]
    client = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not lines(tmp_path / "out"):
            with pytest.raises(subprocess.TimeoutExpired):  # it runs
                client.wait(0.1)
    finally:
        client.kill()
        client.wait()
    assert finished(flags, tmp_path) == complete
    assert left_over(tmp_path) == []


def test_a_savepoint_taken_over_connect_starts_a_classic_session(
    address: str, complete: list[str], tmp_path: Path, spark_session: Any
) -> None:
    first = tg.Pipeline(options=flags_of(address, tmp_path))
    build(first, str(tmp_path / "out"), COUNT)
    result = first.run()
    wait_until(result, lambda: bool(lines(tmp_path / "out")), "the first line of output")
    result.stop(savepoint=str(tmp_path / "saved"))
    wait_for_end(result)
    classic = ["--runner", "spark", "--spark_partitions", "3", "--from_savepoint", str(tmp_path / "saved")]
    assert finished(classic, tmp_path) == complete


def test_a_checkpoint_that_is_away_for_a_moment_is_waited_for(
    address: str, complete: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = 0
    list_names = LocalStorage.list

    def listed(storage: LocalStorage, folder: str) -> list[str]:
        nonlocal failures
        if failures < 2 and lines(tmp_path / "out"):
            failures += 1
            raise OSError(errno.EIO, "Input/output error", folder)
        return list_names(storage, folder)

    monkeypatch.setattr(LocalStorage, "list", listed)
    assert finished(flags_of(address, tmp_path), tmp_path) == complete
    assert failures == 2


def fails_at_7(number: int) -> float:
    return 1 / (number - 7)


def test_an_error_of_the_author_names_step_and_element(address: str, tmp_path: Path) -> None:
    pipeline = tg.Pipeline(options=flags_of(address, tmp_path))
    inverse = pipeline | tg.Read(LiveNumbers(20)) | "inverse" >> tg.Map(fails_at_7) | tg.Map(str)
    _ = inverse | tg.io.WriteToText(str(tmp_path / "out"))
    with pytest.raises(UserCodeError, match="division by zero") as caught:
        wait_for_end(pipeline.run())
    assert caught.value.step == "inverse"
    assert "7" in str(caught.value)
    assert list(tmp_path.glob("out*")) == []


def test_a_server_that_does_not_reach_the_checkpoint_is_told_from_others(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here what this process notes in the folder is not there for the server."""
    from tidegate.runners.spark.streaming.driver.ticks import SharedDueFile

    monkeypatch.setattr(SharedDueFile, "begin", lambda self: setattr(self, "_noted", 0))
    pipeline = tg.Pipeline(options=flags_of(address, tmp_path))
    _ = pipeline | tg.Read(LiveNumbers(9)) | tg.Map(str) | tg.io.WriteToText(str(tmp_path / "out"))
    with pytest.raises(RunError, match=r"Spark's driver does not reach the folder of --spark_checkpoint_dir"):
        wait_for_end(pipeline.run())


def test_a_stream_needs_a_checkpoint_that_it_shares_with_the_server(address: str) -> None:
    pipeline = tg.Pipeline(options=["--runner", "spark", "--spark_remote", address])
    _ = pipeline | tg.Read(LiveNumbers(9)) | tg.Map(print)
    with pytest.raises(OptionsError, match="needs a --spark_checkpoint_dir that all machines reach"):
        pipeline.run()


ONCE = {"spark.stage.maxAttempts": "1", "spark.task.maxFailures": "1"}


def test_a_cluster_that_repeats_tasks_is_refused() -> None:
    refuse_repetition({"spark.master": "local[2]"})
    refuse_repetition({"spark.master": "spark://host:7077", **ONCE})
    for name in ONCE:
        with pytest.raises(OptionsError, match=f"start it with --conf {name}=1$"):
            refuse_repetition({"spark.master": "spark://host:7077", **ONCE, name: "4"})


def test_an_executor_is_killed_and_each_element_is_written_once(
    spark_cluster: Standalone, complete: list[str], tmp_path: Path
) -> None:
    settings = {
        "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.extraJavaOptions": jvm_options(), "spark.network.timeout": "20s",
        "spark.network.timeoutInterval": "10s", "spark.executor.heartbeatInterval": "4s", **ONCE,
    }  # fmt: skip
    stop()
    try:
        with connect_server(tmp_path, spark_cluster.master, settings) as address:
            flags = flags_of(address, tmp_path)
            pipeline = tg.Pipeline(options=[*flags, "--spark_batch_elements", "20"])
            build(pipeline, str(tmp_path / "out"), COUNT)
            result = pipeline.run()
            wait_until(result, lambda: bool(lines(tmp_path / "out")), "the first line of output")
            executors = executors_of(spark_cluster)
            assert executors
            os.kill(executors[0], signal.SIGKILL)
            assert wait_for_end(result) is PipelineState.DONE
            stop()
    finally:
        stop()
    assert lines(tmp_path / "out") == complete


def executors_of(cluster: Standalone) -> list[int]:
    """The processes of the executors."""
    groups = {worker.group for worker in cluster.workers}
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            inside = os.getpgid(int(process.name)) in groups
        except OSError:
            continue
        if inside and b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
            found.append(int(process.name))
    return found
