"""The interfaces of state backends: where operators keep their state, and how it is captured for checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from tidegate.runners.engine.operator import KeyedOperator, Operator
from tidegate.runners.engine.rescale import KeyFilter
from tidegate.runners.streaming.state.files import Read, StateFile

Operators: TypeAlias = Callable[[], Mapping[str, Operator]]
"""The operators of a task that have not ended, by the name their state is kept under."""


class Capture(Protocol):
    """The state of one task at one instant, while it is being written to files."""

    @property
    def uploading(self) -> bool:
        """Whether only uploads remain, whose completion wakes the loop: until then there is no need to poll."""

    def poll(self) -> tuple[StateFile, ...] | None:
        """Do a little work without waiting. Returns the files with the state, the latest first; None: not done yet.

        Raises OSError or RunError if the state can't be stored; the capture must not be polled after that.
        """

    def abandon(self) -> None:
        """Stop the capture, and remove what it has written."""


class StateBackend(Protocol):
    """Keeps the state of one task's operators. It is built before them, and used only after they are opened."""

    @property
    def wrap_keyed(self) -> Callable[[str, KeyedOperator], Operator] | None:
        """What puts an operator's keys elsewhere than in memory (see `Context`); None: they stay there."""

    def restore(self, parts: Sequence[Sequence[StateFile]], read: Read, keeps: KeyFilter | None) -> None:
        """Restore from `parts`, the files of one capture each. `keeps` None: take all keys of the one part."""

    def capture(self, checkpoint: int, name: str, *, whole: bool) -> Capture:
        """Take the state as it is now, between events and at the end of bundles; into a file of that name.

        `whole`: a savepoint, all in one file that every backend reads, on which nothing later builds.
        """

    def completed(self, checkpoint: int) -> None:
        """A checkpoint is complete: later ones may build on it. Those captured since may have been deleted."""

    def close(self) -> None:
        """Release all resources, after the last event."""
