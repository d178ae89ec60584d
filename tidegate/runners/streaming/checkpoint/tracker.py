"""Tracks the checkpoints of a job: when one begins, which tasks have acknowledged it, which files can be deleted.

At most one checkpoint is pending. It is complete when all tasks have acknowledged it and its manifest is stored.
Committables of an aborted checkpoint are carried over to the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from tidegate.runners.checkpoint.manifest import RetainedCheckpoint
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.protocol.worker_messages import Acknowledge, Decline, Prepared
from tidegate.sdk.time import SECOND

Purpose: TypeAlias = Literal["regular", "savepoint", "stop", "final"]
"""Taken at intervals, on demand, before a stop, or because all input has ended."""


@dataclass(slots=True)
class PendingCheckpoint:
    """A checkpoint in progress. `began` in µs; `directory`: where a savepoint is copied to.

    `storing`: all tasks have acknowledged, and the manifest is being stored.
    """

    number: int
    purpose: Purpose
    began: int
    tasks: frozenset[TaskId]
    directory: str | None = None
    storing: bool = False
    acks: dict[TaskId, Acknowledge] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every task has stored its part."""
        return self.acks.keys() == self.tasks

    @property
    def final(self) -> bool:
        """Whether every task had reached the end of its input, so that no checkpoint can follow."""
        return self.complete and all(ack.ended for ack in self.acks.values())

    @property
    def size(self) -> int:
        """Total bytes of its state files, including those of earlier checkpoints that it builds on."""
        return sum(ack.handle.size for ack in self.acks.values() if ack.handle is not None)


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """A request for a checkpoint. `directory`: where a savepoint is copied to."""

    purpose: Purpose
    directory: str | None = None


