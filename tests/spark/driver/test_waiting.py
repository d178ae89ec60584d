"""The progress of a run: live counts, warnings about stalls, cancellation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
import tidegate.io
from tests.support.spark.daemons import Daemon, spark_home
from tests.support.spark.small_jvms import jvm_options
from tidegate.runners.spark import SparkRunner
from tidegate.runners.spark.driver import progress
from tidegate.runners.spark.driver.session import missing
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.runner import PipelineState


def waiting_for(pipe: Path, *, at: int) -> Callable[[int], int]:
    """A function that waits at the element `at` until the pipe is opened."""
    path = str(pipe)

    def wait(n: int) -> int:
        if n == at:
            with open(path, "rb"):
                pass
        return n

    return wait


def test_cancelling_the_job_group_cancels_the_run_and_leaves_no_output(
    flags: list[str], spark_session: Any, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "begun")
    context = spark_session.sparkContext
    started = str(tmp_path / "begun")

    def begin(n: int) -> int:
        if n == 0:
            with open(started, "wb"):
                pass
        return n

    def cancel() -> None:
        with open(started, "rb"):
            pass
        context.cancelJobGroup("mine")

    thread = threading.Thread(target=cancel, daemon=True)
    thread.start()
    context.setLocalProperty("spark.jobGroup.id", "mine")
    context.setLocalProperty("spark.job.interruptOnCancel", "true")
    try:
        p = tg.Pipeline(options=flags)
        elements = p | tg.Create(range(6)) | tg.Map(begin) | tg.Map(waiting_for(tmp_path / "pipe", at=0))
        _ = elements | tg.Map(str) | tg.io.WriteToText(str(tmp_path / "written" / "out"))
        result = p.run()
    finally:
        for name in ("spark.jobGroup.id", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)
    thread.join()
    assert result.state is PipelineState.CANCELLED
    assert result.wait_until_finish() is PipelineState.CANCELLED
    assert not [path for path in tmp_path.glob("written/**/*") if path.is_file()]


def test_elements_of_each_step_are_counted_while_tasks_are_still_running(
    flags: list[str], spark_session: Any, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    runner = SparkRunner()
    counts: list[MetricCells] = []
    runner.watch = counts.append
    counted: list[int] = []

    def look(_: str) -> None:
        if not counts:  # no session yet
            return
        n = counts[0].counters.get(MetricKey("step", ENGINE, "elements_out"), 0)
        if n and not counted:
            counted.append(n)
            with open(tmp_path / "pipe", "wb"):
                pass

    runner.tell = look
    p = tg.Pipeline(options=flags)
    _ = p | tg.Create(range(300)) | "step" >> tg.Map(waiting_for(tmp_path / "pipe", at=299))
    result = runner.run(p.sealed(), p.options)
    assert counted[0] in (100, 200)
    (found,) = result.metrics().query("elements_out", step="step")
    assert found.value == 300
    assert counts[0].counters == {each.key: each.value for each in result.metrics().all()}


def test_each_stall_is_reported_once_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    now = [100.0]
    monkeypatch.setattr(progress, "notify", messages.append)
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    stalls = progress._StallDetector()
    steps: list[tuple[tuple[int, int, int], int | None]] = [
        ((0, 0, 0), 0),  # no job yet
        ((0, 3, 0), 0), ((0, 3, 0), 0), ((0, 3, 0), 0), ((0, 3, 0), 0),
        ((0, 3, 1), 1), ((1, 3, 0), 1), ((1, 3, 0), 1), ((1, 3, 0), 1), ((1, 3, 0), 1),
        ((2, 3, 1), 2), ((2, 3, 0), None), ((2, 3, 0), None), ((2, 3, 0), None),
    ]  # fmt: skip
    for (done, tasks, active), executors in steps:
        stalls.observe(done, tasks, active)
        stalls.report_if_stalled(lambda executors=executors: executors)  # type: ignore[misc]
        now[0] += 6
    none, one, unknown = messages
    assert none.startswith("waiting for Spark to run one of 3 tasks: no executor has joined the session. The cluster's")
    assert one == "waiting for Spark to run one of 2 tasks: the executor is busy with other jobs"
    assert unknown == "waiting for Spark to run 1 task: its executors are busy, or there are none"


def test_an_error_of_the_check_of_shared_paths_is_reported_without_a_trace(
    flags: list[str], spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tidegate.runners.spark.driver import shared_paths

    def broken(wanted: Any) -> Any:
        def probe(batches: Any) -> Any:
            raise OSError("no such device")
            yield

        return probe

    monkeypatch.setattr(shared_paths, "_probe", broken)
    monkeypatch.setattr("tidegate.runners.spark.driver.session.workers_are_local", lambda spark: False)
    p = tg.Pipeline(options=flags)
    _ = p | tg.Create(["x"]) | tg.io.WriteToText(str(tmp_path / "out"))
    with pytest.raises(RunError, match=r"Spark could not finish the run: [^\0]*no such device") as caught:
        p.run()
    assert "Py4JJavaError" not in str(caught.value)
    assert "\tat " not in str(caught.value)


JOB = """
import sys
import tidegate as tg

def pipeline(options):
    p = tg.Pipeline(options=options)
    _ = p | tg.Create([1, 2]) | tg.Map(print)
    return p
"""


def test_a_run_without_executors_reports_it_and_ends_quietly_at_sigterm(tmp_path: Path) -> None:
    lacks = missing()
    if lacks:
        pytest.skip("; ".join(lacks))
    (tmp_path / "job.py").write_text(JOB)
    master = Daemon(
        tmp_path,
        spark_home() / "bin" / "spark-class",
        "org.apache.spark.deploy.master.Master",
        *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
        environment={"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": jvm_options()},
    )
    try:
        url = master.wait_for("Starting Spark master at (spark://.+)")[1].strip()
        master.wait_for("New state: ALIVE")
        command = [sys.executable, "-m", "tidegate", "run", "job.py", "--runner", "spark", "--spark_master", url]
        command += ["--spark_conf", "spark.ui.enabled=false", "--spark_conf", "spark.driver.host=127.0.0.1"]
        command += ["--spark_conf", "spark.driver.bindAddress=127.0.0.1"]
        lines = []
        with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
            assert run.stderr is not None
            for line in run.stderr:
                lines.append(line)
                if "no executor has joined the session" in line:
                    run.send_signal(signal.SIGTERM)
    finally:
        master.stop()
    output = "".join(lines)
    assert "waiting for Spark to run 1 task: no executor has joined the session" in output
    assert "Traceback" not in output
    assert "py4j" not in output
    assert output.endswith("Terminated!\n")
    assert run.returncode == 128 + signal.SIGTERM
