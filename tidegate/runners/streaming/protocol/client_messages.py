"""The messages between a client and a job's process."""

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
    """A client's first message. `directory`: the run's, for blocking exchanges and spilled files."""

    job: Job
    directory: str

    def in_new_directory(self) -> Submit:
        """The same job with a new directory beside the old one, where workers of a dead process may still write."""
        return replace(self, directory=str(Path(self.directory).with_name(f"tidegate-{os.urandom(6).hex()}")))


FromClient: TypeAlias = CancelJob | StopJob | TakeSavepoint
ToClient: TypeAlias = Report | CheckpointReport | Progress | Finish
