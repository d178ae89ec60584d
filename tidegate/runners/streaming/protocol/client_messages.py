"""What a client and a job's process tell each other."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.coordinator_io import (
    CancelJob,
    CheckpointReport,
    Finish,
    Progress,
    Report,
    StopJob,
    TakeSavepoint,
)


@dataclass(frozen=True, slots=True)
class Submit:
    """What a client says first. `directory` is for what is kept between regions and what is spilled."""

    job: Job
    directory: str

    def elsewhere(self) -> Submit:
        """The same with a fresh directory beside: in the old one, workers of a process that has died may yet write."""
        return replace(self, directory=str(Path(self.directory).with_name(f"tidegate-{os.urandom(6).hex()}")))


FromClient: TypeAlias = CancelJob | StopJob | TakeSavepoint
ToClient: TypeAlias = Report | CheckpointReport | Progress | Finish
