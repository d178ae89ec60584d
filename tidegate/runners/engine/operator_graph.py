"""A graph of operators: pushes blocks through the steps, then propagates watermarks.

A runner puts the steps that run in one task (or process) into a graph. It feeds blocks and status updates of the input
collections, and receives the output blocks through outlets. After every event the watermarks are propagated in the
order of the steps: a step whose input watermark has advanced ends its bundle, handles the watermark, and updates the
status of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any, TypeAlias

from tidegate.runners.engine.errors.attribution import close_all, quietly
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.operator import AwaitingOperator, Context, Emitted, Operator
from tidegate.runners.engine.time.watermarks import CollectionStatus, GraphProgress, MinWatermark, StepProgress
from tidegate.runners.plan import Edge, Plan, Step, side_id
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS

Outlet: TypeAlias = Callable[[Block], None]
"""Receives the blocks of a collection that leave the graph for a sink or an exchange."""

Outlets: TypeAlias = Mapping[str, list[Outlet]]
"""The outlets by collection."""


class _Node:
    """A step's operator, with the status of its inputs."""

    def __init__(self, place: int, step: Step, plan: Plan, operator: Operator) -> None:
        self.place = place
        self.clean = False
        """Whether the status of its outputs is up to date with its inputs and its watermark hold."""
        edges = [edge for edge in plan.inputs(step.id) if not plan.feeds_back(edge)]
        self.name = state_name(step)
        self.operator = operator
        self.inputs = list(dict.fromkeys(edge.received for edge in edges if edge.side is None))
        self.sides: dict[str, list[str]] = {}
        for edge in edges:
            if edge.side is not None:
                self.sides.setdefault(side_id(edge.node, edge.side), []).append(edge.received)
        self.reads = list(dict.fromkeys(edge.received for edge in edges))
        self.outputs = step.outputs
        self.handles_clock = type(operator).on_clock is not Operator.on_clock
        self.sets_clock_wakeups = type(operator).next_clock is not Operator.next_clock
        self.bounded = all(plan.pipeline.collection(id).bounded for id in step.head.inputs)
        self.watermark = MIN_MICROS
        self.clock = MIN_MICROS
        self.side_watermarks: dict[str, int] = {}
        self.ended = False
        self.idle = False
        self.was_idle = False
        """Whether the inputs have ever been idle: then the watermark downstream may be ahead."""
        self.min_watermark = MinWatermark()

    @property
    def pending(self) -> bool:
        """Whether elements are under way in the operator, so that its outputs neither end nor become idle."""
        return self.operator.pending

    def input_status(self, statuses: Mapping[str, CollectionStatus]) -> CollectionStatus:
        """The status of the step's inputs together."""
        return self.min_watermark.of({name: statuses[name] for name in self.inputs})

    def note_idle(self, *, idle: bool) -> None:
        """Tell the operator if the inputs have become idle."""
        if idle and not self.idle:
            self.was_idle = True
            self.operator.on_idle()
        self.idle = idle

    def progress(self) -> StepProgress:
        """What `continue_from` restores."""
        return StepProgress(
            self.watermark,
            self.clock,
            dict(self.side_watermarks),
            self.ended,
            self.idle,
            self.was_idle,
            self.min_watermark.progress(),
        )

    def continue_from(self, progress: StepProgress) -> None:
        """Go on exactly where `progress` was taken; the operator has been restored."""
        self.watermark, self.clock, self.ended = progress.watermark, progress.clock, progress.ended
        self.side_watermarks = dict(progress.sides)
        self.min_watermark.continue_from(progress.inputs)
        self.note_idle(idle=progress.was_idle)
        self.idle = progress.idle


