"""A job's storage as its process uses it: beside the loop, and in the order in which things are asked for.

To settle files waits for a disk, everything else for the network if the storage is a remote one. Meanwhile the loop
hears workers and client. Only the copy of a savepoint, which may take very long, holds up nothing else: no checkpoint
begins before it is over, so nothing that it reads is removed. Workers are forked only while none of this is being done
(see `background`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened
from tidegate.runners.streaming.checkpoint.ownership import Ownership
from tidegate.runners.streaming.protocol.coordinator_io import CoordinatorEvent, Delete, Fenced, Store, Unreachable
from tidegate.runners.streaming.storage.background import Background, BackgroundWork, Steps, T
from tidegate.runners.streaming.storage.factory import open_storage

_Asked: TypeAlias = "tuple[BackgroundWork[Any], Callable[[Any], None]]"
"""What is being done, and what takes what comes of it."""


class JobStorage:
    """`wake` is called by another thread when there is something to `take`."""

    def __init__(self, opened: Opened, wake: Callable[[], None]) -> None:
        self._opened = opened
        self._ownership = Ownership(opened, open_storage)
        self._background = Background(wake)
        self._asked: deque[_Asked] = deque()
        self._copying = Background(wake)
        self._copy: _Asked | None = None

    def store(self, action: Store, then: Callable[[CoordinatorEvent], None]) -> None:
        """Put a manifest in place, or copy a savepoint; `then` takes what has come of it."""
        if action.directory is None:
            self._begin(self._ownership.store(action), then)
        else:
            self._copy = self._copying.begin(self._ownership.store(action)), then

    def withdraw(self, name: str) -> None:
        """Remove a manifest of this process's own before anything depends on it."""
        self._begin(self._withdrawing(name), _nothing)

    def delete(self, action: Delete) -> None:
        """Remove what nobody needs."""
        self._begin(self._ownership.delete(action), _nothing)

    def unless_fenced(self, then: Callable[[CoordinatorEvent | None], None]) -> None:
        """Look whether the job is still this process's: `then` takes None if it is, else what has happened."""
        if self._opened.storage is None:
            then(None)
        else:
            self._begin(self._looking(), then)

    def take(self) -> None:
        """Hand over what has come of what was asked for, in order."""
        while self._asked and self._asked[0][0].done:
            doing, then = self._asked.popleft()
            then(doing.poll())
        if self._copy is not None and self._copy[0].done:
            (doing, then), self._copy = self._copy, None
            then(doing.poll())

    def halt(self) -> bool:
        """Stop between two steps; whether nothing is being done now, so that this process may be forked."""
        halted = [self._background.halt(), self._copying.halt()]
        return all(halted)

    def resume(self) -> None:
        """Go on after a halt."""
        self._background.resume()
        self._copying.resume()

    def close(self) -> None:
        """The job is over: a savepoint that is still being copied is given up, and all else is done. A store that does
        not answer is left alone after a while."""
        if self._copy is not None:
            self._copy[0].abandon()
        self.resume()
        self._background.join(_PATIENCE)
        self._copying.join(_PATIENCE)

    def _begin(self, steps: Steps[T], then: Callable[[T], None]) -> None:
        self._asked.append((self._background.begin(steps), then))

    def _withdrawing(self, name: str) -> Steps[None]:
        self._ownership.withdraw(name)
        yield

    def _looking(self) -> Steps[Fenced | Unreachable | None]:
        return self._ownership.lost()
        yield


def _nothing(nothing: None) -> None:
    return


_PATIENCE: Final = 5.0
"""Seconds for what is still to be done when a job is over."""
