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
        if self._context is None:
            yield
            return
        before = {name: self._context.getLocalProperty(name) for name in (_GROUP, _DESCRIPTION)}
        if before[_GROUP] is None:  # else the author's own group, by which the job may be cancelled
            self._context.setLocalProperty(_GROUP, self._group)
        self._context.setLocalProperty(_DESCRIPTION, words)
        try:
            with self._polled(before[_GROUP] or self._group):
                yield
        finally:
            for name, value in before.items():
                self._context.setLocalProperty(name, value)

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
