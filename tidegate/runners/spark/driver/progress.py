"""What a run shows while it goes on: descriptions in Spark's UI, tasks and elements for whoever asks, and what it waits
for when Spark runs none of its tasks."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from tidegate.runners.spark.plan.console import say

PERIOD: Final = 0.5
PATIENCE: Final = 10.0
"""Seconds without a task at work before it is said what is waited for."""
_LONGEST: Final = 300
_GROUP: Final = "spark.jobGroup.id"
_DESCRIPTION: Final = "spark.job.description"


class Contents:
    """A run that is looked at. `tell` hears how many tasks of how many are done, and `look` is called as often; None:
    nobody listens."""

    def __init__(self, spark: Any, tell: Callable[[str], None] | None, look: Callable[[], None] | None = None) -> None:
        self._spark = spark
        self._tell = tell
        self._look = look
        self._waits = _Waits()
        self._quiet = contextlib.ExitStack()
        self._context = getattr(spark, "_sc", None)
        self._group = f"tidegate-{os.urandom(4).hex()}"
        self._number = 0

    def __enter__(self) -> Self:
        self._quiet.enter_context(without_py4j())
        if self._context is None:
            self._spark.registerProgressHandler(self._progress)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        with self._quiet:
            if self._context is None:
                self._spark.removeProgressHandler(self._progress)

    @contextlib.contextmanager
    def action(self, words: str) -> Iterator[None]:
        """One action, so described."""
        self._number += 1
        words = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
        with self._stoppable():
            if self._context is None:
                with self._watched(self._watch):
                    yield
            else:
                with self._described(self._context, words):
                    yield

    @contextlib.contextmanager
    def _stoppable(self) -> Iterator[None]:
        """Ctrl-C ends what runs in Spark too: PySpark's own handler fails as long as an answer is awaited."""
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
            with contextlib.suppress(Exception):  # its Java may be gone
                remove(self._group)

    @contextlib.contextmanager
    def _described(self, context: Any, words: str) -> Iterator[None]:
        before = {name: context.getLocalProperty(name) for name in (_GROUP, _DESCRIPTION)}
        if before[_GROUP] is None:  # else the author's own group, by which the job may be cancelled
            context.setLocalProperty(_GROUP, self._group)
        context.setLocalProperty(_DESCRIPTION, words)
        try:
            with self._watched(self._poll, before[_GROUP] or self._group):
                yield
        finally:
            with contextlib.suppress(Exception):
                for name, value in before.items():
                    context.setLocalProperty(name, value)

    @contextlib.contextmanager
    def _watched(self, watch: Callable[..., None], *arguments: Any) -> Iterator[None]:
        self._waits = _Waits()
        over = threading.Event()
        thread = threading.Thread(target=watch, args=(over, *arguments), name="tidegate-spark-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _poll(self, over: threading.Event, group: str) -> None:
        """Look at a classic session's jobs until they are over."""
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
                self._say(done, tasks)
                self._waits.saw(done, tasks, active)
                self._waits.tell(self._executors)
            except Exception:  # the connection to Java is at its end, and with it the action
                return

    def _watch(self, over: threading.Event) -> None:
        """Wait with a Connect server, which tells by itself how far it is."""
        while not over.wait(PERIOD):
            self._waits.tell(lambda: None)

    def _progress(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        completed, tasks = (
            sum(stage.num_completed_tasks for stage in stages),
            sum(stage.num_tasks for stage in stages),
        )
        self._waits.saw(completed, tasks, inflight_tasks)
        self._say(completed, tasks)

    def _executors(self) -> int:
        """How many executors a classic session has, the driver's own among them on a local master."""
        assert self._context is not None
        found = len(self._context._jsc.sc().statusTracker().getExecutorInfos())
        return found if self._context.master.startswith("local") else found - 1

    def _say(self, done: int, tasks: int) -> None:
        if self._look is not None:
            self._look()
        if self._tell is not None and tasks:
            self._tell(f"action {self._number}: {done} of {tasks} tasks")


class _Waits:
    """How long there have been tasks and none of them at work. It is said once for each such time."""

    def __init__(self) -> None:
        self._done = -1
        self._tasks = 0
        self._since: float | None = None
        self._reported = False

    def saw(self, done: int, tasks: int, active: int) -> None:
        """How many tasks of how many are done, and how many at work."""
        if not tasks or active or done != self._done or done == tasks:
            self._since = None
            self._reported = False
        elif self._since is None:
            self._since = time.monotonic()
        self._done, self._tasks = done, tasks

    def tell(self, executors: Callable[[], int | None]) -> None:
        """Say what is waited for, if that has taken long. `executors`: how many there are; None: not known."""
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
        say(f"waiting for Spark to run one of {self._tasks - self._done} tasks: {why}")


@contextlib.contextmanager
def without_py4j() -> Iterator[None]:
    """Inside, py4j does not log what it raises anyway."""
    import logging

    def others(record: logging.LogRecord) -> bool:
        return f"{os.sep}py4j{os.sep}" not in record.pathname

    # A logger's filter does not see what comes up from loggers below it.
    loggers = [logging.getLogger(name) for name in ("", "py4j.clientserver", "py4j.java_gateway")]
    for logger in loggers:
        logger.addFilter(others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(others)
