"""The messages between coordinator and workers. Data only: user code travels as bytes that only workers unpickle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState, SplitProgress, StateHandle, StoredState
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.protocol.stream_items import BarrierKind
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import MetricCells

# -- parts


@dataclass(frozen=True, slots=True)
class Prepared:
    """The committables that a task's sink prepared for a checkpoint. `task`: the task's index in its stage."""

    step: str
    committables: tuple[Committable, ...]
    task: int = 0


@dataclass(frozen=True, slots=True)
class AckStats:
    """Statistics of a task's snapshot. Times in seconds; `in_flight`: the number of blocks stored with it."""

    alignment: float = 0.0
    pause: float = 0.0
    duration: float = 0.0
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """The status of a task: counts since it was deployed, seconds busy, idle and backpressured, watermark in µs.

    `quiescent`: all its inputs are idle or have ended, so it does not hold the watermark back.
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
        records = (self.records_in, self.records_out)
        seconds = (self.busy, self.idle, self.backpressured)
        return TaskStatus, (self.task, *records, *seconds, self.watermark, self.state, self.quiescent)


def watermark_of(tasks: Sequence[TaskStatus]) -> int:
    """The watermark (µs) of a stage with these tasks: the minimum over the tasks that are not quiescent."""
    active = [task.watermark for task in tasks if not task.quiescent]
    return min(active) if active else max(task.watermark for task in tasks)


# -- coordinator to worker


@dataclass(frozen=True, slots=True)
class Deploy:
    """Run these tasks: all of a region that belong to this worker. `restore`: the states that they start from.
    `rounds`: how many rounds of each loop, by its label, all tasks have run."""

    region: int
    tasks: tuple[TaskId, ...]
    restore: tuple[StoredState, ...] = ()
    rounds: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ListSplits:
    """Ask a source for its splits; the answer is `SplitsListed`, or `SplitsDiscovered` if the source has an enumerator.

    `enumerator`: the state to restore an enumerator from, which then waits for `DiscoverSplits`. `listed`: the job has
    a list of all splits already; no answer is needed, but the source must not have an enumerator now.
    """

    step: int
    desired: int
    enumerator: EnumeratorState | None = None
    listed: bool = False


@dataclass(frozen=True, slots=True)
class DiscoverSplits:
    """Let the enumerator of a source look for splits; the answer is `SplitsDiscovered` as soon as it finds any."""

    step: int


@dataclass(frozen=True, slots=True)
class DivideSplits:
    """Ask a source to divide these splits, each from its position on; the answer is `SplitsDivided`. `desired`: into
    how many splits each."""

    step: int
    splits: tuple[AssignedSplit, ...]
    desired: int


@dataclass(frozen=True, slots=True)
class AssignSplits:
    """Splits for a source task. `more`: the task may request further splits when it has read these. `backlog`: further
    ones may be of the backlog, and hold back the watermark already. `readers`: at most how many tasks of the step read
    at a time, and share its rate limit; None: any number."""

    task: TaskId
    step: int
    splits: tuple[AssignedSplit, ...]
    more: bool
    backlog: bool = False
    readers: int | None = None


@dataclass(frozen=True, slots=True)
class TriggerBarrier:
    """Start a barrier at every task that has no input, or none that is still open."""

    checkpoint: int
    kind: BarrierKind
    unaligned: bool = False
    clock: int | None = None
    """With a quiescence barrier: the instant (µs) to which processing time advances."""


@dataclass(frozen=True, slots=True)
class CheckpointCompleted:
    """A checkpoint is complete and durable."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class CheckpointAborted:
    """A checkpoint was aborted: tasks no longer wait for its barriers."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Make the prepared output of a sink visible; the answer is `Committed`. `checkpoint` None: the output of a whole
    bounded run. `task`: the index of the task that prepared it, None if it is that of all tasks."""

    step: int
    run: str
    committables: tuple[Committable, ...]
    checkpoint: int | None
    task: int | None = None


@dataclass(frozen=True, slots=True)
class AbortOutput:
    """Remove the uncommitted output that a sink wrote in these runs; the answer is `OutputAborted`."""

    step: int
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuiescenceReached:
    """Every task has passed the barrier of a quiescence round: the test stream may emit its next event."""

    round: int


@dataclass(frozen=True, slots=True)
class StopSources:
    """End all sources. `drain`: they end for good, so the watermark advances to the end of time."""

    drain: bool


@dataclass(frozen=True, slots=True)
class PauseSources:
    """Read nothing more until sources are resumed (`paused` False), because too many commits are outstanding."""

    paused: bool


@dataclass(frozen=True, slots=True)
class PeerWatermark:
    """The answer to a `Heartbeat` with `--watermark_drift`: the minimum watermark (µs) of other workers' sources."""

    watermark: int | None


@dataclass(frozen=True, slots=True)
class BeginMark:
    """Send the mark with that number round a feedback loop as soon as the one before is back. `loop`: the head's
    step."""

    loop: int
    number: int


@dataclass(frozen=True, slots=True)
class LoopTime:
    """The answer to all heads' `LoopReport`s at a mark: the status of what enters and comes round. `settled`: nothing
    is under way, so that the status changes only when those of the inputs do."""

    loop: int
    number: int
    status: CollectionStatus
    settled: bool


