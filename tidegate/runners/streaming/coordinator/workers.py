"""The workers of an attempt, as far as they are heard of: who is ready, who is silent, what they have counted."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.protocol.coordinator_io import Progress
from tidegate.runners.streaming.protocol.worker_messages import Heartbeat, TaskEnded
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.time import MIN_MICROS, SECOND


class Workers:
    """All workers of one attempt. `timeout` (s): one that is silent longer is stuck, once they have been started."""

    def __init__(self, count: int, timeout: float | None) -> None:
        self.count = count
        self.ready: set[int] = set()
        self.gone: set[int] = set()
        self._timeout = None if timeout is None else round(timeout * SECOND)
        self._heard: dict[int, int] = {}
        self._beats: dict[int, Heartbeat] = {}

    @property
    def all_ready(self) -> bool:
        """Whether every worker is up."""
        return len(self.ready) == self.count

    @property
    def all_gone(self) -> bool:
        """Whether every worker has ended."""
        return len(self.gone) == self.count

    def hear(self, worker: int, now: int) -> None:
        """A worker has said something."""
        self._heard[worker] = now

    def started(self, now: int) -> None:
        """Their processes are there."""
        self._heard = dict.fromkeys(range(self.count), now)

    def beat(self, worker: int, heartbeat: Heartbeat) -> None:
        """A worker has told how it is doing."""
        self._beats[worker] = heartbeat

    def min_watermark_beside(self, worker: int) -> int | None:
        """The least watermark of live sources in the workers beside this one; who has yet to tell may be anywhere."""
        if len(self._beats.keys() | {worker}) < self.count:
            return MIN_MICROS
        watermarks = (beat.min_watermark for other, beat in self._beats.items() if other != worker)
        return min((watermark for watermark in watermarks if watermark is not None), default=None)

    def stuck(self, now: int) -> int | None:
        """A worker that has been silent for too long: while it is in a call of the author's, it says nothing."""
        if self._timeout is None:
            return None
        for worker, heard in self._heard.items():
            if now - heard >= self._timeout:
                return worker
        return None

    def next_wake(self) -> int | None:
        """When the next worker is to be called stuck, unless it is heard of (µs)."""
        return None if self._timeout is None or not self._heard else min(self._heard.values()) + self._timeout

    def progress(self, before: Iterable[MetricCells]) -> Progress:
        """How all tasks are doing, and all metrics: these workers', and those of what was done before them."""
        metrics = MetricCells()
        for cells in before:
            metrics.merge(cells)
        for worker in sorted(self._beats):
            metrics.merge(self._beats[worker].metrics)
        tasks = [status for beat in self._beats.values() for status in beat.tasks]
        return Progress(tuple(sorted(tasks, key=lambda status: status.task)), metrics)


class EndedTasks:
    """What tasks of bounded regions left when they ended: output to commit, metrics. It outlives their workers.

    `counted`: the metrics of what was done in an earlier process of the job.
    """

    def __init__(self, counted: MetricCells | None = None) -> None:
        self._counted = counted or MetricCells()
        self._now: dict[TaskId, TaskEnded] = {}
        self._before: dict[TaskId, TaskEnded] = {}

    def add(self, ended: TaskEnded) -> None:
        """A task has ended."""
        self._now[ended.task] = ended

    def reset(self, kept: Iterable[TaskId]) -> None:
        """All workers are gone; what these tasks did is not lost."""
        self._before = {task: self.all[task] for task in kept if task in self.all}
        self._now = {}

    @property
    def all(self) -> dict[TaskId, TaskEnded]:
        """By task."""
        return {**self._before, **self._now}

    @property
    def metrics(self) -> list[MetricCells]:
        """Of those whose workers no longer tell."""
        return [self._counted, *(ended.metrics for ended in self._before.values() if ended.metrics is not None)]

    @property
    def whole(self) -> MetricCells:
        """All metrics of a job whose every task has ended, also if its workers have not told them yet."""
        metrics = MetricCells()
        for cells in (self._counted, *(ended.metrics for ended in self.all.values())):
            if cells is not None:
                metrics.merge(cells)
        return metrics
