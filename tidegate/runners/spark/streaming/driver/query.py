"""The Spark query of an unbounded pipeline: a stateful operator for each level, and an epoch's output at its end.

An epoch is prepared by `foreachBatch`, which stores a manifest; it is final once Spark has logged it. The output is
committed then, when the query is seen to have gone on or, after a restart of the driver, when it begins again. Over
Connect, where `foreachBatch` would run on the server, that stores the tasks' reports, and the driver makes manifests of
them.

A task that reads live data gives other rows when Spark runs it again. If it has run twice in a batch, its state and
what later tasks have received may be those of different attempts, so the batch is discarded, and runs again from the
one before. That is known from the number of tasks that have succeeded, and from checksums of the rows.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from tidegate.runners.spark.driver.progress import DESCRIPTION, shortened
from tidegate.runners.spark.driver.spark_settings import settings_lock
from tidegate.runners.spark.plan.failures import translated_errors
from tidegate.runners.spark.streaming.driver.checkpoint import Checkpoint
from tidegate.runners.spark.streaming.driver.epoch_output import EpochOutput
from tidegate.runners.spark.streaming.driver.level_progress import LevelProgress
from tidegate.runners.spark.streaming.driver.level_rows import name_of_level, rows_of_levels
from tidegate.runners.spark.streaming.driver.shared_folder import FolderUnreachable
from tidegate.runners.spark.streaming.driver.stored_reports import SINK, register_reports
from tidegate.runners.spark.streaming.driver.ticks import DueFile, SharedDueFile
from tidegate.runners.spark.streaming.job import StreamJob, TaskReport
from tidegate.runners.spark.streaming.rows import Row, messages
from tidegate.runners.spark.streaming.savepoint.requests import SavepointRequests
from tidegate.runners.spark.streaming.savepoint.storing import new_target, storage_errors, store_savepoint
from tidegate.sdk import moved
from tidegate.sdk.errors import RunError, UserCodeError
from tidegate.sdk.metrics import MetricCells


class StreamQuery:
    """Runs a job until all its input has ended, `stop` is called, or it fails; `run` returns then.

    `trigger` (s): how often a batch starts, if one is due. `paths`: entries of the workers' `sys.path`. `check_owner`
    raises if another process runs on the checkpoint by now. `savepoint_at_stop`: where to write a savepoint when it
    stops before all input has ended, if anywhere.
    """

    def __init__(
        self,
        spark: Any,
        job: StreamJob,
        checkpoint: Checkpoint,
        paths: tuple[str, ...],
        *,
        trigger: float,
        due: DueFile | SharedDueFile,
        check_owner: Callable[[], None],
        savepoint_at_stop: str | None = None,
    ) -> None:
        self.metrics = MetricCells()
        self.progress = LevelProgress(job)
        self._spark = spark
        self._job = job
        self._checkpoint = checkpoint
        self._paths = paths
        self._trigger = trigger
        self._output = EpochOutput(job, checkpoint, check_owner, self.metrics)
        self._last_epoch = -1
        self._ended = False
        self._complete = False
        self._stop = threading.Event()
        self._drain = threading.Event()
        self._cancel = threading.Event()
        self._savepoints = SavepointRequests(savepoint_at_stop)
        self._saved: list[TaskReport] = []
        """The reports of the last batch, if it has written a savepoint."""
        self._has_run = False
        """Whether a batch of this start of the query has run."""
        self._failure: Exception | None = None
        """The error that ended the last batch, if any."""
        self._is_stopping = False
        """Whether this start of the query is being stopped, which interrupts a batch."""
        self._is_mixed = False
        """Whether the last batch was discarded, as it had tasks that ran twice."""
        self._run_for: float | None = None
        self._deadline: float | None = None
        """The end of `run_for`. The last batch is the first that begins after it."""
        self._last_began = 0.0
        """When the last epoch began."""
        self._succeeded: Any = None
        """Spark's counter of the tasks that have succeeded, in this start of the query."""
        self._due = due
        self._over_connect = isinstance(due, SharedDueFile)

    @property
    def complete(self) -> bool:
        """Whether all input has ended, every task has handled it, and all output is committed."""
        return self._complete

    def stop(self) -> None:
        """Stop after the batch that is running."""
        self._stop.set()

    def drain(self) -> None:
        """Read nothing more: the input ends after the batch that is running, so that all windows fire."""
        self._drain.set()

    def cancel(self) -> None:
        """Stop at once; the batch that is running has no effect."""
        self._cancel.set()

    def savepoint(self, directory: str) -> Exception | None:
        """Take a savepoint, wait until it is complete, and go on. Returns the error if it could not be taken."""
        return self._savepoints.take(directory)

    def save_at_end(self, directory: str) -> None:
        """Take a savepoint when the query stops, or has been drained."""
        self._savepoints.at_end = directory

    def run(self, run_for: float | None = None) -> None:
        """Run the query. Raises the author's error, or a RunError, if it fails.

        `run_for` counts from the beginning of the first batch, since starting a query takes seconds.
        """
        self._run_for = run_for
        try:
            self._take_stored()
            self._output.commit_final()
            while not (self._is_over() or self._cancel.is_set()):
                self._run_until_stopped()
                served = self._savepoints.serve(self._take_savepoint)
                if self._drain.is_set() and not (self._job.drains or self._stop.is_set()):
                    self._job = replace(self._job, drains=True)
                elif not served or self._is_to_end():
                    break
            self._output.commit_final()
            self._complete = self._is_over()
            if (directory := self._savepoints.last(ended=self._complete)) and not self._cancel.is_set():
                self._take_savepoint(directory)
        finally:
            self._savepoints.close()

    def _take_savepoint(self, directory: str) -> None:
        """Run a batch in which all tasks write their state. RunError if that fails; the query can go on in any case."""
        job = self._job
        try:
            with storage_errors(directory):
                self._job = replace(job, savepoint=new_target(directory))
                self._saved = []
                self._run_until_stopped()
                if not self._saved:
                    raise RunError("the run was cancelled before it was complete")
                store_savepoint(self._job, self._saved, self.metrics)
        finally:
            self._job = job

    def _run_until_stopped(self) -> None:
        """Run the query until it is to stop; again with back-off after failures that pass."""
        failures, reached = 0, self._last_epoch
        while not self._cancel.is_set():
            try:
                with translated_errors("Spark could not run the stream"):
                    self._run_query()
            except RunError as error:
                failures = 1 if self._last_epoch > reached else failures + 1
                reached = self._last_epoch
                if not self._is_worth_another_try(error) or failures > _TRIES:
                    raise
                self._cancel.wait(min(_BACK_OFF * 2**failures, _LONGEST_BACK_OFF))
                continue
            return

    def remove_uncommitted(self) -> None:
        """Remove output that was never committed, such as that of tasks that Spark has run twice."""
        self._output.remove_uncommitted()

    def _is_worth_another_try(self, error: RunError) -> bool:
        if isinstance(error, UserCodeError):
            return False
        return self._is_mixed or isinstance(error, FolderUnreachable) or _PASSING.search(str(error)) is not None

    # -- one start of the query

    def _run_query(self) -> None:
        self._begin()
        with _settings_of_query(self._spark, self._job.tasks):
            query = self._started()
        try:
            last = self._last_epoch
            while not query.awaitTermination(_POLL):
                self._take_stored()
                self._output.commit_final()
                if not self._is_to_stop():
                    last = self._last_epoch
                if self._cancel.is_set() or (self._is_over() and self._job.savepoint is None):
                    break
                if self._is_to_stop() and self._is_between(query, last):
                    break
        except Exception:
            if self._failure is not None:
                raise self._failure from self._failure.__cause__
            raise
        finally:
            self._is_stopping = True
            with contextlib.suppress(Exception):  # the JVM may have died
                query.stop()
                if not self._over_connect:
                    self._await_tasks(str(query.runId))
            with contextlib.suppress(OSError, FolderUnreachable):  # they are there at the next start
                self._take_stored()

    def _await_tasks(self, run: str) -> None:
        """Wait until no task of a stopped query runs. Spark has told them to end; until then, they may write files."""
        tracker = self._spark.sparkContext.statusTracker()
        until = time.monotonic() + _PATIENCE
        while _runs_tasks(tracker, run) and time.monotonic() < until:
            time.sleep(_POLL)

    def _begin(self) -> None:
        """Forget what batches of an earlier start of the query have left."""
        self._failure, self._has_run, self._is_mixed, self._is_stopping = None, False, False, False
        self._due.begin()

    def _is_between(self, query: Any, last: int) -> bool:
        """Whether a batch after `last` is final, or none is running now, after the first of this start of the query."""
        if self._last_epoch > last:
            return self._is_final(self._last_epoch)
        return self._has_run and not query.status["isTriggerActive"]

    def _is_to_stop(self) -> bool:
        """Whether this start of the query is to stop after the batch that is running."""
        return self._savepoints.waiting or self._job.savepoint is not None or self._is_to_end()

    def _is_to_end(self) -> bool:
        """Whether the query is to end, or to go on with sources that end."""
        if self._stop.is_set():
            return True
        if self._drain.is_set():
            return not self._job.drains  # which no deadline cuts off
        return self._deadline is not None and (
            self._last_began >= self._deadline
            or (self._has_run and time.monotonic() >= self._deadline and not self._due.is_now)
        )

    def _is_over(self) -> bool:
        """Whether the last epoch, in which every task has ended, is final."""
        return self._ended and self._is_final(self._last_epoch)

    def _is_final(self, epoch: int) -> bool:
        return epoch >= 0 and self._checkpoint.is_final(epoch)

    def _started(self) -> Any:
        job = replace(self._job, query=f"{self._job.run}-{time.time_ns():x}")
        self._succeeded = None if self._over_connect else self._spark.sparkContext.accumulator(0)
        rows = rows_of_levels(self._spark, job, self._paths, self._due.path, self._succeeded)
        writer = (
            rows.writeStream.queryName(f"{job.plan.pipeline.name} {job.run}")
            .outputMode("append")
            .option("checkpointLocation", self._checkpoint.path)
            .trigger(processingTime=f"{round(self._trigger * 1000)} milliseconds")
        )
        if not self._over_connect:
            return writer.foreachBatch(self._prepare).start()
        register_reports(self._spark, self._paths)
        tasks = job.tasks * job.levels.count
        return writer.format(SINK).options(folder=self._checkpoint.folder, tasks=tasks).start()

    # -- the end of a batch

    def _prepare(self, frame: Any, epoch: int) -> None:
        """Called by Spark for each epoch, possibly again after a failure."""
        try:
            with translated_errors("Spark could not run a batch of the stream"):
                self._prepare_epoch(frame, epoch)
        except Exception as error:
            self._failure = error  # Spark's own error would have little of its text
            raise RunError(_INTERRUPTED if self._is_stopping else str(error)) from None

    def _prepare_epoch(self, frame: Any, epoch: int) -> None:
        """Store what is to be committed once the epoch is final."""
        began = time.monotonic()
        self._count_from(began)
        self._output.commit_final()
        before = self._succeeded.value
        self._spark.sparkContext.setLocalProperty(DESCRIPTION, _description(self._job, epoch))
        rows = [Row._make((*each[:6], bytes(each[6]))) for each in frame.collect()]
        reports: list[TaskReport] = [pickle.loads(data) for _, data in messages(rows)]
        tasks = self._job.tasks * self._job.levels.count
        ran = self._succeeded.value - before
        same = sum(report.sent for report in reports) == sum(report.received for report in reports)
        if ran > tasks or not same:
            self._is_mixed = True
            raise RunError(
                f"batch {epoch} was discarded: Spark ran {ran} tasks for it instead of {tasks}, as after the loss of "
                "an executor, and tasks that run twice may read other elements the second time"
            )
        self._take(epoch, reports, began)

    def _count_from(self, began: float) -> None:
        """A batch began at `began`, by the monotonic clock: if it was the first one, `run_for` counts from then on."""
        if self._run_for is not None and self._deadline is None:
            self._deadline = began + self._run_for

    def _take_stored(self) -> None:
        """Over Connect, prepare the epochs whose reports the server has stored."""
        if self._over_connect:
            for epoch in self._checkpoint.reported():
                reports: list[TaskReport] = [moved.loads(data) for data in self._checkpoint.reports(epoch)]
                began = time.monotonic() - max(report.busy for report in reports)
                self._count_from(began)
                self._take(epoch, reports, began)
                self._checkpoint.taken(epoch)

    def _take(self, epoch: int, reports: list[TaskReport], began: float) -> None:
        """Store what is to be committed once the epoch is final, and note what its tasks report. It began at `began`,
        by the monotonic clock."""
        self._output.prepare(epoch, reports)
        tasks = self._job.tasks * self._job.levels.count
        self._ended = len(reports) == tasks and all(report.ended for report in reports)
        self._saved = reports if all(report.saved is not None for report in reports) else []
        self._due.note(min((report.due for report in reports if report.due is not None), default=None))
        self.progress.add(reports, began, time.monotonic())
        self._last_epoch, self._last_began = epoch, began
        self._has_run = True


