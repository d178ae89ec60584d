"""The interfaces of state backends: where operators keep their state, and how it is captured for checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from tidegate.runners.checkpoint.state_files import Read, StateFile
from tidegate.runners.engine.operator import KeyedOperator, Operator
from tidegate.runners.engine.rescale import KeyFilter

Operators: TypeAlias = Callable[[], Mapping[str, Operator]]
"""The operators of a task that have not ended, by the name under which their state is stored."""


class Capture(Protocol):
    """A capture of the state of one task at one instant, while it is being written to files."""

    @property
    def uploading(self) -> bool:
        """Whether only uploads remain. Their completion wakes the event loop, which need not poll until then."""

    def poll(self) -> tuple[StateFile, ...] | None:
        """Do a little work without waiting. Returns the files with the state, the latest first, or None until done.

        Raises OSError or RunError if the state can't be stored; the capture must not be polled after that.
        """

    def abandon(self) -> None:
        """Stop the capture, and delete the files it has written."""


class StateBackend(Protocol):
    """Stores the state of one task's operators. It is built before they are, and used only once they are open."""

    @property
    def wrap_keyed(self) -> Callable[[str, KeyedOperator], Operator] | None:
        """Wraps a keyed operator to store its keys outside memory (see `Context`); None: they stay in memory."""

    def restore(self, parts: Sequence[Sequence[StateFile]], read: Read, keeps: KeyFilter | None) -> None:
        """Restore from `parts`, each the files of one capture. `keeps` None: restore all keys of the only part."""

    def capture(self, checkpoint: int, name: str, *, whole: bool) -> Capture:
        """Begin to capture the present state in a file of that name. Called between events, with no bundle open.

        `whole`: for a savepoint, one file with all state, which every backend reads and no later checkpoint builds on.
        """

    def completed(self, checkpoint: int) -> None:
        """A checkpoint is complete: later ones may build on it. Checkpoints captured since may have been aborted."""

    def close(self) -> None:
        """Release all resources, after the last event."""
