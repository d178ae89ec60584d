"""What a task must know: travels to it as one pickle, the same for all tasks of a level."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tidegate.runners.plan import Edge, Plan
from tidegate.runners.spark.levels import Levels
from tidegate.runners.spark.reading import Inputs


@dataclass(frozen=True, slots=True)
class Work:
    """A run's plan, in levels and partitions.

    `edges` are the plan's in the order of their numbers in rows: side inputs come first, so that a task has them
    before the elements that need them. `memory_budget` (bytes) is one task's; None: a share of the worker's machine.
    """

    plan: Plan
    levels: Levels
    edges: tuple[Edge, ...]
    inputs: Inputs
    partitions: int
    run_id: str
    memory_budget: int | None
    temp_dir: Path | None
    runtime_types: bool

    def of_level(self, level: int) -> Work:
        """Without what only the first level asks for."""
        return self if level == 0 else replace(self, inputs=Inputs({}, {}, []))


def numbered(plan: Plan) -> tuple[Edge, ...]:
    """The plan's edges in the order of their numbers."""
    return tuple(sorted(plan.edges, key=lambda edge: edge.side is None))
