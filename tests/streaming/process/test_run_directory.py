"""The next run removes the temporary files of a run whose processes were all killed, and no others."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.child_processes import child_pids
from tests.support.streaming.counting_job import ReportLog, follow_until, start_job, windowed_counts
from tidegate.runners.streaming.process.run_directory import run_directory, sweep


def running_job(folder: Path) -> Any:
    """A streaming job that has completed a checkpoint."""
    p = tg.Pipeline()
    windowed_counts(p)
    log = ReportLog()
    job = start_job(p, f"--temp_dir={folder}", "--checkpoint_interval=50ms", on_report=log)
    follow_until(job, lambda: bool(log.checkpoints))
    return job


def test_the_next_run_removes_the_directories_of_killed_runs_but_not_of_running_ones(tmp_path: Path) -> None:
    killed, alive = running_job(tmp_path), running_job(tmp_path)
    try:
        process = killed._process.pid
        workers = child_pids(process)
        os.kill(process, signal.SIGSTOP)
        for worker in workers[1:]:
            os.kill(worker, signal.SIGKILL)
        os.kill(workers[0], signal.SIGSTOP)  # otherwise it would notice that the job's process is gone, and exit
        os.kill(process, signal.SIGKILL)
        sweep(tmp_path)
        assert Path(killed.submitted.directory).exists()  # one of its workers has not ended
        os.kill(workers[0], signal.SIGKILL)
        with open(Path(killed.submitted.directory) / "lock") as lock:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX)  # the system releases it when the last of them exits
        with run_directory(str(tmp_path / "tidegate-000000000001")):
            assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
                ["tidegate-000000000001", Path(alive.submitted.directory).name]
            )
    finally:
        for job in (killed, alive):
            job.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["tidegate-0123456789ab", "tidegate-0-logs", "other-0123456789ab"])
def test_directories_without_a_known_owner_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    if not name.startswith("tidegate-0123"):  # a run creates its directory before the lock in it
        (tmp_path / name / "lock").touch()
    sweep(tmp_path)
    assert (tmp_path / name).exists()


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "lock").touch()
    (tmp_path / "tidegate-0123456789ab").symlink_to(tmp_path / "elsewhere")
    sweep(tmp_path)
    assert (tmp_path / "elsewhere" / "lock").exists()
