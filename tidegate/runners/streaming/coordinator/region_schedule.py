"""Which region of a plan runs next, and which have to run again after a failure: pure bookkeeping of ended tasks.

A region starts when all before it are done; inside it everything is up at once. What a region leaves for others is
kept in files until the job is over, so a region that is done stays done though its workers die.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.runners.streaming.model.topology import TaskId, Topology


class RegionSchedule:
    """How far the regions of a job are; `done` from the beginning: those that a checkpoint found so."""

    def __init__(self, topology: Topology, done: frozenset[int] = frozenset()) -> None:
        self._topology = topology
        self._count = len(topology.plan.regions)
        self._done = set(done)
        self._ended: dict[int, set[TaskId]] = {}
        """The tasks that have ended, by region: of those that are at work."""
        self._deployed: dict[int, None] = {}
        self._first = 0
        """All regions before this one are done."""

    @property
    def next(self) -> int | None:
        """The region to deploy now; None while one is at work, or when there is none left."""
        if self._ended:
            return None
        while self._first in self._done:
            self._first += 1
        return self._first if self._first < self._count else None

    @property
    def all_done(self) -> bool:
        """Whether all tasks of all regions have ended."""
        return len(self._done) == self._count

    @property
    def last_deployed(self) -> bool:
        """Whether the last region is at work: from then on there are checkpoints."""
        return self._count - 1 in self._deployed

    def deploy(self, region: int) -> None:
        """A region's tasks are being started."""
        self._deployed[region] = None
        self._ended[region] = set()

    def deployed(self) -> Iterator[TaskId]:
        """The tasks of this attempt, ended ones too."""
        for region in self._deployed:
            yield from self._topology.tasks(region)

    def is_deployed(self, task: TaskId) -> bool:
        """Whether a task is of this attempt."""
        return self._topology.region_of(task) in self._deployed

    def done_before(self) -> Iterator[TaskId]:
        """The tasks of regions that were done when this attempt began: they are no more."""
        for region in sorted(self._done.difference(self._deployed)):
            yield from self._topology.tasks(region)

    def is_done(self, region: int) -> bool:
        """Whether all tasks of a region have ended."""
        return region in self._done

    def end(self, task: TaskId) -> bool:
        """A task has ended; whether its region is done with that. Told twice, it is as told once."""
        region = self._topology.region_of(task)
        ended = self._ended.get(region)
        if ended is None:
            return False
        ended.add(task)
        if len(ended) < self._topology.count_tasks(region):
            return False
        del self._ended[region]
        self._done.add(region)
        return True

    def reset(self) -> None:
        """All workers are gone: a region that is not done has to run again, whole."""
        self._deployed.clear()
        self._ended.clear()

    def rewind(self, done: frozenset[int] = frozenset()) -> None:
        """As `reset`, but all except these regions runs again, from a checkpoint if there is one."""
        self.reset()
        self._done = set(done)
        self._first = 0
