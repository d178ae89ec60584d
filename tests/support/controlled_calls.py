"""Asynchronous steps whose calls end when the test ends them, and an event loop with virtual time."""

from __future__ import annotations

import asyncio
import pickle
import selectors
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tidegate as tg
from tidegate.runners.engine.asynchronous.operator import AsyncOperator
from tidegate.runners.engine.asynchronous.outcomes import Completed, Item, Outcome
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.engine.operator_graph import Graph, resume
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Step
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.async_calls import AsyncCalls
from tidegate.sdk.time import MIN_MICROS
from tidegate.testing import TestStream


class ControlledCaller:
    """Collects calls; `end` completes one as the thread of an event loop would."""

    def __init__(self, fn: Any, calls: AsyncCalls, label: str, wake: Callable[[], None]) -> None:
        self.fn = fn
        self.open: dict[int, Any] = {}
        """The argument of each call that has not ended, by its id."""
        self.most = 0
        """The greatest number of open calls so far."""
        self.closed = False
        self._items: list[Item] = []
        self._wake = wake

    @property
    def has_items(self) -> bool:
        return bool(self._items)

    def submit(self, calls: list[tuple[int, Any]]) -> None:
        self.open.update(calls)
        self.most = max(self.most, len(self.open))

    def take(self) -> list[Item]:
        items, self._items = self._items, []
        return items

    def close(self) -> None:
        self.closed = True

    def end(self, number: int) -> None:
        """End an open call, the oldest of which is number 0, with what its function returns or raises."""
        id = list(self.open)[number]
        argument = self.open.pop(id)
        try:
            outcome = Outcome(self.fn(argument))
        except Exception as error:
            outcome = Outcome(error=error)
        self._items.append(Completed(id, outcome))
        self._wake()


@dataclass
class Observed:
    """An element that left the graph, with the output watermark at that instant."""

    value: Any
    micros: int
    windows: tuple[Any, ...]
    watermark: int


@dataclass
class Driven:
    """The steps of a pipeline behind its test stream, driven as the streaming runner does, by the test.

    `apply` makes the collections of interest from the stream; no step reads them.
    """

    apply: Callable[[Any], tuple[tg.PCollection[Any], ...]]
    block_size: int = 4096
    callers: list[ControlledCaller] = field(default_factory=list)
    seen: dict[str, list[Observed]] = field(default_factory=dict)
    must_buffer: bool = False
    woken: int = 0

    def __post_init__(self) -> None:
        pipeline = tg.Pipeline()
        source = pipeline | TestStream().advance_watermark_to_infinity()
        self.outputs = [pcoll.id for pcoll in self.apply(source)]
        planned = plan(pipeline.sealed(values=True), Traits(parallel=False, streaming=True, drops_unread=False))
        steps = [step for step in planned.steps if not step.is_source]
        ids = {step.id for step in steps}
        self.input = source.id
        directory = Path(tempfile.gettempdir())
        self.context = Context(
            1 << 26,
            lambda: directory,
            block_size=self.block_size,
            wrap=self._controlled,
            wake=self._wake,
            must_buffer=lambda: self.must_buffer,
        )
        self.graph = Graph(
            planned,
            steps,
            (edge for edge in planned.edges if edge.target in ids),
            self.context,
            {id: [self._outlet(id)] for id in self.outputs},
        )
        self.graph.open()

    def _wake(self) -> None:
        self.woken += 1

    def _controlled(self, step: Step, operator: Operator) -> Operator:
        if not isinstance(operator, AsyncOperator):
            return operator

        def make(*args: Any) -> ControlledCaller:
            self.callers.append(ControlledCaller(*args))
            return self.callers[-1]

        exits = {(step.label, out.tag): out.collection for out in step.tail.outputs[1:]}
        return type(operator)(operator.link, self.context, operator.main, exits=exits, make_caller=make)

    def _outlet(self, id: str) -> Callable[[Block], None]:
        seen = self.seen.setdefault(id, [])

        def outlet(block: Block) -> None:
            watermark = self.graph.status(id).watermark
            columns = zip(block.values, block.timestamp_column(), block.window_list(), strict=True)
            seen.extend(Observed(*element, watermark) for element in columns)

        return outlet

    @property
    def caller(self) -> ControlledCaller:
        """The caller of the only asynchronous step."""
        (caller,) = self.callers
        return caller

    def found(self, number: int = 0) -> list[Any]:
        """The values in a collection."""
        return [each.value for each in self.seen[self.outputs[number]]]

    def watermark(self, number: int = 0) -> int:
        """The watermark of a collection."""
        return self.graph.status(self.outputs[number]).watermark

    def push(self, values: Sequence[Any], timestamps: Sequence[int] | int = MIN_MICROS) -> None:
        """Process a block, for which there must be room."""
        for _ in self.graph.pushing(self.input, Block(values, timestamps)):
            pass

    def advance(self, micros: int, *, idle: bool = False, ended: bool = False) -> None:
        """Advance the watermark of the input."""
        self.graph.update(self.input, CollectionStatus(micros, idle, ended))

    def end(self, *numbers: int) -> None:
        """End calls (see `ControlledCaller.end`), and emit the results that are ready."""
        for number in numbers:
            self.caller.end(number)
        self.settle()

    def settle(self) -> None:
        """Emit the results that have arrived."""
        while self.graph.has_results:
            for _ in self.graph.emitting_results():
                pass

    def restarted(self) -> Driven:
        """A new instance restored from a snapshot of this one, with the output of this one so far."""
        self.graph.end_bundles()
        states = pickle.loads(pickle.dumps(self.graph.snapshot(), 5))
        other = Driven(self.apply, self.block_size)
        other.graph.restore(states)
        resume(other.graph, self.graph.step_statuses())
        for id, seen in self.seen.items():
            other.seen[id].extend(seen)
        other.context.metrics.merge(self.context.metrics)
        return other


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer whenever nothing is ready. It must not await outside events."""

    def __init__(self) -> None:
        super().__init__(_NeverWaiting(self))
        self.passed = 0.0

    def time(self) -> float:
        return self.passed


class _NeverWaiting(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._virtual = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("the loop waits for something that never happens")
        found = super().select(0)
        if not found:
            self._virtual.passed += max(0.0, timeout)
        return found