class Graph:
    """The operators of some steps of a plan.

    `edges` connect steps of this graph; `outlets` receive the blocks that leave it, by collection.
    """

    def __init__(
        self, plan: Plan, steps: Iterable[Step], edges: Iterable[Edge], context: Context, outlets: Outlets
    ) -> None:
        plan, steps, edges, entries = _joined(plan, tuple(steps), tuple(edges), context, outlets)
        self._nodes: dict[int, _Node] = {}
        self._statuses: dict[str, CollectionStatus] = {}
        self._outlets = outlets
        self._targets: dict[str, list[tuple[_Node, str]]] = {}
        self._readers: dict[str, list[_Node]] = {}
        operators = _operators(plan, steps, edges, context, outlets)
        for step in steps:
            node = self._nodes[step.id] = _Node(len(self._nodes), step, plan, operators[step.id])
            if context.wrap is not None:
                node.operator = context.wrap(step, node.operator)
            for collection in (*node.reads, *node.outputs):
                self._statuses.setdefault(collection, CollectionStatus())
            for collection in node.reads:
                self._readers.setdefault(collection, []).append(node)
        self._ordered = list(self._nodes.values())
        self._clocked = [node for node in self._ordered if node.handles_clock]
        self._awaiting = [
            (node, node.operator) for node in self._ordered if isinstance(node.operator, AwaitingOperator)
        ]
        self._dirty = list(range(len(self._ordered)))
        """A heap of the places of the nodes that are not clean, each place once."""
        self._paused: list[_Node] = []
        """The nodes that paused when watermarks were last propagated."""
        for edge in edges:
            self._targets.setdefault(edge.collection, []).append((self._nodes[edge.target], _name(edge)))
        self._entries = self._nodes | {step: self._nodes[other] for step, other in entries.items()}
        """By step, the node that takes its input."""
        self._opened: list[Operator] = []

    # -- life cycle

    def open(self) -> None:
        """Open every operator; this runs the author's `setup`."""
        for node in self._nodes.values():
            self._opened.append(node.operator)
            node.operator.open()

    def close(self) -> None:
        """Close every operator that was opened, even if closing one of them fails."""
        opened, self._opened = self._opened, []
        close_all([operator.close for operator in opened])

    def abandon(self) -> None:
        """Close after a failure. Errors from closing are dropped, so that they don't hide the failure."""
        for operator in self._opened:
            quietly(operator.close)
        self._opened.clear()

    # -- events

    def push(self, collection: str, block: Block) -> None:
        """Push a block of a collection to every step and outlet that reads the collection."""
        for _ in self.pushing(collection, block):
            pass

    def pushing(self, collection: str, block: Block) -> Iterator[None]:
        """Like `push`, but yields after each block that leaves the graph: one element may produce millions."""
        for node, name in self._targets.get(collection, ()):
            self._mark_dirty(node)
            yield from self._emitting(node.operator.process(block, name))
        outlets = self._outlets.get(collection)
        if outlets:
            for outlet in outlets:
                outlet(block)
            yield

    def deliver(self, edge: Edge, block: Block) -> None:
        """Push a block to the target of one edge only."""
        for _ in self.delivering(edge, block):
            pass

    def delivering(self, edge: Edge, block: Block) -> Iterator[None]:
        """Like `deliver`, but yields after each block that leaves the graph."""
        node = self._entries[edge.target]
        self._mark_dirty(node)
        return self._emitting(node.operator.process(block, _name(edge)))

    def delivering_keyed(self, edge: Edge, keyed: KeyedBatch) -> Iterator[None]:
        """Like `delivering`, for elements that are grouped by key."""
        node = self._entries[edge.target]
        self._mark_dirty(node)
        return self._emitting(node.operator.process_keyed(keyed, _name(edge)))

    def update(self, collection: str, status: CollectionStatus) -> None:
        """Update the status of an input collection, and propagate watermarks. Its watermark never goes back."""
        for _ in self.updating(collection, status):
            pass

    def updating(self, collection: str, status: CollectionStatus) -> Iterator[None]:
        """Like `update`, but yields after each block that leaves the graph: many windows may fire at once."""
        before = self._statuses.get(collection, CollectionStatus())
        now = CollectionStatus(max(before.watermark, status.watermark), status.idle, status.ended)
        if now != before:
            self._set_status(collection, now)
            yield from self._propagate()

    def end_bundles(self) -> None:
        """End the bundle of every step, in order, so that buffered elements reach the steps that follow."""
        for _ in self.ending_bundles():
            pass

    def ending_bundles(self) -> Iterator[None]:
        """Like `end_bundles`, but yields after each block that leaves the graph."""
        for node in self._ordered:
            if not node.ended:
                self._mark_dirty(node)
                yield from self._emitting(node.operator.finish_bundle())

    def tick(self, now: int, *, bounded: bool = True) -> None:
        """Advance processing time to `now` (µs), and propagate watermarks, which the timers that fire may have held.

        `bounded=False` leaves out steps with bounded input: their processing time stands still until the input ends.
        """
        for _ in self.ticking(now, bounded=bounded):
            pass

    @property
    def clocked(self) -> bool:
        """Whether any step handles processing time."""
        return bool(self._clocked)

    def ticking(self, now: int, *, bounded: bool = True) -> Iterator[None]:
        """Like `tick`, but yields after each block that leaves the graph."""
        advanced = False
        for node in self._clocked:
            if node.ended or now <= node.clock or (node.bounded and not bounded):
                continue
            node.clock = now
            self._mark_dirty(node)
            yield from self._emitting(node.operator.finish_bundle())
            yield from self._emitting(node.operator.on_clock(now))
            advanced = True
        if advanced:
            yield from self._propagate()

    def next_clock(self) -> int | None:
        """The earliest processing time at which a step has work to do; None for never."""
        wakeups = [
            at for node in self._ordered if node.sets_clock_wakeups and (at := node.operator.next_clock()) is not None
        ]
        return min(wakeups, default=None)

    def status(self, collection: str) -> CollectionStatus:
        """The current status of a collection."""
        return self._statuses.get(collection, CollectionStatus())

    @property
    def paused(self) -> bool:
        """Whether a step has paused before it finished its work at the end of input (`Operator.paused`)."""
        return any(node.operator.paused for node in self._ordered if not node.ended)

    def resuming(self) -> Iterator[None]:
        """Let paused steps continue; yields after each block that leaves the graph."""
        return self._propagate()

    @property
    def calls_out(self) -> bool:
        """Whether any step has calls outside the pipeline."""
        return bool(self._awaiting)

    @property
    def pending(self) -> bool:
        """Whether a step waits for calls outside the pipeline (`AwaitingOperator.pending`)."""
        return any(operator.pending for _, operator in self._awaiting)

    @property
    def blocked(self) -> bool:
        """Whether a step should receive no more blocks before some of its calls have returned."""
        return any(operator.blocked for _, operator in self._awaiting)

    @property
    def stuck(self) -> bool:
        """Whether a blocked step has no results, whose emission would make room for further calls."""
        return any(operator.blocked and not operator.has_results for _, operator in self._awaiting)

    @property
    def has_results(self) -> bool:
        """Whether calls have returned whose results can be emitted."""
        return any(operator.has_results for _, operator in self._awaiting)

    def emitting_results(self) -> Iterator[None]:
        """Emit the results of calls, and the watermarks that have waited for them; yields after each block that leaves
        the graph."""
        for node, operator in self._awaiting:
            while operator.has_results:
                self._mark_dirty(node)
                yield from self._emitting(operator.on_results())
                yield from self._propagate()

    # -- state

    def operators(self) -> dict[str, Operator]:
        """The operators of steps that have not ended, by `state_name`."""
        return {node.name: node.operator for node in self._nodes.values() if not node.ended}

    def snapshot(self) -> dict[str, Any]:
        """The state of every stateful step, by `state_name`. Call it between events, after `end_bundles`."""
        states = {node.name: node.operator.snapshot() for node in self._nodes.values() if not node.ended}
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, states: Mapping[str, Any]) -> None:
        """Restore what `snapshot` returned. Call it after `open`, before any event."""
        for node in self._ordered:
            if node.name in states:
                self._mark_dirty(node)
                node.operator.restore(states[node.name])

    def step_statuses(self) -> dict[str, CollectionStatus]:
        """The input watermark of every step, and whether the step has ever been idle and has ended, by `state_name`."""
        return {node.name: CollectionStatus(node.watermark, node.was_idle, node.ended) for node in self._nodes.values()}

    def _emitting(self, emitted: Iterator[Emitted]) -> Iterator[None]:
        for collection, block in emitted:
            if len(block):
                yield from self.pushing(collection, block)
            else:
                yield

    def _propagate(self) -> Iterator[None]:
        """Propagate watermarks: each step in order handles its input watermark, then updates its outputs.

        Only dirty steps are visited: those that had an event or an input update since, and those that have paused.
        """
        paused, self._paused = self._paused, []
        for node in paused:
            self._mark_dirty(node)
        while self._dirty:
            node = self._ordered[heappop(self._dirty)]
            node.clean = True
            if node.ended:
                continue
            operator = node.operator
            yield from self._propagate_sides(node)
            status = node.input_status(self._statuses)
            watermark = max(status.watermark, node.watermark)
            ended = status.ended and all(self._statuses[part].ended for parts in node.sides.values() for part in parts)
            advances = watermark > node.watermark or operator.paused
            if advances or ended or (status.idle and not node.idle):
                yield from self._emitting(operator.finish_bundle())
            node.note_idle(idle=status.idle)
            if advances:
                node.watermark = watermark
                yield from self._emitting(operator.on_watermark(watermark))
            ends = ended and not operator.paused and not node.pending
            if ends:
                yield from self._emitting(operator.finish())
            node.ended = ends
            if operator.paused:
                self._paused.append(node)
            self._update_outputs(node, status.idle)

    def _propagate_sides(self, node: _Node) -> Iterator[None]:
        for name, collections in node.sides.items():
            statuses = [self._statuses[collection] for collection in collections]
            watermark = min(MAX_MICROS if status.ended else status.watermark for status in statuses)
            if watermark > node.side_watermarks.get(name, MIN_MICROS):
                node.side_watermarks[name] = watermark
                yield from self._emitting(node.operator.finish_bundle())
                yield from self._emitting(node.operator.on_side_watermark(name, watermark))

    def _update_outputs(self, node: _Node, idle: bool) -> None:
        hold = MAX_MICROS if node.ended else node.operator.hold()
        for collection in node.outputs:
            before = self._statuses[collection]
            idles = idle and not node.pending
            now = CollectionStatus(max(before.watermark, min(node.watermark, hold)), idles, node.ended)
            if now != before:
                self._set_status(collection, now)

    def _set_status(self, collection: str, status: CollectionStatus) -> None:
        self._statuses[collection] = status
        for node in self._readers.get(collection, ()):
            self._mark_dirty(node)

    def _mark_dirty(self, node: _Node) -> None:
        """Have `_propagate` visit the step: the status of its outputs may change."""
        if node.clean:
            node.clean = False
            heappush(self._dirty, node.place)


