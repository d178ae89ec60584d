"""A job: a planned pipeline with its settings, as coordinator and workers share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tidegate.runners.engine.iteration.feedback_loop import FeedbackLoop, feedback_loops
from tidegate.runners.plan import Edge, Plan
from tidegate.runners.streaming.model.settings import Settings
from tidegate.runners.streaming.model.topology import Topology

_STRAGGLERS: Final = 50
"""The number of earlier processes of a job whose uncommitted output is removed in any case."""


@dataclass(frozen=True)
class Job:
    """A job. `id` names it in logs. `run` stays the same through all restarts, including those by a later process from
    a checkpoint directory; `epoch` numbers these processes."""

    id: str
    run: str
    plan: Plan
    settings: Settings
    epoch: int = 1
    parts: Mapping[str, str] = field(default_factory=dict)
    """The job's fingerprint (see `fingerprint.parts_of`), by which a later process recognises it as the same job."""

    @property
    def output_run(self) -> str:
        """The name of this process's output in sinks.

        Each process of a job has a name of its own: a process that was presumed dead may still remove its own output,
        and must never remove its successor's.
        """
        return _output_run(self.run, self.epoch)

    def output_runs(self, since: int) -> tuple[str, ...]:
        """The output names of all processes from epoch `since` up to this one, and of some before: a process that was
        presumed dead may have written more after its output was removed."""
        first = max(1, min(since, self.epoch - _STRAGGLERS))
        return tuple(_output_run(self.run, epoch) for epoch in range(first, self.epoch + 1))

    @cached_property
    def topology(self) -> Topology:
        """The tasks of the plan and the channels between them."""
        return Topology(self.plan, self.settings.workers)

    @cached_property
    def loops(self) -> list[FeedbackLoop]:
        """The feedback loops of the plan."""
        return feedback_loops(self.plan)

    @cached_property
    def counting(self) -> frozenset[Edge]:
        """The edges of loops that count how often elements go round."""
        counted = [loop for loop in self.loops if loop.node.max_hops is not None]
        return frozenset(edge for edge in self.plan.edges if any(loop.has(edge) for loop in counted))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("topology", "loops", "counting")}


def _output_run(run: str, epoch: int) -> str:
    return run if epoch == 1 else f"{run}.{epoch}"
