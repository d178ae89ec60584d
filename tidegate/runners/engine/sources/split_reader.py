"""Reads one split: stamps its elements as the author asked, and derives the split's watermark and idleness."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tidegate.runners.engine.errors.attribution import guarded, located, quietly, rethrow, user_error
from tidegate.runners.engine.sources.rate_limit import RateLimiter
from tidegate.runners.engine.sources.source_step import SourceStep
from tidegate.runners.engine.sources.timestamps import TimestampFunction
from tidegate.runners.engine.time.clock import Clock
from tidegate.sdk import moved
from tidegate.sdk.connectors.sources import AsyncReader, Batch, Columns, Position, Reader, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.timestamps import element_column, element_micros
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.metrics import in_step
from tidegate.sdk.time import MIN_MICROS, SECOND, clamp

if TYPE_CHECKING:
    from tidegate.runners.engine.sources.async_reader import AsyncReaderAdapter

WATERMARKED: Final = "watermarked_readers"
"""Counts the readers of a live source, one in each task, that have read elements and advanced their watermark."""


@dataclass(frozen=True, slots=True)
class ReaderProgress:
    """How far a split has been read: the position, the watermark and the greatest timestamp (µs), whether the split is
    idle, whether it has had elements, and for how long (µs) it has had none. `held` is the greatest timestamp of the
    elements that did not advance the watermark."""

    position: Position
    watermark: int
    greatest: int
    idle: bool
    has_read: bool
    quiet: int
    held: int = MIN_MICROS

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore a stored progress, also one from before progresses had all of today's fields."""
        moved.set_fields(self, state)


