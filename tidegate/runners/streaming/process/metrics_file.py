"""A file of JSON lines about a job, for machines: a line about every task each period, and about every checkpoint."""

from __future__ import annotations

import json
import time
from typing import Any

from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.model.utc import rfc3339
from tidegate.runners.streaming.protocol.client_messages import ToClient
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, Finish, Progress, Report
from tidegate.runners.streaming.protocol.worker_messages import TaskStatus
from tidegate.sdk.errors import RunError
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND


class MetricsFile:
    """JSON lines about every task, each `metrics_interval`, and about every checkpoint and change of state.

    Counts are of the interval; `busy`, `idle` and `backpressured` are shares of it (of all time, where a task has told
    nothing in it); times are in seconds, `watermark` an instant in UTC, and `lag` how far it is behind the clock (null
    where there is none).

    RunError where there can be no such file. What can't be written later, on a full disk, is left out.
    """

    def __init__(self, job: Job, path: str) -> None:
        self._job = job
        self._path = path
        self._interval = job.settings.metrics_interval
        self._due = 0.0
        self._before: dict[TaskId, TaskStatus] = {}
        self._steps: dict[int, list[str]] = {}
        for step in self._job.plan.steps:
            self._steps.setdefault(step.stage, []).append(step.label)
        self._fault = self._add("")
        if self._fault:
            raise RunError(self._fault)

    def take(self, message: ToClient) -> str:
        """Something that the client is told, too. What is wrong with the file, if nothing was until now; else ""."""
        before = self._fault
        self._take(message)
        return "" if before else self._fault

    def _take(self, message: ToClient) -> None:
        match message:
            case Progress(tasks=tasks):
                passed = time.monotonic()
                if passed >= self._due:
                    self._due = passed + self._interval
                    now = time.time()
                    self._write("task", [self._of_task(task, now) for task in tasks])
                    self._before = {task.task: task for task in tasks}
            case CheckpointReport() as report:
                facts = {
                    "checkpoint": report.checkpoint,
                    "duration": report.duration,
                    "bytes": report.size,
                    "alignment": report.alignment,
                    "pause": report.pause,
                    "error": report.error or None,
                    "savepoint": report.savepoint or None,
                }
                self._write("checkpoint", [facts])
            case Report(state=state, text=text):
                self._write("job", [{"state": state, "text": text or None}])
            case Finish(state=state):
                self._write("job", [{"state": state, "text": None}])

    def _of_task(self, task: TaskStatus, now: float) -> dict[str, Any]:
        before = self._before.get(task.task)
        if before is None or before.records_in > task.records_in:  # it was deployed anew
            before = TaskStatus(task.task, 0, 0, 0.0, 0.0, 0.0, MIN_MICROS, "running")
        spent = [
            task.busy - before.busy,
            task.idle - before.idle,
            task.backpressured - before.backpressured,
        ]
        if not any(spent):  # nothing has been heard of it since: then as it has been so far
            spent = [task.busy, task.idle, task.backpressured] if task.busy or task.backpressured else [0.0, 1.0, 0.0]
        whole = sum(spent)
        known = MIN_MICROS < task.watermark < MAX_MICROS
        return {
            "task": str(task.task),
            "steps": self._steps.get(task.task.stage, []),
            "state": task.state,
            "records_in": task.records_in - before.records_in,
            "records_out": task.records_out - before.records_out,
            **{name: round(part / whole, 3) for name, part in zip(("busy", "idle", "backpressured"), spent)},
            "watermark": rfc3339(task.watermark / SECOND) if known else None,
            "lag": round(now - task.watermark / SECOND, 3) if known else None,
        }

    def _write(self, kind: str, told: list[dict[str, Any]]) -> None:
        now = rfc3339(time.time())
        lines = [json.dumps({"time": now, "job": self._job.id, "kind": kind, **facts}) + "\n" for facts in told]
        self._fault = self._add("".join(lines))

    def _add(self, lines: str) -> str:
        """Write at the end; why that can't be done, "" if it could."""
        try:
            with open(self._path, "a") as file:  # anew each time: whoever reads it may have moved it away
                file.write(lines)
        except OSError as error:
            return f"--metrics_file {self._path} can't be written: {error.strerror}"
        return ""
