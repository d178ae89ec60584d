"""What a task must know: travels to it as one pickle, the same for all tasks of a level."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from tidegate.runners.engine.side_inputs.view import side_id
from tidegate.runners.plan import Edge, Plan, Step
from tidegate.runners.spark.plan.levels import Levels
from tidegate.runners.spark.side_inputs.broadcast import Side
from tidegate.runners.spark.task_io.sources import Inputs
from tidegate.sdk.options.defaults import DEFAULTS
from tidegate.sdk.portable.model import side_inputs


@dataclass(frozen=True, slots=True)
class Work:
    """A run's plan, in levels and partitions.

    `edges` are the plan's; a row names its edge by the number it has here. `sides` are what side inputs show, by
    `side_id`; `frames` the Arrow schemas (None: not known) of what sinks give as DataFrames, by step; `wished` those of
    columns that they may keep. `memory_budget` (bytes) is one task's; None: a share of the worker's machine.

    Nothing here differs between two runs of a pipeline: what is large is a file that Spark keeps, and a repeated run
    uses the same.
    """

    plan: Plan
    levels: Levels
    edges: tuple[Edge, ...]
    inputs: Inputs
    partitions: int
    memory_budget: int | None
    temp_dir: Path | None
    runtime_types: bool
    max_end_timers: int = DEFAULTS.max_end_timers
    sides: dict[str, Side] = field(default_factory=dict)
    frames: dict[int, bytes | None] = field(default_factory=dict)
    wished: dict[int, bytes] = field(default_factory=dict)

    def of_level(self, level: int) -> Work:
        """Without what only other levels ask for."""
        steps = self.levels.steps(self.plan, level)
        inputs = self.inputs.of_steps({step.id for step in steps})
        wanted = {id for step in steps for id in sides_of(step)}
        return replace(self, inputs=inputs, sides={id: side for id, side in self.sides.items() if id in wanted})


def sides_of(step: Step) -> list[str]:
    """The `side_id`s of a step's side inputs."""
    return [side_id(node.label, number) for node in step.nodes for number, _ in enumerate(side_inputs(node))]


def numbered(plan: Plan) -> tuple[Edge, ...]:
    """The plan's edges in the order of their numbers."""
    return tuple(sorted(plan.edges, key=lambda edge: edge.side is None))
