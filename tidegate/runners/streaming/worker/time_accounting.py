"""How a task spends its time (busy, idle, backpressured), and how many elements it reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.protocol.worker_messages import TaskStatus
from tidegate.sdk.time import MIN_MICROS

Activity: TypeAlias = Literal["busy", "idle", "backpressured"]


@dataclass(slots=True)
class TimeAccounting:
    """Seconds per activity, and counts of elements, of one task."""

    busy: float = 0.0
    idle: float = 0.0
    backpressured: float = 0.0
    records_in: int = 0
    records_out: int = 0
    last: float = 0.0
    activity: Activity = "idle"

    def status(self, task: TaskId, statuses: Sequence[CollectionStatus], now: float, *, ended: bool) -> TaskStatus:
        """The counters, times and watermark of a task with these statuses of its inputs and sources."""
        self.switch(self.activity, now)
        active = [status.watermark for status in statuses if not (status.idle or status.ended)]
        greatest = max((status.watermark for status in statuses), default=MIN_MICROS)
        return TaskStatus(
            task,
            self.records_in,
            self.records_out,
            self.busy,
            self.idle,
            self.backpressured,
            min(active, default=greatest),
            "ended" if ended else "running",
            not active,
        )

    def switch(self, activity: Activity, now: float) -> None:
        """Charge the time since the last call to the activity so far, and begin another one."""
        passed = now - self.last
        self.last = now
        match self.activity:
            case "busy":
                self.busy += passed
            case "idle":
                self.idle += passed
            case "backpressured":
                self.backpressured += passed
        self.activity = activity