def _joined(
    plan: Plan, steps: Iterable[Step], edges: Iterable[Edge], context: Context, outlets: Outlets
) -> tuple[Plan, Iterable[Step], Iterable[Edge], Mapping[int, int]]:
    """The steps and edges as they are in the body of a loop that keeps tables (`with_joins`); and, by a step that is
    left out then, the one that takes its input."""
    if not context.tables.kept:
        return plan, steps, edges, {}
    from tidegate.runners.engine.iteration.kept_join import JoinedSteps, with_joins

    joined = with_joins(JoinedSteps(plan, tuple(steps), tuple(edges), {}), context.tables.kept, outlets)
    return joined.plan, joined.steps, joined.edges, joined.entries


def _operators(
    plan: Plan, steps: Iterable[Step], edges: Iterable[Edge], context: Context, outlets: Outlets
) -> dict[int, Operator]:
    """The operator of each step. Chains that a grouping alone reads fill its tables."""
    operators = {step.id: build(step, plan, context, make_graph=Graph) for step in steps}
    into: dict[int, list[Edge]] = {step.id: [] for step in steps if step.path == "table"}
    if not into or context.wrap is not None:
        return operators
    from tidegate.runners.engine.grouping.operator import fused_inputs

    for edge in edges:
        if edge.target in into:
            into[edge.target].append(edge)
    for target, inputs in into.items():
        operators.update(fused_inputs(operators[target], inputs, operators, plan, outlets))
    return operators


