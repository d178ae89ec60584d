"""A source step in one task: the splits it was dealt, how far it has read them, and how its collection stands."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tidegate.runners.engine.errors.attribution import guarded
from tidegate.runners.engine.sources.created import Created
from tidegate.runners.engine.sources.split_reader import SplitReader
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.engine.time.watermarks import Mark
from tidegate.runners.plan import Step
from tidegate.runners.streaming.protocol.worker_messages import AssignedSplit, SplitProgress
from tidegate.runners.streaming.worker.watermark_alignment import Pace
from tidegate.sdk import moved
from tidegate.sdk.connectors.sources import Source
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import Create, Read
from tidegate.sdk.time import MIN_MICROS, SECOND


def source_of(step: Step) -> tuple[Read, Source[Any]]:
    """What a source step reads, as a `Read` and its source: a `Create` is one of its own elements."""
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
    """The splits of a source, pickled for whoever deals them out."""
    node, source = source_of(step)
    splits = guarded(source.splits, desired, step=node.label, where=node.where, method="splits")
    return tuple(AssignedSplit(split.id, pickle.dumps(split, 5), split.size) for split in splits)


@dataclass(slots=True)
class _Open:
    split: str
    reader: SplitReader
    due: int = 0


class Reading:
    """One source step at work. `mark` says how what it has given so far stands.

    Bounded splits are read one after another; unbounded ones are polled in turn, unless watermark alignment (`pace`)
    makes one wait for others.
    """

    def __init__(self, step: Step, clock: Clock, block_size: int, *, timely: bool, pace: Pace | None = None) -> None:
        self.step = step
        self.collection = step.outputs[0]
        self.mark = Mark()
        self._wants = False
        self._node, self._source = source_of(step)
        self._clock = clock
        self._size = block_size
        self._timely = timely
        self._pace = None if self._node.bounded else pace
        self._more = True
        self._dealt: list[AssignedSplit] = []
        self._open: list[_Open] = []
        self._finished: list[str] = []
        self._turn = 0
        self._stopped = False
        self._gave = False
        if self._pace is not None:
            self._pace.join(self._reached)

    def assign(self, splits: Iterable[AssignedSplit], *, more: bool) -> None:
        """Splits to read; without `more` they are the last."""
        self._dealt += splits
        self._more = more
        self._wants = False

    def take_request(self) -> bool:
        """Whether all assigned splits have been read and more may be requested; True once for each request."""
        wants, self._wants = self._wants, False
        return wants

    def poll(self) -> Block | None:
        """The next elements; None where none are there now. Afterwards `mark` and `due` say how it stands."""
        if self._stopped:
            self._end()
            return None
        self._fill()
        block = None
        if (entry := self._next()) is not None:
            block = self._read(entry)
        if not self._open and not self._dealt:
            if not self._more:
                self.mark = Mark(ended=True)
            else:
                self._wants = True
        elif self._timely:
            self.mark = self._standing()
        return block

    @property
    def due(self) -> int | None:
        """When to poll again (µs of the monotonic clock); None: not before it has been dealt splits, or never."""
        if self.mark.ended:
            return None
        if self._stopped or (self._dealt and self._opens_more):
            return 0
        if not self._open:
            return None if self._more else 0
        return min(entry.due for entry in self._open)

    @property
    def is_watermarked(self) -> bool:
        """Whether it is live, gave elements and lets time pass of itself: that it was stopped does not count."""
        return self._gave and self.mark.tells and not (self._stopped or self._node.bounded)

    def stop(self) -> None:
        """Read no further: with the next poll the collection ends. A checkpoint that has begun still comes before."""
        self._stopped = True

    def progress(self) -> SplitProgress:
        """How far it has read."""
        current = [(entry.split, entry.reader.position()) for entry in self._open]
        current += [(split.id, split.position) for split in self._dealt]
        return SplitProgress(self.step.label, tuple(self._finished), tuple(current))

    def close(self) -> None:
        """Release the readers."""
        opened, self._open = self._open, []
        for entry in opened:
            entry.reader.close()

    def _end(self) -> None:
        """All that it was dealt is done with: whoever goes on from here reads none of it again."""
        self._finished += [entry.split for entry in self._open]
        self._finished += [split.id for split in self._dealt]
        self._dealt = []
        self._more = False
        self.close()
        self.mark = Mark(ended=True)

    @property
    def _opens_more(self) -> bool:
        """Whether a split may be opened: of bounded ones, one at a time."""
        return not (self._node.bounded and self._open)

    def _fill(self) -> None:
        while self._dealt and self._opens_more:
            split = self._dealt.pop(0)
            reader = SplitReader(self._node, self._source, moved.loads(split.payload), self._clock, split.position)
            self._open.append(_Open(split.id, reader))

    def _next(self) -> _Open | None:
        """The split whose turn it is, of those that may have something."""
        now = self._clock.monotonic()
        limit = None if self._pace is None else self._pace.limit
        for offset in range(len(self._open)):
            at = (self._turn + offset) % len(self._open)
            entry = self._open[at]
            if entry.due > now:
                continue
            if limit is not None and entry.reader.watermark > limit:
                entry.due = now + SECOND // 100
                continue
            self._turn = at + 1
            return entry
        return None

    def _read(self, entry: _Open) -> Block | None:
        reader = entry.reader
        block = reader.poll(self._size)
        self._gave = self._gave or len(block) > 0
        if reader.ended:
            reader.close()
            self._open.remove(entry)
            self._finished.append(entry.split)
        elif not len(block):
            entry.due = self._clock.monotonic() + int(max(reader.wait, 0.001) * SECOND)
        return block if len(block) else None

    def _live(self) -> list[int]:
        return [entry.reader.watermark for entry in self._open if not entry.reader.idle]

    def _reached(self) -> list[int]:
        return [MIN_MICROS] if self._more or self._dealt else self._live()

    def _standing(self) -> Mark:
        if self._dealt or (self._more and self._node.bounded):
            return self.mark
        live = self._live()
        if not live:
            idle = [entry.reader.watermark for entry in self._open]
            return Mark(max([self.mark.watermark, *idle]), idle=True)
        return Mark(max(self.mark.watermark, min(live)))
