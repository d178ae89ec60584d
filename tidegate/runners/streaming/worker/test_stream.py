"""A `TestStream` in a task: one event at a time, each followed by a barrier that every task acknowledges."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.protocol.stream_items import Barrier
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import AddElements, AdvanceClock, AdvanceWatermark, Idle, TestStream


@dataclass(frozen=True, slots=True)
class ScriptEvent:
    """One event: a block of a collection, a mark for it, or neither; then a settling barrier."""

    collection: str
    settling: Barrier
    block: Block | None = None
    mark: CollectionStatus | None = None


class StreamScript:
    """The events of a test stream in order. Processing time starts at 0 and advances only by its events."""

    def __init__(self, node: TestStream) -> None:
        self._node = node
        self._events = iter(node.events)
        self._marks = {out.tag: CollectionStatus() for out in node.outputs}
        self._ending = [out.collection for out in node.outputs]
        self._clock = 0
        self._settling = 0
        self._waiting = False
        self._begun = False

    @property
    def ready(self) -> bool:
        """Whether the next event may be emitted."""
        return not self._waiting and not self.ended

    @property
    def ended(self) -> bool:
        """Whether all events have been emitted, and all tasks have handled them."""
        return not self._ending and not self._waiting

    def next(self) -> ScriptEvent:
        """The next event. The one after it is not ready until `settled` has been called."""
        self._waiting = True
        self._settling += 1
        if not self._begun:  # operators learn the processing time before the first element arrives
            self._begun = True
            return ScriptEvent(self._node.output(), self._barrier())
        event = next(self._events, None)
        match event:
            case None:
                return ScriptEvent(self._ending.pop(0), self._barrier(), mark=CollectionStatus(ended=True))
            case AddElements(values=values, timestamps=timestamps, tag=tag):
                mark = self._marks[tag] = CollectionStatus(self._marks[tag].watermark)
                block = Block(values.load(), list(timestamps))
                return ScriptEvent(self._node.output(tag), self._barrier(), block, mark)
            case AdvanceWatermark(to=to, tag=tag):
                mark = self._marks[tag] = CollectionStatus(max(to, self._marks[tag].watermark))
                return ScriptEvent(self._node.output(tag), self._barrier(), mark=mark)
            case Idle(tag=tag):
                mark = self._marks[tag] = CollectionStatus(self._marks[tag].watermark, idle=True)
                return ScriptEvent(self._node.output(tag), self._barrier(), mark=mark)
            case AdvanceClock(by=by):
                self._clock += by
                return ScriptEvent(self._node.output(), self._barrier())

    def settled(self, settling: int) -> None:
        """All tasks have handled the event with this number."""
        if settling == self._settling:
            self._waiting = False

    def stop(self) -> None:
        """Skip the remaining events; the outputs end."""
        self._events = iter(())

    def _barrier(self) -> Barrier:
        return Barrier(self._settling, "quiescence", clock=self._clock)
