"""Orders commits: those of a sink begin when all its commits of earlier checkpoints are acknowledged.

Every manifest contains the commits that are not acknowledged yet, and after a failure they are sent again: commits are
idempotent.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tidegate.runners.streaming.protocol.worker_messages import Commit


@dataclass(slots=True)
class _Commits:
    """The commits of one sink for one checkpoint that are not acknowledged, by the task that prepared them (None: one
    for all tasks)."""

    run: str
    checkpoint: int | None
    by_task: dict[int | None, Commit] = field(default_factory=dict)
    sent: bool = False


@dataclass(frozen=True, slots=True)
class Backlog:
    """The commits of one sink that are not acknowledged: of how many checkpoints, and the bytes of what they commit."""

    checkpoints: int = 0
    size: int = 0


class CommitQueue:
    """For each sink the commits of its checkpoints, in order. Those of the first checkpoint are in progress."""

    def __init__(self, commits: Iterable[Commit] = ()) -> None:
        self._sinks: dict[int, deque[_Commits]] = {}
        self._sizes: dict[int, int] = {}
        """The bytes of the outstanding commits of each sink."""
        self.add(commits)

    @property
    def outstanding(self) -> tuple[Commit, ...]:
        """All commits that are not acknowledged, those of each sink in order."""
        return tuple(commit for each in self._all() for commit in each.by_task.values())

    def outstanding_until(self, checkpoint: int) -> bool:
        """Whether a commit of this checkpoint or of an earlier one is not acknowledged."""
        return any(each.checkpoint is None or each.checkpoint <= checkpoint for each in self._all())

    @property
    def backlogs(self) -> dict[int, Backlog]:
        """What is outstanding, for each sink that has ever had commits."""
        return {step: Backlog(len(queue), self._sizes[step]) for step, queue in self._sinks.items()}

    def add(self, commits: Iterable[Commit]) -> None:
        """Add commits, those of each sink in the order of their checkpoints."""
        for commit in commits:
            queue = self._sinks.setdefault(commit.step, deque())
            if not queue or (queue[-1].run, queue[-1].checkpoint) != (commit.run, commit.checkpoint):
                queue.append(_Commits(commit.run, commit.checkpoint))
            queue[-1].by_task[commit.task] = commit
            self._sizes[commit.step] = self._sizes.get(commit.step, 0) + size_of(commit)

    def to_send(self) -> tuple[Commit, ...]:
        """The commits that may begin now."""
        ready = [queue[0] for queue in self._sinks.values() if queue and not queue[0].sent]
        for each in ready:
            each.sent = True
        return tuple(commit for each in ready for commit in each.by_task.values())

    def acknowledge(self, step: int, checkpoint: int | None, task: int | None = None) -> bool:
        """A commit is done; returns whether it was the last one of its sink for its checkpoint."""
        queue = self._sinks.get(step)
        if not queue or not queue[0].sent or queue[0].checkpoint != checkpoint:
            return False
        commit = queue[0].by_task.pop(task, None)
        if commit is None:
            return False
        self._sizes[step] -= size_of(commit)
        if queue[0].by_task:
            return False
        queue.popleft()
        return True

    def resend(self) -> None:
        """The workers that commit are gone: send all unacknowledged commits again."""
        for each in self._all():
            each.sent = False

    def _all(self) -> Iterator[_Commits]:
        for queue in self._sinks.values():
            yield from queue


def size_of(commit: Commit) -> int:
    """The bytes that a commit makes wait: of its staged files, and of its payloads as JSON.

    >>> from tidegate.sdk.connectors.sinks import Committable, StagedFile
    >>> file = StagedFile.of_bytes("rows", b"123")
    >>> size_of(Commit(0, "run", (Committable((0, 1), "part", (file, file)), Committable((1, 1), None)), 1))
    16
    """
    return sum(
        len(json.dumps(each.payload, default=str, skipkeys=True)) + sum(file.size for file in each.files)
        for each in commit.committables
    )
