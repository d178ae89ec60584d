"""The script of a `TestStream`: its events in order, then the end of each output."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import AddElements, AdvanceClock, AdvanceWatermark, Idle, TestStream


@dataclass(frozen=True, slots=True)
class ScriptEvent:
    """One event: a block of a collection, then its new status; or processing time advances by `elapsed` (µs)."""

    collection: str
    block: Block | None = None
    status: CollectionStatus | None = None
    elapsed: int = 0


class StreamScript:
    """The events of a test stream. Each output has a watermark of its own."""

    def __init__(self, node: TestStream) -> None:
        self._node = node
        self._events = iter(node.events)
        self._statuses = {out.tag: CollectionStatus() for out in node.outputs}
        self._ending = [out.collection for out in node.outputs]

    @property
    def ended(self) -> bool:
        """True once every output has ended."""
        return not self._ending

    def next(self) -> ScriptEvent:
        """The next event; only while the script has not ended."""
        event = next(self._events, None)
        match event:
            case None:
                return ScriptEvent(self._ending.pop(0), status=CollectionStatus(ended=True))
            case AddElements(values=values, timestamps=timestamps, tag=tag):
                return self._event(
                    tag, CollectionStatus(self._statuses[tag].watermark), Block(values.load(), list(timestamps))
                )
            case AdvanceWatermark(to=to, tag=tag):
                return self._event(tag, CollectionStatus(max(to, self._statuses[tag].watermark)))
            case Idle(tag=tag):
                return self._event(tag, CollectionStatus(self._statuses[tag].watermark, idle=True))
            case AdvanceClock(by=by):
                return ScriptEvent(self._node.output(), elapsed=by)

    def stop(self) -> None:
        """Skip the remaining events: the outputs end."""
        self._events = iter(())

    def _event(self, tag: str, status: CollectionStatus, block: Block | None = None) -> ScriptEvent:
        self._statuses[tag] = status
        return ScriptEvent(self._node.output(tag), block, status)
