"""A source step in one task: the splits assigned to it, how far they have been read, and their watermark."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidegate.runners.engine.errors.attribution import guarded
from tidegate.runners.engine.sources.created import Created
from tidegate.runners.engine.sources.split_reader import SplitReader
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Step
from tidegate.runners.streaming.protocol.worker_messages import AssignedSplit, SplitProgress
from tidegate.runners.streaming.worker.watermark_alignment import WatermarkAlignment
from tidegate.sdk import moved
from tidegate.sdk.connectors.sources import Source
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import Create, Read
from tidegate.sdk.time import MIN_MICROS, SECOND


def source_of(step: Step) -> tuple[Read, Source[Any]]:
    """What a source step reads, as a `Read` and its source; a `Create` becomes a source of its elements."""
    match step.head:
        case Read() as node:
            source: Source[Any] = node.source.load()
            return node, source
        case Create() as node:
            from tidegate.sdk.user_code.user_fn import UserFn

            created = Created(node.values.load())
            read = Read(
                label=node.label,
                where=node.where,
                inputs=(),
                outputs=node.outputs,
                source=UserFn.of(created),
                name="Create",
                bounded=True,
            )
            return read, created
        case other:
            raise AssertionError(f"{other.kind} has no splits")


def list_splits(step: Step, desired: int) -> tuple[AssignedSplit, ...]:
    """The splits of a source, pickled for the coordinator, which assigns them."""
    node, source = source_of(step)
    splits = guarded(source.splits, desired, step=node.label, where=node.where, method="splits")
    return tuple(AssignedSplit(split.id, pickle.dumps(split, 5), split.size) for split in splits)


@dataclass(slots=True)
class _OpenSplit:
    split: str
    reader: SplitReader
    next_poll: int = 0


class SourceReader:
    """Reads one source step. `mark` is the watermark of what it has emitted so far.

    Bounded splits are read one after another; unbounded ones are polled in turn, unless watermark alignment makes one
    wait for the others.
    """

    def __init__(
        self,
        step: Step,
        clock: Clock,
        block_size: int,
        *,
        timely: bool,
        watermark_alignment: WatermarkAlignment | None = None,
    ) -> None:
        self.step = step
        self.collection = step.outputs[0]
        self.mark = CollectionStatus()
        self._wants = False
        self._node, self._source = source_of(step)
        self._clock = clock
        self._size = block_size
        self._timely = timely
        self._watermark_alignment = None if self._node.bounded else watermark_alignment
        self._more = True
        self._assigned: list[AssignedSplit] = []
        self._open_splits: list[_OpenSplit] = []
        self._finished: list[str] = []
        self._turn = 0
        self._stopped = False
        self._has_read = False
        if self._watermark_alignment is not None:
            self._watermark_alignment.add_source(self._aligned_watermarks)

    def assign(self, splits: Iterable[AssignedSplit], *, more: bool) -> None:
        """Add splits to read; `more`: further ones can be requested."""
        self._assigned += splits
        self._more = more
        self._wants = False

    def take_request(self) -> bool:
        """Whether all assigned splits have been read and more may be requested; True once for each request."""
        wants, self._wants = self._wants, False
        return wants

    def poll(self) -> Block | None:
        """The next elements, None if there are none now. Updates `mark` and `next_poll`."""
        if self._stopped:
            self._end()
            return None
        self._fill()
        block = None
        if (entry := self._next()) is not None:
            block = self._read(entry)
        if not self._open_splits and not self._assigned:
            if not self._more:
                self.mark = CollectionStatus(ended=True)
            else:
                self._wants = True
        elif self._timely:
            self.mark = self._current_mark()
        return block

    @property
    def next_poll(self) -> int | None:
        """When to poll again (µs of the monotonic clock); None: when splits have been assigned, or never."""
        if self.mark.ended:
            return None
        if self._stopped or (self._assigned and self._opens_more):
            return 0
        if not self._open_splits:
            return None if self._more else 0
        return min(entry.next_poll for entry in self._open_splits)

    @property
    def is_watermarked(self) -> bool:
        """Whether it is a live source that has advanced its watermark by reading, not by being stopped."""
        return self._has_read and self.mark.advances_time and not (self._stopped or self._node.bounded)

    def stop(self) -> None:
        """Read no further: the collection ends with the next poll, after a checkpoint that has begun."""
        self._stopped = True

    def progress(self) -> SplitProgress:
        """How far each split has been read, for a checkpoint."""
        current = [(entry.split, entry.reader.position()) for entry in self._open_splits]
        current += [(split.id, split.position) for split in self._assigned]
        return SplitProgress(self.step.label, tuple(self._finished), tuple(current))

    def close(self) -> None:
        """Release the readers."""
        opened, self._open_splits = self._open_splits, []
        for entry in opened:
            entry.reader.close()

    def _end(self) -> None:
        """Mark all assigned splits as finished: a job that continues from here reads none of them again."""
        self._finished += [entry.split for entry in self._open_splits]
        self._finished += [split.id for split in self._assigned]
        self._assigned = []
        self._more = False
        self.close()
        self.mark = CollectionStatus(ended=True)

    @property
    def _opens_more(self) -> bool:
        """Whether another split may be opened. Bounded ones are opened one at a time."""
        return not (self._node.bounded and self._open_splits)

    def _fill(self) -> None:
        while self._assigned and self._opens_more:
            split = self._assigned.pop(0)
            reader = SplitReader(self._node, self._source, moved.loads(split.payload), self._clock, split.position)
            self._open_splits.append(_OpenSplit(split.id, reader))

    def _next(self) -> _OpenSplit | None:
        """The next split to poll, in turn, among those that are due and not held back by alignment."""
        now = self._clock.monotonic()
        limit = None if self._watermark_alignment is None else self._watermark_alignment.max_watermark
        for offset in range(len(self._open_splits)):
            at = (self._turn + offset) % len(self._open_splits)
            entry = self._open_splits[at]
            if entry.next_poll > now:
                continue
            if limit is not None and entry.reader.watermark > limit:
                entry.next_poll = now + SECOND // 100
                continue
            self._turn = at + 1
            return entry
        return None

    def _read(self, entry: _OpenSplit) -> Block | None:
        reader = entry.reader
        block = reader.poll(self._size)
        self._has_read = self._has_read or len(block) > 0
        if reader.ended:
            reader.close()
            self._open_splits.remove(entry)
            self._finished.append(entry.split)
        elif not len(block):
            entry.next_poll = self._clock.monotonic() + int(max(reader.wait, 0.001) * SECOND)
        return block if len(block) else None

    def _active_watermarks(self) -> list[int]:
        return [entry.reader.watermark for entry in self._open_splits if not entry.reader.idle]

    def _aligned_watermarks(self) -> list[int]:
        return [MIN_MICROS] if self._more or self._assigned else self._active_watermarks()

    def _current_mark(self) -> CollectionStatus:
        if self._assigned or (self._more and self._node.bounded):
            return self.mark
        live = self._active_watermarks()
        if not live:
            idle = [entry.reader.watermark for entry in self._open_splits]
            return CollectionStatus(max([self.mark.watermark, *idle]), idle=True)
        return CollectionStatus(max(self.mark.watermark, min(live)))
