"""Reads the splits of one source that are assigned to a task, and derives the status of the source's collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidegate.runners.engine.errors.attribution import close_all
from tidegate.runners.engine.sources.source_step import SourceStep
from tidegate.runners.engine.sources.split_reader import SplitReader
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.sdk.connectors.sources import Position, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import MIN_MICROS, SECOND


@dataclass(slots=True)
class _OpenSplit:
    reader: SplitReader
    next_poll: int = 0


class SourceReader:
    """Reads one source step. `status` is the status of its collection as of the last poll.

    Bounded splits are read one after another. Unbounded ones are polled in turn, except those whose watermark is
    beyond `max_watermark()`. Without `timely` the status changes only at the end of the source.

    >>> from tidegate.runners.engine.sources.created import Created
    >>> from tidegate.runners.engine.time.clock import ManualClock
    >>> from tidegate.sdk.user_code.frames import Where
    >>> source = Created(["a", "b", "c"])
    >>> reader = SourceReader(SourceStep("letters", Where("page.py", 1), source), ManualClock())
    >>> reader.assign([(split, None) for split in source.splits(1)], more=False)
    >>> reader.poll(2).values
    ['a', 'b']
    >>> reader.positions()
    [('0', 2)]
    >>> reader.poll(2).values
    ['c']
    >>> reader.status.ended
    True
    """

    def __init__(
        self,
        step: SourceStep,
        clock: Clock,
        *,
        timely: bool = True,
        max_watermark: Callable[[], int | None] | None = None,
    ) -> None:
        self.status = CollectionStatus()
        self.finished: list[str] = []
        """The ids of the splits that have been read to their end."""
        self._step = step
        self._clock = clock
        self._timely = timely
        self._max_watermark = max_watermark
        self._more = True
        self._requests = False
        self._assigned: list[tuple[Split, Position]] = []
        self._open_splits: list[_OpenSplit] = []
        self._turn = 0
        self._stopped = False
        self._has_read = False

    def assign(self, splits: Iterable[tuple[Split, Position]], *, more: bool) -> None:
        """Add splits to read, each from a position; `more`: further ones can be requested."""
        self._assigned += splits
        self._more = more
        self._requests = False

    def take_request(self) -> bool:
        """Return whether all assigned splits have been read and more may be requested; True once per request."""
        requests, self._requests = self._requests, False
        return requests

    def poll(self, limit: int) -> Block | None:
        """Read at most `limit` elements; None if there are none now. Updates `status` and `next_poll`."""
        if self._stopped:
            self._end()
            return None
        self._open_assigned()
        block = None
        if (entry := self._next()) is not None:
            block = self._read(entry, limit)
        if not self._open_splits and not self._assigned:
            if not self._more:
                self.status = CollectionStatus(ended=True)
            else:
                self._requests = True
        elif self._timely:
            self.status = self._current_status()
        return block

    @property
    def next_poll(self) -> int | None:
        """When to poll again (µs of the monotonic clock); None after the end, and until splits are assigned."""
        if self.status.ended:
            return None
        if self._stopped or (self._assigned and self._opens_another):
            return 0
        if not self._open_splits:
            return None if self._more else 0
        return min(entry.next_poll for entry in self._open_splits)

    @property
    def is_watermarked(self) -> bool:
        """True once a live source has read elements and advanced its watermark, unless only because it was stopped."""
        return self._has_read and self.status.advances_time and not (self._stopped or self._step.bounded)

    @property
    def active_watermarks(self) -> list[int]:
        """The watermark of each split that is not idle. A split that is still to be opened may have any watermark."""
        return [MIN_MICROS] if self._more or self._assigned else self._open_watermarks()

    def stop(self) -> None:
        """Read nothing more: the next poll ends the source, after any checkpoint that has begun."""
        self._stopped = True

    def positions(self) -> list[tuple[str, Position]]:
        """The id of each split that is not finished, and where a new reader would resume it."""
        positions = [(entry.reader.split.id, entry.reader.position()) for entry in self._open_splits]
        return positions + [(split.id, position) for split, position in self._assigned]

    def close(self) -> None:
        """Release the readers of the open splits."""
        open_splits, self._open_splits = self._open_splits, []
        close_all(entry.reader.close for entry in open_splits)

    def _end(self) -> None:
        """Record all assigned splits as finished: a job restored from here reads none of them again."""
        self.finished += [entry.reader.split.id for entry in self._open_splits]
        self.finished += [split.id for split, _ in self._assigned]
        self._assigned = []
        self._more = False
        self.close()
        self.status = CollectionStatus(ended=True)

    @property
    def _opens_another(self) -> bool:
        """Whether another split may be opened. Bounded ones are opened one at a time."""
        return not (self._step.bounded and self._open_splits)

    def _open_assigned(self) -> None:
        while self._assigned and self._opens_another:
            split, position = self._assigned.pop(0)
            self._open_splits.append(_OpenSplit(SplitReader(self._step, split, self._clock, position)))

    def _next(self) -> _OpenSplit | None:
        """The next split to poll, in turn; skips those that wait and those that watermark alignment pauses."""
        now = self._clock.monotonic()
        limit = None if self._max_watermark is None else self._max_watermark()
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

    def _read(self, entry: _OpenSplit, limit: int) -> Block | None:
        reader = entry.reader
        block = reader.poll(limit)
        self._has_read = self._has_read or len(block) > 0
        if reader.ended:
            self._open_splits.remove(entry)
            self.finished.append(reader.split.id)
            reader.close()
        elif not len(block):
            entry.next_poll = self._clock.monotonic() + int(max(reader.wait, 0.001) * SECOND)
        return block if len(block) else None

    def _open_watermarks(self) -> list[int]:
        return [entry.reader.watermark for entry in self._open_splits if not entry.reader.idle]

    def _current_status(self) -> CollectionStatus:
        """The minimum watermark of the splits that are not idle; it never goes back."""
        if self._assigned or (self._more and self._step.bounded):
            return self.status
        watermarks = self._open_watermarks()
        if not watermarks:
            idle = [entry.reader.watermark for entry in self._open_splits]
            return CollectionStatus(max([self.status.watermark, *idle]), idle=True)
        return CollectionStatus(max(self.status.watermark, min(watermarks)))
