"""A test stream in a task: one event at a time, then a barrier that tells when everything has handled it."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.runners.engine.time.watermarks import Mark
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import AddElements, AdvanceClock, AdvanceWatermark, Idle, TestStream


@dataclass(frozen=True, slots=True)
class Scripted:
    """What an event comes to: perhaps a block of a collection, perhaps a mark for it, then a settling barrier."""

    collection: str
    settling: Barrier
    block: Block | None = None
    mark: Mark | None = None


class Script:
    """The events in turn. Processing time begins at 0 and stands until the script moves it."""

    def __init__(self, node: TestStream) -> None:
        self._node = node
        self._events = iter(node.events)
        self._marks = {out.tag: Mark() for out in node.outputs}
        self._ending = [out.collection for out in node.outputs]
        self._clock = 0
        self._settling = 0
        self._waiting = False
        self._begun = False

    @property
    def ready(self) -> bool:
        """Whether the next event may be given."""
        return not self._waiting and not self.ended

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to come, and all of it has been handled."""
        return not self._ending and not self._waiting

    def next(self) -> Scripted:
        """The next event; `settled` has to be called before there is another."""
        self._waiting = True
        self._settling += 1
        if not self._begun:  # operators learn what time it is before the first element comes
            self._begun = True
            return Scripted(self._node.output(), self._barrier())
        event = next(self._events, None)
        match event:
            case None:
                return Scripted(self._ending.pop(0), self._barrier(), mark=Mark(ended=True))
            case AddElements(values=values, timestamps=timestamps, tag=tag):
                mark = self._marks[tag] = Mark(self._marks[tag].watermark)
                block = Block(values.load(), list(timestamps))
                return Scripted(self._node.output(tag), self._barrier(), block, mark)
            case AdvanceWatermark(to=to, tag=tag):
                mark = self._marks[tag] = Mark(max(to, self._marks[tag].watermark))
                return Scripted(self._node.output(tag), self._barrier(), mark=mark)
            case Idle(tag=tag):
                mark = self._marks[tag] = Mark(self._marks[tag].watermark, idle=True)
                return Scripted(self._node.output(tag), self._barrier(), mark=mark)
            case AdvanceClock(by=by):
                self._clock += by
                return Scripted(self._node.output(), self._barrier())

    def settled(self, settling: int) -> None:
        """Everything has handled the event of that number."""
        if settling == self._settling:
            self._waiting = False

    def stop(self) -> None:
        """Give no further event; the outputs end."""
        self._events = iter(())

    def _barrier(self) -> Barrier:
        return Barrier(self._settling, "settle", clock=self._clock)