def _runs_tasks(tracker: Any, run: str) -> bool:
    """Whether a task of a query's last jobs is running."""
    jobs = filter(None, map(tracker.getJobInfo, sorted(tracker.getJobIdsForGroup(run))[-2:]))
    stages = filter(None, (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds))
    return any(stage.numActiveTasks for stage in stages)


def _description(job: StreamJob, epoch: int) -> str:
    """What Spark's UI shows for the job of a batch."""
    levels = " → ".join(name_of_level(job, level) for level in range(job.levels.count))
    return shortened(f"{job.plan.pipeline.name}, batch {epoch}: {levels}")


@contextlib.contextmanager
def _settings_of_query(spark: Any, tasks: int) -> Iterator[None]:
    """Spark's settings for a query, which it keeps from its start on. Meanwhile no run of the session that begins takes
    them for the author's own, or changes them."""
    conf = spark.conf
    settings = _SETTINGS | {"spark.sql.shuffle.partitions": str(tasks)}
    with settings_lock:
        before = {name: conf.get(name, None) for name in settings}
        for name, value in settings.items():
            conf.set(name, value)
        try:
            yield
        finally:
            for name, old in before.items():
                if old is None:
                    conf.unset(name)
                else:
                    conf.set(name, old)


_INTERRUPTED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling a batch: java.lang.InterruptedException"
)
"""By this text Spark knows that a batch was interrupted because its query is stopped. It looks for it by a pattern that
overflows the stack of the query's thread if there are some thousand characters in between, as there are in Py4J's own
error."""
_POLL: Final = 0.2
"""How often (s) the driver looks whether an epoch has become final."""
_PATIENCE: Final = 10.0
"""How long (s) tasks of a stopped query have to end. Spark kills Python workers two seconds after it has told them."""
_TRIES: Final = 8
"""How often a query is started again before a batch has succeeded."""
_BACK_OFF: Final = 0.5
_LONGEST_BACK_OFF: Final = 15.0
_PASSING: Final = re.compile(
    r"worker failed to connect back|Python worker to connect back|failed to launch worker|socket to Python daemon|"
    r"(worker|daemon thread) exited unexpectedly|STREAMING_PYTHON_RUNNER_INITIALIZATION|ExecutorLostFailure|"
    r"Executor heartbeat timed out|FetchFailed|indeterminate output|checksum mismatch",
    re.IGNORECASE,
)
"""Spark's messages of failures that are over when the query starts again: a machine was too busy to start a Python
worker within ten seconds, on an executor or beside the driver, where one lists the state's columns before each batch; a
worker or an executor died; tasks that ran again gave other rows."""

_SETTINGS: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.adaptive.enabled": "false",
}
"""With version 2 of their format, files of the state have the names of the attempts that wrote them, so that a batch
which is run again does not meet those of a dead attempt."""
