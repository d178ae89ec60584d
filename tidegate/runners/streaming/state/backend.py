"""Where operators keep their state, and how it gets into checkpoints: the interfaces of state backends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from tidegate.runners.engine.operator import KeyedOperator, Operator
from tidegate.runners.engine.rescale import KeyFilter
from tidegate.runners.streaming.state.files import Read, StateFile

Operators: TypeAlias = Callable[[], Mapping[str, Operator]]
"""The operators of a task that have not ended, by the name their state is kept under."""


class Capture(Protocol):
    """The state of one task at one instant, on its way to where it is kept."""

    @property
    def uploading(self) -> bool:
        """Whether all that is missing is said by others to be done: until then it need not be asked."""

    def poll(self) -> tuple[StateFile, ...] | None:
        """Do a little, never waiting: the files that have the state, the latest first; None: not done yet.

        Raises OSError (or RunError) when it can't be kept; then no more is to be asked.
        """

    def abandon(self) -> None:
        """It is not wanted any more."""


class StateBackend(Protocol):
    """Keeps the state of one task's operators. Built before they are, and asked for nothing until they are opened."""

    @property
    def wrap_keyed(self) -> Callable[[str, KeyedOperator], Operator] | None:
        """What puts an operator's keys elsewhere than in memory (see `Context`); None: they stay there."""

    def restore(self, parts: Sequence[Sequence[StateFile]], read: Read, keeps: KeyFilter | None) -> None:
        """Go on from what tasks stored: each the files that a capture gave. `keeps` None: from the one part, whole."""

    def capture(self, checkpoint: int, name: str, *, whole: bool) -> Capture:
        """Take the state as it is now, between events and at the end of bundles; into a file of that name.

        `whole`: a savepoint, all in one file that every backend reads, on which nothing later builds.
        """

    def completed(self, checkpoint: int) -> None:
        """A checkpoint is complete: later ones may build on it. Any other that has been taken since may be gone."""

    def close(self) -> None:
        """After the last event."""
