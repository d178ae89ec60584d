"""Levels: which steps run together on Spark. One level is one pass over the partitions; a shuffle lies between two.

Everything at one depth of the plan runs in one task per partition, so that a pipeline is a line of levels however its
branches part and meet: one Spark action, no stage computed twice, and a plan for Spark that stays small. Sinks run at
the last level, whose tasks' results reach the driver directly: what a sink prepared never crosses a shuffle.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.runners.plan import Edge, Plan, Step


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of each step (by its number), how many there are, and which edges leave their level."""

    of_step: tuple[int, ...]
    count: int
    gathered: frozenset[int] = frozenset()
    """The levels to which everything is gathered: one task does."""

    def crosses(self, edge: Edge) -> bool:
        """Whether elements on this edge go through a shuffle."""
        return shuffles(edge) or self.of_step[edge.source] != self.of_step[edge.target]

    def partitions(self, level: int, partitions: int) -> int:
        """How many tasks a level has."""
        return 1 if level in self.gathered else partitions

    def steps(self, plan: Plan, level: int) -> list[Step]:
        """The steps of a level, in order."""
        return [step for step in plan.steps if self.of_step[step.id] == level]


def shuffles(edge: Edge) -> bool:
    """Whether an edge takes elements to other partitions."""
    return edge.exchange is not None and edge.exchange.routing != "forward"


def assign_levels(plan: Plan) -> Levels:
    """The least level each step can have: one more than where what it exchanges comes from; sinks the last."""
    of_step: list[int] = []
    for step in plan.steps:
        level = 0
        for edge in plan.inputs(step.id):
            level = max(level, of_step[edge.source] + shuffles(edge))
        of_step.append(level)
    count = max(of_step, default=-1) + 1
    for step in plan.steps:
        if step.is_sink:
            of_step[step.id] = count - 1
    gathered = {
        level
        for level in range(1, count)
        if all(
            edge.exchange is not None and edge.exchange.routing == "gather" and of_step[edge.target] == level
            for edge in plan.edges
            if of_step[edge.source] < level <= of_step[edge.target]
        )
    }
    return Levels(tuple(of_step), count, frozenset(gathered))
