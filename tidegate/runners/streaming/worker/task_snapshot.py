"""The snapshot of a task for a checkpoint: taken between two actions, and stored while the task continues.

The state backend captures the state of the operators at once, and stores it asynchronously; the remaining state of the
task is written last, to a small separate file. An unaligned snapshot is complete only once the barrier has arrived on
every channel: until then it collects the blocks that the barrier has overtaken. So is that of the head of a loop: it
collects what comes round ahead of the barrier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.runners.checkpoint.parts import SplitProgress, StateHandle
from tidegate.runners.checkpoint.state_files import StateFile, UnpicklableState
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.checkpoint.task_state import TaskState, dumps
from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.operator_graph import state_name
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Step
from tidegate.runners.streaming.protocol.worker_messages import Acknowledge, AckStats
from tidegate.runners.streaming.state.backend import Capture
from tidegate.runners.streaming.state.staged_output import StagedOutput
from tidegate.runners.streaming.state.uploads import PendingFile
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import PicklingError
from tidegate.sdk.metrics import MetricCells


@dataclass(slots=True, kw_only=True)
class TaskSnapshot:
    """The snapshot of one task. `name`: the file of the task's own state; `ended`: the task had no more to do.

    `started` is when (s) it was taken; `alignment` and `paused` are how long (s) the task waited for barriers, and then
    for the snapshot. `missing`: the channels on which the barrier has still to arrive. `output`: what the task's sinks
    have prepared, whose staged files are stored with the snapshot.
    """

    checkpoint: int
    task: TaskId
    name: str
    capture: Capture
    output: StagedOutput
    splits: tuple[SplitProgress, ...]
    statuses: Mapping[str, CollectionStatus]
    metrics: MetricCells
    clock: int
    ended: bool
    started: float
    alignment: float
    paused: float = 0.0
    missing: set[ChannelId]
    outgoing: dict[ChannelId, list[Block]] = field(default_factory=dict)
    incoming: dict[ChannelId, list[Block]] = field(default_factory=dict)
    fed_back: list[tuple[str, int, Block]] = field(default_factory=list)
    hops: int = 0
    _operator_files: tuple[StateFile, ...] = ()
    _task_file: PendingFile | None = None

    def add_in_flight(self, channel: ChannelId, block: Block) -> None:
        """Add a block of an input channel that the barrier has overtaken."""
        self.incoming.setdefault(channel, []).append(block)

    def add_fed_back(self, head: str, block: Block, hops: int) -> None:
        """Add a block that has come round ahead of the barrier, to the head of a loop."""
        self.fed_back.append((head, hops, block))

    def done(self, channel: ChannelId) -> None:
        """Stop expecting a channel: the barrier has arrived on it, or it has ended."""
        self.missing.discard(channel)

    def poll(self, store: Callable[[str, bytes], PendingFile]) -> StateHandle | None:
        """Store a little more of the snapshot without blocking. Returns its handle once all of it is stored. Raises
        OSError or UnpicklableState."""
        if self.missing:
            return None
        if self._task_file is None:
            files = self.capture.poll()
            if files is None:
                return None
            self._operator_files = files
            self._task_file = store(self.name, dumps(self._state()))
        task_file = self._task_file.poll()
        if not self.output.poll() or task_file is None:
            return None
        return StateHandle((task_file, *self._operator_files))

    @property
    def waiting(self) -> bool:
        """True while polling is useless: until the barrier of a channel, or the end of an upload, is signalled."""
        return bool(self.missing) or self._task_file is not None or self.capture.uploading

    def acknowledge(self, handle: StateHandle, now: float) -> Acknowledge:
        """The message to the coordinator once the snapshot is stored."""
        stats = AckStats(self.alignment, self.paused, now - self.started, self._state().in_flight)
        return Acknowledge(self.checkpoint, self.task, handle, self.splits, self.output.take(), self.ended, stats)

    def abandon(self) -> None:
        """Discard the snapshot: its checkpoint was aborted, or storing it failed."""
        self.capture.abandon()
        if self._task_file is not None:
            self._task_file.abandon()

    def _state(self) -> TaskState:
        return TaskState(
            self.statuses, self.outgoing, self.incoming, self.metrics, self.clock, tuple(self.fed_back), self.hops
        )


def unpicklable_state_error(error: UnpicklableState, steps: Sequence[Step]) -> BaseException:
    """The error that tells the author which step has state that can't be pickled."""
    by_name: Mapping[str, Step] = {state_name(step): step for step in steps}
    refused = PicklingError(
        f"the state of this step can't be pickled for a checkpoint: {error.why}. Put only picklable values into state"
    )
    step = by_name.get(error.name)
    return refused if step is None else located(refused, step.label, step.tail.where)
