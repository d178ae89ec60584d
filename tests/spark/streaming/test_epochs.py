"""What the driver does at the end of an epoch, with a checkpoint in a local folder and reports made here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers
from tests.support.spark.local_folder import LocalFolder
from tests.support.spark.micro_batches import MicroBatches
from tidegate.runners.spark.streaming.driver.checkpoint import Checkpoint
from tidegate.runners.spark.streaming.driver.query import StreamQuery
from tidegate.runners.spark.streaming.driver.shared_folder import FolderUnreachable, SharedFolder
from tidegate.runners.spark.streaming.driver.ticks import NEVER, DueFile
from tidegate.runners.spark.streaming.job import StreamJob, TaskReport
from tidegate.runners.spark.streaming.rows import REPORT, OutgoingRows, Row
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.user_code.redefined_classes import dumps


class Counter:
    """A counter of Spark's."""

    value = 0


class Reports:
    """The rows that a batch leaves for the driver: a report of each task, of which `extra` have run twice."""

    def __init__(
        self,
        query: StreamQuery,
        job: StreamJob,
        *,
        ended: bool = False,
        extra: int = 0,
        received: int = 0,
        due: int | None = 0,
    ) -> None:
        self._query = query
        self._ran = job.levels.count + extra
        self._rows: list[Row] = []
        for level in range(job.levels.count):
            out = OutgoingRows(level)
            out.send(0, REPORT, 0, dumps(TaskReport(level, 0, ended, {}, MetricCells(), 0, received, due)))
            self._rows += out.rows

    def collect(self) -> list[Row]:
        self._query._succeeded.value += self._ran
        return self._rows


def started(path: Path) -> tuple[StreamQuery, StreamJob, Checkpoint, LocalFolder]:
    """A query of a pipeline with one sink, none of whose batches has run."""
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    lines = pipeline | tg.Read(LiveNumbers(10, divided=1)) | tg.Map(str)
    _ = lines | tg.io.WriteToText(str(path / "out"))
    job = MicroBatches(1).batches(pipeline.sealed(), pipeline.options).job
    folder: Any = LocalFolder(path / "checkpoint")
    checkpoint = Checkpoint(folder, job.plan, job.levels, run="run", asked=1, default=1)
    due = DueFile(path)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=lambda name, value: None))
    query = StreamQuery(spark, job, checkpoint, (), trigger=1.0, due=due, check_owner=lambda: None)
    query._succeeded = Counter()
    return query, job, checkpoint, folder


def test_an_epoch_that_is_run_again_without_output_discards_that_of_its_dead_attempt(tmp_path: Path) -> None:
    query, job, checkpoint, folder = started(tmp_path)
    sink = next(step.id for step in job.plan.steps if step.is_sink)
    checkpoint.store(0, {sink: [Committable((0, 0), "of the dead attempt")]})
    query._prepare_epoch(Reports(query, job), 0)
    assert folder.names("manifests") == []


def test_a_query_whose_last_output_could_not_be_committed_is_not_complete(tmp_path: Path) -> None:
    query, job, checkpoint, folder = started(tmp_path)
    query._prepare_epoch(Reports(query, job, ended=True), 0)
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
    query._run_for = 0.0
    query._prepare_epoch(Reports(query, job), 0)
    assert query._is_to_stop()
    query.drain()
    assert query._is_to_stop()  # to start again, with sources that end
    query._job = replace(job, drains=True)
    assert not query._is_to_stop()
    query.stop()
    assert query._is_to_stop()


def test_the_last_batch_of_a_run_for_some_time_begins_after_that_however_long_batches_take(tmp_path: Path) -> None:
    query, job, _, _ = started(tmp_path)
    query._run_for = 1e9
    assert not query._is_to_stop()
    query._prepare_epoch(Reports(query, job), 0)
    assert query._deadline is not None
    query._deadline = query._last_began + 1e-6  # which is over by now
    assert not query._is_to_stop()
    query._prepare_epoch(Reports(query, job), 1)
    assert query._is_to_stop()


