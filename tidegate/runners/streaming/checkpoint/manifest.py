"""What a checkpoint consists of.

A manifest names every step whose state the checkpoint holds, the state files of each task, the splits of every source
and how far they are read, and the output that the sinks may still have to commit. It is written last: a checkpoint
whose manifest can be read is complete. `manifest_json` writes it as text, `catalog` finds it in a directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidegate.runners.streaming.checkpoint.tracker import RetainedCheckpoint
from tidegate.runners.streaming.model.step_state import StepFacts
from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.protocol.worker_messages import AssignedSplit, SplitProgress, StateHandle
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricCells


class ManifestError(RunError):
    """A checkpoint that can't be used: its manifest or a file is torn, damaged, missing or of another version."""


@dataclass(frozen=True, slots=True)
class TaskPart:
    """What a checkpoint holds of one task, of which its stage has `parallelism`. `ended`: its input had ended."""

    task: TaskId
    parallelism: int
    ended: bool
    handle: StateHandle | None
    splits: tuple[SplitProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """Output that a checkpoint made final and that may not be committed yet. `step` is the sink's label."""

    step: str
    run: str
    checkpoint: int | None
    committables: tuple[Committable, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint as data. `taken` is in µs since 1970. `final`: all input had ended, so no checkpoint follows.
    `counted`: the metrics of tasks that have no files in it because they had ended before."""

    job: str
    run: str
    epoch: int
    checkpoint: int
    kind: Literal["checkpoint", "savepoint"]
    taken: int
    max_parallelism: int
    backend: str
    final: bool
    steps: tuple[StepFacts, ...]
    tasks: tuple[TaskPart, ...]
    lists: Mapping[str, tuple[AssignedSplit, ...]]
    commits: tuple[PendingCommit, ...] = ()
    counted: MetricCells = field(default_factory=MetricCells)

    @property
    def folder(self) -> str:
        """The folder of the files it added; those it shares with earlier checkpoints are in their folders."""
        return folder_of(self.checkpoint)

    @property
    def name(self) -> str:
        """The manifest's file name within the checkpoint directory."""
        return f"{self.folder}/manifest.json"

    def files(self) -> Iterator[tuple[str, int, int]]:
        """Name, size and CRC-32 of each state file that it needs."""
        seen: set[str] = set()
        for part in self.tasks:
            for file in part.handle.files if part.handle is not None else ():
                if file[0] not in seen:
                    seen.add(file[0])
                    yield file

    @property
    def retained(self) -> RetainedCheckpoint:
        """Its number and all its files, itself among them."""
        return RetainedCheckpoint(self.checkpoint, frozenset({self.name, *(name for name, _, _ in self.files())}))


def folder_of(checkpoint: int) -> str:
    """The folder of a checkpoint."""
    return f"chk-{checkpoint:06}"
