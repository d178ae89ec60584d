"""The part of a feedback loop that one task runs: it passes marks on, behind everything that was ahead of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.iteration.backlog import NOTHING, least
from tidegate.runners.engine.iteration.feedback import made_earlier
from tidegate.runners.engine.iteration.feedback_loop import FeedbackLoop
from tidegate.runners.engine.operator import Operator
from tidegate.runners.engine.operator_graph import Graph
from tidegate.runners.streaming.network.channels import OutputChannel
from tidegate.runners.streaming.protocol.stream_items import LoopMark
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import MAX_MICROS


@dataclass(slots=True)
class LoopPart:
    """The part of one task. `operators`: those of the body that it has; `entering`: what they receive from outside;
    `passed`: the last mark on each channel on which elements of the loop come, and `outputs`: those on which they go.

    A mark is passed on when it has come on all these channels, and so has everything ahead of it. That holds no channel
    still.
    """

    loop: FeedbackLoop
    task: str
    operators: Sequence[Operator]
    entering: Sequence[str]
    arrived: dict[ChannelId, int]
    outputs: Sequence[OutputChannel]
    begun: int = 0
    """The last mark that the coordinator has had the heads send."""
    _taken: int = NOTHING
    """The least timestamp of what the task has taken and what it may emit is made of, if no step keeps elements."""
    _passed: int = 0
    _marks: list[LoopMark] = field(default_factory=list)
    """Those that have come, and have not been passed on."""

    def take(self, block: Block) -> None:
        """The task takes elements."""
        self._taken = min(self._taken, least(block))

    def check(self, block: Block, watermark: int) -> None:
        """Check elements that go on in the loop, at this watermark. RunError if they were made earlier."""
        low = least(block)
        if low < watermark and low < self._taken and not self.loop.keeps_elements:
            raise located(made_earlier(low), self.loop.label, self.loop.node.where)

    def add(self, channel: ChannelId, mark: LoopMark) -> None:
        """A mark has come on a channel."""
        self.arrived[channel] = mark.number
        self._marks.append(mark)

    def end(self, channel: ChannelId) -> None:
        """Nothing more will come on a channel."""
        self.arrived.pop(channel, None)

    @property
    def due(self) -> bool:
        """Whether there is a mark to pass on. Where no elements of the loop come, that is what the heads send."""
        return self._next > self._passed

    @property
    def _next(self) -> int:
        return min(self.arrived.values(), default=self.begun)

    def passing(self, graph: Graph) -> Iterator[None]:
        """End the bundles, and pass the mark on."""
        number = self._next
        yield from graph.ending_bundles()
        marks = [mark for mark in self._marks if mark.number <= number]
        self._marks = [mark for mark in self._marks if mark.number > number]
        self._passed = number
        self.send(number, marks, graph)

    def send(self, number: int, marks: Sequence[LoopMark], graph: Graph) -> None:
        """Send a mark, with what the marks before it have met, and what is kept here."""
        low = min((operator.under_way() for operator in self.operators), default=MAX_MICROS)
        self._taken = NOTHING if low == MAX_MICROS else low
        low = min([self._taken, *(mark.low for mark in marks)])
        clocks = [at for operator in self.operators if (at := operator.next_clock()) is not None]
        clock = min([MAX_MICROS, *clocks, *(mark.clock for mark in marks)])
        entering = {name: status for mark in marks for name, status in mark.entering}
        for collection in self.entering:
            entering[f"{collection} in {self.task}"] = graph.status(collection)
        for channel in self.outputs:
            if not channel.ended:
                channel.event(LoopMark(self.loop.head, number, low, tuple(entering.items()), clock))
