"""Reads the splits of one source that are assigned to a task, and derives the status of the source's collection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.runners.engine.errors.attribution import close_all
from tidegate.runners.engine.sources.rate_limit import RateLimiter
from tidegate.runners.engine.sources.source_step import SourceStep
from tidegate.runners.engine.sources.split_reader import ReaderProgress, SplitReader
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.sdk import moved
from tidegate.sdk.connectors.sources import Position, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import MIN_MICROS, SECOND


@dataclass(slots=True)
class _OpenSplit:
    """`late`: the split was discovered after the backlog, so it holds the watermark only from its first element on."""

    reader: SplitReader
    late: bool = False
    next_poll: int = 0

    def is_due(self, now: int) -> bool:
        return self.next_poll <= now or self.reader.ready

    @property
    def holds(self) -> bool:
        """Whether the split holds back the watermark."""
        return not self.reader.idle and (self.reader.has_read or not self.late)


@dataclass(frozen=True, slots=True)
class _AssignedSplit:
    """A split that is not open yet."""

    split: Split
    position: Position
    late: bool


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far a source has been read: its status, the open splits, those that are not open yet, whose turn it is, the
    greatest watermark of a split that has ended, and whether any elements have been read. `more`: further splits may be
    assigned; `backlog`: some of these may hold back the watermark already; `is_new`: a poll is due at once;
    `finished`: how many splits have been read to their end."""

    status: CollectionStatus
    open_splits: tuple[tuple[Split, bool, ReaderProgress], ...]
    unopened: tuple[tuple[Split, bool, Position], ...]
    turn: int
    ended_watermark: int
    has_read: bool
    more: bool
    backlog: bool
    is_new: bool = True
    finished: int = 0

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)


