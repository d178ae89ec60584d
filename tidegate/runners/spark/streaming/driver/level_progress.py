"""The progress of an unbounded run: how the tasks of each level have spent their time, and how far behind they are."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.runners.engine.time.watermarks import CollectionStatus, MinWatermark
from tidegate.runners.spark.streaming.job import StreamJob, TaskReport
from tidegate.sdk.runner import StageProgress
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND


class LevelProgress:
    """Sums what the tasks of each level report after each batch."""

    def __init__(self, job: StreamJob) -> None:
        self._tasks = job.tasks
        self._steps = [
            tuple(node.label for step in job.levels.steps(job.plan, level, 0) for node in step.nodes)
            for level in range(job.levels.count)
        ]
        self._busy = [0.0] * job.levels.count
        self._idle = [0.0] * job.levels.count
        self._statuses = [CollectionStatus()] * job.levels.count
        self._ended: float | None = None
        """When the last batch ended."""

    def add(self, reports: Iterable[TaskReport], began: float, ended: float) -> None:
        """Add a batch, with when (s) it began and ended. Tasks were idle from the end of the one before on."""
        passed = ended - (began if self._ended is None else self._ended)
        self._ended = ended
        by_level: dict[int, list[TaskReport]] = {}
        for report in reports:
            by_level.setdefault(report.level, []).append(report)
        for level, its in by_level.items():
            busy = sum(report.busy for report in its)
            self._busy[level] += busy
            self._idle[level] += max(0.0, passed * self._tasks - busy)
            self._statuses[level] = MinWatermark().of({report.index: report.status for report in its})

    def stages(self, now: float) -> list[StageProgress]:
        """The progress of each level; `now` is in seconds since 1970."""
        return [
            StageProgress(steps, busy, idle, 0.0, _behind(status.watermark, now))
            for steps, busy, idle, status in zip(self._steps, self._busy, self._idle, self._statuses)
        ]


def _behind(watermark: int, now: float) -> float | None:
    """How far (s) a watermark lags; None at the beginning and at the end of time."""
    return now - watermark / SECOND if MIN_MICROS < watermark < MAX_MICROS else None
