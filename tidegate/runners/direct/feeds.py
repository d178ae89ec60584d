"""The input of a run: sources and test streams, each polled for its next event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tidegate.runners.engine.sources.discovery import SplitDiscovery, split_discovery
from tidegate.runners.engine.sources.source_reader import SourceReader
from tidegate.runners.engine.sources.source_step import source_step
from tidegate.runners.engine.time.clock import Clock, ManualClock
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Step
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import TestStream
from tidegate.sdk.time import SECOND


@dataclass(frozen=True, slots=True)
class Event:
    """The result of a poll: an optional block of a collection, then an optional status of it. `wait` is the number of
    seconds until the next poll."""

    collection: str
    block: Block | None = None
    status: CollectionStatus | None = None
    wait: float = 0.0


class Feed(Protocol):
    """A source step of a run, polled until it has ended."""

    @property
    def ended(self) -> bool:
        """True once every output has ended."""

    @property
    def is_watermarked(self) -> bool:
        """True once a live source has read elements and advanced its watermark."""

    def poll(self, size: int) -> Event:
        """The next event, of at most `size` elements."""

    def close(self) -> None:
        """Release the readers."""


def feed(step: Step, clock: Clock, *, inline: bool) -> Feed:
    """The feed of a source step. `inline`: as for SourceStep."""
    match step.head:
        case TestStream() as node:
            assert isinstance(clock, ManualClock)
            return _ScriptFeed(node, clock)
        case _:
            return _SourceFeed(step, clock, inline=inline)


class _SourceFeed:
    """All splits of a source, read by one reader."""

    def __init__(self, step: Step, clock: Clock, *, inline: bool) -> None:
        source = source_step(step.head, inline=inline)
        self._collection = step.head.output()
        self._clock = clock
        self._reader = SourceReader(source, clock)
        discovery = split_discovery(source)
        self._splits = None if discovery is None else _DiscoveredSplits(discovery, self._reader, clock)
        if self._splits is None:
            self._reader.assign([(split, None) for split in source.splits(1)], more=False)

    @property
    def ended(self) -> bool:
        return self._reader.status.ended

    @property
    def is_watermarked(self) -> bool:
        return self._reader.is_watermarked

    def poll(self, size: int) -> Event:
        if self._splits is not None:
            self._splits.discover()
        block = self._reader.poll(size)
        if self._reader.take_request() and self._splits is not None:
            self._splits.wanted = True
        if block is not None:
            return Event(self._collection, block, self._reader.status)
        next_look = None if self._splits is None else self._splits.next_look
        polls = [at for at in (self._reader.next_poll, next_look) if at is not None]
        if not polls:
            return Event(self._collection, None, self._reader.status)
        next_poll = min(polls)
        wait = max(0, next_poll - self._clock.monotonic()) / SECOND
        return Event(self._collection, None, self._reader.status, wait)

    def close(self) -> None:
        if self._splits is not None:
            self._splits.close()
        self._reader.close()


class _DiscoveredSplits:
    """Looks for splits, and assigns them to the only reader. `wanted`: it has read all splits that it has."""

    def __init__(self, discovery: SplitDiscovery, reader: SourceReader, clock: Clock) -> None:
        self._discovery = discovery
        self._reader = reader
        self._clock = clock
        self._at = 0
        self._backlog = True
        self._ended = False
        self.wanted = True

    @property
    def next_look(self) -> int | None:
        """When to look again (µs); None if not until the reader wants splits, or never."""
        return self._at if self.wanted and not self._ended else None

    def discover(self) -> None:
        """Look for splits, if it is time."""
        at = self.next_look
        if at is None or self._clock.monotonic() < at:
            return
        look = self._discovery.look()
        late = frozenset[str]() if self._backlog else frozenset(split.id for split in look.splits)
        was_backlog, self._backlog = self._backlog, self._backlog and look.full
        self._ended = look.end
        self._at = self._clock.monotonic() + int(look.wait * SECOND)
        if look.splits or look.end or was_backlog:
            self.wanted = False
            splits = [(split, None) for split in look.splits]
            self._reader.assign(splits, more=not look.end, backlog=self._backlog, late=late)

    def close(self) -> None:
        """Release the enumerator."""
        self._discovery.close()


class _ScriptFeed:
    """A test stream, whose events advance the clock."""

    is_watermarked = False

    def __init__(self, node: TestStream, clock: ManualClock) -> None:
        from tidegate.runners.engine.sources.test_stream import StreamScript

        self._clock = clock
        self._script = StreamScript(node)

    @property
    def ended(self) -> bool:
        return self._script.ended

    def poll(self, size: int) -> Event:
        event = self._script.next()
        self._clock.advance(event.elapsed)
        return Event(event.collection, event.block, event.status)

    def close(self) -> None:
        return
