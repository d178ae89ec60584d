"""The plan: steps connected by edges; exchanges divide them into stages, blocking exchanges into regions. Data only.

A step is a sequence of nodes fused into one operator. Every decision of the planner is a field here, or has its reason
in `Plan.decisions`; the engine and the runners only execute the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final, Literal, TypeAlias, TypeVar

from tidegate.sdk import moved
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.portable.loop_variable import LoopVariable
from tidegate.sdk.portable.model import (
    FLAT_FORMS,
    AssignWindows,
    CombinePerKey,
    Create,
    GroupByKey,
    Iterate,
    Lookup,
    Node,
    ParDo,
    Pipeline,
    Read,
    TestStream,
    Write,
)
from tidegate.sdk.user_code.user_fn import UserFn

T = TypeVar("T")

Routing: TypeAlias = Literal["forward", "hash", "broadcast", "rebalance", "gather"]
Mode: TypeAlias = Literal["pipelined", "blocking"]
Phase: TypeAlias = Literal["whole", "parts", "merge"]
"""Of a combine: all in one step; the partial combine before an exchange; or the merge of the parts after it."""
Path: TypeAlias = Literal["table", "window_major", "sessions", "live_sessions", "general"]
"""How a grouping is executed: by one table that fires at the end of input; tables by window that the watermark fires;
sessions that fire at the end of input; sessions that the watermark fires; or trigger state machines."""

Turn: TypeAlias = Literal["start", "back", "last", "all", "solution"]
"""Which rounds concern an edge into the body of a loop that all tasks run: round 1 reads it ("start"), or each round
reads what the one before has written ("back"). Out of the body: what the last round has written is read ("last"), or
what all of them have ("all"). The part of a solution that a task keeps ("solution") begins with the elements of an edge
into the body, and is read through an edge out of it."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """How elements get from one stage to the next, and the planner's reason for it."""

    routing: Routing
    mode: Mode
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    """Nodes fused into one operator: element-wise nodes, then at most one that groups or writes.

    `phase` and `path` are set if the last node is a grouping. `in_time_order`: each key's elements are processed in
    timestamp order, since the input is bounded and its order affects the result. `kept`: in the body of a loop, the
    inputs that are the same in all rounds and are grouped once for all of them.
    """

    id: int
    nodes: tuple[Node, ...]
    stage: int
    phase: Phase | None = None
    path: Path | None = None
    in_time_order: bool = False
    kept: tuple[str, ...] = ()

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)

    @property
    def label(self) -> str:
        """The last node's label path."""
        return self.nodes[-1].label

    @property
    def head(self) -> Node:
        """The first node, which receives the input."""
        return self.nodes[0]

    @property
    def tail(self) -> Node:
        """The last node, which emits the outputs."""
        return self.nodes[-1]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The ids of the collections that the step emits; the parts of a combine have an id of their own."""
        if self.phase == "parts":
            return (f"{self.label}~parts",)
        return tuple(output.collection for output in self.tail.outputs)

    @property
    def is_source(self) -> bool:
        """Whether the step is a source."""
        return isinstance(self.head, (Create, Read, TestStream))

    @property
    def is_sink(self) -> bool:
        """Whether the step is a sink."""
        return isinstance(self.tail, Write)

    @property
    def groups(self) -> bool:
        """Whether the step ends in a grouping."""
        return isinstance(self.tail, (GroupByKey, CombinePerKey))


@dataclass(frozen=True, slots=True)
class Edge:
    """Sends the elements of a collection from one step to another; `exchange` is None inside a stage (a plain call).

    If the edge feeds a side input, `side` is its number at the target's node `node`; None for main input. `into`: the
    collection under which the target reads the elements, if it is another. `turn`: which rounds of a loop read it.
    `files`: the edge whose stored elements it reads; None for its own.
    """

    collection: str
    source: int
    target: int
    exchange: Exchange | None = None
    side: int | None = None
    node: str = ""
    into: str = ""
    turn: Turn | None = None
    files: int | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)

    @property
    def received(self) -> str:
        """The collection under which the target reads the elements."""
        return self.into or self.collection

    @property
    def pipelined(self) -> bool:
        """Whether elements cross an exchange while the source step is running."""
        return self.exchange is not None and self.exchange.mode == "pipelined"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolutionUpdate(Lookup):
    """Merges pairs into the solution of a loop, one pair for each key and window, and emits those whose values have
    changed, with the new values. Lookups see the new values in the next round.

    `inputs` are those of a Lookup. `merge` and `changed` are those of the loop, whose label is `loop`. It is the last
    step of a body that all tasks run; a portable pipeline has none.
    """

    loop: str
    merge: UserFn | None
    changed: UserFn | None

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice of the planner, with its reason."""

    step: str
    choice: str
    reason: str


