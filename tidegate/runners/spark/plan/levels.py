"""Levels: the steps that run together on Spark. A level is one pass over the partitions; shuffles separate levels.

All steps at the same depth of the plan run in one task per partition. A pipeline thus becomes a sequence of levels,
however its branches fork and join: a single Spark action, no stage computed twice, and a small plan for Spark. Sinks
run in the last level, so that their committables go straight to the driver and never cross a shuffle.

Each action has one or more levels. Elements that a later action needs are persisted, so that no step runs twice. In the
actions of a loop's body they leave with the last level of the action, as what a round leaves to the next one does.

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

from dataclasses import dataclass, replace

from tidegate.runners.plan import Edge, Plan, Step
from tidegate.runners.spark.plan.actions import LoopActions, assign_actions


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
    loops: tuple[LoopActions, ...] = ()
    """The loops whose rounds all tasks run."""

    def crosses(self, edge: Edge) -> bool:
        """Whether elements on this edge leave the task that makes them."""
        return shuffles(edge) or edge.turn == "back" or self.of_step[edge.source] != self.of_step[edge.target]

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

    def end(self, action: int) -> int:
        """The level after those of an action."""
        return self.starts[action + 1] if action + 1 < len(self.starts) else self.count

    def loop(self, level: int) -> LoopActions | None:
        """The loop in whose body a level is."""
        action = self.action(level)
        return next((loop for loop in self.loops if loop.first <= action <= loop.last), None)

    def start_of(self, edge: Edge) -> int:
        """The first level of the action in which an edge ends."""
        return self.starts[self.action(self.of_step[edge.target])]

    def persisted(self, edge: Edge) -> bool:
        """Whether elements on this edge are persisted for a later action, or for the next round."""
        if edge.side is not None:
            return False
        return edge.turn == "back" or self.action(self.of_step[edge.source]) < self.action(self.of_step[edge.target])

    def goes_round(self, edge: Edge) -> bool:
        """Whether what a round of a loop writes on an edge is read by the next one: what comes back, and solutions."""
        of_solution = edge.turn == "solution" and self.loop(self.of_step[edge.source]) is not None
        return edge.turn == "back" or of_solution

    def is_constant(self, edge: Edge) -> bool:
        """Whether all rounds of a loop read the same elements from an edge into its body."""
        if edge.side is not None or edge.turn is not None:
            return False
        loop = self.loop(self.of_step[edge.target])
        return loop is not None and loop != self.loop(self.of_step[edge.source])


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
    for action in range(max(actions.of_step, default=-1) + 1):
        starts.append(count)
        for step in plan.steps:
            if actions.of_step[step.id] == action:
                levels = [
                    of_step[edge.source] + shuffles(edge)
                    for edge in plan.inputs(step.id)
                    if edge.side is None and edge.turn != "back" and actions.of_step[edge.source] == action
                ]
                of_step[step.id] = max(levels, default=starts[-1])
        count = max((level for level in of_step if level >= 0), default=-1) + 1
    for step in plan.steps:
        if step.is_sink:
            of_step[step.id] = count - 1
    made = Levels(tuple(of_step), count, frozenset(), tuple(starts) or (0,), actions.loops)
    return replace(made, gathered=frozenset(level for level in range(count) if _is_gathered(plan, made, level)))


def _is_gathered(plan: Plan, levels: Levels, level: int) -> bool:
    """Whether all elements that reach a level are gathered for its steps."""
    if level in levels.starts:
        return False
    return all(
        edge.exchange is not None and edge.exchange.routing == "gather" and levels.of_step[edge.target] == level
        for edge in plan.edges
        if edge.side is None and _reaches(levels, edge, level)
    ) and not any(_leaves_through(levels, edge, level) or _has_solution(levels, edge, level) for edge in plan.edges)


def _reaches(levels: Levels, edge: Edge, level: int) -> bool:
    """Whether elements on an edge reach a level on their way to their step."""
    source, target = levels.of_step[edge.source], levels.of_step[edge.target]
    before = levels.start_of(edge) - 1 if edge.turn == "back" else max(source, levels.start_of(edge) - 1)
    return before < level <= target


def _has_solution(levels: Levels, edge: Edge, level: int) -> bool:
    """Whether an edge is that of the solution of a loop in whose body a level is: its parts may pass through."""
    return edge.turn == "solution" and levels.loop(level) is not None and levels.goes_round(edge)


def _leaves_through(levels: Levels, edge: Edge, level: int) -> bool:
    """Whether elements on an edge pass through a level on their way out of an action of a loop."""
    source = levels.of_step[edge.source]
    if not levels.persisted(edge) or levels.loop(source) is None:
        return False
    return source < level < levels.end(levels.action(source))
