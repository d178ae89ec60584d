"""What a run shows while it goes on: descriptions in Spark's UI, and tasks that are done for whoever asks."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, Self

PERIOD: Final = 0.5
_LONGEST: Final = 300
_GROUP: Final = "spark.jobGroup.id"
_DESCRIPTION: Final = "spark.job.description"


class Shown:
    """A run that is looked at. `tell` hears how many tasks of how many are done; None: nobody listens."""

    def __init__(self, spark: Any, tell: Callable[[str], None] | None) -> None:
        self._spark = spark
        self._tell = tell
        self._context = getattr(spark, "_sc", None)
        self._group = f"tidegate-{os.urandom(4).hex()}"
        self._number = 0

    def __enter__(self) -> Self:
        if self._tell is not None and self._context is None:
            self._spark.registerProgressHandler(self._progress)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        if self._tell is not None and self._context is None:
            self._spark.removeProgressHandler(self._progress)

    @contextlib.contextmanager
    def action(self, words: str) -> Iterator[None]:
        """One action, so described."""
        self._number += 1
        words = words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
        with _without_py4j(), self._stoppable():
            if self._context is None:
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
            with self._polled(before[_GROUP] or self._group):
                yield
        finally:
            with contextlib.suppress(Exception):
                for name, value in before.items():
                    context.setLocalProperty(name, value)

    @contextlib.contextmanager
    def _polled(self, group: str) -> Iterator[None]:
        if self._tell is None:
            yield
            return
        over = threading.Event()
        thread = threading.Thread(target=self._poll, args=(group, over), name="tidegate-spark-progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _poll(self, group: str, over: threading.Event) -> None:
        assert self._context is not None
        tracker = self._context.statusTracker()
        while not over.wait(PERIOD):
            done = tasks = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                for stage in info.stageIds if info is not None and info.status == "RUNNING" else ():
                    found = tracker.getStageInfo(stage)
                    if found is not None:
                        done, tasks = done + found.numCompletedTasks, tasks + found.numTasks
            self._say(done, tasks)

    def _progress(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        self._say(sum(stage.num_completed_tasks for stage in stages), sum(stage.num_tasks for stage in stages))

    def _say(self, done: int, tasks: int) -> None:
        if self._tell is not None and tasks:
            self._tell(f"action {self._number}: {done} of {tasks} tasks")


@contextlib.contextmanager
def _without_py4j() -> Iterator[None]:
    """Inside, py4j does not log what it raises anyway."""
    import logging

    def others(record: logging.LogRecord) -> bool:
        return f"{os.sep}py4j{os.sep}" not in record.pathname

    root = logging.getLogger()
    root.addFilter(others)
    try:
        yield
    finally:
        root.removeFilter(others)
