"""How a task spends its time (busy, idle, backpressured), and how many elements it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

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
