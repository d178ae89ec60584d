"""The names of tasks and of the channels between them, as checkpoints and messages have them.

>>> str(TaskId(stage=2, index=0))
'2.0'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """Task number `index` of a stage. It runs in the worker with the same number."""

    stage: int
    index: int

    def __str__(self) -> str:
        return f"{self.stage}.{self.index}"

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskId, (self.stage, self.index)  # shorter than the default: every message names tasks


@dataclass(frozen=True, slots=True, order=True)
class ChannelId:
    """The channel from task `source` to task `target` (indexes) of an edge (its number in the plan)."""

    edge: int
    source: int
    target: int
