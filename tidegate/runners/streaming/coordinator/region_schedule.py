"""Schedules the regions of a plan, also after a failure: pure bookkeeping of ended tasks.

A region starts when all regions before it are done; all its tasks run at the same time. A region's results are stored
in files until the job is over, so a region that is done stays done even if its workers die.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.streaming.model.topology import Topology


class RegionSchedule:
    """The progress of a job's regions. `done`: the regions that had ended when the restored checkpoint was taken."""

    def __init__(self, topology: Topology, done: frozenset[int] = frozenset()) -> None:
        self._topology = topology
        self._count = len(topology.plan.regions)
        self._done = set(done)
        self._ended: dict[int, set[TaskId]] = {}
        """The tasks that have ended, by region, of the regions that are running."""
        self._deployed: dict[int, None] = {}
        self._first = 0
        """The first region that may not be done."""

    @property
    def next(self) -> int | None:
        """The region to deploy now; None while one is running, or when none is left."""
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
        """Whether the last region has been deployed: from then on the job takes checkpoints."""
        return self._count - 1 in self._deployed

    def deploy(self, region: int) -> None:
        """A region's tasks are being started."""
        self._deployed[region] = None
        self._ended[region] = set()

    def deployed(self) -> Iterator[TaskId]:
        """The tasks of this attempt, including those that have ended."""
        for region in self._deployed:
            yield from self._topology.tasks(region)

    def is_deployed(self, task: TaskId) -> bool:
        """Whether a task belongs to this attempt."""
        return self._topology.region_of(task) in self._deployed

    def done_before(self) -> Iterator[TaskId]:
        """The tasks of regions that were done when this attempt began; they no longer exist."""
        for region in sorted(self._done.difference(self._deployed)):
            yield from self._topology.tasks(region)

    def is_done(self, region: int) -> bool:
        """Whether all tasks of a region have ended."""
        return region in self._done

    def end(self, task: TaskId) -> bool:
        """A task has ended; returns whether this completes its region. A repeated report has no effect."""
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

    def repeat(self, regions: Iterable[int]) -> None:
        """Regions that are done run once more, for another round of a loop."""
        for region in regions:
            self._done.discard(region)
            self._first = min(self._first, region)

    def reset(self) -> None:
        """All workers are gone: every region that is not done has to run again from its beginning."""
        self._deployed.clear()
        self._ended.clear()

    def rewind(self, done: frozenset[int] = frozenset()) -> None:
        """As `reset`, but every region except these runs again, from a checkpoint if there is one."""
        self.reset()
        self._done = set(done)
        self._first = 0
