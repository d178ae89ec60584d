"""The metrics file of a job: JSON lines about its tasks, in regular intervals, and about its checkpoints."""

from __future__ import annotations

import json
import time
from typing import Any

from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.utc import rfc3339
from tidegate.runners.streaming.protocol.client_messages import ToClient
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, Finish, Progress, Report
from tidegate.runners.streaming.protocol.worker_messages import TaskStatus
from tidegate.sdk.errors import RunError
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND


class MetricsFile:
    """Writes a line about every task each `metrics_interval`, and about every checkpoint and change of state.

    Counts are of the interval; `busy`, `idle` and `backpressured` are fractions of it (or of the task's lifetime, if
    the task has reported nothing in it); durations are in seconds. `watermark` is an instant in UTC, and `lag` its
    distance from the clock; both are null where there is no watermark.

    RunError if the file can't be created. Lines that can't be written later, on a full disk, are dropped.
    """

    def __init__(self, job: Job, path: str) -> None:
        self._job = job
        self._path = path
        self._interval = job.settings.metrics_interval
        self._next_write = 0.0
        self._before: dict[TaskId, TaskStatus] = {}
        self._steps: dict[int, list[str]] = {}
        for step in self._job.plan.steps:
            self._steps.setdefault(step.stage, []).append(step.label)
        self._fault = self._add("")
        if self._fault:
            raise RunError(self._fault)

    def write(self, message: ToClient) -> str:
        """Write a message to the client. Returns why it can't be written if the previous one could; else ""."""
        before = self._fault
        self._write_lines_of(message)
        return "" if before else self._fault

    def _write_lines_of(self, message: ToClient) -> None:
        match message:
            case Progress(tasks=tasks):
                elapsed = time.monotonic()
                if elapsed >= self._next_write:
                    self._next_write = elapsed + self._interval
                    now = time.time()
                    self._write("task", [self._of_task(task, now) for task in tasks])
                    self._before = {task.task: task for task in tasks}
            case CheckpointReport() as report:
                record = {
                    "checkpoint": report.checkpoint,
                    "duration": report.duration,
                    "bytes": report.size,
                    "alignment": report.alignment,
                    "pause": report.pause,
                    "error": report.error or None,
                    "savepoint": report.savepoint or None,
                }
                self._write("checkpoint", [record])
            case Report(state=state, text=text):
                self._write("job", [{"state": state, "text": text or None}])
            case Finish(state=state):
                self._write("job", [{"state": state, "text": None}])

    def _of_task(self, task: TaskStatus, now: float) -> dict[str, Any]:
        before = self._before.get(task.task)
        if before is None or before.records_in > task.records_in:  # it was redeployed
            before = TaskStatus(task.task, 0, 0, 0.0, 0.0, 0.0, MIN_MICROS, "running")
        seconds = [
            task.busy - before.busy,
            task.idle - before.idle,
            task.backpressured - before.backpressured,
        ]
        if not any(seconds):  # it has reported nothing in this interval
            seconds = [task.busy, task.idle, task.backpressured] if task.busy or task.backpressured else [0.0, 1.0, 0.0]
        total = sum(seconds)
        known = MIN_MICROS < task.watermark < MAX_MICROS
        return {
            "task": str(task.task),
            "steps": self._steps.get(task.task.stage, []),
            "state": task.state,
            "records_in": task.records_in - before.records_in,
            "records_out": task.records_out - before.records_out,
            **{name: round(part / total, 3) for name, part in zip(("busy", "idle", "backpressured"), seconds)},
            "watermark": rfc3339(task.watermark / SECOND) if known else None,
            "lag": round(now - task.watermark / SECOND, 3) if known else None,
        }

    def _write(self, kind: str, records: list[dict[str, Any]]) -> None:
        now = rfc3339(time.time())
        lines = [json.dumps({"time": now, "job": self._job.id, "kind": kind, **record}) + "\n" for record in records]
        self._fault = self._add("".join(lines))

    def _add(self, lines: str) -> str:
        """Append lines to the file; returns why that failed, or ""."""
        try:
            with open(self._path, "a") as file:  # reopened each time: a reader may have moved it
                file.write(lines)
        except OSError as error:
            return f"--metrics_file {self._path} can't be written: {error.strerror}"
        return ""
