"""The events that a coordinator handles, and the actions that it asks its process to perform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidegate.runners.streaming.protocol.worker_messages import TaskStatus, ToCoordinator, ToWorker
from tidegate.sdk.metrics import MetricCells

# -- events


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the job."""


@dataclass(frozen=True, slots=True)
class WorkersStarted:
    """The workers of an attempt have been started. This may have had to wait for the storage."""

    attempt: int


@dataclass(frozen=True, slots=True)
class FromWorker:
    """A worker of an attempt sent a message."""

    worker: int
    attempt: int
    message: ToCoordinator


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """A worker's process has ended. `reason` is for people, such as "killed by SIGKILL"."""

    worker: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: do whatever is due by now."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The answer to `Store`: `error` is "" if the file is in place. `in_place`: it may be so despite the error."""

    checkpoint: int
    error: str = ""
    in_place: bool = True


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another process has claimed the job's checkpoint directory: this one must not store or commit anything more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """Ownership of the checkpoint directory could not be checked, so an action that depends on it was not performed."""

    error: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    """End the job now; nothing more is committed."""


@dataclass(frozen=True, slots=True)
class StopJob:
    """End the job cleanly and commit its output: by the final watermark (`drain`), a savepoint or a checkpoint."""

    drain: bool = False
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """Write a savepoint to a directory while the job keeps running."""

    directory: str


CoordinatorEvent: TypeAlias = (
    Begin
    | WorkersStarted
    | FromWorker
    | WorkerGone
    | Tick
    | Stored
    | Fenced
    | Unreachable
    | CancelJob
    | StopJob
    | TakeSavepoint
)

# -- actions


@dataclass(frozen=True, slots=True)
class StartWorkers:
    """Make sure that no worker of an earlier attempt is alive, then start all workers of this one."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """Wait for the workers to exit, and kill those that are still alive after `grace` seconds."""

    grace: float


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a worker of the current attempt."""

    worker: int
    message: ToWorker


@dataclass(frozen=True, slots=True)
class Store:
    """Write a manifest atomically, then answer with `Stored`. `name`: its name in the checkpoint directory, or in
    `directory`; `new_files`: state files that tasks have written for it, to be made durable first."""

    checkpoint: int
    name: str
    data: bytes
    directory: str | None = None
    new_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove files that no checkpoint needs, and whole `folders` except for some files in them.

    `keep_store_files`: also keep the files in these folders that a state backend copied from its store, because a later
    checkpoint may build on them. `staged_before`: also remove the staged files of all attempts before this one.
    """

    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    except_for: frozenset[str] = frozenset()
    keep_store_files: bool = False
    staged_before: int | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove a manifest of this process that must not be found again: before any output is committed or removed, and
    before workers start."""

    name: str


JobState: TypeAlias = Literal[
    "created", "running", "restarting", "finishing", "finished", "failed", "cancelled", "stopped"
]


@dataclass(frozen=True, slots=True)
class Report:
    """A change of the job's state, or a line that says what was done, for people who watch the job."""

    state: JobState
    text: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A checkpoint has completed, or failed (`error`). Times in seconds, size in bytes."""

    checkpoint: int
    duration: float
    size: int
    alignment: float
    pause: float
    error: str = ""
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """The status of all tasks, and all metrics so far."""

    tasks: tuple[TaskStatus, ...]
    metrics: MetricCells


@dataclass(frozen=True, slots=True)
class Finish:
    """The job is over. `error`: packed by `errors.transport.packed`; None unless the job failed."""

    state: Literal["finished", "failed", "cancelled", "stopped"]
    error: bytes | None = None


Action: TypeAlias = (
    StartWorkers | StopWorkers | Send | Store | Delete | Withdraw | Report | CheckpointReport | Progress | Finish
)
