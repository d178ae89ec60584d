"""Orders commits: those of a checkpoint begin when all commits of the checkpoint before it are acknowledged.

Every manifest contains the commits that are not acknowledged yet, and after a failure they are sent again: commits are
idempotent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidegate.runners.streaming.protocol.worker_messages import Commit


class CommitQueue:
    """The commits of each checkpoint, in order, of which those of the first checkpoint are in progress."""

    def __init__(self, commits: Iterable[Commit] = ()) -> None:
        self._queue: deque[dict[int, Commit]] = deque()
        self._sent = False
        sets: dict[tuple[str, int | None], list[Commit]] = {}
        for commit in commits:
            sets.setdefault((commit.run, commit.checkpoint), []).append(commit)
        for one in sets.values():
            self.add(one)

    @property
    def outstanding(self) -> tuple[Commit, ...]:
        """All commits that are not acknowledged, in order."""
        return tuple(commit for one in self._queue for commit in one.values())

    def add(self, commits: Iterable[Commit]) -> None:
        """Add the commits of one checkpoint, of one or more sinks."""
        one = {commit.step: commit for commit in commits}
        if one:
            self._queue.append(one)

    def to_send(self) -> tuple[Commit, ...]:
        """The commits that may begin now."""
        if self._sent or not self._queue:
            return ()
        self._sent = True
        return tuple(self._queue[0].values())

    def acknowledge(self, step: int, checkpoint: int | None) -> bool:
        """A commit is done; returns whether it was the last one of its checkpoint."""
        if not self._sent or not self._queue:
            return False
        first = self._queue[0]
        if step not in first or first[step].checkpoint != checkpoint:
            return False
        del first[step]
        if first:
            return False
        self._queue.popleft()
        self._sent = False
        return True

    def resend(self) -> None:
        """The worker that commits is gone: send all unacknowledged commits again."""
        self._sent = False
