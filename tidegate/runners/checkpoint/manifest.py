"""The manifest of a checkpoint.

A manifest lists the steps whose state the checkpoint holds, the state files of each task, the splits of every source
with their read positions, and the output that sinks may still have to commit. It is written last, so a checkpoint with
a readable manifest is complete. `manifest_json` converts it to JSON; `catalog` finds manifests in a directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress, StateHandle
from tidegate.runners.checkpoint.step_state import StepFacts
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.sinks.staged_files import stored_files
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricCells


class ManifestError(RunError):
    """A checkpoint is unusable: its manifest or one of its files is torn, damaged, missing or of another version."""


@dataclass(frozen=True, slots=True)
class TaskPart:
    """One task's part of a checkpoint. `parallelism`: the number of tasks of its stage. `ended`: its input had ended.

    `handle` is None for a task that ended before the checkpoint and stored nothing in it.
    """

    task: TaskId
    parallelism: int
    ended: bool
    handle: StateHandle | None
    splits: tuple[SplitProgress, ...] = ()


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """Output that a checkpoint made final but that may not be committed yet. `step` is the sink's label; `task` is as
    in `Commit`; `sink` names the sink (`Sink.name`), "" in older manifests."""

    step: str
    run: str
    checkpoint: int | None
    committables: tuple[Committable, ...]
    task: int | None = None
    sink: str = ""


@dataclass(frozen=True, slots=True)
class RetainedCheckpoint:
    """A completed checkpoint that has not been deleted. `files`: its manifest and the files it needs."""

    number: int
    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint as data.

    `taken`: µs since 1970. `final`: all input had ended, so no checkpoint follows. `lists`: the splits of each source
    that are not finished, by its label; `finished`: how many are. `enumerators`: how far the splits of each source with
    an enumerator have been discovered. `counted`: the metrics of tasks that had ended earlier and have no files in this
    checkpoint.

    In older manifests, `lists` has the finished splits as well, and the progress of tasks names them.
    """

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
    enumerators: Mapping[str, EnumeratorState] = field(default_factory=dict)
    finished: Mapping[str, int] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The folder of the files that this checkpoint added; it may also use files in the folders of earlier ones."""
        return folder_of(self.checkpoint)

    @property
    def name(self) -> str:
        """The manifest's path within the checkpoint directory."""
        return f"{self.folder}/manifest.json"

    def files(self) -> Iterator[tuple[str, int, int]]:
        """Name, size and CRC-32 of each file that the checkpoint needs: state files and staged files."""
        seen: set[str] = set()
        state = (file for part in self.tasks if part.handle is not None for file in part.handle.files)
        for file in (*state, *self.staged_files()):
            if file[0] not in seen:
                seen.add(file[0])
                yield file

    def staged_files(self) -> Iterator[tuple[str, int, int]]:
        """Name, size and CRC-32 of each file that attempts of sinks have staged for the commits."""
        for commit in self.commits:
            yield from stored_files(commit.committables)

    @property
    def retained(self) -> RetainedCheckpoint:
        """The checkpoint's number and all its files, including the manifest."""
        return RetainedCheckpoint(self.checkpoint, frozenset({self.name, *(name for name, _, _ in self.files())}))


def folder_of(checkpoint: int) -> str:
    """The folder of a checkpoint within the checkpoint directory.

    >>> folder_of(7)
    'chk-000007'
    """
    return f"chk-{checkpoint:06}"
