"""Lists, discovers and divides the splits of a source for the coordinator, in one worker of the job.

An enumerator looks for splits in a background thread, which exists only during a look: the worker's loop goes on
meanwhile, and between two looks its process can be forked. A look that finds nothing new is repeated here; any other
is reported to the coordinator, which decides when to look again.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TypeAlias

from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState
from tidegate.runners.engine.errors.attribution import guarded, located, quietly
from tidegate.runners.engine.sources.discovery import Look, SplitDiscovery, split_discovery
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.plan import Step
from tidegate.runners.streaming.protocol.worker_messages import (
    DivideSplits,
    ListSplits,
    SplitsDiscovered,
    SplitsDivided,
    SplitsListed,
)
from tidegate.runners.streaming.storage.background import PendingWork, Steps, Work
from tidegate.sdk import moved
from tidegate.sdk.connectors.sources import Split
from tidegate.sdk.errors import ReadError
from tidegate.sdk.metrics import MetricCells, collecting
from tidegate.sdk.time import SECOND

Found: TypeAlias = SplitsListed | SplitsDiscovered


def assigned_splits(splits: Sequence[Split], *, late: bool = False) -> tuple[AssignedSplit, ...]:
    """The splits of a source, pickled for the coordinator, which assigns them to tasks."""
    return tuple(
        AssignedSplit(split.id, pickle.dumps(split, 5), split.size, bounded=split.bounded, late=late)
        for split in splits
    )


def list_splits(step: Step, desired: int) -> tuple[AssignedSplit, ...]:
    """All splits of a source."""
    return assigned_splits(source_step(step.head).splits(desired))


def divide_splits(step: Step, message: DivideSplits) -> SplitsDivided:
    """Divide the rest of splits, as far as the source can."""
    source = source_step(step.head)
    parts = []
    for assigned in message.splits:
        split = moved.loads(assigned.payload)
        divided = guarded(
            source.source.split_again,
            split,
            assigned.position,
            message.desired,
            step=source.label,
            where=source.where,
            method="split_again",
        )
        if divided is not None:
            parts.append((assigned.id, assigned_splits(divided)))
    return SplitsDivided(message.step, tuple(parts))


class SplitEnumeration:
    """The enumeration of one source, which answers a `ListSplits`. `background` runs the author's enumerator."""

    def __init__(self, step: Step, message: ListSplits, background: Work, clock: Clock) -> None:
        self._step = source_step(step.head)
        self._message = message
        self._background = background
        self._clock = clock
        self._discovery: SplitDiscovery | None = None
        self._known = message.enumerator or EnumeratorState()
        self._looking: PendingWork[Found | Look] | None = None
        self._wanted = message.enumerator is None
        self._next_look = 0
        self._first = message.enumerator is None
        self._metrics = MetricCells()

    def metrics(self) -> MetricCells:
        """The metrics that the author's enumerator has updated."""
        return self._metrics.copy()

    def discover(self) -> None:
        """Look for splits, as soon as it is time."""
        self._wanted = True

    def poll(self) -> Found | None:
        """What there is to report, if anything. Raises the errors of the author's enumerator."""
        if self._looking is None:
            if self._wanted and self._clock.monotonic() >= self._next_look:
                self._looking = self._background.begin(self._look())
            return None
        found = self._looking.poll()
        if found is None:
            return None
        self._looking = None
        if isinstance(found, Look):
            return self._after(found)
        self._wanted = False
        return None if self._message.listed else found

    def next_wake(self) -> int | None:
        """When (µs of the monotonic clock) to poll next; the background thread wakes the loop after a look."""
        return self._next_look if self._wanted and self._looking is None else None

    def close(self) -> None:
        """Release the author's enumerator after any look that is in progress, without waiting for it."""
        if self._discovery is not None or self._looking is not None:
            self._background.begin(self._close())

    def _after(self, look: Look) -> SplitsDiscovered | None:
        """Handle the result of a look."""
        known, self._known = self._known, EnumeratorState(look.state, self._known.backlog and look.full, look.end)
        self._next_look = self._clock.monotonic() + int(look.wait * SECOND)
        first, self._first = self._first, False
        if not (first or look.splits or self._known != known):
            return None
        self._wanted = False
        return SplitsDiscovered(self._message.step, assigned_splits(look.splits, late=not known.backlog), self._known)

    def _look(self) -> Steps[Found | Look]:
        """In the background: look once. The first time, open the enumerator."""
        yield from ()
        message, step = self._message, self._step
        if self._discovery is None:
            self._discovery = split_discovery(step, self._known.state)
        if self._discovery is not None:
            if message.listed:
                raise located(ReadError(_WITHOUT), step.label, step.where)
            with collecting(self._metrics):
                return self._discovery.look()
        if message.enumerator is not None:
            raise located(ReadError(_WITH), step.label, step.where)
        return SplitsListed(message.step, () if message.listed else assigned_splits(step.splits(message.desired)))

    def _close(self) -> Steps[None]:
        """In the background: release the author's enumerator."""
        yield from ()
        if self._discovery is not None:
            quietly(self._discovery.close)


_WITHOUT = (
    "the job resumes from a checkpoint for which the source had listed all its splits, and it has an enumerator now, "
    "which would return them again: give the step another name to begin anew, or read as before"
)
_WITH = (
    "the job resumes from a checkpoint with the state of the source's enumerator, and the source has no enumerator "
    "now: give the step another name to begin anew, or read as before"
)
