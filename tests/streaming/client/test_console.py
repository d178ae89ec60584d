"""The messages of a job on the console and in its metrics file."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.counting_job import job_options, windowed_counts
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.streaming.client.console import LOGGER, ConsoleReporter
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.process.metrics_file import MetricsFile
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, Finish, Progress, Report
from tidegate.runners.streaming.protocol.worker_messages import TaskStatus
from tidegate.runners.streaming.runner import StreamingRunner
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.time import MIN_MICROS


def job(**settings: Any) -> Job:
    p = tg.Pipeline()
    windowed_counts(p)
    submitted = StreamingRunner().submission(p.sealed(), job_options())
    return replace(submitted.job, id="job", settings=replace(submitted.job.settings, **settings))


def status(busy: float, idle: float, records: int, watermark: int = MIN_MICROS) -> TaskStatus:
    return TaskStatus(TaskId(1, 0), records, 2 * records, busy, idle, 0.0, watermark, "running")


def lines_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_covers_the_interval_since_the_previous_one(tmp_path: Path) -> None:
    file = MetricsFile(job(metrics_interval=0.0), str(tmp_path / "m"))
    for task in [status(1.0, 1.0, 10), status(4.0, 2.0, 30, 5_000_000)]:
        file.write(Progress((task,), MetricCells()))
    first, second = lines_in(tmp_path / "m")
    assert (first["records_in"], first["records_out"], first["busy"]) == (10, 20, 0.5)
    assert (second["records_in"], second["records_out"], second["busy"], second["idle"]) == (20, 40, 0.75, 0.25)
    assert (first["watermark"], first["lag"]) == (None, None)
    assert second["watermark"] == "1970-01-01T00:00:05.000Z"
    assert second["lag"] > 1e9
    assert second["steps"] == ["count", "out"]


def test_the_counts_of_a_task_that_is_deployed_again_start_at_zero(tmp_path: Path) -> None:
    file = MetricsFile(job(metrics_interval=0.0), str(tmp_path / "m"))
    for task in [status(1.0, 1.0, 10), status(0.1, 0.3, 4)]:
        file.write(Progress((task,), MetricCells()))
    assert (lines_in(tmp_path / "m")[1]["records_in"], lines_in(tmp_path / "m")[1]["busy"]) == (4, 0.25)


def test_lines_are_not_written_more_often_than_the_interval_allows(tmp_path: Path) -> None:
    file = MetricsFile(job(metrics_interval=3600.0), str(tmp_path / "m"))
    for records in range(5):
        file.write(Progress((status(1.0, 1.0, records),), MetricCells()))
    assert len(lines_in(tmp_path / "m")) == 1


def test_checkpoints_and_changes_of_state_have_lines_of_their_own(tmp_path: Path) -> None:
    file = MetricsFile(job(), str(tmp_path / "m"))
    file.write(Report("running", "resuming from checkpoint 7"))
    file.write(CheckpointReport(8, 0.5, 1000, 0.1, 0.01))
    file.write(CheckpointReport(9, 0.5, 0, 0.0, 0.0, error="no space"))
    file.write(Finish("stopped"))
    lines = lines_in(tmp_path / "m")
    assert [line["kind"] for line in lines] == ["job", "checkpoint", "checkpoint", "job"]
    assert lines[0]["text"] == "resuming from checkpoint 7"
    assert (lines[1]["bytes"], lines[1]["error"], lines[2]["error"]) == (1000, None, "no space")
    assert lines[3]["state"] == "stopped"


def test_a_file_that_cannot_be_written_is_refused_by_the_name_of_its_flag(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"--metrics_file .*none/m can't be written: No such file or directory"):
        MetricsFile(job(), str(tmp_path / "none" / "m"))


def test_a_job_survives_the_loss_of_its_metrics_file_and_reports_each_loss_once(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "m"
    path.parent.mkdir()
    file = MetricsFile(job(), str(path))
    shutil.rmtree(path.parent)
    warnings = [file.write(Report("running", text)) for text in "ab"]
    path.parent.mkdir()
    warnings += [file.write(Report("running", "c"))]
    shutil.rmtree(path.parent)
    warnings += [file.write(Report("running", "d"))]
    warning = f"--metrics_file {path} can't be written: No such file or directory"
    assert warnings == [warning, "", "", warning]


def test_messages_go_to_the_authors_log_if_there_is_one(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        report = ConsoleReporter(job())
        report(Report("running", "resuming from checkpoint 7 in /kept"))
        report(Report("running"))
        report(CheckpointReport(8, 0.1, 10, 0.0, 0.0))
        report(CheckpointReport(9, 0.1, 0, 0.0, 0.0, error="no space"))
        report(CheckpointReport(10, 0.1, 10, 0.0, 0.0, savepoint="/saved"))
    assert [record.getMessage() for record in caplog.records] == [
        "resuming from checkpoint 7 in /kept",
        "checkpoint 9 failed: no space",
        "savepoint 10 is in /saved",
    ]
    assert caplog.records[0].__dict__["tidegate_job"] == "job"


def test_messages_go_to_stderr_without_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.Logger, "hasHandlers", lambda self: False)
    ConsoleReporter(job())(Report("restarting", "worker 1 has gone"))
    printed = capsys.readouterr().err
    assert printed.endswith("tidegate job=job state=restarting: worker 1 has gone\n")


def test_only_the_exception_reports_that_a_bounded_job_failed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        ConsoleReporter(job(batch=True))(Report("finishing", "task 0.0 failed"))
        ConsoleReporter(job(batch=False))(Report("finishing", "task 0.0 failed"))
    assert [record.getMessage() for record in caplog.records] == ["task 0.0 failed"]