def resume(graph: Graph, statuses: Mapping[str, CollectionStatus]) -> None:
    """Restore what `Graph.step_statuses` returned: elements that were late before the snapshot stay late.

    Call it after `Graph.restore`.
    """
    for node in graph._ordered:
        status = statuses.get(node.name, CollectionStatus())
        node.watermark = node.min_watermark.watermark = status.watermark
        node.ended = status.ended
        # A step that has no status in this task begins with the lowest watermark, too.
        node.note_idle(idle=status.idle or node.name not in statuses)
        graph._mark_dirty(node)
        graph._update_outputs(node, idle=False)


def progress_of(graph: Graph) -> GraphProgress:
    """How far a graph has come, between two events. With a snapshot, it is all that `continue_from` needs."""
    return GraphProgress(dict(graph._statuses), {node.name: node.progress() for node in graph._ordered})


def continue_from(graph: Graph, progress: GraphProgress) -> None:
    """Go on exactly where `progress` was taken from a graph of the same steps. Call it after `Graph.restore`.

    `resume` is for a graph whose inputs start anew, such as that of a restarted worker: it keeps what is late
    late. Here the inputs go on as well, so nothing is sent or handled twice, and idle inputs stay idle.
    """
    graph._statuses.update(progress.statuses)
    for node in graph._ordered:
        node.continue_from(progress.steps[node.name])
        graph._mark_dirty(node)


def state_name(step: Step) -> str:
    """The name that a step's state is stored under: its label, which survives changes elsewhere in the pipeline."""
    return f"{step.label}~parts" if step.phase == "parts" else step.label


def _name(edge: Edge) -> str:
    """The input name that the target operator is given for the blocks of an edge."""
    return edge.received if edge.side is None else side_id(edge.node, edge.side)
