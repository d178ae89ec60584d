"""Checkpoints in an object store: a real one over HTTP, with the client that authors use."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.object_store import s3_bucket
from tests.support.streaming.child_processes import child_pids
from tests.support.streaming.counting_job import ReportLog, elements_out, follow_until, start_job, windowed_counts
from tests.support.streaming.staging_pipeline import StagingRun
from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.streaming.checkpoint.epoch_fencing import claim_epoch


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The URL of a bucket in a store that this process and its children can reach."""
    with s3_bucket("tides") as url:
        yield url


def test_a_name_is_created_once_and_files_are_written_read_listed_and_deleted(bucket: str) -> None:
    storage = open_storage(f"{bucket}/names")
    assert storage.list("") == []
    assert storage.create("epochs/1", b"mine")
    assert not storage.create("epochs/1", b"theirs")
    storage.write("chk-1/deep/a", b"one")
    storage.write("chk-1/deep/a", b"two")
    assert (storage.read("epochs/1"), storage.read("chk-1/deep/a")) == (b"mine", b"two")
    assert storage.list("") == ["chk-1/deep/a", "epochs/1"]
    storage.delete("chk-1/deep/a")
    storage.delete("chk-1/deep/a")
    assert storage.list("chk-1") == []
    with pytest.raises(FileNotFoundError):
        storage.read("chk-1/deep/a")


def test_epochs_are_claimed_in_ascending_order(bucket: str) -> None:
    assert [claim_epoch(open_storage(f"{bucket}/claimed"), who) for who in "abc"] == [1, 2, 3]


def test_a_missing_bucket_is_named_in_the_error(bucket: str) -> None:
    p = tg.Pipeline()
    windowed_counts(p)
    job = start_job(p, "--checkpoint_dir=s3://nowhere-to-be-found/checkpoints")
    job.wait()
    job.close()
    assert "checkpoints can't be kept in s3://nowhere-to-be-found/checkpoints: " in str(job.error)


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_killed_job_resumes_from_the_bucket(bucket: str, backend: str) -> None:
    if backend == "rocksdb":
        pytest.importorskip("rocksdict")
    p = tg.Pipeline()
    windowed_counts(p)
    log = ReportLog()
    flags = ["--checkpoint_interval=50ms", "--restart_delay=10ms", f"--state_backend={backend}"]
    job: Any = start_job(p, *flags, f"--checkpoint_dir={bucket}/{backend}", on_report=log)
    try:
        for victim in (lambda: child_pids(job._process.pid)[0], lambda: job._process.pid):
            before = max(log.checkpoints, default=0)
            follow_until(
                job,
                lambda before=before: max(log.checkpoints, default=0) > before + 1 and bool(elements_out(job, "count")),
            )
            seen = len(log.texts)
            os.kill(victim(), signal.SIGKILL)
            follow_until(job, lambda seen=seen: any("resuming from checkpoint" in text for text in log.texts[seen:]))
        before = max(log.checkpoints)
        follow_until(job, lambda: max(log.checkpoints) > before)
    finally:
        job.close()


@pytest.mark.parametrize("by", ["job", "task"])
def test_staged_output_is_committed_once_from_the_store_if_workers_are_killed(
    bucket: str, tmp_path: Path, by: str
) -> None:
    run = StagingRun(tmp_path, by, [], hold_at="during", checkpoints=f"{bucket}/staged-{by}")
    try:
        run.watch("H")
        run.release()
        run.kill("workers", random.Random(0))
        run.watch("d", 2)
        run.check(run.drain())
        assert open_storage(f"{bucket}/staged-{by}").list("staged") == []
    finally:
        run.close()
