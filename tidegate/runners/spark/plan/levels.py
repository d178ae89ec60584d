"""Levels: the steps that run together on Spark. A level is one pass over the partitions; shuffles separate levels.

All steps at the same depth of the plan run in one task per partition. A pipeline thus becomes a sequence of levels,
however its branches fork and join: a single Spark action, no stage computed twice, and a small plan for Spark. Sinks
run in the last level, so that their committables go straight to the driver and never cross a shuffle.

A step with a computed side input can only start once that is complete, so each depth of side inputs is a separate
action of one or more levels. A step runs in the latest action possible. Elements that a later action needs are
persisted, so that no step runs twice.

>>> import tidegate as tg
>>> from tidegate.runners.planner import Traits, plan
>>> p = tg.Pipeline()
>>> counts = p | tg.Create([("a", 1), ("b", 2), ("a", 3)]) | tg.CombinePerKey(sum)
>>> printed = counts | tg.Map(print)
>>> levels = assign_levels(plan(p.sealed(), Traits(parallel=True, blocking=True)))
>>> levels.count, levels.starts
(2, (0,))
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.runners.plan import Edge, Plan, Step
from tidegate.sdk.portable.model import Create


@dataclass(frozen=True, slots=True)
class Levels:
    """The level of each step (by its number), the number of levels, and the first level of each action.

    A `Create` that is read only as a side input has no level (-1): the driver has its elements.
    """

    of_step: tuple[int, ...]
    count: int
    gathered: frozenset[int] = frozenset()
    """The levels that run as a single task because all their input is gathered."""
    starts: tuple[int, ...] = (0,)
    """The first level of each action."""

    def crosses(self, edge: Edge) -> bool:
        """Whether elements on this edge go through a shuffle."""
        return shuffles(edge) or self.of_step[edge.source] != self.of_step[edge.target]

    def partitions(self, level: int, partitions: int) -> int:
        """The number of tasks of a level."""
        return 1 if level in self.gathered else partitions

    def steps(self, plan: Plan, level: int) -> list[Step]:
        """The steps of a level, in order."""
        return [step for step in plan.steps if self.of_step[step.id] == level]

    def reached_from(self, step: int, plan: Plan) -> set[int]:
        """A step, and the steps of its level that its elements reach."""
        found: set[int] = set()
        waiting = [step]
        while waiting:
            at = waiting.pop()
            if at not in found:
                found.add(at)
                waiting += [edge.target for edge in plan.outputs(at) if edge.side is None and not self.crosses(edge)]
        return found

    def action(self, level: int) -> int:
        """The number of the action to which a level belongs."""
        return sum(start <= level for start in self.starts) - 1

    def start_of(self, edge: Edge) -> int:
        """The first level of the action in which an edge ends."""
        return self.starts[self.action(self.of_step[edge.target])]

    def persisted(self, edge: Edge) -> bool:
        """Whether elements on this edge are persisted for a later action."""
        if edge.side is not None:
            return False
        return self.action(self.of_step[edge.source]) < self.action(self.of_step[edge.target])


def shuffles(edge: Edge) -> bool:
    """Whether an edge moves elements to other partitions."""
    return edge.exchange is not None and edge.exchange.routing != "forward"


def assign_levels(plan: Plan) -> Levels:
    """Assign each step the lowest possible level of its action, which is one above the level from which it receives
    shuffled input. Sinks get the last level."""
    actions = assign_actions(plan)
    of_step = [-1] * len(plan.steps)
    starts: list[int] = []
    count = 0
    for action in range(max(actions, default=-1) + 1):
        starts.append(count)
        for step in plan.steps:
            if actions[step.id] == action:
                levels = [
                    of_step[edge.source] + shuffles(edge)
                    for edge in plan.inputs(step.id)
                    if edge.side is None and actions[edge.source] == action
                ]
                of_step[step.id] = max(levels, default=starts[-1])
        count = max((level for level in of_step if level >= 0), default=-1) + 1
    for step in plan.steps:
        if step.is_sink:
            of_step[step.id] = count - 1
    gathered = {
        level
        for level in range(count)
        if level not in starts
        and all(
            edge.exchange is not None and edge.exchange.routing == "gather" and of_step[edge.target] == level
            for edge in plan.edges
            if edge.side is None
            and max(of_step[edge.source], starts[actions[edge.target]] - 1) < level <= of_step[edge.target]
        )
    }
    return Levels(tuple(of_step), count, frozenset(gathered), tuple(starts) or (0,))


def assign_actions(plan: Plan) -> list[int]:
    """The number of each step's action: the latest possible one; -1 for a `Create` whose elements only the driver
    needs."""
    depth = [0] * len(plan.steps)
    for step in plan.steps:
        for edge in plan.inputs(step.id):
            computed = edge.side is not None and not isinstance(plan.steps[edge.source].head, Create)
            depth[step.id] = max(depth[step.id], depth[edge.source] + computed)
    last = max(depth, default=0)
    actions = [last] * len(plan.steps)
    for step in reversed(plan.steps):
        edges = list(plan.outputs(step.id))
        mains = [actions[edge.target] for edge in edges if edge.side is None]
        if isinstance(step.head, Create):
            actions[step.id] = min(mains, default=-1 if edges else last)
        else:
            actions[step.id] = min((last, *mains, *(actions[e.target] - 1 for e in edges if e.side is not None)))
    return actions
