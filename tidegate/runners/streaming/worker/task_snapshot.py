"""A task's share of a checkpoint: taken between two events, and stored while the task goes on.

What operators keep is captured at once and stored by the state backend as it can; what else belongs to the task is a
small file of its own, written last. An unaligned share is not whole before the barrier has come on every channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.operator_graph import state_name
from tidegate.runners.plan import Step
from tidegate.runners.streaming.model.topology import ChannelId
from tidegate.runners.streaming.protocol.worker_messages import Prepared, StateHandle
from tidegate.runners.streaming.state.backend import Capture
from tidegate.runners.streaming.state.files import StateFile, UnpicklableState
from tidegate.runners.streaming.state.task_state import TaskState, dumps
from tidegate.runners.streaming.state.uploads import Storing
from tidegate.sdk.errors import PicklingError

Acknowledged = Callable[[StateHandle], None]


@dataclass(slots=True)
class Share:
    """What one task gives for one checkpoint, on its way to where it is kept. `name`: of its own file.

    `missing`: channels on which the barrier is still to come, whose elements until then belong to `state`.
    """

    checkpoint: int
    name: str
    state: TaskState
    capture: Capture
    prepared: tuple[Prepared, ...]
    acknowledge: Acknowledged
    missing: set[ChannelId]
    files: tuple[StateFile, ...] = ()
    own: Storing | None = None

    def stored(self, store: Callable[[str, bytes], Storing]) -> StateHandle | None:
        """Where it is kept, once it is: to be asked again until then. Raises OSError, or UnpicklableState."""
        if self.missing:
            return None
        if self.own is None:
            files = self.capture.poll()
            if files is None:
                return None
            self.files = files
            self.own = store(self.name, dumps(self.state))
        own = self.own.poll()
        return None if own is None else StateHandle((own, *self.files))

    @property
    def waiting(self) -> bool:
        """Whether somebody says when there is more to do: a channel's barrier comes, or an upload is through."""
        return bool(self.missing) or self.own is not None or self.capture.uploading

    def abandon(self) -> None:
        """It is not wanted any more, or can't be kept."""
        self.capture.abandon()
        if self.own is not None:
            self.own.abandon()


def blamed(error: UnpicklableState, steps: Sequence[Step]) -> BaseException:
    """The error for the author, for state that can't be pickled."""
    named: Mapping[str, Step] = {state_name(step): step for step in steps}
    refused = PicklingError(
        f"what this step keeps can't be pickled, as a checkpoint must: {error.why}. Keep in state what can be"
    )
    step = named.get(error.name)
    return refused if step is None else located(refused, step.label, step.tail.where)
