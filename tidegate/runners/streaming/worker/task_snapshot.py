"""A task's part of a checkpoint: taken between two events, and stored while the task continues.

The state of the operators is captured at once and stored by the state backend as it can; the rest of the task's state
is a small file of its own, written last. An unaligned snapshot is complete only once the barrier has arrived on every
channel: until then it takes up the blocks that the barrier has overtaken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.operator_graph import state_name
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Step
from tidegate.runners.streaming.model.topology import ChannelId, TaskId
from tidegate.runners.streaming.protocol.worker_messages import (
    Acknowledge,
    AckStats,
    Prepared,
    SplitProgress,
    StateHandle,
)
from tidegate.runners.streaming.state.backend import Capture
from tidegate.runners.streaming.state.files import StateFile, UnpicklableState
from tidegate.runners.streaming.state.task_state import TaskState, dumps
from tidegate.runners.streaming.state.uploads import PendingFile
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import PicklingError
from tidegate.sdk.metrics import MetricCells


@dataclass(slots=True, kw_only=True)
class TaskSnapshot:
    """One task's part of one checkpoint. `name`: of the task's own file; `ended`: the task had no more to do.

    `started` is when (s) it was taken, `alignment` and `paused` how long (s) the task had waited for barriers, and
    then stood still. `missing`: the channels on which the barrier has still to arrive.
    """

    checkpoint: int
    task: TaskId
    name: str
    capture: Capture
    prepared: tuple[Prepared, ...]
    splits: tuple[SplitProgress, ...]
    standings: Mapping[str, CollectionStatus]
    metrics: MetricCells
    clock: int
    ended: bool
    started: float
    alignment: float
    paused: float = 0.0
    missing: set[ChannelId]
    outgoing: dict[ChannelId, list[Block]] = field(default_factory=dict)
    incoming: dict[ChannelId, list[Block]] = field(default_factory=dict)
    _files: tuple[StateFile, ...] = ()
    _own: PendingFile | None = None

    def add_in_flight(self, channel: ChannelId, block: Block) -> None:
        """A block of an input channel that the barrier has overtaken: it belongs to the checkpoint."""
        self.incoming.setdefault(channel, []).append(block)

    def done(self, channel: ChannelId) -> None:
        """The barrier has arrived on a channel, or the channel has ended."""
        self.missing.discard(channel)

    def poll(self, store: Callable[[str, bytes], PendingFile]) -> StateHandle | None:
        """Store a little more of it without waiting: where it is stored, or None if that is not done yet. Raises
        OSError, or UnpicklableState."""
        if self.missing:
            return None
        if self._own is None:
            files = self.capture.poll()
            if files is None:
                return None
            self._files = files
            self._own = store(self.name, dumps(self._state()))
        own = self._own.poll()
        return None if own is None else StateHandle((own, *self._files))

    @property
    def waiting(self) -> bool:
        """Whether something else says when to poll again: the barrier of a channel, or the end of an upload."""
        return bool(self.missing) or self._own is not None or self.capture.uploading

    def acknowledge(self, handle: StateHandle, now: float) -> Acknowledge:
        """The message for the coordinator once it is stored."""
        stats = AckStats(self.alignment, self.paused, now - self.started, self._state().in_flight)
        return Acknowledge(self.checkpoint, self.task, handle, self.splits, self.prepared, self.ended, stats)

    def abandon(self) -> None:
        """Discard it: the checkpoint was aborted, or it can't be stored."""
        self.capture.abandon()
        if self._own is not None:
            self._own.abandon()

    def _state(self) -> TaskState:
        return TaskState(self.standings, self.outgoing, self.incoming, self.metrics, self.clock)


def unpicklable_state_error(error: UnpicklableState, steps: Sequence[Step]) -> BaseException:
    """The error for the author, for state that can't be pickled."""
    named: Mapping[str, Step] = {state_name(step): step for step in steps}
    refused = PicklingError(
        f"what this step keeps can't be pickled, as a checkpoint must: {error.why}. Keep in state what can be"
    )
    step = named.get(error.name)
    return refused if step is None else located(refused, step.label, step.tail.where)