class CheckpointTracker:
    """The pending and the retained checkpoints of a job: pure bookkeeping. Times are µs.

    `first`: the number of the next checkpoint; `leftovers`: files of earlier processes of the job that nothing needs,
    which are deleted when the first checkpoint is complete.
    """

    def __init__(
        self,
        settings: CheckpointSettings,
        first: int = 1,
        retained: Iterable[RetainedCheckpoint] = (),
        leftovers: Iterable[str] = (),
    ) -> None:
        self._settings = settings
        self._next = first
        self._retained = list(retained)
        self._garbage: set[str] = set(leftovers)
        self._failed: set[int] = set()
        self._savepoint_files: set[str] = set()
        self._due: int | None = None
        self._failures = 0
        self._carried: list[Prepared] = []
        self.pinned: frozenset[str] = frozenset()
        """The files of a completed savepoint that has yet to be copied: they are not deleted, whatever completes."""
        self.retry_at: int | None = None
        """When the job's last checkpoint, which has failed, may be retried (µs); None: at once."""
        self.requests: deque[CheckpointRequest] = deque()
        self.pending: PendingCheckpoint | None = None

    # -- when

    def enable(self, now: int) -> None:
        """Take checkpoints from now on: the attempt has deployed its last region."""
        self._due = now + _micros(self._settings.interval)

    def disable(self) -> None:
        """The attempt is over: drop the pending checkpoint and all output that sinks had prepared."""
        if self.pending is not None:
            self._failed.add(self.pending.number)
        self.pending = None
        self._due = self.retry_at = None
        self._carried.clear()

    def next_wake(self) -> int | None:
        """When to begin the next checkpoint, or to abort the pending one."""
        if self.pending is not None:
            timeout = self.pending.began + _micros(self._settings.timeout)
            return None if self.pending.storing else timeout
        return self._due

    def is_due(self, now: int) -> bool:
        """Whether a regular checkpoint is due."""
        return self.pending is None and self._due is not None and now >= self._due

    def timed_out(self, now: int) -> bool:
        """Whether the pending checkpoint has timed out. A manifest that is being stored always gets an answer."""
        pending = self.pending
        if pending is None or pending.storing:
            return False
        return now >= pending.began + _micros(self._settings.timeout)

    # -- one checkpoint

    def begin(self, request: CheckpointRequest, tasks: Iterable[TaskId], now: int) -> PendingCheckpoint:
        """Begin a checkpoint."""
        assert self.pending is None
        self.pending = PendingCheckpoint(self._next, request.purpose, now, frozenset(tasks), request.directory)
        self._next += 1
        self.retry_at = None
        self._due = now + _micros(self._settings.interval)
        return self.pending

    def acknowledge(self, ack: Acknowledge) -> bool:
        """A task has stored its part; returns whether it was the last one."""
        pending = self.pending
        if pending is None or pending.number != ack.checkpoint or pending.storing:
            self._carried.extend(ack.prepared)  # of an aborted checkpoint
            return False
        if ack.task not in pending.tasks or ack.task in pending.acks:
            return False
        pending.acks[ack.task] = ack
        return pending.complete

    def decline(self, decline: Decline) -> bool:
        """A task could not store its part; returns whether this fails the pending checkpoint."""
        self._carried.extend(decline.prepared)
        pending = self.pending
        return pending is not None and pending.number == decline.checkpoint and not pending.storing

    @property
    def failed(self) -> tuple[int, ...]:
        """The aborted checkpoints that may have files. A task may still write some until it has taken part in a later
        checkpoint, so they are listed until one completes; not a savepoint, after which the next checkpoint may still
        build on files that a state backend copied from its store for an aborted one."""
        return tuple(sorted(self._failed))

    @property
    def needed(self) -> frozenset[str]:
        """The files of all retained checkpoints, and those that are pinned."""
        return self.pinned.union(*(each.files for each in self._retained))

    def needed_without(self, checkpoint: int) -> frozenset[str]:
        """The files of all retained checkpoints but this one."""
        return frozenset[str]().union(*(each.files for each in self._retained if each.number != checkpoint))

    def prepared(self) -> list[Prepared]:
        """The output that becomes final with the pending checkpoint, including that of aborted ones before it."""
        assert self.pending is not None
        current = [part for task in sorted(self.pending.acks) for part in self.pending.acks[task].prepared]
        return self._carried + current

    def new_files(self, files: Iterable[str]) -> tuple[str, ...]:
        """The files among these that no completed checkpoint has."""
        return tuple(name for name in files if not any(name in each.files for each in self._retained))

    def abort(self, now: int) -> bool:
        """Abort the pending checkpoint; returns whether so many consecutive failures are tolerated. Those of savepoints
        don't count."""
        purpose = self._abort(now).purpose
        if purpose != "savepoint":
            self._failures += 1
        if purpose in ("stop", "final"):
            self.retry_at = now + self._back_off()
        return self._failures <= self._settings.tolerated_failures

    def supersede_regular(self, now: int) -> int | None:
        """Abort a pending regular checkpoint: all input has ended, and the last one begins. Returns its number."""
        pending = self.pending
        if pending is None or pending.storing or pending.purpose != "regular":
            return None
        return self._abort(now).number

    def complete(self, files: Iterable[str], now: int) -> tuple[str, ...]:
        """The pending checkpoint is complete, with these files; returns the names of files that are no longer needed.

        Nothing builds on a savepoint: the next checkpoint builds on the files from before it, including those of
        aborted checkpoints.
        """
        pending = self.pending
        assert pending is not None
        self._carried.clear()
        self._failures = 0
        self._end(pending, now)
        self._retained.append(RetainedCheckpoint(pending.number, frozenset(files)))
        while len(self._retained) > self._settings.retained:
            self._garbage |= self._retained.pop(0).files
        unneeded = self._garbage - self.needed
        if pending.purpose == "savepoint":
            unneeded &= self._savepoint_files
            self._savepoint_files |= self._retained[-1].files
        else:
            self._failed.clear()
        self._garbage -= unneeded
        self._savepoint_files -= unneeded
        return tuple(sorted(unneeded, key=lambda name: (not name.endswith("manifest.json"), name)))

    def _back_off(self) -> int:
        """The delay (µs) before the job's last checkpoint is retried: a second, doubled each time, up to the interval.
        On a full disk it would otherwise fail again immediately."""
        doubled = SECOND << min(self._failures - 1, _DOUBLINGS)
        return max(SECOND, min(doubled, _micros(self._settings.interval)))

    def _abort(self, now: int) -> PendingCheckpoint:
        pending = self.pending
        assert pending is not None
        self._carried.extend(part for ack in pending.acks.values() for part in ack.prepared)
        self._end(pending, now)
        self._failed.add(pending.number)
        return pending

    def _end(self, pending: PendingCheckpoint, now: int) -> None:
        self.pending = None
        earliest = now + _micros(self._settings.min_pause)
        self._due = max(earliest, pending.began + _micros(self._settings.interval))


_DOUBLINGS: Final = 20
"""How often a back-off is doubled at most. By then it is longer than any interval."""


def _micros(seconds: float) -> int:
    return round(seconds * SECOND)
