"""LoopSolution: a worker's part of the solution of a loop that all workers run, from round to round.

It is in the worker's memory, or in its spill directory; what is needed to make it anew after a failure is in files that
outlive the worker: what the loop began with, and the log of what rounds have replaced since. When a log has become as
long as the part, the whole part takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.errors.attribution import user_error
from tidegate.runners.engine.iteration.kept_solution import KeptSolution
from tidegate.runners.engine.iteration.solution import merging_function
from tidegate.runners.plan import Loop, SolutionUpdate, Step
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.network.blocking_exchange import SubpartitionReader
from tidegate.runners.streaming.rounds.solution_log import SolutionLog
from tidegate.sdk.data.block import Block


def update_of(job: Job, loop: Loop) -> Step | None:
    """The step that updates a loop's solution; None if it has none."""
    stages = (stage for region in loop.regions for stage in job.plan.regions[region])
    return next((step for step in job.plan.steps_of(stages) if isinstance(step.tail, SolutionUpdate)), None)


class LoopSolution:
    """The part with the keys of the tasks with number `index`. `directory` is that of the run; `budget` (bytes) is for
    what is in memory, and `spill` creates the directory for the rest."""

    def __init__(
        self, job: Job, update: Step, index: int, directory: Path, budget: int, spill: Callable[[], Path]
    ) -> None:
        node = update.tail
        assert isinstance(node, SolutionUpdate)
        self.loop = node.loop
        self.collection = node.inputs[1]
        """The solution, as a round finds it."""
        self.index = index
        self.update = update.id
        self._job = job
        self._task = TaskId(update.stage, index)
        self._directory = directory
        self._log = SolutionLog(directory, str(self._task))
        self._round = 0
        self._updated = False
        """Whether all updates since the part was made are those of this process."""
        self.part = KeptSolution(
            merging_function(node.merge),
            None if node.changed is None else node.changed.load(),
            lambda error, key: user_error(error, step=node.loop, where=node.where, key=key),
            budget=budget,
            directory=spill,
        )

    def begin(self, round: int) -> None:
        """Bring the part to the beginning of a round. It does nothing if it is there already."""
        if round != self._round:
            self._go_on(round - 1)
            self._round = round

    def begin_update(self) -> None:
        """The round is going to update the part: if it has done so before it failed, that is cut off. After a failure,
        a round may have updated the part already, in a region that does not run again."""
        if not self._updated:
            self._log.open(self._round - 1)
            self._updated = True
        if self._log.elements > self.part.elements:
            self._log.rewrite(self._round - 1, self.part)
        self.part.noted = partial(self._note, self._round)

    def left(self, rounds: int) -> Iterator[Block]:
        """What the last of so many rounds has left. After that, nothing is kept."""
        self._go_on(rounds)
        yield from self.part
        self.close()

    def close(self) -> None:
        """Drop all that is in memory or in the spill directory."""
        self.part.clear()
        self._log.close()

    def _go_on(self, done: int) -> None:
        """Bring the part to what the rounds that are done have left."""
        if done == self._round and self._updated:
            self.part.next_round()
        else:
            self._load(done)

    def _load(self, done: int) -> None:
        """Make the part anew from the files, as the rounds that are done have left it."""
        self.part.clear()
        self._log.find(done)
        start = () if self._log.base else self._start()
        self.part.fill(chain(start, self._log.read(done)))

    def _start(self) -> Iterator[Block]:
        """What the loop began with."""
        edges = self._job.plan.edges
        for id in self._job.topology.channels_into(self._task):
            if edges[id.edge].turn == "solution":
                yield from SubpartitionReader(self._directory, id).blocks()

    def _note(self, round: int, block: Block | None) -> None:
        if block is None:
            self._log.flush()
        else:
            self._log.append(round, block)
