"""What a task in the body of a loop keeps from round to round; everything else of it begins anew in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.engine.iteration.kept_solution import KeptSolution
from tidegate.runners.engine.iteration.rounds import group_once
from tidegate.runners.engine.life_cycle import OncePerLoop
from tidegate.runners.engine.loop_tables import Kept, LoopTables
from tidegate.runners.engine.memory.gauge import SAMPLE, mean_size
from tidegate.runners.engine.operator import Context
from tidegate.runners.plan import SolutionUpdate, Step
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.network.blocking_exchange import SubpartitionReader, stored_channel
from tidegate.runners.streaming.rounds.loop_solution import LoopSolution
from tidegate.sdk.data.block import Block


@dataclass(frozen=True, slots=True)
class LoopCache:
    """What one task keeps of a loop: functions that are set up; tables and blocks of what is the same in all rounds.

    `regions` is how many regions the loop has: the tasks of each keep theirs while the others run. `solution` is the
    worker's part of the loop's solution, which all of its tasks share.
    """

    regions: int = 1
    solution: LoopSolution | None = None
    life: OncePerLoop = field(default_factory=OncePerLoop)
    _kept: dict[str, Kept | None] = field(default_factory=dict)
    """The tables by step; None for those that exceed the memory budget."""
    _blocks: dict[ChannelId, list[Block]] = field(default_factory=dict)
    """The blocks of channels, as far as they fit in the memory budget."""

    def context_of_round(self, job: Job, task: TaskId, directory: Path, context: Context) -> Context:
        """The context of the operators of a round. In the first one, this groups what is the same in all rounds."""
        keeping = [step for step in job.plan.stage_steps(task.stage) if step.kept]
        for step in keeping:
            if step.label not in self._kept:
                inputs = {collection: _blocks(job, task, step, collection, directory) for collection in step.kept}
                part = replace(
                    context, memory_budget=max(1, context.memory_budget // (4 * len(keeping) * self.regions))
                )
                self._kept[step.label] = group_once(step, inputs, part)
        parts: dict[str, KeptSolution] = {}
        if (solution := self.solution) is not None:
            parts[solution.collection] = solution.part
            if any(isinstance(step.tail, SolutionUpdate) for step in job.plan.stage_steps(task.stage)):
                solution.begin_update()
        kept = {label: tables for label, tables in self._kept.items() if tables is not None}
        return replace(context, life=self.life, tables=LoopTables(kept, parts=parts))

    def keeps(self, step: Step, collection: str) -> bool:
        """Whether a step has the elements of a collection in its tables."""
        return collection in step.kept and self._kept.get(step.label) is not None

    def kept_blocks(self, channel: ChannelId, stored: Iterator[Block], budget: int) -> Iterator[Block]:
        """The blocks of a channel that are the same in all rounds. They are read once, unless they exceed the
        task's share of a budget (bytes)."""
        budget //= self.regions
        known = self._blocks.get(channel)
        return self._keeping(channel, stored, budget) if known is None else iter(known)

    def _keeping(self, channel: ChannelId, stored: Iterator[Block], budget: int) -> Iterator[Block]:
        kept: list[Block] = []
        size = 0
        for block in stored:
            if size <= budget:
                size += len(block) * (16 + mean_size(islice(block.values, SAMPLE)))
                kept.append(block)
            else:
                kept.clear()
            yield block
        if size <= budget:
            self._blocks[channel] = kept


def _blocks(job: Job, task: TaskId, step: Step, collection: str, directory: Path) -> Iterator[Block]:
    """The elements of a collection that are stored for a step of a task."""
    edges = job.plan.edges
    channels = [
        id
        for id in job.topology.channels_into(task)
        if (edges[id.edge].target, edges[id.edge].received) == (step.id, collection)
    ]
    stored = [(id, stored_channel(id, edges[id.edge])) for id in channels]
    return chain.from_iterable(SubpartitionReader(directory, *ids).blocks() for ids in stored)
