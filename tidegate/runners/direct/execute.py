"""One run on the direct runner: operators in one process, each block pushed through before the next event is taken.

Bounded collections come first, region by region, each read to its end; then the live feeds are polled in turn. After
every event, marks travel down the plan in the order of its steps: a step whose input watermark has advanced ends its
bundle, handles the watermark, and passes on what it may pass on.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

from tidegate.runners.direct.feeds import Event, Feed, Mark, feed
from tidegate.runners.direct.writing import Writing, commit_all, quietly
from tidegate.runners.engine.build import build
from tidegate.runners.engine.clock import Clock
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.plan import Plan, Step
from tidegate.sdk.block import Block
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND


class _Node:
    """A step at work: its operator, or its sink, and how its input stands."""

    def __init__(self, step: Step, plan: Plan) -> None:
        self.step = step
        self.operator: Operator | None = None
        self.writing: Writing | None = None
        edges = list(plan.inputs(step.id))
        self.inputs = [edge.collection for edge in edges if edge.side is None]
        self.sides = list(dict.fromkeys(edge.collection for edge in edges if edge.side is not None))
        self.outputs = [output.collection for output in step.tail.outputs]
        self.watermark = MIN_MICROS
        self.side_marks: dict[str, int] = {}
        self.ended = False
        self.returning: set[str] = set()

    def stands(self, marks: dict[str, Mark]) -> tuple[int, bool, bool]:
        """The input's watermark, whether it is idle and whether it has ended (SEMANTICS, Time).

        It is the minimum over inputs that are not idle; one that comes back counts again once it has caught up.
        """
        live = [(name, marks[name]) for name in self.inputs if not marks[name].ended]
        if not live:
            return MAX_MICROS, False, True
        counting = []
        for name, mark in live:
            if mark.idle:
                self.returning.add(name)
            elif name in self.returning and mark.watermark < self.watermark:
                continue
            else:
                self.returning.discard(name)
                counting.append(mark.watermark)
        if not counting:
            return self.watermark, all(mark.idle for _, mark in live), False
        return max(self.watermark, min(counting)), False, False


class Execution:
    """A plan at work. `run` returns when all input has ended, or `stop` is set, or `run_for` seconds are over.

    What was written is committed then. If it raises, nothing is left behind.
    """

    def __init__(self, plan: Plan, context: Context, clock: Clock, *, streaming: bool) -> None:
        self.plan = plan
        self.context = context
        self.clock = clock
        self.streaming = streaming
        self.stop = threading.Event()
        self.run_id = uuid.uuid4().hex[:12]
        self._nodes: dict[int, _Node] = {}
        self._targets: dict[str, list[_Node]] = {}
        self._marks: dict[str, Mark] = {}

    def run(self, run_for: float | None = None) -> None:
        """Everything, from opening the operators to committing the sinks."""
        opened: list[Operator] = []
        feeds: list[Feed] = []
        try:
            self._build(opened)
            for step in self._sources(live=False):
                self._read_to_end(step, feeds)
            self._read_live(run_for, feeds)
            commit_all(node.writing for node in self._nodes.values() if node.writing is not None)
        except BaseException:
            for node in self._nodes.values():
                if node.writing is not None:
                    node.writing.abort()
            for operator in opened:
                quietly(operator.close)
            raise
        finally:
            for part in feeds:
                quietly(part.close)
        for operator in opened:
            operator.close()

    def _build(self, opened: list[Operator]) -> None:
        for step in self.plan.steps:
            for output in step.tail.outputs:
                self._marks[output.collection] = Mark()
            if step.is_source:
                continue
            node = self._nodes[step.id] = _Node(step, self.plan)
            if step.is_sink:
                node.writing = Writing(step, self.run_id)
            else:
                node.operator = build(step, self.plan, self.context)
                opened.append(node.operator)
                node.operator.open()
        for edge in self.plan.edges:
            self._targets.setdefault(edge.collection, []).append(self._nodes[edge.target])

    # -- input

    def _sources(self, *, live: bool) -> Iterator[Step]:
        for region in self.plan.regions:
            for step in self.plan.steps:
                if step.stage in region and step.is_source:
                    bounded = self.plan.pipeline.collection(step.head.output()).bounded
                    if live == (self.streaming or not bounded):
                        yield step

    def _read_to_end(self, step: Step, feeds: list[Feed]) -> None:
        source = feed(step, self.clock, self.context.block_size)
        feeds.append(source)
        while not source.ended:
            event = source.poll()
            if event.block is not None:
                self._enter(step, event.collection, event.block)
        for output in step.tail.outputs:
            self._marks[output.collection] = Mark(ended=True)
        self._settle()

    def _read_live(self, run_for: float | None, feeds: list[Feed]) -> None:
        """Poll the live feeds in turn until all have ended, or the run is told to stop."""
        live = [(step, feed(step, self.clock, self.context.block_size)) for step in self._sources(live=True)]
        feeds += [source for _, source in live]
        deadline = None if run_for is None else self.clock.now() + int(run_for * SECOND)
        while live and not self.stop.is_set() and (deadline is None or self.clock.now() < deadline):
            waits: list[float] = []
            for step, source in live:
                event = source.poll()
                self._take(step, event)
                waits.append(event.wait or 0.0)
            live = [(step, source) for step, source in live if not source.ended]
            if live and min(waits) > 0:
                self.clock.wait(self._until_next(min(waits), deadline), self.stop)

    def _until_next(self, wait: float, deadline: int | None) -> float:
        """How long nothing need happen, at most `wait` seconds."""
        due = [at for node in self._nodes.values() if node.operator and (at := node.operator.next_clock()) is not None]
        instants = due if deadline is None else [*due, deadline]
        return max(0.0, min([wait, *((at - self.clock.now()) / SECOND for at in instants)]))

    def _take(self, step: Step, event: Event) -> None:
        if event.block is not None:
            self._enter(step, event.collection, event.block)
        before = self._marks[event.collection]
        if event.mark is not None and event.mark != before:
            watermark = max(before.watermark, event.mark.watermark)
            self._marks[event.collection] = Mark(watermark, event.mark.idle, event.mark.ended)
            self._settle()
        self._tick()

    def _enter(self, step: Step, collection: str, block: Block) -> None:
        self.context.count(step.label, "elements_out", len(block))
        self._push(collection, block)

    # -- events through the plan

    def _push(self, collection: str, block: Block) -> None:
        for node in self._targets.get(collection, ()):
            if node.writing is not None:
                node.writing.write(block)
            else:
                assert node.operator is not None
                self._emit(node.operator.process(block, collection))

    def _emit(self, emitted: Iterator[Emitted]) -> None:
        for collection, block in emitted:
            self._push(collection, block)

    def _settle(self) -> None:
        """Take marks down the plan: a step handles its input's before it passes its own on."""
        for node in self._nodes.values():
            if node.ended:
                continue
            watermark, idle, ended = node.stands(self._marks)
            operator = node.operator
            if operator is not None:
                self._settle_sides(node, operator)
                if watermark > node.watermark or ended:
                    self._emit(operator.finish_bundle())
                if watermark > node.watermark:
                    node.watermark = watermark
                    self._emit(operator.on_watermark(watermark))
                if ended:
                    self._emit(operator.finish())
            node.watermark = max(node.watermark, watermark)
            node.ended = ended
            self._pass_on(node, idle)

    def _settle_sides(self, node: _Node, operator: Operator) -> None:
        for collection in node.sides:
            mark = self._marks[collection]
            watermark = MAX_MICROS if mark.ended else mark.watermark
            if watermark > node.side_marks.get(collection, MIN_MICROS):
                node.side_marks[collection] = watermark
                self._emit(operator.finish_bundle())
                self._emit(operator.on_side_watermark(collection, watermark))

    def _pass_on(self, node: _Node, idle: bool) -> None:
        held = MAX_MICROS if node.operator is None or node.ended else node.operator.hold()
        for collection in node.outputs:
            before = self._marks[collection]
            mark = Mark(max(before.watermark, min(node.watermark, held)), idle, node.ended)
            if mark != before:
                self._marks[collection] = mark

    def _tick(self) -> None:
        """Processing time has moved: what is due on it happens, and may let watermarks pass."""
        now = self.clock.now()
        moved = False
        for node in self._nodes.values():
            operator: Any = node.operator
            if operator is None or node.ended:
                continue
            due = operator.next_clock()
            if due is not None and due <= now:
                self._emit(operator.finish_bundle())
                self._emit(operator.on_clock(now))
                moved = True
        if moved:
            self._settle()