class SourceReader:
    """Reads one source step. `status` is the status of its collection as of the last poll.

    Bounded splits are read one after another. Unbounded ones are polled in turn, except those whose watermark is
    beyond `max_watermark()`. Without `timely` the status changes only at the end of the source. `tasks`: how many
    readers share the step's rate limit. Another thread calls `wake` when there are elements to poll.

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
        tasks: int = 1,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.status = CollectionStatus()
        self.finished: list[str] = []
        """The ids of the splits that have been read to their end, as far as they are not forgotten."""
        self._forgotten = 0
        self._step = step
        self._clock = clock
        self._timely = timely
        self._max_watermark = max_watermark
        self._wake = wake
        self._tasks = tasks
        self._limiter = None if step.rate_limit is None else RateLimiter(step.rate_limit / tasks, clock.monotonic())
        self._more = True
        self._backlog = True
        """Whether more splits of the backlog may be assigned."""
        self._requests = False
        self._has_requested = False
        self._is_new = False
        """Whether a poll is due at once: an assignment has come, or the collection is to become idle."""
        self._unopened: deque[_AssignedSplit] = deque()
        """Unbounded splits, which are opened at the next poll."""
        self._queue: deque[_AssignedSplit] = deque()
        """Bounded splits, which are opened one at a time."""
        self._unopened_backlog = 0
        """How many of the splits that are not open yet are not late."""
        self._open_splits: list[_OpenSplit] = []
        self._open_bounded: _OpenSplit | None = None
        self._has_async = False
        self._ended_watermark = MIN_MICROS
        """The greatest watermark of a split that has ended."""
        self._turn = 0
        self._stopped = False
        self._has_read = False

    def assign(
        self,
        splits: Iterable[tuple[Split, Position]],
        *,
        more: bool,
        backlog: bool | None = None,
        late: Container[str] = (),
        tasks: int | None = None,
    ) -> None:
        """Add splits to read, each from a position; `more`: further ones can be requested.

        `backlog`: the further ones may include some that hold back the watermark already (None: if there are any).
        `late`: the ids of splits that were discovered after the backlog. `tasks`: how many readers share the step's
        rate limit from now on (None: as before), if there are fewer splits than readers.
        """
        if self._step.rate_limit is not None and tasks is not None and tasks != self._tasks:
            self._tasks = tasks
            self._limiter = RateLimiter(self._step.rate_limit / tasks, self._clock.monotonic())
        for split, position in splits:
            self._add(_AssignedSplit(split, position, split.id in late))
        self._more = more
        self._backlog = more if backlog is None else backlog
        self._requests = self._has_requested = False
        self._is_new = True

    def take_request(self) -> bool:
        """Return whether all assigned splits have been read and more may be requested; True once per request."""
        requests, self._requests = self._requests, False
        return requests

    def poll(self, limit: int) -> Block | None:
        """Read at most `limit` elements; None if there are none now. Updates `status` and `next_poll`."""
        self._is_new = False
        if self._stopped:
            self._end()
            return None
        self._open_assigned()
        block = None
        if (entry := self._next()) is not None:
            block = self._read(entry, limit)
        if not (self._more or self._open_splits or self._queue):
            self.status = CollectionStatus(ended=True)
            return block
        if self._more and not self._has_requested and not self._queue and self._open_bounded is None:
            self._requests = self._has_requested = True
        if self._timely:
            self.status = self._current_status()
        return block

    @property
    def next_poll(self) -> int | None:
        """When to poll again (µs of the monotonic clock); None after the end, and until splits are assigned."""
        if self.status.ended:
            return None
        if self._stopped or self._is_new or (self._queue and self._open_bounded is None):
            return 0
        if not self._open_splits:
            return None if self._more else 0
        at = min(entry.next_poll for entry in self._open_splits)
        if self._has_async and any(entry.reader.ready for entry in self._open_splits):
            at = 0
        return at if self._limiter is None else max(at, self._limiter.next_time(self._clock.monotonic()))

    @property
    def is_async(self) -> bool:
        """Whether a split has been read by an `AsyncReader`."""
        return self._has_async

    @property
    def is_watermarked(self) -> bool:
        """True once a live source has read elements and advanced its watermark, unless only because it was stopped."""
        return self._has_read and self.status.advances_time and not (self._stopped or self._step.bounded)

    @property
    def active_watermarks(self) -> list[int]:
        """The watermark of each split that is not idle. A split that is still to be opened may have any watermark."""
        return [MIN_MICROS] if self._awaits_backlog else self._open_watermarks()

    def stop(self) -> None:
        """Read nothing more: the next poll ends the source, after any checkpoint that has begun."""
        self._stopped = True

    def positions(self) -> list[tuple[str, Position]]:
        """The id of each split that is not finished, and where a new reader would resume it."""
        positions = [(entry.reader.split.id, entry.reader.position()) for entry in self._open_splits]
        return positions + [(assigned.split.id, assigned.position) for assigned in (*self._unopened, *self._queue)]

    def progress(self) -> SourceProgress:
        """What `continue_from` restores."""
        return SourceProgress(
            self.status,
            tuple((entry.reader.split, entry.late, entry.reader.progress()) for entry in self._open_splits),
            tuple((each.split, each.late, each.position) for each in (*self._unopened, *self._queue)),
            self._turn,
            self._ended_watermark,
            self._has_read,
            self._more,
            self._backlog,
            self._is_new,
            self._forgotten + len(self.finished),
        )

    def continue_from(self, progress: SourceProgress) -> None:
        """Go on exactly where `progress` was taken, instead of `assign`: no watermark or idleness starts anew."""
        self._more, self._backlog, self._is_new = progress.more, progress.backlog, progress.is_new
        self.status, self._turn = progress.status, progress.turn
        self._ended_watermark, self._has_read = progress.ended_watermark, progress.has_read
        self._forgotten = progress.finished
        for split, late, reader_progress in progress.open_splits:
            entry = self._open(_AssignedSplit(split, reader_progress.position, late))
            entry.reader.continue_from(reader_progress)
            if self._ends(split):
                self._open_bounded = entry
        for split, late, position in progress.unopened:
            self._add(_AssignedSplit(split, position, late))

    def forget_finished(self, count: int) -> None:
        """Forget the first finished splits: a completed checkpoint records that they are finished."""
        del self.finished[:count]
        self._forgotten += count

    def add_finished(self, count: int) -> None:
        """Count splits that were read to their end before this reader began, and are not assigned to it."""
        self._forgotten += count

    def close(self) -> None:
        """Release the readers of the open splits."""
        open_splits, self._open_splits, self._open_bounded = self._open_splits, [], None
        close_all(entry.reader.close for entry in open_splits)

    def _end(self) -> None:
        """Record all assigned splits as finished: a job restored from here reads none of them again."""
        self.finished += [entry.reader.split.id for entry in self._open_splits]
        self.finished += [assigned.split.id for assigned in (*self._unopened, *self._queue)]
        self._unopened.clear()
        self._queue.clear()
        self._more = False
        self.close()
        self.status = CollectionStatus(ended=True)

    def _ends(self, split: Split) -> bool:
        return self._step.bounded if split.bounded is None else split.bounded

    def _add(self, assigned: _AssignedSplit) -> None:
        self._unopened_backlog += not assigned.late
        (self._queue if self._ends(assigned.split) else self._unopened).append(assigned)

    def _open_assigned(self) -> None:
        """Open all unbounded splits, and a bounded one if none is open."""
        while self._unopened:
            self._open_next(self._unopened)
        if self._queue and self._open_bounded is None:
            self._open_bounded = self._open_next(self._queue)

    def _open_next(self, assigned: deque[_AssignedSplit]) -> _OpenSplit:
        self._unopened_backlog -= not assigned[0].late
        return self._open(assigned.popleft())

    def _open(self, assigned: _AssignedSplit) -> _OpenSplit:
        reader = SplitReader(self._step, assigned.split, self._clock, assigned.position, self._wake)
        entry = _OpenSplit(reader, assigned.late)
        self._open_splits.append(entry)
        self._has_async = self._has_async or reader.is_async
        return entry

    def _next(self) -> _OpenSplit | None:
        """The next split to poll, in turn; skips those that wait and those that watermark alignment pauses."""
        now = self._clock.monotonic()
        if self._limiter is not None and not self._limiter.available(now):
            return None
        limit = None if self._max_watermark is None else self._max_watermark()
        for offset in range(len(self._open_splits)):
            at = (self._turn + offset) % len(self._open_splits)
            entry = self._open_splits[at]
            if not entry.is_due(now):
                continue
            if limit is not None and entry.reader.watermark > limit:
                entry.next_poll = now + SECOND // 100
                continue
            self._turn = at + 1
            return entry
        return None

    def _read(self, entry: _OpenSplit, limit: int) -> Block | None:
        reader = entry.reader
        if self._limiter is not None:
            limit = min(limit, self._limiter.available(self._clock.monotonic()))
        block = reader.poll(limit)
        if self._limiter is not None:
            self._limiter.spend(len(block))
        self._has_read = self._has_read or len(block) > 0
        if reader.ended:
            self._open_splits.remove(entry)
            if entry is self._open_bounded:
                self._open_bounded = None
            self._ended_watermark = max(self._ended_watermark, reader.watermark)
            self.finished.append(reader.split.id)
            reader.close()
        elif not len(block):
            entry.next_poll = self._clock.monotonic() + int(max(reader.wait, 0.001) * SECOND)
        return block if len(block) else None

    @property
    def _awaits_backlog(self) -> bool:
        """Whether a split of the backlog is still to be opened: it may have any watermark."""
        return self._backlog or self._unopened_backlog > 0

    def _open_watermarks(self) -> list[int]:
        return [entry.reader.watermark for entry in self._open_splits if entry.holds]

    def _current_status(self) -> CollectionStatus:
        """The minimum watermark of the splits that hold it back; it never goes back.

        When the last of them has ended, the watermark first advances to the greatest one that any of them had, and the
        collection is idle from the next poll on: an idle collection does not advance the watermark downstream.
        """
        if self._awaits_backlog:
            return self.status
        watermarks = self._open_watermarks()
        if watermarks:
            return CollectionStatus(max(self.status.watermark, min(watermarks)))
        if self._queue and self._open_bounded is None:
            return self.status  # the next split is about to be opened
        if self._ended_watermark > self.status.watermark:
            self._is_new = True
            return CollectionStatus(self._ended_watermark)
        idle = [entry.reader.watermark for entry in self._open_splits]
        return CollectionStatus(max([self.status.watermark, *idle]), idle=True)
