"""A graph of operators: blocks are pushed through the steps that follow, and watermarks are propagated after them.

A runner puts the steps that run in one place into a graph, gives it blocks and marks, and takes what leaves it. After
every event, marks go down the steps in their order: a step whose input watermark has advanced ends its bundle, handles
the watermark, and passes on what it may pass on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from typing import Any, TypeAlias

from tidegate.runners.engine.errors.attribution import close_all, quietly
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.engine.side_inputs.view import side_id
from tidegate.runners.engine.time.watermarks import Mark, MinWatermark
from tidegate.runners.plan import Edge, Plan, Step
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS

Outlet: TypeAlias = Callable[[Block], None]
"""Takes the blocks of a collection that leave the graph: into a sink, or an exchange."""


class _Node:
    """A step at work, and how its input stands."""

    def __init__(self, place: int, step: Step, plan: Plan, operator: Operator) -> None:
        self.place = place
        self.clean = False
        """Whether its marks follow from its inputs and from what it holds, as these stand now."""
        edges = list(plan.inputs(step.id))
        self.name = state_name(step)
        self.operator = operator
        self.inputs = list(dict.fromkeys(edge.collection for edge in edges if edge.side is None))
        self.sides: dict[str, list[str]] = {}
        for edge in edges:
            if edge.side is not None:
                self.sides.setdefault(side_id(edge.node, edge.side), []).append(edge.collection)
        self.reads = list(dict.fromkeys(edge.collection for edge in edges))
        self.outputs = step.outputs
        self.by_clock = type(operator).on_clock is not Operator.on_clock
        self.is_due = type(operator).next_clock is not Operator.next_clock
        self.bounded = all(plan.pipeline.collection(id).bounded for id in step.head.inputs)
        self.watermark = MIN_MICROS
        self.clock = MIN_MICROS
        self.side_marks: dict[str, int] = {}
        self.ended = False
        self.least = MinWatermark()

    def stands(self, marks: Mapping[str, Mark]) -> Mark:
        """How the step's inputs stand together."""
        return self.least.of({name: marks[name] for name in self.inputs})


