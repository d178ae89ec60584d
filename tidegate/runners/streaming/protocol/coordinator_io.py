"""What happens to a coordinator, and what it wants done: it does nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidegate.runners.streaming.protocol.worker_messages import TaskStatus, ToCoordinator, ToWorker
from tidegate.sdk.metrics import MetricCells

# -- events


@dataclass(frozen=True, slots=True)
class Begin:
    """The job is to start."""


@dataclass(frozen=True, slots=True)
class WorkersStarted:
    """The workers of an attempt have been started, which may have had to wait for the storage."""

    attempt: int


@dataclass(frozen=True, slots=True)
class FromWorker:
    """A worker of an attempt has said something."""

    worker: int
    attempt: int
    message: ToCoordinator


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """A worker's process has ended; `reason` for people, such as "killed by SIGKILL"."""

    worker: int
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes: whatever is due by now."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A manifest is in place (or not: `error` says why; `in_place`: it may be there all the same)."""

    checkpoint: int
    error: str = ""
    in_place: bool = True


@dataclass(frozen=True, slots=True)
class Fenced:
    """Another process has claimed the job's checkpoint directory: this one must neither store nor commit any more."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The checkpoint directory does not say whose it is now, so something that had to be known first was not done."""

    error: str


@dataclass(frozen=True, slots=True)
class CancelJob:
    """End it now; nothing more is committed."""


@dataclass(frozen=True, slots=True)
class StopJob:
    """End it cleanly: with the final watermark (`drain`), else by a savepoint (or checkpoint), then commit."""

    drain: bool = False
    savepoint: str | None = None


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """Write a savepoint to a directory, and go on."""

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
    """Make sure that no worker of an earlier attempt lives, then start all of this one."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """End all workers: they have been told to close; kill those that have not after `grace` seconds."""

    grace: float


@dataclass(frozen=True, slots=True)
class Send:
    """Tell a worker of the present attempt."""

    worker: int
    message: ToWorker


@dataclass(frozen=True, slots=True)
class Store:
    """Write a manifest, atomically, named within the checkpoint directory or within `directory`; then say `Stored`.
    Before that settle what tasks have put there for it, `fresh`."""

    checkpoint: int
    name: str
    data: bytes
    directory: str | None = None
    fresh: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove files of the checkpoint directory that nobody needs, and whole `folders` there but for what is `spared`.

    `again`: of those folders, what a state backend took from its store stays, for a later checkpoint may build on it.
    """

    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    spared: frozenset[str] = frozenset()
    again: bool = False


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove a manifest that must not be found again: before any output is committed or removed, and before workers
    start. It is this process's own."""

    name: str


JobState: TypeAlias = Literal[
    "created", "running", "restarting", "finishing", "finished", "failed", "cancelled", "stopped"
]


@dataclass(frozen=True, slots=True)
class Report:
    """For whoever watches the job: a change of state, or a line that says what was done."""

    state: JobState
    text: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """A checkpoint has completed, or failed (`error`); times in seconds, size in bytes."""

    checkpoint: int
    duration: float
    size: int
    alignment: float
    pause: float
    error: str = ""
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """How the tasks are doing, and all metrics so far."""

    tasks: tuple[TaskStatus, ...]
    metrics: MetricCells


@dataclass(frozen=True, slots=True)
class Finish:
    """The job is over. `error` is made by `failures.packed`; None unless it failed."""

    state: Literal["finished", "failed", "cancelled", "stopped"]
    error: bytes | None = None


Action: TypeAlias = (
    StartWorkers | StopWorkers | Send | Store | Delete | Withdraw | Report | CheckpointReport | Progress | Finish
)
