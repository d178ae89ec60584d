"""The loop whose rounds a worker's tasks run, and what the worker keeps of it from round to round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.plan import Loop, Step
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.rounds.loop_cache import LoopCache
from tidegate.runners.streaming.rounds.loop_solution import LoopSolution, update_of
from tidegate.sdk.data.block import Block


class WorkerLoop:
    """`directory` returns that of the run; `spill` creates the directory into which a task spills."""

    def __init__(self, job: Job, index: int, directory: Callable[[], Path], spill: Callable[[TaskId], Path]) -> None:
        self.loop: Loop | None = None
        self._job = job
        self._index = index
        self._directory = directory
        self._spill = spill
        self._caches: dict[TaskId, LoopCache] = {}
        self._solution: LoopSolution | None = None
        """The worker's part of the loop's solution."""
        self._over: dict[int, LoopSolution] = {}
        """Its parts of loops that are over and have not been read, by the step that updated them."""

    def enter(self, loop: Loop) -> None:
        """The tasks that are going to be deployed are in the body of another loop."""
        self.loop = loop
        update = update_of(self._job, loop)
        if update is not None:
            self._solution = self._part(update, self._index)

    def begin(self, rounds: Mapping[str, int]) -> None:
        """Tasks of the body are going to be deployed, after so many rounds of each loop."""
        if self.loop is not None and self._solution is not None:
            self._solution.begin(rounds[self.loop.node.label] + 1)

    def cache(self, task: TaskId) -> LoopCache | None:
        """What a task keeps from round to round; None outside of loops."""
        if self.loop is None:
            return None
        return self._caches.setdefault(task, LoopCache(len(self.loop.regions), self._solution))

    def leave(self) -> Mapping[TaskId, LoopCache]:
        """The loop is over for the worker's tasks; returns what they have kept."""
        caches, self._caches = self._caches, {}
        if self._solution is not None:
            self._over[self._solution.update] = self._solution
        self.loop = self._solution = None
        return caches

    def left(self, rounds: Mapping[str, int], channel: ChannelId) -> Iterator[Block]:
        """What a loop has left of its solution in the part that a channel comes from: this worker's or another's."""
        plan = self._job.plan
        update = plan.steps[plan.edges[channel.edge].source]
        part = self._over.pop(update.id, None) if channel.source == self._index else None
        if part is None:
            part = self._part(update, channel.source)
        return part.left(rounds[part.loop])

    def _part(self, update: Step, index: int) -> LoopSolution:
        """The part of a solution with the keys of a worker's tasks, with a quarter of the memory budget."""
        budget = self._job.settings.memory_budget // 4
        spill = partial(self._spill, TaskId(update.stage, self._index))
        return LoopSolution(self._job, update, index, self._directory(), budget, spill)
