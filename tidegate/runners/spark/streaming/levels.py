"""Levels of an unbounded pipeline: the steps between two exchanges, which one stateful Spark operator runs.

All levels handle the same micro-batch, one after another. A step runs in the lowest level that is above those from
which it receives exchanged elements. Each level has the same tasks; a stage behind a gathering exchange, or of a test
stream, runs in the first of them only.

>>> import tidegate as tg
>>> from tidegate.runners.planner import Traits, plan
>>> p = tg.Pipeline()
>>> counts = p | tg.Create([("a", 1), ("b", 2), ("a", 3)]) | tg.CombinePerKey(sum)
>>> printed = counts | tg.Map(print)
>>> levels = assign_levels(plan(p.sealed(), Traits(parallel=True, streaming=True)))
>>> levels.count, levels.of_step
(2, (0, 0, 1, 1))

If a source discovers splits while it is read, there is a level before the sources, whose first task looks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.runners.plan import Edge, Plan, Routing, Step
from tidegate.sdk.portable.model import Read


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of each step (by its number), the number of levels, the stages that run in a single task, and the level
    of the sources."""

    of_step: tuple[int, ...]
    count: int
    single: frozenset[int]
    sources: int

    def steps(self, plan: Plan, level: int, index: int) -> list[Step]:
        """The steps that task `index` of a level runs, in order."""
        steps = (step for step in plan.steps if self.of_step[step.id] == level)
        return [step for step in steps if index == 0 or step.stage not in self.single]

    def tasks(self, step: Step, tasks: int) -> int:
        """In how many of the level's tasks a step runs."""
        return 1 if step.stage in self.single else tasks

    def crosses(self, edge: Edge) -> bool:
        """Whether elements on this edge are sent to another level."""
        return self.of_step[edge.source] != self.of_step[edge.target]

    def sources_of(self, plan: Plan, edge: Edge, target: int, tasks: int) -> Iterator[int]:
        """The tasks that send elements on an edge to task `target`."""
        receivers = self.tasks(plan.steps[edge.target], tasks)
        for source in range(self.tasks(plan.steps[edge.source], tasks)):
            if routing(edge) != "forward" or source % receivers == target:
                yield source

    def targets_of(self, plan: Plan, edge: Edge, source: int, tasks: int) -> list[int]:
        """The tasks to which task `source` sends elements on an edge."""
        receivers = self.tasks(plan.steps[edge.target], tasks)
        return [source % receivers] if routing(edge) == "forward" else list(range(receivers))


def routing(edge: Edge) -> Routing:
    """How an edge distributes elements; an edge inside a stage, both of whose steps run in the same tasks, forwards."""
    return "forward" if edge.exchange is None else edge.exchange.routing


def discovers(step: Step) -> bool:
    """Whether a step reads a source that may discover splits while it is read."""
    return isinstance(step.head, Read) and step.head.discovers and not step.head.bounded


def assign_levels(plan: Plan) -> Levels:
    """Assign each step the lowest possible level."""
    single = frozenset(plan.steps[edge.target].stage for edge in plan.edges if routing(edge) == "gather") | frozenset(
        step.stage for step in plan.steps if step.head.kind == "test_stream"
    )
    sources = int(any(discovers(step) for step in plan.steps))
    of_step = [sources] * len(plan.steps)
    for step in plan.steps:
        for edge in plan.inputs(step.id):
            narrows = step.stage in single and plan.steps[edge.source].stage not in single
            moves = routing(edge) != "forward" or narrows
            of_step[step.id] = max(of_step[step.id], of_step[edge.source] + moves)
    return Levels(tuple(of_step), max(of_step, default=-1) + 1, single, sources)