def test_a_run_for_some_time_stops_at_once_if_no_batch_is_due(tmp_path: Path) -> None:
    query, job, _, _ = started(tmp_path)
    query._run_for = 1e-9
    query._prepare_epoch(Reports(query, job, due=NEVER), 0)
    assert query._is_to_stop()


@pytest.mark.parametrize("mixed", [{"extra": 1}, {"received": 9}], ids=["a task ran twice", "other rows were received"])
def test_a_batch_with_tasks_of_several_attempts_is_discarded_and_run_again(mixed: Any, tmp_path: Path) -> None:
    query, job, _, folder = started(tmp_path)
    with pytest.raises(RunError, match="batch 0 was discarded: Spark ran") as caught:
        query._prepare_epoch(Reports(query, job, **mixed), 0)
    assert query._is_worth_another_try(caught.value)
    assert folder.names("manifests") == []
    query._begin()
    assert not query._is_worth_another_try(RunError("no such file"))
    query._prepare_epoch(Reports(query, job), 0)


@pytest.mark.parametrize(
    "message",
    [
        "Timed out while waiting for the Python worker to connect back after 10 s",
        "Python worker failed to connect back.",
        "Python daemon failed to launch worker with code -1",
        "Failed to open socket to Python daemon:",
        "Python worker exited unexpectedly (crashed)",
        "TransformWithStateInPySpark driver worker exited unexpectedly (crashed) SQLSTATE: XXKST",
        "TransformWithStateInPySpark state server daemon thread exited unexpectedly (crashed)",
        "[STREAMING_PYTHON_RUNNER_INITIALIZATION_TIMEOUT_FAILURE] Streaming Runner initialization failed.",
    ],
)
def test_a_query_whose_python_worker_did_not_start_or_died_starts_again(message: str, tmp_path: Path) -> None:
    query, *_ = started(tmp_path)
    assert query._is_worth_another_try(RunError(f"Spark could not run the stream: [STREAM_FAILED] {message}"))


def test_a_folder_that_cannot_be_read_now_is_named_and_tried_again(tmp_path: Path) -> None:
    query, *_ = started(tmp_path)
    (tmp_path / "shared").mkdir()
    folder = SharedFolder(str(tmp_path / "shared"))
    (tmp_path / "shared" / "due").mkdir()  # in place of a file
    with pytest.raises(FolderUnreachable, match=r"^--spark_checkpoint_dir file://.*Is a directory: .*/due") as caught:
        folder.read("due")
    assert query._is_worth_another_try(caught.value)
    with pytest.raises(FileNotFoundError):
        folder.read("owner.json")
    assert not folder.exists("owner.json")


def test_a_batch_of_a_query_whose_checkpoint_was_taken_over_leaves_no_output(tmp_path: Path) -> None:
    query, job, checkpoint, folder = started(tmp_path)

    def check_owner() -> None:
        raise RunError("taken over")

    query._output._check_owner = check_owner
    checkpoint.store(0, {-1: []})
    with pytest.raises(RunError, match="taken over"):
        query._prepare_epoch(Reports(query, job), 0)
    assert folder.names("manifests") == ["0"]  # of the other process


@pytest.mark.parametrize("due", [7, None])
def test_the_next_batch_is_due_when_the_first_task_has_something_to_do(due: int | None, tmp_path: Path) -> None:
    query, job, _, _ = started(tmp_path)
    noted = Path(query._due.path)
    assert noted.read_text() == "0"
    query._prepare_epoch(Reports(query, job, due=due), 0)
    assert int(noted.read_text()) == (NEVER if due is None else due)
    query._begin()
    assert noted.read_text() == "0"


class Waiting:
    """A query of Spark between two batches."""

    status: Final = {"isTriggerActive": False}


def test_a_query_that_was_started_again_runs_a_batch_before_it_stops(tmp_path: Path) -> None:
    query, job, _, _ = started(tmp_path)
    query._prepare_epoch(Reports(query, job), 0)
    assert query._is_between(Waiting(), 0)
    query._begin()
    assert not query._is_between(Waiting(), 0)