class SplitReader:
    """Reads one split. `watermark` (µs) never goes back; `idle`, `ended` and `wait` (s) are those of the last poll.

    Another thread calls `wake` when an `AsyncReader` has a batch.
    """

    def __init__(
        self,
        step: SourceStep,
        split: Split,
        clock: Clock,
        position: Position = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        self.split = split
        self.watermark = MIN_MICROS
        self.idle = False
        self.ended = False
        self.wait = 0.0
        self._step = step
        self._clock = clock
        self.has_read = position is not None
        """Whether elements have been read, here or before the job was restored."""
        self._async: AsyncReaderAdapter | None = None
        reader: Reader[Any] | AsyncReader[Any] = guarded(
            step.source.reader, split, position, step=step.label, where=step.where, method="reader"
        )
        if isinstance(reader, AsyncReader):
            from tidegate.runners.engine.sources.async_reader import AsyncReaderAdapter  # imports asyncio

            reader = self._async = AsyncReaderAdapter(reader, position, wake)
        self._reader: Reader[Any] = reader
        self._reader.now = clock.now
        stamping = step.stamping
        timestamp = stamping.timestamp if stamping else None
        self._timestamp = TimestampFunction(timestamp, inline=step.inline) if timestamp is not None else None
        self._greatest = MIN_MICROS
        self._held = MIN_MICROS
        """The greatest timestamp of elements whose batches held the watermark; it counts at the end of the split."""
        self._last_elements = clock.monotonic()

    @property
    def is_async(self) -> bool:
        """Whether the reader is an `AsyncReader`."""
        return self._async is not None

    @property
    def ready(self) -> bool:
        """Whether an `AsyncReader` has a batch, or an error, that no poll has returned yet."""
        return self._async is not None and self._async.ready

    def poll(self, limit: int) -> Block:
        """Read at most `limit` elements; the block is empty if there are none now."""
        batch = self._read(limit)
        self.ended = batch.end
        self.wait = batch.wait
        block, watermark = self._stamped(batch)
        self.has_read = self.has_read or len(block) > 0
        if watermark is not None and watermark > self.watermark:
            self.watermark = watermark
        self.idle = self._is_idle(batch)
        return block

    def blocks(self, size: int, limiter: RateLimiter | None = None) -> Iterator[Block]:
        """Read the split to its end, in blocks of at most `size` elements, and close it. Waits where it has to."""
        try:
            while not self.ended:
                block = self.poll(size if limiter is None else self._permitted(size, limiter))
                if limiter is not None:
                    limiter.spend(len(block))
                if len(block):
                    yield block
                elif not self.ended:
                    self._wait()
        except BaseException:
            quietly(self.close)
            raise
        self.close()

    def position(self) -> Position:
        """Where a new reader would resume."""
        return self._reader.position()

    def progress(self) -> ReaderProgress:
        """What `continue_from` restores, in a reader that was opened at the same position."""
        quiet = self._clock.monotonic() - self._last_elements
        return ReaderProgress(
            self.position(), self.watermark, self._greatest, self.idle, self.has_read, quiet, self._held
        )

    def continue_from(self, progress: ReaderProgress) -> None:
        """Go on exactly where `progress` was taken, with its watermark."""
        self.watermark, self._greatest, self.idle = progress.watermark, progress.greatest, progress.idle
        self.has_read, self._held = progress.has_read, progress.held
        self._last_elements = self._clock.monotonic() - progress.quiet

    def close(self) -> None:
        """Release the author's reader."""
        guarded(self._reader.close, step=self._step.label, where=self._step.where, method="close")

    def _permitted(self, size: int, limiter: RateLimiter) -> int:
        """Wait until elements may be read; returns how many."""
        while not (available := limiter.available(self._clock.monotonic())):
            now = self._clock.monotonic()
            self._clock.wait((limiter.next_time(now) - now) / SECOND, threading.Event())
        return min(size, available)

    def _wait(self) -> None:
        """Wait until there may be elements."""
        if self._async is not None:
            self._async.wait(self.wait)
        else:
            self._clock.wait(self.wait, threading.Event())

    def _read(self, limit: int) -> Batch:
        try:
            with in_step(self._step.label):
                return _in_rows(self._reader.read(limit))
        except TidegateError as error:
            rethrow(located(error, self._step.label, self._step.where))
        except Exception as error:
            rethrow(user_error(error, step=self._step.label, where=self._step.where, method="read"))

    def _stamped(self, batch: Batch) -> tuple[Block, int | None]:
        """The elements with their timestamps, and the watermark that follows, if any."""
        assert isinstance(batch.block, Block)
        block, stamping = batch.block, self._step.stamping
        if stamping is None:
            return block, batch.watermark
        if stamping.ingestion:
            now = self._clock.now()
            return Block(block.values, now), now
        if self._timestamp is None:
            return block, batch.watermark
        if len(block):
            timestamps, span = self._timestamps(block)
            block = Block(block.values, timestamps, span=span)
            if batch.holds_watermark:
                self._held = max(self._held, span[1])
            else:
                self._greatest = max(self._greatest, span[1])
        if batch.end:
            self._greatest = max(self._greatest, self._held)
        return block, clamp(self._greatest - stamping.out_of_orderness.micros)

    def _is_idle(self, batch: Batch) -> bool:
        stamping = self._step.stamping
        if stamping is None:
            return batch.idle
        if len(batch.block):
            self._last_elements = self._clock.monotonic()
            return False
        if batch.idle or stamping.idle_after is None:
            return batch.idle
        return self._clock.monotonic() - self._last_elements >= stamping.idle_after.micros

    def _timestamps(self, block: Block) -> tuple[Sequence[int], tuple[int, int]]:
        """The timestamps, with the least and the greatest of them."""
        assert self._timestamp is not None
        try:
            found = self._timestamp.of(block.values)
            if len(found) == len(block):
                return element_column(found)
        except Exception:
            pass
        timestamps = self._timestamps_singly(block)  # to find the element that failed
        return timestamps, (min(timestamps), max(timestamps))

    def _timestamps_singly(self, block: Block) -> list[int]:
        assert self._timestamp is not None
        timestamps = []
        value = None
        try:
            for value in block.values:
                timestamps.append(element_micros(self._timestamp.call(value)))
        except Exception as error:
            step = self._step
            rethrow(user_error(error, step=step.label, where=step.where, element=value, method="timestamp"))
        return timestamps


def _in_rows(batch: Batch) -> Batch:
    """The batch with a block; elements that came as columns become rows."""
    return replace(batch, block=batch.block.block()) if isinstance(batch.block, Columns) else batch
