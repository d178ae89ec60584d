"""The messages between a client and a job's process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

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
from tidegate.sdk import moved
from tidegate.sdk.secrets.registry import SecretValue


@dataclass(frozen=True, slots=True)
class Submit:
    """A client's first message. `directory`: the run's, for blocking exchanges and spilled files. `secrets`: the values
    that the author's code refers to by name; a process forked from the client inherits them instead."""

    job: Job
    directory: str
    secrets: tuple[tuple[str, SecretValue], ...] = field(default=(), repr=False)

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)

    def in_new_directory(self) -> Submit:
        """The same job with a new directory beside the old one, where workers of a dead process may still write."""
        return replace(self, directory=str(Path(self.directory).with_name(f"tidegate-{os.urandom(6).hex()}")))


FromClient: TypeAlias = CancelJob | StopJob | TakeSavepoint
ToClient: TypeAlias = Report | CheckpointReport | Progress | Finish