class Graph:
    """The operators of some steps of a plan. `edges` are those inside; `outlets` take what leaves, by collection."""

    def __init__(
        self,
        plan: Plan,
        steps: Iterable[Step],
        edges: Iterable[Edge],
        context: Context,
        outlets: Mapping[str, list[Outlet]],
    ) -> None:
        self._nodes: dict[int, _Node] = {}
        self._marks: dict[str, Mark] = {}
        self._outlets = outlets
        self._targets: dict[str, list[tuple[_Node, str]]] = {}
        self._readers: dict[str, list[_Node]] = {}
        for step in steps:
            node = self._nodes[step.id] = _Node(len(self._nodes), step, plan, build(step, plan, context))
            if context.around is not None:
                node.operator = context.around(step, node.operator)
            for collection in (*node.reads, *node.outputs):
                self._marks.setdefault(collection, Mark())
            for collection in node.reads:
                self._readers.setdefault(collection, []).append(node)
        self._ordered = list(self._nodes.values())
        self._clocked = [node for node in self._ordered if node.by_clock]
        self._dirty = list(range(len(self._ordered)))
        """The places in order, as a heap, of nodes whose marks may have to go on: each is in it once, or is clean."""
        self._paused: list[_Node] = []
        """Those that had not done all there is to do when they were last visited."""
        for edge in edges:
            self._targets.setdefault(edge.collection, []).append((self._nodes[edge.target], _name(edge)))
        self._opened: list[Operator] = []

    # -- life

    def open(self) -> None:
        """Open every operator: the author's set-up runs here."""
        for node in self._nodes.values():
            self._opened.append(node.operator)
            node.operator.open()

    def close(self) -> None:
        """Close every operator that was opened, also when one fails to."""
        opened, self._opened = self._opened, []
        close_all([operator.close for operator in opened])

    def abandon(self) -> None:
        """Close after a failure, which is what the author must hear of, not what closing says after it."""
        for operator in self._opened:
            quietly(operator.close)
        self._opened.clear()

    # -- events

    def push(self, collection: str, block: Block) -> None:
        """A block of a collection, to everything that reads it."""
        for _ in self.pushing(collection, block):
            pass

    def pushing(self, collection: str, block: Block) -> Iterator[None]:
        """As `push`, handing back control after each block that leaves the graph: one element may give millions."""
        for node, name in self._targets.get(collection, ()):
            self._mark_dirty(node)
            yield from self._emitting(node.operator.process(block, name))
        outlets = self._outlets.get(collection)
        if outlets:
            for outlet in outlets:
                outlet(block)
            yield

    def deliver(self, edge: Edge, block: Block) -> None:
        """A block that has come along one edge, to the step at its end."""
        for _ in self.delivering(edge, block):
            pass

    def delivering(self, edge: Edge, block: Block) -> Iterator[None]:
        """As `deliver`, handing back control after each block that leaves the graph."""
        node = self._nodes[edge.target]
        self._mark_dirty(node)
        return self._emitting(node.operator.process(block, _name(edge)))

    def delivering_keyed(self, edge: Edge, keyed: KeyedBatch) -> Iterator[None]:
        """As `delivering`, for elements that have come by key."""
        node = self._nodes[edge.target]
        self._mark_dirty(node)
        return self._emitting(node.operator.process_keyed(keyed, _name(edge)))

    def mark(self, collection: str, mark: Mark) -> None:
        """A collection from outside now stands like this; a watermark that goes back is ignored."""
        for _ in self.marking(collection, mark):
            pass

    def marking(self, collection: str, mark: Mark) -> Iterator[None]:
        """As `mark`, handing back control after each block that leaves the graph: much may come of one mark."""
        before = self._marks.get(collection, Mark())
        now = Mark(max(before.watermark, mark.watermark), mark.idle, mark.ended)
        if now != before:
            self._now_stands(collection, now)
            yield from self._propagate()

    def end_bundles(self) -> None:
        """Every step ends its bundle, in order: what it holds back for one reaches those after it."""
        for _ in self.ending_bundles():
            pass

    def ending_bundles(self) -> Iterator[None]:
        """As `end_bundles`, handing back control after each block that leaves the graph."""
        for node in self._ordered:
            if not node.ended:
                self._mark_dirty(node)
                yield from self._emitting(node.operator.finish_bundle())

    def tick(self, now: int, *, bounded: bool = True) -> None:
        """Processing time (µs): steps that go by it are told, and what becomes due may let watermarks pass.

        `bounded=False` leaves out steps with bounded input, for which no time passes until that ends.
        """
        for _ in self.ticking(now, bounded=bounded):
            pass

    def ticking(self, now: int, *, bounded: bool = True) -> Iterator[None]:
        """As `tick`, handing back control after each block that leaves the graph."""
        moved = False
        for node in self._clocked:
            if node.ended or now <= node.clock or (node.bounded and not bounded):
                continue
            node.clock = now
            self._mark_dirty(node)
            yield from self._emitting(node.operator.finish_bundle())
            yield from self._emitting(node.operator.on_clock(now))
            moved = True
        if moved:
            yield from self._propagate()

    def next_clock(self) -> int | None:
        """The processing time at which something is due; None for never."""
        due = [at for node in self._ordered if node.is_due and (at := node.operator.next_clock()) is not None]
        return min(due, default=None)

    def standing(self, collection: str) -> Mark:
        """How a collection stands now."""
        return self._marks.get(collection, Mark())

    @property
    def paused(self) -> bool:
        """Whether a step has been asked to pause before it had done all there is to do at the end of its input."""
        return any(node.operator.paused for node in self._ordered if not node.ended)

    def resuming(self) -> Iterator[None]:
        """Let steps that have paused go on, handing back control as the others do."""
        return self._propagate()

    # -- state

    def operators(self) -> dict[str, Operator]:
        """Those of steps that have not ended, by the name their state is kept under."""
        return {node.name: node.operator for node in self._nodes.values() if not node.ended}

    def snapshot(self) -> dict[str, Any]:
        """The state of every step that keeps any, by its name. Taken between events, at the end of bundles."""
        states = {node.name: node.operator.snapshot() for node in self._nodes.values() if not node.ended}
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, states: Mapping[str, Any]) -> None:
        """Go on from what `snapshot` gave; called after `open`, before any event."""
        for node in self._ordered:
            if node.name in states:
                self._mark_dirty(node)
                node.operator.restore(states[node.name])

    def standings(self) -> dict[str, Mark]:
        """The input watermark of every step and whether it has ended, by its name."""
        return {node.name: Mark(node.watermark, ended=node.ended) for node in self._nodes.values()}

    def resume(self, standings: Mapping[str, Mark]) -> None:
        """Let watermarks go on from here: what comes of an earlier time is late, as it was. After `restore`."""
        for node in self._nodes.values():
            at = standings.get(node.name, Mark())
            node.watermark = node.least.watermark = at.watermark
            node.ended = at.ended
            self._mark_dirty(node)
            self._pass_on(node, idle=False)

    def _emitting(self, emitted: Iterator[Emitted]) -> Iterator[None]:
        for collection, block in emitted:
            if len(block):
                yield from self.pushing(collection, block)
            else:
                yield

    def _propagate(self) -> Iterator[None]:
        """Take marks down the steps, in their order: each handles its input's before it passes its own on.

        A step that nothing has happened to since would handle nothing and pass on nothing new, so it is left out,
        unless it has paused: that one goes on.
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
            now = node.stands(self._marks)
            watermark = max(now.watermark, node.watermark)
            ended = now.ended and all(self._marks[part].ended for parts in node.sides.values() for part in parts)
            advances = watermark > node.watermark or operator.paused
            if advances or ended:
                yield from self._emitting(operator.finish_bundle())
            if advances:
                node.watermark = watermark
                yield from self._emitting(operator.on_watermark(watermark))
            if ended and not operator.paused:
                yield from self._emitting(operator.finish())
            node.ended = ended and not operator.paused
            if operator.paused:
                self._paused.append(node)
            self._pass_on(node, now.idle)

    def _propagate_sides(self, node: _Node) -> Iterator[None]:
        for name, collections in node.sides.items():
            marks = [self._marks[collection] for collection in collections]
            watermark = min(MAX_MICROS if mark.ended else mark.watermark for mark in marks)
            if watermark > node.side_marks.get(name, MIN_MICROS):
                node.side_marks[name] = watermark
                yield from self._emitting(node.operator.finish_bundle())
                yield from self._emitting(node.operator.on_side_watermark(name, watermark))

    def _pass_on(self, node: _Node, idle: bool) -> None:
        held = MAX_MICROS if node.ended else node.operator.hold()
        for collection in node.outputs:
            before = self._marks[collection]
            now = Mark(max(before.watermark, min(node.watermark, held)), idle, node.ended)
            if now != before:
                self._now_stands(collection, now)

    def _now_stands(self, collection: str, mark: Mark) -> None:
        self._marks[collection] = mark
        for node in self._readers.get(collection, ()):
            self._mark_dirty(node)

    def _mark_dirty(self, node: _Node) -> None:
        """Something happens to a step: its marks may have to go on."""
        if node.clean:
            node.clean = False
            heappush(self._dirty, node.place)


def state_name(step: Step) -> str:
    """Under which name a step's state is kept: its label, which outlives changes elsewhere in the pipeline."""
    return f"{step.label}~parts" if step.phase == "parts" else step.label


def _name(edge: Edge) -> str:
    """Under which name the step at its end takes what comes along an edge."""
    return edge.collection if edge.side is None else side_id(edge.node, edge.side)
