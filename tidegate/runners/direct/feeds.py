"""What feeds a run: created elements, sources, and test streams, each polled for its next event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.runners.engine.errors.attribution import guarded
from tidegate.runners.engine.sources.created import created
from tidegate.runners.engine.sources.split_reader import SplitReader
from tidegate.runners.engine.time.clock import Clock, ManualClock
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Step
from tidegate.sdk.connectors.sources import Source
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import (
    AddElements,
    AdvanceClock,
    AdvanceWatermark,
    Create,
    Idle,
    Read,
    TestStream,
)


@dataclass(frozen=True, slots=True)
class Event:
    """What a poll gave: perhaps a block of a collection, then perhaps a mark for it. `wait` (s): nothing was there."""

    collection: str
    block: Block | None = None
    mark: CollectionStatus | None = None
    wait: float | None = None


class Feed(Protocol):
    """Something polled until it has ended."""

    ended: bool

    def poll(self, size: int) -> Event:
        """The next event, of at most so many elements."""

    def close(self) -> None:
        """Release what it holds."""


def feed(step: Step, clock: Clock) -> Feed:
    """The feed of a source step."""
    match step.head:
        case Create() as node:
            return _Created(node)
        case Read() as node:
            return _Reading(node, clock)
        case TestStream() as node:
            assert isinstance(clock, ManualClock)
            return _Scripted(node, clock)
        case other:
            raise AssertionError(f"{other.kind} is no source")


class _Created:
    def __init__(self, node: Create) -> None:
        self.collection = node.output()
        self.ended = False
        self._elements: Any = node.values.load()
        self._at = 0

    def poll(self, size: int) -> Event:
        if self._at >= len(self._elements):
            self.ended = True
            return Event(self.collection, None, CollectionStatus(ended=True))
        start, self._at = self._at, self._at + size
        return Event(self.collection, created(self._elements[start : self._at]))

    def close(self) -> None:
        return


class _Reading:
    """A source's splits, read in turn: one after another while bounded, a poll of each when not."""

    def __init__(self, node: Read, clock: Clock) -> None:
        self.collection = node.output()
        self.ended = False
        self._node = node
        self._clock = clock
        source: Source[Any] = node.source.load()
        self._source = source
        self._splits = list(guarded(source.splits, 1, step=node.label, where=node.where, method="splits"))
        self._readers: list[SplitReader] = []
        if not node.bounded:
            self._readers = [SplitReader(node, source, split, clock) for split in self._splits]
            self._splits = []
        self._turn = 0
        self._quiet = 0

    def poll(self, size: int) -> Event:
        if not self._readers:
            if not self._splits:
                self.ended = True
                return Event(self.collection, None, CollectionStatus(ended=True))
            self._readers = [SplitReader(self._node, self._source, self._splits.pop(0), self._clock)]
        self._turn %= len(self._readers)
        reader = self._readers[self._turn]
        block = reader.poll(size)
        if reader.ended:
            reader.close()
            self._readers.remove(reader)
        else:
            self._turn += 1
        if not self._readers and not self._splits:
            self.ended = True
            return Event(self.collection, block if len(block) else None, CollectionStatus(ended=True))
        self._quiet = 0 if len(block) else self._quiet + 1
        mark = self._mark(reader)
        if len(block):
            return Event(self.collection, block, mark)
        wait = max(reader.wait, 0.001) if self._quiet >= len(self._readers) else 0.0
        return Event(self.collection, None, mark, wait)

    def _mark(self, reader: SplitReader) -> CollectionStatus:
        if self._splits:
            return CollectionStatus()
        live = [r for r in self._readers if not r.idle]
        if not live:
            return CollectionStatus(max((r.watermark for r in self._readers), default=reader.watermark), idle=True)
        return CollectionStatus(min(r.watermark for r in live))

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


class _Scripted:
    """A TestStream: each event of the script in turn, several outputs each with its own watermark."""

    def __init__(self, node: TestStream, clock: ManualClock) -> None:
        self.ended = False
        self._node = node
        self._clock = clock
        self._events = iter(node.events)
        self._marks = {out.tag: CollectionStatus() for out in node.outputs}
        self._ending = [out.collection for out in node.outputs]

    def poll(self, size: int) -> Event:
        event = next(self._events, None)
        match event:
            case None:
                collection = self._ending.pop(0)
                self.ended = not self._ending
                return Event(collection, None, CollectionStatus(ended=True))
            case AddElements(values=values, timestamps=timestamps, tag=tag):
                before = self._marks[tag]
                self._marks[tag] = CollectionStatus(before.watermark)
                return Event(self._node.output(tag), Block(values.load(), list(timestamps)), self._marks[tag])
            case AdvanceWatermark(to=to, tag=tag):
                self._marks[tag] = CollectionStatus(max(to, self._marks[tag].watermark))
                return Event(self._node.output(tag), None, self._marks[tag])
            case Idle(tag=tag):
                self._marks[tag] = CollectionStatus(self._marks[tag].watermark, idle=True)
                return Event(self._node.output(tag), None, self._marks[tag])
            case AdvanceClock(by=by):
                self._clock.advance(by)
                return Event(self._node.output())

    def close(self) -> None:
        return
