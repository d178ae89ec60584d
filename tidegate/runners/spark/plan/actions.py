"""Actions: the Spark jobs of a run. Each depth of computed side inputs needs one, and each round of a loop its own.

A step runs in the latest action possible. Actions of a loop's body run again in each round, so they run nothing else.

>>> import tidegate as tg
>>> from tidegate.runners.planner import Traits, plan
>>> p = tg.Pipeline()
>>> sums = p | tg.Create([("a", 1)]) | tg.Iterate(lambda x: x | tg.CombinePerKey(sum), rounds=3)
>>> printed = sums | tg.Map(print)
>>> assign_actions(plan(p.sealed(), Traits(parallel=True, blocking=True, parallel_loops=True)))
Actions(of_step=(0, 1, 2, 2), loops=(LoopActions(label='Iterate', first=1, last=1),))
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from tidegate.runners.plan import Edge, Plan
from tidegate.sdk.portable.model import Create


@dataclass(frozen=True, slots=True)
class LoopActions:
    """The loop whose body runs in the actions from `first` to `last`, which are those of a round."""

    label: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Actions:
    """The number of each step's action (-1 for a `Create` whose elements only the driver needs), and those of loops."""

    of_step: tuple[int, ...]
    loops: tuple[LoopActions, ...] = ()


def assign_actions(plan: Plan) -> Actions:
    """Assign each step the latest action possible."""
    loops = {step.id: loop.node.label for step in plan.steps if (loop := plan.loop_of(step.stage)) is not None}
    earliest = _earliest(plan, loops)
    ends = {loops[id]: earliest[id] for id in sorted(loops, key=lambda id: earliest[id])}
    of_loops = {earliest[id] for id in loops}
    last = max(earliest, default=0)
    latest = [last] * len(plan.steps)
    for step in reversed(plan.steps):
        found = [_latest_before(plan, edge, latest, loops) for edge in plan.outputs(step.id)]
        bounds = [bound for bound in found if bound is not None]
        if step.id in loops:
            latest[step.id] = min([ends[loops[step.id]], *bounds])
        elif isinstance(step.head, Create) and found and not bounds:
            latest[step.id] = -1
        else:
            latest[step.id] = _free(min([last, *bounds]), of_loops)
    used = sorted({action for action in latest if action >= 0})
    numbers = {-1: -1} | {action: number for number, action in enumerate(used)}
    of_step = tuple(numbers[action] for action in latest)
    return Actions(of_step, tuple(_of_loop(label, of_step, loops) for label in dict.fromkeys(loops.values())))


def _earliest(plan: Plan, loops: Mapping[int, str]) -> list[int]:
    """The earliest action of each step, if all actions of a loop come after those of the steps before its body."""
    earliest: list[int] = []
    firsts: dict[str, int] = {}
    of_loops: set[int] = set()
    for step in plan.steps:
        loop = loops.get(step.id)
        if loop is not None and loop not in firsts:
            firsts[loop] = 1 + max(earliest, default=-1)
        at = 0 if loop is None else firsts[loop]
        for edge in plan.inputs(step.id):
            if edge.turn != "back":
                later = _is_computed_side(plan, edge) or (edge.side is None and loops.get(edge.source) != loop)
                at = max(at, earliest[edge.source] + later)
        while loop is None and at in of_loops:
            at += 1
        if loop is not None:
            of_loops.add(at)
        earliest.append(at)
    return earliest


def _latest_before(plan: Plan, edge: Edge, latest: list[int], loops: Mapping[int, str]) -> int | None:
    """The latest action in which what an edge carries can be made; None if the edge doesn't matter."""
    if edge.turn == "back" or (edge.side is not None and not _is_computed_side(plan, edge)):
        return None
    later = edge.side is not None or loops.get(edge.source) != loops.get(edge.target)
    return latest[edge.target] - later


def _is_computed_side(plan: Plan, edge: Edge) -> bool:
    """Whether a side input has to be computed before; the driver has the elements of a `Create`."""
    return edge.side is not None and not isinstance(plan.steps[edge.source].head, Create)


def _free(action: int, of_loops: Container[int]) -> int:
    """The latest action up to this one that is not a loop's."""
    while action in of_loops:
        action -= 1
    return action


def _of_loop(label: str, actions: tuple[int, ...], loops: Mapping[int, str]) -> LoopActions:
    own = [actions[id] for id, loop in loops.items() if loop == label]
    return LoopActions(label, min(own), max(own))
