"""The progress of a run: descriptions in Spark's UI, counts of tasks and elements, and warnings when nothing runs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from tidegate.runners.spark.plan.console import notify
from tidegate.sdk.errors import counted

PERIOD: Final = 0.5
PATIENCE: Final = 10.0
"""Seconds without a running task before a warning says what the run waits for."""
_LONGEST: Final = 300
_GROUP: Final = "spark.jobGroup.id"
DESCRIPTION: Final = "spark.job.description"
"""The property with what Spark's UI shows as the description of a job."""


def shortened(description: str) -> str:
    """A description of a job, of at most 300 characters."""
    return description if len(description) <= _LONGEST else f"{description[: _LONGEST - 1]}…"


class Progress:
    """Reports a run's progress: calls `display` with the number of tasks that are done, and `refresh` as often."""

    def __init__(
        self, spark: Any, display: Callable[[str], None] | None, refresh: Callable[[], None] | None = None
    ) -> None:
        self._spark = spark
        self._display = display
        self._refresh = refresh
        self._stalls = _StallDetector()
        self._log_filter = contextlib.ExitStack()
        self._context = getattr(spark, "_sc", None)
        self._group = f"tidegate-{os.urandom(4).hex()}"
        self._number = 0

    def __enter__(self) -> Self:
        self._log_filter.enter_context(no_logged_exceptions())
        if self._context is None:
            self._spark.registerProgressHandler(self._progress)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        with self._log_filter:
            if self._context is None:
                self._spark.removeProgressHandler(self._progress)

    @contextlib.contextmanager
    def action(self, description: str) -> Iterator[None]:
        """Watch the action that the body runs, and describe it in Spark's UI."""
        self._number += 1
        description = shortened(description)
        with self._stoppable():
            if self._context is None:
                with self._watched(self._watch):
                    yield
            else:
                with self._described(self._context, description):
                    yield

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Cancel the action's jobs on Ctrl-C. PySpark's own handler fails while a call to Java is pending."""
        if self._context is not None:
            add, cancel, remove = (
                self._context.addJobTag,
                self._context.cancelJobsWithTag,
                self._context.removeJobTag,
            )
        else:
            add, cancel, remove = self._spark.addTag, self._spark.interruptTag, self._spark.removeTag
        add(self._group)
        try:
            yield
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                cancel(self._group)
            raise
        finally:
            with contextlib.suppress(Exception):  # the JVM may have died
                remove(self._group)

    @contextlib.contextmanager
    def _described(self, context: Any, description: str) -> Iterator[None]:
        before = {name: context.getLocalProperty(name) for name in (_GROUP, DESCRIPTION)}
        group = before[_GROUP]
        if group is None:  # keep a group that the user's program has set in order to cancel the job
            group = f"{self._group}-{self._number}"  # of this action alone, since a loop has thousands
            context.setLocalProperty(_GROUP, group)
        context.setLocalProperty(DESCRIPTION, description)
        try:
            with self._watched(self._poll, group):
                yield
        finally:
            with contextlib.suppress(Exception):
                for name, value in before.items():
                    context.setLocalProperty(name, value)

    @contextlib.contextmanager
    def _watched(self, watch: Callable[..., None], *arguments: Any) -> Iterator[None]:
        self._stalls = _StallDetector()
        over = threading.Event()
        thread = threading.Thread(target=watch, args=(over, *arguments), name="tidegate-spark-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _poll(self, over: threading.Event, group: str) -> None:
        """Poll the jobs of a classic session until the action is over."""
        assert self._context is not None
        tracker = self._context.statusTracker()
        while not over.wait(PERIOD):
            done = tasks = active = 0
            try:
                for job in tracker.getJobIdsForGroup(group):
                    info = tracker.getJobInfo(job)
                    for stage in info.stageIds if info is not None and info.status == "RUNNING" else ():
                        found = tracker.getStageInfo(stage)
                        if found is not None:
                            done, tasks = done + found.numCompletedTasks, tasks + found.numTasks
                            active += found.numActiveTasks
                self._report(done, tasks)
                self._stalls.observe(done, tasks, active)
                self._stalls.report_if_stalled(self._executors)
            except Exception:  # the connection to Java is closed, so the action is over
                return

    def _watch(self, over: threading.Event) -> None:
        """Check for stalls until the action is over. A Connect server calls `_progress` by itself."""
        while not over.wait(PERIOD):
            self._stalls.report_if_stalled(lambda: None)

    def _progress(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        completed, tasks = (
            sum(stage.num_completed_tasks for stage in stages),
            sum(stage.num_tasks for stage in stages),
        )
        self._stalls.observe(completed, tasks, inflight_tasks)
        self._report(completed, tasks)

    def _executors(self) -> int:
        """The number of executors of a classic session; on a local master the driver counts as one."""
        assert self._context is not None
        found = len(self._context._jsc.sc().statusTracker().getExecutorInfos())
        return found if self._context.master.startswith("local") else found - 1

    def _report(self, done: int, tasks: int) -> None:
        if self._refresh is not None:
            self._refresh()
        if self._display is not None and tasks:
            self._display(f"action {self._number}: {done} of {counted(tasks, 'task')}")


class _StallDetector:
    """Detects that Spark has tasks to run but runs none of them, and warns once for each such period."""

    def __init__(self) -> None:
        self._done = -1
        self._tasks = 0
        self._since: float | None = None
        self._reported = False

    def observe(self, done: int, tasks: int, active: int) -> None:
        """Record the progress: `done` of `tasks` are done, and `active` are running."""
        if not tasks or active or done != self._done or done == tasks:
            self._since = None
            self._reported = False
        elif self._since is None:
            self._since = time.monotonic()
        self._done, self._tasks = done, tasks

    def report_if_stalled(self, executors: Callable[[], int | None]) -> None:
        """Warn if no task has run for `PATIENCE` seconds. `executors` returns their number, or None if unknown."""
        if self._since is None or self._reported or time.monotonic() - self._since < PATIENCE:
            return
        self._reported = True
        match executors():
            case None:
                why = "its executors are busy, or there are none"
            case 0:
                why = (
                    "no executor has joined the session. The cluster's cores or memory may be taken by others, or no "
                    "worker has what an executor asks for (spark.executor.memory, spark.executor.cores)"
                )
            case number:
                why = f"{'the executor is' if number == 1 else f'all {number} executors are'} busy with other jobs"
        left = self._tasks - self._done
        notify(f"waiting for Spark to run {'1 task' if left == 1 else f'one of {left} tasks'}: {why}")


_OF_QUERIES: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""The loggers of PySpark that log the exceptions of queries, with their stacks."""


@contextlib.contextmanager
def no_logged_exceptions() -> Iterator[None]:
    """Keep py4j and PySpark from logging the exceptions that they also raise."""
    import logging

    from pyspark.logger import PySparkLogger

    def is_of_another(record: logging.LogRecord) -> bool:
        return f"{os.sep}py4j{os.sep}" not in record.pathname and record.name not in _OF_QUERIES

    # A logger's filter is not applied to records that propagate from its child loggers.
    loggers = [logging.getLogger(name) for name in ("", "py4j.clientserver", "py4j.java_gateway")]
    loggers += map(PySparkLogger.getLogger, _OF_QUERIES)
    for logger in loggers:
        logger.addFilter(is_of_another)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_of_another)
