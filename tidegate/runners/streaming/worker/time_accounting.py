"""What a task does with its time, and how many elements come and go meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Doing: TypeAlias = Literal["busy", "idle", "backpressured"]


@dataclass(slots=True)
class Spent:
    """Seconds of a task's time."""

    busy: float = 0.0
    idle: float = 0.0
    backpressured: float = 0.0
    records_in: int = 0
    records_out: int = 0
    last: float = 0.0
    doing: Doing = "idle"

    def turn(self, doing: Doing, now: float) -> None:
        """From now on it does this."""
        passed = now - self.last
        self.last = now
        match self.doing:
            case "busy":
                self.busy += passed
            case "idle":
                self.idle += passed
            case "backpressured":
                self.backpressured += passed
        self.doing = doing
