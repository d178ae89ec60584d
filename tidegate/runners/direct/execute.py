"""One run on the direct runner: all steps form one graph, and each block passes through it before the next is read.

Bounded sources are read to their end first, region by region; then the unbounded ones are polled in turn.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from tidegate.runners.direct.feeds import Event, Feed, feed
from tidegate.runners.direct.writing import CommittingWriter, commit_all
from tidegate.runners.engine.errors.attribution import quietly
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph, Outlet, state_name
from tidegate.runners.engine.sources.split_reader import WATERMARKED
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Plan, Step
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import Feedback, TestStream
from tidegate.sdk.runner import Enough
from tidegate.sdk.time import SECOND

if TYPE_CHECKING:
    from tidegate.runners.engine.feedback_graph import FeedbackGraph

_LONG: Final = 3600.0
"""How many seconds a run waits at most before it looks at the clock again."""


class StopEvent(threading.Event):
    """Tells a run to stop. `woken` is set too, and by everything else for which a waiting run has to wake."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = threading.Event()

    def set(self) -> None:
        super().set()
        self.woken.set()


class Execution:
    """Executes a plan. `run` returns when all input has ended, `stop` is set, `run_for` seconds have passed, or
    `enough` reports that no more elements are wanted.

    `run` commits the sinks before it returns; if it raises, it aborts them. With `enough`, the first block that is read
    has as many elements as are wanted, and later blocks double in size up to `block_size`.
    """

    def __init__(
        self,
        plan: Plan,
        context: Context,
        clock: Clock,
        *,
        streaming: bool,
        block_size: int,
        enough: Enough | None = None,
    ) -> None:
        self.plan = plan
        self.context = context
        self.clock = clock
        self.streaming = streaming
        self.stop = StopEvent()
        self._enough = None if enough is None else enough.asked
        self._block_size = block_size
        self._next_size = block_size if enough is None else min(enough.elements, block_size)
        run_id = os.urandom(6).hex()
        self._sinks = [CommittingWriter(step, run_id) for step in plan.steps if step.is_sink]
        outlets: dict[str, list[Outlet]] = {}
        for writing in self._sinks:
            for edge in plan.inputs(writing.step.id):
                outlets.setdefault(edge.collection, []).append(writing.write)
        inner = [step for step in plan.steps if not (step.is_source or step.is_sink)]
        ids = {step.id for step in inner}
        self._inner = inner
        context.wake = self.stop.woken.set
        edges = [edge for edge in plan.edges if edge.target in ids]
        self._loops: FeedbackGraph | None = None
        if any(isinstance(step.head, Feedback) for step in inner):
            from tidegate.runners.engine.feedback_graph import FeedbackGraph  # few pipelines need it

            self._loops = FeedbackGraph(plan, inner, edges, context, outlets)
        self._graph = self._loops or Graph(plan, inner, edges, context, outlets)
        self._deadline: int | None = None
        """When elements stop going round in loops, by the monotonic clock."""

    def run(self, run_for: float | None = None) -> None:
        """Open the operators, read all input, and commit the sinks."""
        feeds: list[Feed] = []
        self._deadline = None if run_for is None else self.clock.monotonic() + int(run_for * SECOND)
        try:
            self._graph.open()
            for step in self._sources(live=False):
                if not self._should_stop():
                    self._read_to_end(step, feeds)
            self._read_live(run_for, feeds)
            commit_all(self._sinks, self.context.metrics)
        except BaseException:
            for writing in self._sinks:
                writing.abort()
            self._graph.abandon()
            raise
        finally:
            for source in feeds:
                quietly(source.close)
        self._graph.close()

    def watermarks(self) -> dict[str, int]:
        """The input watermark of each step (µs), by label. Any thread may call this."""
        statuses = self._graph.step_statuses()
        return {node.label: statuses[state_name(step)].watermark for step in self._inner for node in step.nodes}

    def _should_stop(self) -> bool:
        if self._enough is not None and self._enough():
            self.stop.set()
        return self.stop.is_set()

    def _sources(self, *, live: bool) -> Iterator[Step]:
        for region in self.plan.regions:
            for step in self.plan.steps_of(region):
                if step.is_source:
                    bounded = self.plan.pipeline.collection(step.head.output()).bounded
                    if live == (self.streaming or not bounded):
                        yield step

    # -- calls outside the pipeline

    def _await_calls(self) -> None:
        """Wait until a call has returned. While a step is blocked, it must be one of that step's."""
        while (self._graph.stuck or not self._graph.has_results) and not self._has_enough():
            self.stop.woken.wait()
            self.stop.woken.clear()

    def _emit_results(self, *, settle: bool = False) -> None:
        """Emit the results of calls that have returned. Wait for others while there is no room for further calls;
        to `settle`, wait for all."""
        while self._graph.calls_out and not self._has_enough():
            if self._graph.has_results:
                self._drive(self._graph.emitting_results())
            elif self._graph.blocked or (settle and self._graph.pending):
                self._await_calls()
            else:
                return

    def _has_enough(self) -> bool:
        return self._enough is not None and self._should_stop()

    def _feed(self, step: Step) -> Feed:
        return feed(step, self.clock, inline=self.context.inline != "off")

    def _read_to_end(self, step: Step, feeds: list[Feed]) -> None:
        source = self._feed(step)
        feeds.append(source)
        while not source.ended:
            if self._should_stop():
                return
            event = source.poll(self._next_read_size())
            # A step downstream may have unbounded input as well: its processing-time timers run already.
            if self._graph.clocked or self._loops is not None:
                self._drive(self._graph.ticking(self.clock.now(), bounded=False))
            if event.block is not None:
                self._push_block(step, event.collection, event.block)
            self._emit_results()
            if event.block is None and event.wait > 0 and not source.ended:
                self.clock.wait(self._seconds_to_next_event(event.wait, None), self.stop.woken)
                self._emit_results()
                self.stop.woken.clear()
        for collection in step.outputs:
            self._drive(self._graph.updating(collection, CollectionStatus(ended=True)))
        self._emit_results(settle=True)

    def _read_live(self, run_for: float | None, feeds: list[Feed]) -> None:
        """Poll the unbounded sources in turn until all have ended or the run stops."""
        live = [(step, self._feed(step)) for step in self._sources(live=True)]
        watermarked: set[str] = set()
        feeds += [source for _, source in live]
        deadline = None if run_for is None else self.clock.monotonic() + int(run_for * SECOND)
        while live and not self._should_stop() and (deadline is None or self.clock.monotonic() < deadline):
            waits: list[float] = []
            for step, source in live:
                event = source.poll(self._next_read_size())
                self._handle_event(step, event)
                self._emit_results()
                if source.is_watermarked and step.label not in watermarked:
                    watermarked.add(step.label)
                    self.context.count(step.label, WATERMARKED)
                waits.append(event.wait)
            live = [(step, source) for step, source in live if not source.ended]
            if live and min(waits) > 0:
                self.clock.wait(self._seconds_to_next_event(min(waits), deadline), self.stop.woken)
                self._emit_results()
                self.stop.woken.clear()
        self._emit_results(settle=True)
        self._wait_for_loops(deadline)

    def _wait_for_loops(self, deadline: int | None) -> None:
        """Wait until no element is under way in a loop whose input has ended, or the run stops."""
        while self._loops and self._loops.in_loops and self._graph.next_clock() is not None and not self._should_stop():
            if deadline is not None and self.clock.monotonic() >= deadline:
                return
            self.clock.wait(self._seconds_to_next_event(_LONG, deadline), self.stop.woken)
            self.stop.woken.clear()
            self._drive(self._graph.ticking(self.clock.now(), bounded=False))
            self._emit_results(settle=True)

    def _seconds_to_next_event(self, wait: float, deadline: int | None) -> float:
        """Seconds until a timer fires or the deadline passes, at most `wait`."""
        waits = [wait]
        if (timer := self._graph.next_clock()) is not None:
            waits.append((timer - self.clock.now()) / SECOND)
        if deadline is not None:
            waits.append((deadline - self.clock.monotonic()) / SECOND)
        return max(0.0, min(waits))

    def _handle_event(self, step: Step, event: Event) -> None:
        self._drive(self._graph.ticking(self.clock.now()))
        if event.block is not None:
            self._push_block(step, event.collection, event.block)
        if event.status is not None:
            self._drive(self._graph.updating(event.collection, event.status))
        if isinstance(step.head, TestStream):
            self._drive(self._graph.ending_bundles())
            self._emit_results(settle=True)

    def _push_block(self, step: Step, collection: str, block: Block) -> None:
        self.context.count(step.label, "elements_out", len(block))
        self._drive(self._graph.pushing(collection, block))

    def _drive(self, event: Iterator[None]) -> None:
        """Run an event of the graph to its end, and let what it has fed back go round."""
        self._drive_once(event)
        if self._loops is not None:
            self._go_round(self._loops)

    def _go_round(self, loops: FeedbackGraph) -> None:
        """Let what has been fed back go round until nothing is left, or the run stops: it may do so without end."""
        if self._is_over():  # what goes round by calls begins anew with each result
            return
        for _ in loops.going_round():
            if self._is_over():
                return
            if loops.stuck:
                self._await_calls()

    def _is_over(self) -> bool:
        """Whether the run stops, or its deadline has passed: then it stops."""
        if self._deadline is not None and self.clock.monotonic() >= self._deadline:
            self.stop.set()
        return self._should_stop()

    def _drive_once(self, event: Iterator[None]) -> None:
        """Run an event of the graph to its end; once `enough` is satisfied, stop, and skip all later events."""
        if self._enough is None:
            for _ in event:
                if self._graph.stuck:
                    self._await_calls()
        elif not self._should_stop():
            for _ in event:
                if self._should_stop():
                    return
                if self._graph.stuck:
                    self._await_calls()

    def _next_read_size(self) -> int:
        """How many elements the next poll asks a source for."""
        size, self._next_size = self._next_size, min(self._next_size * 2, self._block_size)
        return size
