"""What coordinator and workers tell each other. Data only; user code travels as bytes that only workers unpickle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.protocol.stream_items import BarrierKind
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import MetricCells

# -- parts


@dataclass(frozen=True, slots=True)
class AssignedSplit:
    """A split on its way to a task: `payload` is the pickled `Split`, `position` where to resume (None: its start)."""

    id: str
    payload: bytes
    size: int | None = None
    position: Any = None


@dataclass(frozen=True, slots=True)
class StateHandle:
    """Where a task's state of one checkpoint is stored, relative to the checkpoint directory.

    `files` are (name, size in bytes, crc32): the first is this checkpoint's own, those after it are what it builds on.
    """

    files: tuple[tuple[str, int, int], ...]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(size for _, size, _ in self.files)


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """How far a task has read a source when it took a snapshot."""

    step: str
    finished: tuple[str, ...] = ()
    current: tuple[tuple[str, Any], ...] = ()
    """Splits by id, with the position at which each goes on."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a task's sink prepared for a checkpoint."""

    step: str
    committables: tuple[Committable, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    """A task's state as of some checkpoint: which task of how many wrote it, and where it is."""

    task: TaskId
    parallelism: int
    handle: StateHandle


@dataclass(frozen=True, slots=True)
class AckStats:
    """How a task's part of a checkpoint went; times in seconds."""

    alignment: float = 0.0
    pause: float = 0.0
    duration: float = 0.0
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """How a task is doing: counts since it was deployed, seconds busy, idle and held back, watermark in µs.

    `quiescent`: it holds no watermark back, for all that it reads is idle or has ended.
    """

    task: TaskId
    records_in: int
    records_out: int
    busy: float
    idle: float
    backpressured: float
    watermark: int
    state: Literal["running", "ended", "finished"]
    quiescent: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        spent = (self.busy, self.idle, self.backpressured)
        counted = (self.records_in, self.records_out, *spent)
        return TaskStatus, (self.task, *counted, self.watermark, self.state, self.quiescent)


def watermark_of(tasks: Sequence[TaskStatus]) -> int:
    """The watermark (µs) of a stage with these tasks: the least of those that hold it back."""
    holding = [task.watermark for task in tasks if not task.quiescent]
    return min(holding) if holding else max(task.watermark for task in tasks)


# -- coordinator to worker


@dataclass(frozen=True, slots=True)
class Deploy:
    """Run these tasks of a region (all of this worker's), each from the states given (none: from nothing)."""

    region: int
    tasks: tuple[TaskId, ...]
    restore: tuple[Restored, ...] = ()


@dataclass(frozen=True, slots=True)
class ListSplits:
    """Ask a source for its splits; the answer is `SplitsListed`."""

    step: int
    desired: int


@dataclass(frozen=True, slots=True)
class AssignSplits:
    """Splits for a source task; `more`: it may ask for others when it is through with these."""

    task: TaskId
    step: int
    splits: tuple[AssignedSplit, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class Trigger:
    """Begin a checkpoint (or a settling) at every task whose input has ended or that has none."""

    checkpoint: int
    kind: BarrierKind
    unaligned: bool = False
    clock: int | None = None
    """Of a settling: processing time (µs) moves to this."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A checkpoint is complete and durable."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Aborted:
    """A checkpoint has been given up: tasks that wait for its barriers go on."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Make prepared output of a sink visible; the answer is `Committed`. `checkpoint` None: all of a bounded run."""

    step: int
    run: str
    committables: tuple[Committable, ...]
    checkpoint: int | None


@dataclass(frozen=True, slots=True)
class AbortOutput:
    """Remove what a sink wrote in these runs and what is not committed; the answer is `OutputAborted`."""

    step: int
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """All tasks have handled a settling barrier: a test stream may give its next event."""

    settling: int


@dataclass(frozen=True, slots=True)
class StopSources:
    """Sources end here. `drain`: they end for good, the watermark goes to the end of time."""

    drain: bool


@dataclass(frozen=True, slots=True)
class Least:
    """The answer to a `Heartbeat` with `--watermark_drift`: the least watermark (µs) of the other workers' sources."""

    watermark: int | None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Close all tasks and exit."""


ToWorker: TypeAlias = (
    Deploy
    | ListSplits
    | AssignSplits
    | Trigger
    | Completed
    | Aborted
    | Commit
    | AbortOutput
    | Settled
    | StopSources
    | Least
    | Cancel
)

# -- worker to coordinator


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is up."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker is alive; how its tasks are doing, and its metrics so far (all of this attempt)."""

    tasks: tuple[TaskStatus, ...]
    metrics: MetricCells
    least: int | None = None
    """With `--watermark_drift`: the least watermark (µs) of live splits that are not idle, if it has any."""


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """All input of a task has ended and it has given all it gives; it is there for checkpoints yet."""

    task: TaskId
    prepared: tuple[Prepared, ...] = ()
    """In batch mode: what its sinks prepared, all there is."""
    metrics: MetricCells | None = None
    """In batch mode: all it has counted. What has ended is not done again when its worker is lost later."""


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task has raised: `error` is made by `failures.packed`. `element`: short, for telling whether it is the same.
    `text`: what it was, for people, since nobody but the client unpacks errors."""

    task: TaskId | None
    error: bytes
    user: bool
    element: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class SplitsListed:
    """The splits of a source."""

    step: int
    splits: tuple[AssignedSplit, ...]


@dataclass(frozen=True, slots=True)
class RequestSplit:
    """A source task is through with its splits."""

    task: TaskId
    step: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """A task has stored its part of a checkpoint. `ended`: it had come to the end of its input before."""

    checkpoint: int
    task: TaskId
    handle: StateHandle | None = None
    splits: tuple[SplitProgress, ...] = ()
    prepared: tuple[Prepared, ...] = ()
    ended: bool = False
    stats: AckStats = AckStats()


@dataclass(frozen=True, slots=True)
class Decline:
    """A task could not take its part of a checkpoint."""

    checkpoint: int
    task: TaskId
    reason: str
    prepared: tuple[Prepared, ...] = ()
    """What its sinks had prepared by then: it goes with the next checkpoint."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A task has handled a settling barrier."""

    settling: int
    task: TaskId


@dataclass(frozen=True, slots=True)
class RequestSettling:
    """A test stream has given an event, and waits until everything has handled it; `clock`: for the `Trigger`."""

    settling: int
    clock: int | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    """The answer to `Commit`; `error` and `text` as in `TaskFailed`, None and "" when it went well; what it wrote."""

    step: int
    checkpoint: int | None
    error: bytes | None = None
    text: str = ""
    written: MetricCells | None = None


@dataclass(frozen=True, slots=True)
class OutputAborted:
    """The answer to `AbortOutput`; `error` and `text` as in `TaskFailed`, None and "" when all of it is gone."""

    step: int
    error: bytes | None = None
    text: str = ""


ToCoordinator: TypeAlias = (
    Ready
    | Heartbeat
    | TaskEnded
    | TaskFailed
    | SplitsListed
    | RequestSplit
    | Acknowledge
    | Decline
    | Passed
    | RequestSettling
    | Committed
    | OutputAborted
)
