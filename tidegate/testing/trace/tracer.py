"""Recording a run for a trace: a direct runner that puts a watcher around each grouping and stateful step.

Groupings that no step reads are run too, since their windows are what the author wants to see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from tidegate.runners.direct import DirectRunner
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.plan import Edge, Plan, Step
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.model import ParDo
from tidegate.sdk.runner import PipelineResult, RunOptions
from tidegate.testing.trace.recorded_run import Trace
from tidegate.testing.trace.watcher import Watcher


class Tracer(DirectRunner):
    """A direct runner that records its run. `trace` returns what has been recorded so far, even after a failure."""

    drops_unread: ClassVar[bool] = False

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=clock)
        self.observe = self._watching
        self._watchers: list[Watcher] = []
        self._plan: Plan | None = None
        self._name = "pipeline"
        self._began = False

    def plan(self, pipeline: portable.Pipeline, options: RunOptions) -> Plan:
        self._plan = isolate_groupings(super().plan(pipeline, options))
        return self._plan

    def run(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        self._name = pipeline.name
        self._watchers = []
        return super().run(pipeline, options)

    @property
    def began(self) -> bool:
        """True once a run has created its operators."""
        return self._began

    def trace(self, error: BaseException | None = None) -> Trace:
        """The record of the run; `error` is its error, if it failed."""
        steps = tuple(watcher.traced() for watcher in self._watchers)
        return Trace(self._name, steps, None if error is None else shorten_error(error))

    def _watching(self, context: Context, clock: Clock) -> Callable[[Step, Operator], Operator]:
        plan = self._plan
        assert plan is not None
        self._began = True

        def around(step: Step, operator: Operator) -> Operator:
            if not _is_traced(step):
                return operator
            watcher = Watcher(step, plan, operator, context, clock)
            self._watchers.append(watcher)
            return watcher

        return around


def shorten_error(error: BaseException) -> str:
    """An error in one line."""
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return text if len(text) <= 300 else text[:299] + "…"


def _is_traced(step: Step) -> bool:
    if isinstance(step.tail, ParDo):
        return step.tail.stateful
    return step.groups and step.phase != "parts"


def isolate_groupings(plan: Plan) -> Plan:
    """Put each grouping in a step of its own, so that its input can be recorded. Steps are numbered anew, in order."""
    steps: list[Step] = []
    heads: dict[int, int] = {}
    tails: dict[int, int] = {}
    added: list[Edge] = []
    for step in plan.steps:
        heads[step.id] = len(steps)
        if step.groups and len(step.nodes) > 1:
            before = Step(len(steps), step.nodes[:-1], step.stage)
            steps.append(before)
            added.append(Edge(before.outputs[0], before.id, len(steps)))
            step = replace(step, nodes=step.nodes[-1:])
        tails[step.id] = len(steps)
        steps.append(replace(step, id=len(steps)))
    edges = [replace(edge, source=tails[edge.source], target=heads[edge.target]) for edge in plan.edges]
    return replace(plan, steps=tuple(steps), edges=(*edges, *added))