RELATION: Final = "relation"
"""The choice of a decision that says what a relational step computes, which its nodes in the plan no longer show."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: its node, and the plan of its body, in which empty sources stand for what the body reads. `results` has,
    for each collection of the body that is read outside it, those that steps emit for it.

    One task runs all rounds; or all tasks do, if the steps of the body are in the plan around it: in `regions`, which
    run again for each round.
    """

    node: Iterate
    plan: Plan
    results: Mapping[str, tuple[str, ...]]
    regions: tuple[int, ...] = ()

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)

    @property
    def labels(self) -> frozenset[str]:
        """The labels of the loop and of the steps in its body, whose metrics are kept by its rounds. A loop within it
        numbers its own rounds, under its label: with those of this loop they would be added to others."""
        return frozenset((self.node.label, *(node.label for node in self.node.body if not isinstance(node, Iterate))))


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a pipeline. Steps are in topological order.

    `regions` are tuples of stage numbers, in an order in which they can run; a region is the unit of scheduling and
    recovery. `results` are the collections that are read by something that is no part of the plan.
    """

    pipeline: Pipeline
    steps: tuple[Step, ...]
    edges: tuple[Edge, ...]
    regions: tuple[tuple[int, ...], ...]
    decisions: tuple[Decision, ...] = ()
    _inputs: dict[int, list[Edge]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _outputs: dict[int, list[Edge]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _stage_steps: dict[int, list[Step]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _region_of: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    loops: tuple[Loop, ...] = ()
    results: frozenset[str] = frozenset()

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)

    def inputs(self, step: int) -> Iterator[Edge]:
        """The edges into a step."""
        if not self._inputs:
            self._inputs.update(_grouped(self.edges, lambda edge: edge.target))
        return iter(self._inputs.get(step, ()))

    def outputs(self, step: int) -> Iterator[Edge]:
        """The edges out of a step."""
        if not self._outputs:
            self._outputs.update(_grouped(self.edges, lambda edge: edge.source))
        return iter(self._outputs.get(step, ()))

    def feeds_back(self, edge: Edge) -> bool:
        """Whether the edge leads back to the head of a feedback loop, so that no watermark goes along it."""
        return edge.turn is None and edge.source >= edge.target

    def stage_steps(self, stage: int) -> Iterator[Step]:
        """The steps of a stage, in order."""
        if not self._stage_steps:
            self._stage_steps.update(_grouped(self.steps, lambda step: step.stage))
        return iter(self._stage_steps.get(stage, ()))

    def steps_of(self, stages: Iterable[int]) -> list[Step]:
        """The steps of some stages, in order."""
        return sorted(chain.from_iterable(map(self.stage_steps, stages)), key=lambda step: step.id)

    def loop(self, label: str) -> Loop:
        """The loop with that label; KeyError if there is none."""
        for loop in self.loops:
            if loop.node.label == label:
                return loop
        raise KeyError(label)

    def loop_of(self, stage: int) -> Loop | None:
        """The loop in whose body a stage is, if all tasks run it."""
        region = self.region_of(stage)
        return next((loop for loop in self.loops if region in loop.regions), None)

    def region_of(self, stage: int) -> int:
        """The number of the region a stage belongs to."""
        if not self._region_of:
            self._region_of.update({stage: number for number, stages in enumerate(self.regions) for stage in stages})
        return self._region_of[stage]


def _grouped(items: Iterable[T], number: Callable[[T], int]) -> dict[int, list[T]]:
    """The items by a number of theirs. A plan takes the complete dict at once: several threads may ask for it, and
    processes may be forked meanwhile."""
    groups: dict[int, list[T]] = {}
    for item in items:
        groups.setdefault(number(item), []).append(item)
    return groups


MAX_NESTED_LOOPS: Final = 16
"""How many loops the nodes of a step may nest in the loop over its elements.

Python compiles at most 20 blocks in each other. The others are for the loop over elements, for what a stateful step or
a grouping does for each window, and for the handler of exceptions.
"""


def nested_loops(node: Node) -> int:
    """How many loops a node nests: over its results, and over the windows of its element, if there can be several."""
    match node:
        case ParDo():
            return (node.form in FLAT_FORMS) + node.sees_window
        case _:
            return int(isinstance(node, AssignWindows))


def side_id(label: str, number: int | str) -> str:
    """The id of a step's side input, under which its blocks arrive and a chain finds its view."""
    return f"{label}:{number}"


def left_as(collection: str) -> str:
    """The collection under which the step of a loop that all tasks run reads what the rounds leave as a result."""
    return f"{collection}~left"


def changes_of(loop: Iterate) -> str:
    """The pairs of a loop's solution that a round has changed, if all tasks run the loop."""
    return f"{loop.label}~changes"


def left_for(loop: Iterate, variable: LoopVariable) -> str:
    """The collection of which a round leaves the elements of a variable that all tasks run."""
    return changes_of(loop) if variable.form == "changes" else variable.after


def step_in_round(step: Step, number: int) -> Step:
    """The step with the number of a loop's round for those of its functions that ask for it."""
    nodes = tuple(with_round(node, number) if isinstance(node, ParDo) else node for node in step.nodes)
    return step if nodes == step.nodes else replace(step, nodes=nodes)


def with_round(node: ParDo, number: int) -> ParDo:
    """The node with the number of a loop's round for those of its functions that ask for it."""

    def given(params: tuple[Param, ...]) -> tuple[Param, ...]:
        return tuple(replace(param, ref=str(number)) if param.kind == "round" else param for param in params)

    params = given(node.params)
    callbacks = tuple(replace(callback, params=given(callback.params)) for callback in node.callbacks)
    changed = params != node.params or callbacks != node.callbacks
    return replace(node, params=params, callbacks=callbacks) if changed else node
