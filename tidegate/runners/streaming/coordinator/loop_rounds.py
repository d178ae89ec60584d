"""The rounds of loops that all tasks run: how many are done, and whether there is another. Files keep what they leave.

One decision is made for all tasks, from what they have emitted in a whole round. What a round has left outlives the
workers, so after a failure the round that was running begins again, and none before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidegate.runners.engine.iteration.decision import Decision, count_end, count_round, decide
from tidegate.runners.plan import Loop, Plan, left_for
from tidegate.runners.streaming.protocol.worker_messages import TaskEnded
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.time import SECOND


class LoopRounds:
    """The loops of a plan whose regions run again for each round."""

    def __init__(self, plan: Plan) -> None:
        self._loops = [loop for loop in plan.loops if loop.regions]
        self._done = {loop.node.label: 0 for loop in self._loops}
        self._began = 0
        self.metrics = MetricCells()
        """The metrics of the loops themselves."""

    @property
    def rounds(self) -> tuple[tuple[str, int], ...]:
        """How many rounds of each loop are done."""
        return tuple(self._done.items())

    def done(self, loop: Loop) -> int:
        """How many rounds of a loop are done."""
        return self._done[loop.node.label]

    def begin(self, region: int, now: int) -> None:
        """A region is being deployed."""
        if any(loop.regions[0] == region for loop in self._loops):
            self._began = now

    def ending_with(self, region: int) -> Loop | None:
        """The loop of which a round is over when this region is."""
        return next((loop for loop in self._loops if loop.regions[-1] == region), None)

    def end(self, loop: Loop, tasks: Iterable[TaskEnded], now: int) -> Decision:
        """A round is over, in which these tasks have ended; returns whether there is another."""
        node, label = loop.node, loop.node.label
        counts = Counter[str]()
        for task in tasks:
            counts.update(dict(task.emitted))
        emitted = {result: sum(counts[part] for part in parts) for result, parts in loop.results.items()}
        self._done[label] += 1
        number = self._done[label]
        left = {each.before: emitted.get(left_for(node, each), 0) for each in node.variables if each.form != "solution"}
        emitted |= left
        fed_back = sum(left.get(each.before, 0) for each in node.variables if each.after != each.before)
        count_round(self.metrics, node, number, fed_back, (now - self._began) / SECOND)
        decision = decide(node, number, emitted)
        if decision != "again":
            count_end(self.metrics, node, number, decision)
        return decision
