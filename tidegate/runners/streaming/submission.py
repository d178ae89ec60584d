"""What a client and a job's process tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidegate.runners.streaming.actions import (
    CancelJob,
    CheckpointReport,
    Finish,
    Progress,
    Report,
    StopJob,
    TakeSavepoint,
)
from tidegate.runners.streaming.job import Job


@dataclass(frozen=True, slots=True)
class Submit:
    """What a client says first. `directory` is for what is kept between regions and what is spilled."""

    job: Job
    directory: str


FromClient: TypeAlias = CancelJob | StopJob | TakeSavepoint
ToClient: TypeAlias = Report | CheckpointReport | Progress | Finish
