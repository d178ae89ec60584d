"""How a job is doing, as metrics of the engine's own beside what the author's code counts.

Of each step: the gauges `records_in`, `records_out` (of the tasks it is in, since they were deployed), `busy`, `idle`,
`backpressured` (shares of their time), `watermark` (a Timestamp) and `watermark_lag` (seconds behind the clock).
Of the job, with "" for the step: the counters `checkpoints`, `checkpoints_failed` and `restarts`, and of its last
checkpoint the gauges `checkpoint` (its number), `checkpoint_duration`, `checkpoint_alignment`, `checkpoint_pause` (in
seconds) and `checkpoint_size` (bytes).
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
"""The step of what is counted of the job as a whole."""


class MetricsObserver:
    """Of one job, by what its process tells."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._counts = {"checkpoints": 0, "checkpoints_failed": 0, "restarts": 0}
        self._gauges: dict[MetricKey, Any] = {}

    def take(self, message: ToClient, now: float) -> None:
        """Something that it tells, at `now` (seconds since 1970)."""
        match message:
            case Progress(tasks=tasks):
                self._gauges.update(_of_steps(self._plan, tasks, now))
            case CheckpointReport(error=error) if error:
                self._counts["checkpoints_failed"] += 1
            case CheckpointReport(savepoint="") as report:
                self._counts["checkpoints"] += 1
                told = {
                    "checkpoint": report.checkpoint,
                    "checkpoint_duration": report.duration,
                    "checkpoint_alignment": report.alignment,
                    "checkpoint_pause": report.pause,
                    "checkpoint_size": report.size,
                }
                self._gauges.update({MetricKey(JOB, ENGINE, name): value for name, value in told.items()})
            case Report(state="restarting"):
                self._counts["restarts"] += 1

    def add_to(self, metrics: MetricCells) -> None:
        """Put it beside what has been counted."""
        metrics.counters.update({MetricKey(JOB, ENGINE, name): n for name, n in self._counts.items() if n})
        metrics.gauges.update(self._gauges)


def _of_steps(plan: Plan, tasks: Sequence[TaskStatus], now: float) -> dict[MetricKey, Any]:
    gauges: dict[MetricKey, Any] = {}
    by_stage: dict[int, list[TaskStatus]] = {}
    for task in tasks:
        by_stage.setdefault(task.task.stage, []).append(task)
    for stage, own in by_stage.items():
        busy, idle, held = (sum(spent) for spent in zip(*((t.busy, t.idle, t.backpressured) for t in own), strict=True))
        whole = max(busy + idle + held, 1e-9)
        told: dict[str, Any] = {
            "records_in": sum(task.records_in for task in own),
            "records_out": sum(task.records_out for task in own),
            "busy": busy / whole,
            "idle": idle / whole,
            "backpressured": held / whole,
        }
        watermark = watermark_of(own)
        if MIN_MICROS < watermark < MAX_MICROS:
            told |= {"watermark": Timestamp.of_micros(watermark), "watermark_lag": now - watermark / SECOND}
        for label in {node.label for step in plan.stage_steps(stage) for node in step.nodes}:
            gauges.update({MetricKey(label, ENGINE, name): value for name, value in told.items()})
    return gauges
