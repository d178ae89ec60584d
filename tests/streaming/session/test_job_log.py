"""The log of a session's job: what is in it, and how long it may become."""

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

NEWS = Progress((), MetricCells())


def job() -> Job:
    p = tg.Pipeline()
    windowed_counts(p)
    return replace(StreamingRunner().submission(p.sealed(), job_options()).job, id="a-job")


def texts(log: Path) -> list[str]:
    """The lines of a log without their times."""
    return [line.partition(" tidegate ")[2] or line for line in tail(log).decode().splitlines()]


def test_a_log_has_what_a_client_would_have_shown_and_how_the_job_ended(tmp_path: Path) -> None:
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


def test_a_log_is_cut_while_the_job_prints_on_and_keeps_the_latest_lines(tmp_path: Path) -> None:
    path, longest = tmp_path / "a-job.log", 1000
    log = JobLog(job(), path, longest)
    lines = [f"line {n:04}\n" for n in range(1000)]
    with open(path, "ab", buffering=0) as printing:  # as the job's processes have it
        for n, line in enumerate(lines):
            printing.write(line.encode())
            if n % 7 == 0:
                log.write(NEWS)
                assert path.stat().st_size <= longest
                assert not earlier(path).exists() or earlier(path).stat().st_size <= longest
    kept = tail(path).decode()
    assert kept == "".join(lines)[-len(kept) :]
    assert longest - len(lines[0]) <= len(kept) <= 2 * longest
    assert stat.S_IMODE(earlier(path).stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["a-job.earlier", "a-job.log"]


def test_the_last_lines_may_begin_in_the_part_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "a-job.log"
    earlier(path).write_bytes(b"one\ntwo\n")
    path.write_bytes(b"three\n")
    assert tail(path, 2) == b"two\nthree\n"
    assert tail(path, 0) == b""
    assert tail(path, 9) == tail(path) == b"one\ntwo\nthree\n"


def test_a_log_that_can_not_be_written_stops_nobody(tmp_path: Path) -> None:
    log = JobLog(job(), tmp_path / "not there" / "a-job.log")
    log.write(Report("running", "going on"))
    log.write(NEWS)
    assert list(tmp_path.iterdir()) == []
