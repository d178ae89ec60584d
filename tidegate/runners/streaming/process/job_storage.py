"""A job's checkpoint storage, accessed beside the event loop: operations run in a background thread, in order.

Flushing files waits for a disk, and a remote storage for the network; meanwhile, the loop serves workers and client.
Only the copy of a savepoint, which may take very long, runs beside the other operations. That is safe, because no
checkpoint is triggered before the copy is complete, so none of the files that it reads is deleted. Workers are forked
only while no operation runs (see `background`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened
from tidegate.runners.streaming.checkpoint.ownership import Ownership
from tidegate.runners.streaming.protocol.coordinator_io import CoordinatorEvent, Delete, Fenced, Store, Unreachable
from tidegate.runners.streaming.storage.background import Background, BackgroundWork, Steps, T

_Pending: TypeAlias = "tuple[BackgroundWork[Any], Callable[[Any], None]]"
"""An operation, and the callback for its result."""


class JobStorage:
    """Another thread calls `wake` when an operation is complete; `take` then runs the callbacks."""

    def __init__(self, opened: Opened, wake: Callable[[], None]) -> None:
        self._opened = opened
        self._ownership = Ownership(opened, open_storage)
        self._background = Background(wake)
        self._pending: deque[_Pending] = deque()
        self._copying = Background(wake)
        self._copy: _Pending | None = None

    def store(self, action: Store, then: Callable[[CoordinatorEvent], None]) -> None:
        """Write a manifest, or copy a savepoint; `then` receives the result."""
        if action.directory is None:
            self._enqueue(self._ownership.store(action), then)
        else:
            self._copy = self._copying.begin(self._ownership.store(action)), then

    def withdraw(self, name: str) -> None:
        """Remove a manifest that this process has written, before any later operation."""
        self._enqueue(self._withdraw(name), _ignore)

    def delete(self, action: Delete) -> None:
        """Remove files that are no longer needed."""
        self._enqueue(self._ownership.delete(action), _ignore)

    def unless_fenced(self, then: Callable[[CoordinatorEvent | None], None]) -> None:
        """Check that no other process has claimed the job: `then` receives None, or else the fault."""
        if self._opened.storage is None:
            then(None)
        else:
            self._enqueue(self._find_fault(), then)

    def take(self) -> None:
        """Run the callbacks of complete operations, in order."""
        while self._pending and self._pending[0][0].done:
            operation, then = self._pending.popleft()
            then(operation.poll())
        if self._copy is not None and self._copy[0].done:
            (operation, then), self._copy = self._copy, None
            then(operation.poll())

    def halt(self) -> bool:
        """Pause before the next step. Returns whether no step is running, so that this process may be forked."""
        halted = [self._background.halt(), self._copying.halt()]
        return all(halted)

    def resume(self) -> None:
        """Continue after a halt."""
        self._background.resume()
        self._copying.resume()

    def close(self) -> None:
        """Abandon the copy of a savepoint and complete all other operations, but don't wait long for a storage that
        does not answer."""
        if self._copy is not None:
            self._copy[0].abandon()
        self.resume()
        self._background.join(_PATIENCE)
        self._copying.join(_PATIENCE)

    def _enqueue(self, steps: Steps[T], then: Callable[[T], None]) -> None:
        self._pending.append((self._background.begin(steps), then))

    def _withdraw(self, name: str) -> Steps[None]:
        self._ownership.withdraw(name)
        yield

    def _find_fault(self) -> Steps[Fenced | Unreachable | None]:
        return self._ownership.lost()
        yield


def _ignore(result: None) -> None:
    return


_PATIENCE: Final = 5.0
"""Seconds that each thread is granted to complete its operations when the job is over."""
