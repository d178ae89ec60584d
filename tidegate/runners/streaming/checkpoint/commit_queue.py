"""Commits in their order: those of a checkpoint begin when all of the one before it are acknowledged.

What is not acknowledged stands in every manifest that is written meanwhile, and is sent again after a failure: a
commit has the effect of one, however often it is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidegate.runners.streaming.protocol.worker_messages import Commit


class CommitQueue:
    """Sets of commits that wait for their turn, the first of them under way."""

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
        """All that are not acknowledged, in order."""
        return tuple(commit for one in self._queue for commit in one.values())

    def add(self, commits: Iterable[Commit]) -> None:
        """The commits of one checkpoint, of one or more sinks."""
        one = {commit.step: commit for commit in commits}
        if one:
            self._queue.append(one)

    def to_send(self) -> tuple[Commit, ...]:
        """Those that may begin now."""
        if self._sent or not self._queue:
            return ()
        self._sent = True
        return tuple(self._queue[0].values())

    def acknowledge(self, step: int, checkpoint: int | None) -> bool:
        """One is done; whether all of its checkpoint are with that."""
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
        """Whoever was to commit is gone: what is not acknowledged is sent again."""
        self._sent = False
