"""The receiving end of a channel that leads back to the head of a loop. It takes everything at once and grants credit.

So no task in a loop waits for the head, which waits for them: on each circle of channels there is one that is never
full. What has come is in the backlog of the head, which goes to disk beyond its budget.

An unaligned barrier may come round before the head has taken its own snapshot, through tasks that have got it from
another head. What follows it is no part of that snapshot, so it is kept apart until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from tidegate.runners.checkpoint.task_ids import ChannelId
from tidegate.runners.engine.iteration.backlog import Backlog
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.network.channels import InputChannel
from tidegate.runners.streaming.protocol.stream_items import Barrier, Hops, Item, LoopMark
from tidegate.sdk.data.block import Block


class Receiver(Protocol):
    """The head of a loop."""

    passed: int
    """The last checkpoint whose snapshot it has taken, or that was aborted."""

    def later(self) -> Backlog:
        """A place for elements that are kept apart."""

    def add(self, block: Block, hops: int) -> None:
        """Elements have been fed back, and have gone round so often."""

    def returned(self, channel: ChannelId, mark: LoopMark) -> None:
        """A mark has come round on a channel."""

    def channel_ended(self, channel: ChannelId) -> None:
        """Nothing more will come on a channel."""


class FeedbackChannel(InputChannel):
    """The receiving end. Until its head is there, what arrives waits, and gets no credit."""

    __slots__ = ("_barrier", "_early", "_ended", "_hops", "_later", "_marks", "_note", "_receiver")

    def __init__(self, id: ChannelId, credit: int, grant: Callable[[int], None]) -> None:
        super().__init__(id, credit, grant)
        self._receiver: Receiver | None = None
        self._hops = 0
        self._barrier = 0
        """The last checkpoint whose barrier has come round."""
        self._ended = False
        self._early = 0
        """The checkpoint whose barrier has come before the head has taken its snapshot; 0 for none."""
        self._later: Backlog | None = None
        self._marks: list[LoopMark] = []
        """What has followed that barrier."""
        self._note: Callable[[Block, int], None] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self._ended

    def attach(self, receiver: Receiver) -> None:
        """Give the head what has arrived, and all that will."""
        self._receiver = receiver
        waiting = list(self._items)
        self._items.clear()
        self.put(waiting)

    def put(self, items: Iterable[Item]) -> None:
        receiver = self._receiver
        if receiver is None:
            self._items.extend(items)
            return
        blocks = 0
        for item in items:
            match item:
                case Block():
                    blocks += 1
                    if self._early:
                        self._later = self._later or receiver.later()
                        self._later.add(item, self._hops + 1)
                        continue
                    if self._note is not None:
                        self._note(item, self._hops + 1)
                    receiver.add(item, self._hops + 1)
                case Hops(number=number):
                    self._hops = number
                case LoopMark() if self._early:
                    self._marks.append(item)
                case LoopMark():
                    receiver.returned(self.id, item)
                case Barrier(checkpoint=number, kind=kind) if kind != "quiescence":
                    self.release(number - 1)  # an earlier checkpoint was aborted, and that message has not arrived yet
                    self._barrier = number
                    self._end_recording(number)
                    self._early = number if number > receiver.passed else 0
                case CollectionStatus(ended=True):
                    self.release(self._early)
                    self._ended = True
                    self._end_recording(self._until[0])
                    receiver.channel_ended(self.id)
                case _:
                    pass
        if blocks:
            self._grant(blocks)

    def record_feedback(self, checkpoint: int, note: Callable[[Block, int], None], done: Callable[[], None]) -> None:
        """Call `note` with each block, and how often it has gone round, that arrives before a checkpoint's barrier;
        call `done` when that arrives."""
        self._note = note
        self._until = checkpoint, done
        if self._ended or self._barrier == checkpoint:
            self._end_recording(checkpoint)

    def stop_recording(self) -> None:
        self._note = None

    def release(self, checkpoint: int) -> None:
        """A checkpoint has passed the head: give the head what has followed the barrier, of this or an earlier one."""
        receiver = self._receiver
        if receiver is None or not 0 < self._early <= checkpoint:
            return
        self._early = 0
        later, self._later = self._later, None
        while later is not None and len(later):
            hops, block = later.take(1)
            receiver.add(block, hops)
        marks, self._marks = self._marks, []
        for mark in marks:
            receiver.returned(self.id, mark)

    def _end_recording(self, checkpoint: int) -> None:
        until, done = self._until
        if self._note is not None and until == checkpoint:
            self._note = None
            done()
