"""The specification of a level's tasks, which the driver sends to them as one pickle."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tidegate.runners.plan import Edge, Plan, Step, side_id
from tidegate.runners.spark.plan.artifacts import Artifact
from tidegate.runners.spark.plan.levels import Levels
from tidegate.sdk.authoring.side_inputs import View
from tidegate.sdk.connectors.sources import Split
from tidegate.sdk.options.defaults import DEFAULTS
from tidegate.sdk.portable.model import side_inputs
from tidegate.sdk.secrets.registry import SecretValue


@dataclass(frozen=True, slots=True)
class Inputs:
    """The input of each source step, by partition: the splits of a source, or the elements of a `Create`."""

    splits: dict[int, list[list[Split]]]
    elements: dict[int, list[bytes]]
    files: dict[int, tuple[Artifact, list[list[int]]]]
    """For a `Create` with many elements: a file, and for each partition the offsets at which its pieces begin, followed
    by the offset at which the last one ends."""

    def of_steps(self, steps: Container[int]) -> Inputs:
        """The input of these steps alone."""
        splits, elements, files = (
            {id: read for id, read in by_step.items() if id in steps}
            for by_step in (self.splits, self.elements, self.files)
        )
        return Inputs(splits, elements, files)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class MapRegion:
    """The place of one map in a file: the byte offsets of its entries and its index, and its number of index slots and
    keys."""

    entries: int
    index: int
    slots: int
    count: int


Form: TypeAlias = Literal["values", "maps"]


@dataclass(frozen=True, slots=True)
class BroadcastView:
    """The contents of one side input of one step, as sent to the workers: values by window, or maps in a file."""

    form: Form
    view: View
    data: bytes | Artifact
    regions: tuple[tuple[Any, MapRegion], ...] = ()
    """For maps: each window, and the place of its map in the file."""


@dataclass(frozen=True, slots=True)
class Round:
    """What tasks of a loop's body are told of a round: its number, and the contents of side inputs that change."""

    number: int
    sides: dict[str, BroadcastView]


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """A run's plan, divided into levels and partitions.

    `edges` are the plan's; rows refer to an edge by its index here. `sides` has the contents of side inputs, by
    `side_id`. `frames` has the Arrow schema of each DataFrame that a step writes (None: to be inferred), `preferred`
    the columns whose types it may inherit. `secrets` has the values that the author's code refers to by name.
    `memory_budget` (bytes) is per task; None: an equal part of the worker's memory. `staging`: the parent of the run's
    folder of staged files; None if the workers are on other machines.

    A specification is equal in every run of a pipeline, so that repeated runs reuse the artifacts that Spark has.
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
    preferred: dict[int, bytes] = field(default_factory=dict)
    staging: Path | None = None
    secrets: dict[str, SecretValue] = field(default_factory=dict, repr=False)
    inline: Literal["on", "off", "always"] = DEFAULTS.inline

    def of_level(self, level: int) -> TaskSpec:
        """The specification without the input of other levels."""
        steps = self.levels.steps(self.plan, level)
        inputs = self.inputs.of_steps({step.id for step in steps})
        used = {id for step in steps for id in side_ids_of(step)}
        return replace(self, inputs=inputs, sides={id: side for id, side in self.sides.items() if id in used})


def side_ids_of(step: Step) -> list[str]:
    """The `side_id`s of a step's side inputs."""
    return [side_id(node.label, number) for node in step.nodes for number, _ in enumerate(side_inputs(node))]


_NEXT: Final = 1 << 20


def label_of(number: int, edge: Edge, levels: Levels) -> int:
    """The number that rows written on an edge have. What a round leaves for the next one must not be taken for what it
    has found itself."""
    return number + _NEXT if levels.goes_round(edge) else number


def is_for_next_round(label: int) -> bool:
    """Whether rows of this number were left for the next round."""
    return label >= _NEXT


def labels_read(edges: Sequence[Edge], levels: Levels, read: Callable[[Edge], bool]) -> dict[int, tuple[int, ...]]:
    """The numbers of the rows in which stored elements are read, each with the edges to which these elements belong."""
    found: dict[int, tuple[int, ...]] = {}
    for number, edge in enumerate(edges):
        if read(edge):
            stored = number if edge.files is None else edge.files
            label = label_of(stored, edges[stored], levels)
            found[label] = (*found.get(label, ()), number)
    return found


def numbered_edges(plan: Plan) -> tuple[Edge, ...]:
    """The plan's edges in the order of their numbers: those of side inputs first."""
    order = sorted(range(len(plan.edges)), key=lambda at: plan.edges[at].side is None)
    numbers = {at: number for number, at in enumerate(order)}
    edges = map(plan.edges.__getitem__, order)
    return tuple(edge if edge.files is None else replace(edge, files=numbers[edge.files]) for edge in edges)
