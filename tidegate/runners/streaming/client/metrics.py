"""Metrics of the engine about a job, in addition to those of the author's code.

Each step has the gauges `records_in`, `records_out` (of its tasks, since they were deployed), `busy`, `idle`,
`backpressured` (fractions of their time), `watermark` (a Timestamp) and `watermark_lag` (seconds behind the clock).
The job, with "" for the step, has the counters `checkpoints`, `checkpoints_failed` and `restarts`, and about its last
checkpoint the gauges `checkpoint` (its number), `checkpoint_duration`, `checkpoint_alignment`, `checkpoint_pause` (in
seconds) and `checkpoint_size` (bytes). The coordinator adds the gauges `pending_commits` and `pending_commit_bytes` of
each sink, and of the job the counter `source_pauses` and the gauge `sources_paused` (see `commit_backpressure`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidegate.runners.plan import Plan
from tidegate.runners.streaming.protocol.client_messages import ToClient
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, Progress, Report
from tidegate.runners.streaming.protocol.worker_messages import TaskStatus, watermark_of
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND, Timestamp

JOB: Final = ""
"""The step name of the job's metrics."""


class MetricsObserver:
    """Derives the engine's metrics of one job from the messages of its process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._counts = {"checkpoints": 0, "checkpoints_failed": 0, "restarts": 0}
        self._gauges: dict[MetricKey, Any] = {}

    def update(self, message: ToClient, now: float) -> None:
        """Update the metrics from a message that was received at `now` (seconds since 1970)."""
        match message:
            case Progress(tasks=tasks):
                self._gauges.update(_of_steps(self._plan, tasks, now))
            case CheckpointReport(error=error) if error:
                self._counts["checkpoints_failed"] += 1
            case CheckpointReport(savepoint="") as report:
                self._counts["checkpoints"] += 1
                gauges = {
                    "checkpoint": report.checkpoint,
                    "checkpoint_duration": report.duration,
                    "checkpoint_alignment": report.alignment,
                    "checkpoint_pause": report.pause,
                    "checkpoint_size": report.size,
                }
                self._gauges.update({MetricKey(JOB, ENGINE, name): value for name, value in gauges.items()})
            case Report(state="restarting"):
                self._counts["restarts"] += 1

    def add_to(self, metrics: MetricCells) -> None:
        """Add the engine's metrics to those of the author's code."""
        metrics.counters.update({MetricKey(JOB, ENGINE, name): n for name, n in self._counts.items() if n})
        metrics.gauges.update(self._gauges)


def _of_steps(plan: Plan, tasks: Sequence[TaskStatus], now: float) -> dict[MetricKey, Any]:
    gauges: dict[MetricKey, Any] = {}
    by_stage: dict[int, list[TaskStatus]] = {}
    for task in tasks:
        by_stage.setdefault(task.task.stage, []).append(task)
    for stage, stage_tasks in by_stage.items():
        busy = sum(task.busy for task in stage_tasks)
        idle = sum(task.idle for task in stage_tasks)
        backpressured = sum(task.backpressured for task in stage_tasks)
        total = max(busy + idle + backpressured, 1e-9)
        values: dict[str, Any] = {
            "records_in": sum(task.records_in for task in stage_tasks),
            "records_out": sum(task.records_out for task in stage_tasks),
            "busy": busy / total,
            "idle": idle / total,
            "backpressured": backpressured / total,
        }
        watermark = watermark_of(stage_tasks)
        if MIN_MICROS < watermark < MAX_MICROS:
            values |= {"watermark": Timestamp.of_micros(watermark), "watermark_lag": now - watermark / SECOND}
        for label in {node.label for step in plan.stage_steps(stage) for node in step.nodes}:
            gauges.update({MetricKey(label, ENGINE, name): value for name, value in values.items()})
    return gauges
