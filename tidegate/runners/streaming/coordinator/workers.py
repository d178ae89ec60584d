"""The workers of an attempt: which are ready, gone or silent, and the metrics they have reported."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.streaming.protocol.coordinator_io import Progress
from tidegate.runners.streaming.protocol.worker_messages import Heartbeat, TaskEnded
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.time import MIN_MICROS, SECOND


class Workers:
    """All workers of one attempt. `timeout` (s): a worker that is silent for longer counts as stuck."""

    def __init__(self, count: int, timeout: float | None) -> None:
        self.count = count
        self.ready: set[int] = set()
        self.gone: set[int] = set()
        self._timeout = None if timeout is None else round(timeout * SECOND)
        self._last_message: dict[int, int] = {}
        self._heartbeats: dict[int, Heartbeat] = {}

    @property
    def all_ready(self) -> bool:
        """Whether every worker is up."""
        return len(self.ready) == self.count

    @property
    def all_gone(self) -> bool:
        """Whether every worker has ended."""
        return len(self.gone) == self.count

    def mark_alive(self, worker: int, now: int) -> None:
        """A worker has sent a message."""
        self._last_message[worker] = now

    def started(self, now: int) -> None:
        """All workers' processes have been started: reset every liveness deadline."""
        self._last_message = dict.fromkeys(range(self.count), now)

    def on_heartbeat(self, worker: int, heartbeat: Heartbeat) -> None:
        """A worker has reported its status."""
        self._heartbeats[worker] = heartbeat

    def min_watermark_except(self, worker: int) -> int | None:
        """The minimum watermark of live sources in the other workers; MIN_MICROS until all of them have reported."""
        if len(self._heartbeats.keys() | {worker}) < self.count:
            return MIN_MICROS
        watermarks = (heartbeat.min_watermark for other, heartbeat in self._heartbeats.items() if other != worker)
        return min((watermark for watermark in watermarks if watermark is not None), default=None)

    def stuck(self, now: int) -> int | None:
        """A worker that has been silent for too long, if any. A worker is silent while it is in a call of user code."""
        if self._timeout is None:
            return None
        for worker, at in self._last_message.items():
            if now - at >= self._timeout:
                return worker
        return None

    def next_wake(self) -> int | None:
        """When the next worker counts as stuck, unless it sends a message before (µs)."""
        return (
            None
            if self._timeout is None or not self._last_message
            else min(self._last_message.values()) + self._timeout
        )

    def progress(self, before: Iterable[MetricCells]) -> Progress:
        """The status of all tasks, and all metrics. `before`: the metrics of tasks that ended in earlier attempts."""
        metrics = MetricCells()
        for cells in before:
            metrics.merge(cells)
        for worker in sorted(self._heartbeats):
            metrics.merge(self._heartbeats[worker].metrics)
        tasks = [status for heartbeat in self._heartbeats.values() for status in heartbeat.tasks]
        return Progress(tuple(sorted(tasks, key=lambda status: status.task)), metrics)


class EndedTasks:
    """The final reports of tasks of bounded regions: output to commit, and metrics. They outlive their workers.

    `counted`: the metrics of tasks that ended in an earlier process of the job.
    """

    def __init__(self, counted: MetricCells | None = None) -> None:
        self._counted = counted or MetricCells()
        self._now: dict[TaskId, TaskEnded] = {}
        self._before: dict[TaskId, TaskEnded] = {}
        self._rounds_now, self._rounds_before = MetricCells(), MetricCells()
        """The metrics of tasks that run again, in another round of a loop."""

    def add(self, ended: TaskEnded) -> None:
        """A task has ended."""
        self._now[ended.task] = ended

    def reset(self, done: Iterable[TaskId]) -> None:
        """All workers are gone. `done`: the tasks that don't run again, whose reports remain."""
        self._before = {task: self.all[task] for task in done if task in self.all}
        self._now = {}
        self._rounds_before.merge(self._rounds_now)
        self._rounds_now = MetricCells()

    def end_round(self, tasks: Iterable[TaskId]) -> None:
        """A round of a loop is over, in which these tasks have ended. Of their reports only the metrics remain."""
        for task in tasks:
            for reports, metrics in ((self._now, self._rounds_now), (self._before, self._rounds_before)):
                ended = reports.pop(task, None)
                if ended is not None and ended.metrics is not None:
                    metrics.merge(ended.metrics)

    @property
    def all(self) -> dict[TaskId, TaskEnded]:
        """All reports, by task."""
        return {**self._before, **self._now}

    @property
    def metrics(self) -> list[MetricCells]:
        """The metrics of tasks that ended in earlier attempts, which no current worker reports."""
        return [
            self._counted,
            self._rounds_before,
            *(ended.metrics for ended in self._before.values() if ended.metrics is not None),
        ]

    @property
    def total_metrics(self) -> MetricCells:
        """All metrics of a job whose every task has ended, including those that no heartbeat has reported yet."""
        metrics = MetricCells()
        before = (self._counted, self._rounds_before, self._rounds_now)
        for cells in (*before, *(ended.metrics for ended in self.all.values())):
            if cells is not None:
                metrics.merge(cells)
        return metrics
