"""The log of a job in a session: its contents and its maximum size."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import tidegate as tg
from tests.support.streaming.counting_job import job_options, windowed_counts
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, Finish, Progress, Report
from tidegate.runners.streaming.runner import StreamingRunner
from tidegate.runners.streaming.session.job_log import JobLog, earlier, tail
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricCells

PROGRESS = Progress((), MetricCells())


def job() -> Job:
    p = tg.Pipeline()
    windowed_counts(p)
    return replace(StreamingRunner().submission(p.sealed(), job_options()).job, id="a-job")


def texts(log: Path) -> list[str]:
    """The lines of a log without their times."""
    return [line.partition(" tidegate ")[2] or line for line in tail(log).decode().splitlines()]


def test_a_log_has_the_messages_that_a_client_would_show_and_the_end_of_the_job(tmp_path: Path) -> None:
    path = tmp_path / "a-job.log"
    log = JobLog(job(), path)
    log.write(Report("running", "resuming from checkpoint 3"))
    log.write(Report("running"))
    log.write(CheckpointReport(4, 0.1, 10, 0.0, 0.0, error="the disk is full"))
    log.write(CheckpointReport(5, 0.1, 10, 0.0, 0.0))
    log.write(Finish("failed"), RunError("step 'parse' failed\n  element: '\x1b[31m'"))
    assert texts(path) == [
        "job=a-job state=running: resuming from checkpoint 3",
        "job=a-job checkpoint=4: checkpoint 4 failed: the disk is full",
        "job=a-job: failed",
        "step 'parse' failed",
        "  element: '\\x1b[31m'",
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_is_cut_while_the_job_prints_and_keeps_the_latest_lines(tmp_path: Path) -> None:
    path, longest = tmp_path / "a-job.log", 1000
    log = JobLog(job(), path, longest)
    lines = [f"line {n:04}\n" for n in range(1000)]
    with open(path, "ab", buffering=0) as printing:  # as in the job's processes
        for n, line in enumerate(lines):
            printing.write(line.encode())
            if n % 7 == 0:
                log.write(PROGRESS)
                assert path.stat().st_size <= longest
                assert not earlier(path).exists() or earlier(path).stat().st_size <= longest
    lines_kept = tail(path).decode()
    assert lines_kept == "".join(lines)[-len(lines_kept) :]
    assert longest - len(lines[0]) <= len(lines_kept) <= 2 * longest
    assert stat.S_IMODE(earlier(path).stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["a-job.earlier", "a-job.log"]


def test_the_last_lines_may_begin_in_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "a-job.log"
    earlier(path).write_bytes(b"one\ntwo\n")
    path.write_bytes(b"three\n")
    assert tail(path, 2) == b"two\nthree\n"
    assert tail(path, 0) == b""
    assert tail(path, 9) == tail(path) == b"one\ntwo\nthree\n"


def test_a_log_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    log = JobLog(job(), tmp_path / "not there" / "a-job.log")
    log.write(Report("running", "going on"))
    log.write(PROGRESS)
    assert list(tmp_path.iterdir()) == []
