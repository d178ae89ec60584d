"""The head of a feedback loop in one task: what enters the loop, and what comes round, it gives to the loop's body."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.iteration.backlog import NOTHING, Backlog, BacklogSnapshot, Entry, least
from tidegate.runners.engine.iteration.feedback import FED_BACK, FED_BACK_LATE, TOO_FAR, multiplies
from tidegate.runners.engine.iteration.feedback_loop import FeedbackLoop
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.engine.operator_graph import Graph
from tidegate.runners.engine.time.watermarks import CollectionStatus, MinWatermark
from tidegate.runners.streaming.feedback.channel import FeedbackChannel
from tidegate.runners.streaming.protocol.stream_items import LoopMark
from tidegate.runners.streaming.protocol.worker_messages import LoopReport, LoopTime
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND

_EVERYTHING: Final = "everything"
"""What an incremental snapshot says has changed."""
_PAUSE: Final = SECOND // 100
"""The time between two marks (µs) while elements are under way."""
_LONGEST_PAUSE: Final = 16 * _PAUSE
"""The same while they wait for the clock, or for calls."""


class LoopHead(Operator):
    """The head in the task `index` of `tasks`. It is an operator only in that it has state: the task drives it.

    Marks go round behind the elements. When one has come back on all channels, the next one is sent, and the
    coordinator is told what the earliest is that may be under way (`LoopReport`). It answers with the status of what
    the head emits, which is the same for all heads.
    """

    def __init__(
        self, loop: FeedbackLoop, index: int, tasks: int, context: Context, channels: Iterable[FeedbackChannel]
    ) -> None:
        self.loop = loop
        self.passed = 0
        self.backlog = Backlog(context.memory_budget // 4, lambda: context.temp_dir())
        self.channels = {channel.id: channel for channel in channels}
        self.over = False
        """Whether the input has ended, and nothing is under way."""
        self.sent = 0
        """The last mark that was sent."""
        self.moved = False
        """Whether anything has entered, come round or changed since this was last set to False."""
        self._index = index
        self._context = context
        self._room = loop.node.max_backlog // tasks
        self._inputs = MinWatermark()
        self._returned = {id: LoopMark(loop.head, 0, MIN_MICROS) for id in self.channels}
        """The last mark that has come round on each channel. Before the first one, anything may be under way."""
        self._answered = self._asked = 0
        self._settled = False
        self._entered = NOTHING
        """The least timestamp of what has entered the body since the last mark was sent."""
        self._reported: CollectionStatus | None = None
        self._active = False
        """Whether anything has entered, come round or changed since the last mark was sent."""
        self._status = CollectionStatus()
        self._pause = _PAUSE
        self._sent_at: int | None = None
        for channel in self.channels.values():
            channel.attach(self)

    # -- elements

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        raise AssertionError("the task drives the head of a loop")

    def add(self, block: Block, hops: int) -> None:
        self._active = self.moved = True
        try:
            self.backlog.add(block, hops)
        except RunError as error:
            raise located(multiplies(error, len(self.backlog)), self.loop.label, self.loop.node.where) from error

    def later(self) -> Backlog:
        return Backlog(self._context.memory_budget // 8, lambda: self._context.temp_dir())

    def pass_checkpoint(self, checkpoint: int) -> None:
        """The snapshot of a checkpoint has been taken, or it was aborted."""
        self.passed = max(self.passed, checkpoint)
        for channel in self.channels.values():
            channel.release(checkpoint)

    @property
    def is_closed(self) -> bool:
        """Whether so much has been fed back that new input waits."""
        return self.backlog.size > self._room

    def entering(self, block: Block, graph: Graph) -> Iterator[None]:
        """Give elements of the input to the body."""
        self._enter(block)
        return graph.pushing(self.loop.node.outputs[0].collection, block)

    def take(self) -> Entry:
        """The next elements that have been fed back, and how often they have gone round."""
        return self.backlog.take(self._context.block_size)

    def emitting(self, entry: Entry, graph: Graph) -> Iterator[None]:
        """Give elements that have been fed back to the body, unless they have gone round too often."""
        hops, block = entry
        node, label = self.loop.node, self.loop.label
        self._context.count(label, FED_BACK, len(block))
        if least(block) < self._status.watermark:
            late = sum(micros < self._status.watermark for micros in block.timestamp_column())
            self._context.count(label, FED_BACK_LATE, late)
        if node.max_hops is not None and hops > node.max_hops:
            self._context.count(label, TOO_FAR, len(block))
            return graph.pushing(node.outputs[1].collection, block)
        self._enter(block)
        return graph.pushing(node.outputs[0].collection, block)

    def _enter(self, block: Block) -> None:
        self._active = self.moved = True
        self._entered = min(self._entered, least(block))

    # -- time

    def returned(self, channel: ChannelId, mark: LoopMark) -> None:
        self._returned[channel] = mark

    def channel_ended(self, channel: ChannelId) -> None:
        del self._returned[channel]

    def ask(self, number: int) -> None:
        """Send the mark with that number as soon as the one before is back."""
        self._asked = max(self._asked, number)

    def next_mark(self, graph: Graph) -> int | None:
        """When (µs of the monotonic clock) to send the next mark, unless something changes; None: not for now."""
        if self.over or self._answered < self.sent or any(m.number < self.sent for m in self._returned.values()):
            return None
        if self._asked > self.sent or self._sent_at is None:
            return 0
        if self._active or len(self.backlog) or self._input(graph) != self._reported:
            return self._sent_at + _PAUSE
        return None if self._settled else self._sent_at + self._pause

    def send(self, graph: Graph, now: int) -> LoopReport:
        """Count a mark as sent; returns what the coordinator is to know."""
        status = self._input(graph)
        quiet = not self._active and status == self._reported
        self._pause = min(2 * self._pause, _LONGEST_PAUSE) if quiet else _PAUSE
        low = min(self.backlog.low, self._entered, *(mark.low for mark in self._returned.values()))
        if self.sent == 0:
            low = MIN_MICROS
        entering = {name: status for mark in self._returned.values() for name, status in mark.entering}
        moved = self._active or len(self.backlog) > 0
        self.sent += 1
        self._sent_at, self._reported, self._entered, self._active = now, status, NOTHING, False
        inputs = ((f"{self._index}", status), *entering.items())
        clock = min((mark.clock for mark in self._returned.values()), default=MAX_MICROS)
        return LoopReport(self.loop.head, self._index, self.sent, low, inputs, moved, clock)

    def advance(self, time: LoopTime, graph: Graph) -> Iterator[None]:
        """The coordinator has answered: pass the status on."""
        self._answered, self._settled = time.number, time.settled
        return self._publishing(time.status, graph)

    def input_changed(self, graph: Graph) -> Iterator[None]:
        """The status of the input has changed: if it isn't idle any more, nor is what the head emits."""
        if self._status.idle and not self._input(graph).idle:
            yield from self._publishing(CollectionStatus(self._status.watermark), graph)

    def _publishing(self, status: CollectionStatus, graph: Graph) -> Iterator[None]:
        if self.over:
            return
        idle = status.idle and self._input(graph).idle
        now = CollectionStatus(max(status.watermark, self._status.watermark), idle, status.ended)
        self.over = status.ended
        if now != self._status:
            self._active = self.moved = True
            self._status = now
            for out in self.loop.node.outputs:
                yield from graph.updating(out.collection, now)

    def _input(self, graph: Graph) -> CollectionStatus:
        return self._inputs.of({collection: graph.status(collection) for collection in self.loop.input})

    # -- state

    def snapshot(self, keys: Collection[Any] | None = None) -> BacklogSnapshot:
        return BacklogSnapshot(self.backlog.stored(), self._status.watermark, self._index)

    def restore(self, state: BacklogSnapshot) -> None:
        for hops, columns in state.blocks:
            self.add(Block(*columns), hops)
        self._status = CollectionStatus(state.watermark)

    def touched(self) -> list[Collection[Any]] | None:
        return None if self.backlog.size > _LARGE else [[_EVERYTHING]]

    def close(self) -> None:
        self.backlog.clear()


_LARGE: Final = 1_000_000
"""How many bytes of a backlog are worth a process of its own that writes them to a checkpoint."""