@dataclass(frozen=True, slots=True)
class Cancel:
    """Close all tasks and exit."""


ToWorker: TypeAlias = (
    Deploy
    | ListSplits
    | DiscoverSplits
    | DivideSplits
    | AssignSplits
    | TriggerBarrier
    | CheckpointCompleted
    | CheckpointAborted
    | Commit
    | AbortOutput
    | QuiescenceReached
    | StopSources
    | PauseSources
    | PeerWatermark
    | BeginMark
    | LoopTime
    | Cancel
)

# -- worker to coordinator


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker is up."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The worker is alive. `metrics`: its metrics since the attempt began."""

    tasks: tuple[TaskStatus, ...]
    metrics: MetricCells
    min_watermark: int | None = None
    """With `--watermark_drift`: the minimum watermark (µs) of the worker's live splits that are not idle, if any."""


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A task has processed all its input and emitted all its output. It still takes part in checkpoints."""

    task: TaskId
    prepared: tuple[Prepared, ...] = ()
    """In batch mode: all the output that its sinks prepared."""
    metrics: MetricCells | None = None
    """In batch mode: its final metrics. A task that has ended does not run again when its worker is lost later."""
    emitted: tuple[tuple[str, int], ...] = ()
    """In the body of a loop: how many elements it has emitted of each collection that leaves the body."""


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task raised an error, packed by `errors.transport.packed`. `element`: an abbreviation of the element that was
    being processed, or another text by which to recognise what fails again. `text`: the error for people, since only
    the client unpacks errors. `outage`: a system outside can't be reached. `final`: a restart would end in the same
    way."""

    task: TaskId | None
    error: bytes
    user: bool
    element: str = ""
    text: str = ""
    outage: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class SplitsListed:
    """The splits of a source."""

    step: int
    splits: tuple[AssignedSplit, ...]


@dataclass(frozen=True, slots=True)
class SplitsDiscovered:
    """New splits of a source, and the state of its enumerator after them."""

    step: int
    splits: tuple[AssignedSplit, ...]
    enumerator: EnumeratorState


@dataclass(frozen=True, slots=True)
class SplitsDivided:
    """The answer to `DivideSplits`: by the id of each split that can be divided, the splits that replace it."""

    step: int
    parts: tuple[tuple[str, tuple[AssignedSplit, ...]], ...]


@dataclass(frozen=True, slots=True)
class RequestSplit:
    """A source task has read all its splits."""

    task: TaskId
    step: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """A task has stored its part of a checkpoint. `ended`: it had reached the end of its input before the barrier."""

    checkpoint: int
    task: TaskId
    handle: StateHandle | None = None
    splits: tuple[SplitProgress, ...] = ()
    prepared: tuple[Prepared, ...] = ()
    ended: bool = False
    stats: AckStats = AckStats()


@dataclass(frozen=True, slots=True)
class Decline:
    """A task could not store its part of a checkpoint."""

    checkpoint: int
    task: TaskId
    reason: str
    prepared: tuple[Prepared, ...] = ()
    """The output that its sinks had already prepared: it is committed with the next checkpoint."""


@dataclass(frozen=True, slots=True)
class LoopReport:
    """The head of a feedback loop has sent a mark. `low`: no element that is or comes under way will be earlier (µs),
    unless it enters from `inputs`, of which these are the statuses by name. `moved`: elements have been under way since
    the mark before. `clock`: when the next timer in the loop fires (µs)."""

    loop: int
    head: int
    number: int
    low: int
    inputs: tuple[tuple[str, CollectionStatus], ...]
    moved: bool
    clock: int


@dataclass(frozen=True, slots=True)
class QuiescencePassed:
    """A task has passed the barrier of a quiescence round. `moved`: a feedback loop whose head it has was not at rest
    since the round before."""

    round: int
    task: TaskId
    moved: bool = False


@dataclass(frozen=True, slots=True)
class RequestQuiescence:
    """A test stream has emitted an event, and waits until all tasks have processed it. `clock`: of the barrier. `last`:
    no event follows, so that the clock is set forward while elements wait for it in feedback loops."""

    round: int
    clock: int | None = None
    last: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """The answer to `Commit`. `error`, `text` and `outage` are as in `TaskFailed`; no error if the commit succeeded.
    `written`: the metrics of the output written."""

    step: int
    checkpoint: int | None
    error: bytes | None = None
    text: str = ""
    written: MetricCells | None = None
    task: int | None = None
    outage: bool = False


@dataclass(frozen=True, slots=True)
class OutputAborted:
    """The answer to `AbortOutput`. `error`, `text` and `outage` are as in `TaskFailed`; no error if all is removed."""

    step: int
    error: bytes | None = None
    text: str = ""
    outage: bool = False


ToCoordinator: TypeAlias = (
    Ready
    | Heartbeat
    | TaskEnded
    | TaskFailed
    | SplitsListed
    | SplitsDiscovered
    | SplitsDivided
    | RequestSplit
    | Acknowledge
    | Decline
    | QuiescencePassed
    | LoopReport
    | RequestQuiescence
    | Committed
    | OutputAborted
)
