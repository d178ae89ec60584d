"""What a task must know: travels to it as one pickle, the same for all tasks of a level."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tidegate.runners.engine.side_inputs.view import side_id
from tidegate.runners.plan import Edge, Plan, Step
from tidegate.runners.spark.plan.artifacts import Artifact
from tidegate.runners.spark.plan.levels import Levels
from tidegate.sdk.authoring.side_inputs import View
from tidegate.sdk.connectors.sources import Split
from tidegate.sdk.options.defaults import DEFAULTS
from tidegate.sdk.portable.model import side_inputs


@dataclass(frozen=True, slots=True)
class Inputs:
    """What partitions read, by step: for each partition the splits of a source, or the elements of a `Create`."""

    splits: dict[int, list[list[Split]]]
    elements: dict[int, list[bytes]]
    files: dict[int, tuple[Artifact, list[list[int]]]]
    """Of a `Create` with many elements: a file, and for each partition where its pieces begin, and where they end."""

    def of_steps(self, steps: Container[int]) -> Inputs:
        """What these steps read."""
        splits, elements, files = (
            {id: share for id, share in shares.items() if id in steps}
            for shares in (self.splits, self.elements, self.files)
        )
        return Inputs(splits, elements, files)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class MapRegion:
    """Where in a file one map is: its entries, its index (byte offsets), how many slots and keys it has."""

    entries: int
    index: int
    slots: int
    count: int


Form: TypeAlias = Literal["values", "maps"]


@dataclass(frozen=True, slots=True)
class BroadcastView:
    """What one side input of one step shows, on its way to the workers: values by window, or maps in a file."""

    form: Form
    view: View
    data: bytes | Artifact
    regions: tuple[tuple[Any, MapRegion], ...] = ()
    """Of maps: each window, and where in the file its map is."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
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
    sides: dict[str, BroadcastView] = field(default_factory=dict)
    frames: dict[int, bytes | None] = field(default_factory=dict)
    wished: dict[int, bytes] = field(default_factory=dict)

    def of_level(self, level: int) -> TaskSpec:
        """Without what only other levels ask for."""
        steps = self.levels.steps(self.plan, level)
        inputs = self.inputs.of_steps({step.id for step in steps})
        wanted = {id for step in steps for id in side_ids_of(step)}
        return replace(self, inputs=inputs, sides={id: side for id, side in self.sides.items() if id in wanted})


def side_ids_of(step: Step) -> list[str]:
    """The `side_id`s of a step's side inputs."""
    return [side_id(node.label, number) for node in step.nodes for number, _ in enumerate(side_inputs(node))]


def numbered_edges(plan: Plan) -> tuple[Edge, ...]:
    """The plan's edges in the order of their numbers."""
    return tuple(sorted(plan.edges, key=lambda edge: edge.side is None))
