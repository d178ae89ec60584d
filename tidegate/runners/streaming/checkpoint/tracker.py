"""The checkpoints of a job: when one begins, who has acknowledged it, when it is given up, which files may go.

At most one is under way. It is complete when all tasks have acknowledged it and its manifest is in place. What sinks
prepared for one that was given up is theirs no more, and belongs to no other: it goes with the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.protocol.worker_messages import Acknowledge, Decline, Prepared
from tidegate.sdk.time import SECOND

Purpose: TypeAlias = Literal["regular", "savepoint", "stop", "final"]
"""Taken every so often, on demand, before a stop, or because all input has ended."""


@dataclass(slots=True)
class PendingCheckpoint:
    """A checkpoint under way. `began` in µs; `directory`: where a copy goes, of a savepoint.

    `storing`: all tasks have acknowledged, and the manifest is on its way.
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
        """Whether every task had come to the end of its input: nothing can follow."""
        return self.complete and all(ack.ended for ack in self.acks.values())

    @property
    def size(self) -> int:
        """Bytes that tasks have stored for it, and it builds on."""
        return sum(ack.handle.size for ack in self.acks.values() if ack.handle is not None)


@dataclass(frozen=True, slots=True)
class RetainedCheckpoint:
    """A completed checkpoint that is still there: its manifest and the files it needs."""

    number: int
    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """A checkpoint that somebody asked for."""

    purpose: Purpose
    directory: str | None = None


class CheckpointTracker:
    """Decides by what it is told; `first` is the number of the next one, `leftovers` are files that earlier processes
    of the job have left for nobody: they go when the first one is complete. Times are µs."""

    def __init__(
        self,
        settings: CheckpointSettings,
        first: int = 1,
        kept: Iterable[RetainedCheckpoint] = (),
        leftovers: Iterable[str] = (),
    ) -> None:
        self._settings = settings
        self._next = first
        self._kept = list(kept)
        self._garbage: set[str] = set(leftovers)
        self._failed: set[int] = set()
        self._alone: set[str] = set()
        self._due: int | None = None
        self._failures = 0
        self._carried: list[Prepared] = []
        self.retry_at: int | None = None
        """When the last one, which has failed, may begin again (µs); None: at once."""
        self.requests: deque[CheckpointRequest] = deque()
        self.pending: PendingCheckpoint | None = None

    # -- when

    def enable(self, now: int) -> None:
        """From now on checkpoints can be taken: an attempt has come to its last region."""
        self._due = now + _micros(self._settings.interval)

    def disable(self) -> None:
        """The attempt is over: what it had under way, and what its sinks had prepared, is gone with it."""
        if self.pending is not None:
            self._failed.add(self.pending.number)
        self.pending = None
        self._due = self.retry_at = None
        self._carried.clear()

    def next_wake(self) -> int | None:
        """When something is due: to begin one, or to give one up."""
        if self.pending is not None:
            timeout = self.pending.began + _micros(self._settings.timeout)
            return None if self.pending.storing else timeout
        return self._due

    def is_due(self, now: int) -> bool:
        """Whether a regular one is to begin."""
        return self.pending is None and self._due is not None and now >= self._due

    def timed_out(self, now: int) -> bool:
        """Whether the one under way has taken too long. Whoever stores a manifest says how that went by himself."""
        pending = self.pending
        if pending is None or pending.storing:
            return False
        return now >= pending.began + _micros(self._settings.timeout)

    # -- one checkpoint

    def begin(self, wanted: CheckpointRequest, tasks: Iterable[TaskId], now: int) -> PendingCheckpoint:
        """A checkpoint begins."""
        assert self.pending is None
        self.pending = PendingCheckpoint(self._next, wanted.purpose, now, frozenset(tasks), wanted.directory)
        self._next += 1
        self.retry_at = None
        self._due = now + _micros(self._settings.interval)
        return self.pending

    def acknowledge(self, ack: Acknowledge) -> bool:
        """A task has stored its part; whether that was the last one missing."""
        pending = self.pending
        if pending is None or pending.number != ack.checkpoint or pending.storing:
            self._carried.extend(ack.prepared)  # of one that has been given up
            return False
        if ack.task not in pending.tasks or ack.task in pending.acks:
            return False
        pending.acks[ack.task] = ack
        return pending.complete

    def decline(self, decline: Decline) -> bool:
        """A task could not take its part; whether that ends the checkpoint under way."""
        self._carried.extend(decline.prepared)
        pending = self.pending
        return pending is not None and pending.number == decline.checkpoint and not pending.storing

    @property
    def failed(self) -> tuple[int, ...]:
        """Those that were given up and may have files. A task may write more of them until it has taken part in a later
        one, so they are told again until one is complete. A savepoint does not count: the next checkpoint may build on
        what a state backend has taken from its store for a failed one."""
        return tuple(sorted(self._failed))

    @property
    def needed(self) -> frozenset[str]:
        """The files of all checkpoints that are there."""
        return frozenset[str]().union(*(kept.files for kept in self._kept))

    def prepared(self) -> list[Prepared]:
        """What becomes final with the one under way: its own, and what those before it left."""
        assert self.pending is not None
        own = [part for task in sorted(self.pending.acks) for part in self.pending.acks[task].prepared]
        return self._carried + own

    def new_files(self, files: Iterable[str]) -> tuple[str, ...]:
        """Which of these files no checkpoint has that is complete."""
        return tuple(name for name in files if not any(name in kept.files for kept in self._kept))

    def abort(self, now: int) -> bool:
        """The one under way is given up; whether the job may go on after so many in a row. Savepoints don't count."""
        purpose = self._give_up(now).purpose
        if purpose != "savepoint":
            self._failures += 1
        if purpose in ("stop", "final"):
            self.retry_at = now + self._back_off()
        return self._failures <= self._settings.tolerated_failures

    def supersede_regular(self, now: int) -> int | None:
        """A regular one that is under way when all input has ended makes way for the last one; its number."""
        pending = self.pending
        if pending is None or pending.storing or pending.purpose != "regular":
            return None
        return self._give_up(now).number

    def complete(self, files: Iterable[str], now: int) -> tuple[str, ...]:
        """The one under way is complete, and these are its files; which names nobody needs any more.

        Nothing builds on a savepoint: what tasks write next builds on the files that were there before it, of failed
        checkpoints, too.
        """
        pending = self.pending
        assert pending is not None
        self._carried.clear()
        self._failures = 0
        self._end(pending, now)
        self._kept.append(RetainedCheckpoint(pending.number, frozenset(files)))
        while len(self._kept) > self._settings.retained:
            self._garbage |= self._kept.pop(0).files
        gone = self._garbage.difference(*(kept.files for kept in self._kept))
        if pending.purpose == "savepoint":
            gone &= self._alone
            self._alone |= self._kept[-1].files
        else:
            self._failed.clear()
        self._garbage -= gone
        self._alone -= gone
        return tuple(sorted(gone, key=lambda name: (not name.endswith("manifest.json"), name)))

    def _back_off(self) -> int:
        """How long (µs) the last one waits after it has failed: a second, then twice as long each time, up to the
        interval. A full disk would fail it again as fast as the tasks can say so."""
        doubled = SECOND << min(self._failures - 1, _DOUBLINGS)
        return max(SECOND, min(doubled, _micros(self._settings.interval)))

    def _give_up(self, now: int) -> PendingCheckpoint:
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
"""How often a back-off is doubled at most: by then it is longer than any interval."""


def _micros(seconds: float) -> int:
    return round(seconds * SECOND)
