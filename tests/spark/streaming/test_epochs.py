"""What the driver does at the end of an epoch, with a checkpoint in a local folder and reports made here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers
from tests.support.spark.micro_batches import MicroBatches
from tidegate.runners.spark.streaming.driver.checkpoint import Checkpoint
from tidegate.runners.spark.streaming.driver.query import StreamQuery
from tidegate.runners.spark.streaming.job import StreamJob, TaskReport
from tidegate.runners.spark.streaming.rows import REPORT, OutgoingRows, Row
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.user_code.redefined_classes import dumps


class LocalFolder:
    """Files of this machine, as a checkpoint uses those of Hadoop."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def names(self, folder: str) -> list[str]:
        return sorted(file.name for file in Path(self.path, folder).glob("*"))

    def exists(self, name: str) -> bool:
        return Path(self.path, name).exists()

    def read(self, name: str) -> bytes:
        return Path(self.path, name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        file = Path(self.path, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def remove(self, name: str) -> None:
        Path(self.path, name).unlink(missing_ok=True)


class Reports:
    """The rows that a batch leaves for the driver."""

    def __init__(self, job: StreamJob, *, ended: bool) -> None:
        self._rows: list[Row] = []
        for level in range(job.levels.count):
            out = OutgoingRows(level)
            out.send(0, REPORT, 0, dumps(TaskReport(level, 0, ended, {}, MetricCells(), 0, 0)))
            self._rows += out.rows

    def collect(self) -> list[Row]:
        return self._rows


def started(path: Path) -> tuple[StreamQuery, StreamJob, Checkpoint, LocalFolder]:
    """A query of a pipeline with one sink, none of whose batches has run."""
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    lines = pipeline | tg.Read(LiveNumbers(10, divided=1)) | tg.Map(str)
    _ = lines | tg.io.WriteToText(str(path / "out"))
    job = MicroBatches(1).batches(pipeline.sealed(), pipeline.options).job
    folder: Any = LocalFolder(path / "checkpoint")
    checkpoint = Checkpoint(folder, job.plan, job.levels, run="run", asked=1, default=1)
    return StreamQuery(None, job, checkpoint, (), trigger=1.0), job, checkpoint, folder


def test_an_epoch_that_is_run_again_without_output_discards_that_of_its_dead_attempt(tmp_path: Path) -> None:
    query, job, checkpoint, folder = started(tmp_path)
    sink = next(step.id for step in job.plan.steps if step.is_sink)
    checkpoint.store(0, {sink: [Committable((0, 0), "of the dead attempt")]})
    query._prepare_epoch(Reports(job, ended=False), 0)
    assert folder.names("manifests") == []


def test_a_query_whose_last_output_could_not_be_committed_is_not_complete(tmp_path: Path) -> None:
    query, job, checkpoint, folder = started(tmp_path)
    query._prepare_epoch(Reports(job, ended=True), 0)
    folder.write("spark/commits/0", b"")
    checkpoint.store(0, {-1: []})  # of a sink that can't be found
    with pytest.raises(KeyError):
        query.run()
    assert not query.complete
    checkpoint.discard(0)
    query.run()
    assert query.complete


def test_no_deadline_cuts_off_a_drain_but_a_stop_does(tmp_path: Path) -> None:
    query, job, _, _ = started(tmp_path)
    passed = 0.0
    assert query._is_to_stop(passed)
    query.drain()
    assert query._is_to_stop(None)  # to start again, with sources that end
    query._job = replace(job, drains=True)
    assert not query._is_to_stop(passed)
    query.stop()
    assert query._is_to_stop(None)


class Waiting:
    """A query of Spark between two batches."""

    status: Final = {"isTriggerActive": False}


def test_a_query_that_was_started_again_runs_a_batch_before_it_stops(tmp_path: Path) -> None:
    query, job, _, _ = started(tmp_path)
    query._prepare_epoch(Reports(job, ended=False), 0)
    assert query._is_between(Waiting(), 0)
    query._begin()
    assert not query._is_between(Waiting(), 0)
