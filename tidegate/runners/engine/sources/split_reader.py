"""Reading a split: its blocks, stamped as the author asked, with the watermark and idleness that follow from that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import guarded, located, rethrow, user_error
from tidegate.runners.engine.time.clock import Clock
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.timestamps import element_column, element_micros
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.portable.model import Read
from tidegate.sdk.time import MIN_MICROS, clamp

WATERMARKED: Final = "watermarked_readers"
"""A counter: readers of a live source, one in each task, that gave elements and let time pass, if only by idling."""


class SplitReader:
    """One split being read. `watermark` (µs) never goes back; `idle` and `ended` are as of the last poll."""

    def __init__(self, node: Read, source: Source[Any], split: Split, clock: Clock, position: Position = None) -> None:
        self.node = node
        self.clock = clock
        self.watermark = MIN_MICROS
        self.idle = False
        self.ended = False
        self.wait = 0.0
        self._reader: Reader[Any] = guarded(
            source.reader, split, position, step=node.label, where=node.where, method="reader"
        )
        self._reader.now = clock.now
        self._stamp = node.stamping.timestamp.load() if node.stamping and node.stamping.timestamp else None
        self._greatest = MIN_MICROS
        self._last_seen = clock.monotonic()

    def poll(self, limit: int) -> Block:
        """At most `limit` elements, none if none are there; afterwards the marks say how the split stands."""
        batch = self._read(limit)
        block = batch.block
        self.ended = batch.end
        self.wait = batch.wait
        stamping = self.node.stamping
        if stamping is None:
            self.idle = batch.idle
            self._advance(batch.watermark)
            return block
        if stamping.ingestion:
            now = self.clock.now()
            block = Block(block.values, now)
            self._advance(now)
        elif self._stamp is not None and len(block):
            timestamps, span = self._stamped(block)
            self._greatest = max(self._greatest, span[1])
            block = Block(block.values, timestamps, span=span)
            self._advance(clamp(self._greatest - stamping.out_of_orderness.micros))
        elif self._stamp is None:
            self._advance(batch.watermark)
        if len(block):
            self._last_seen = self.clock.monotonic()
            self.idle = False
        elif stamping.idle_after is not None:
            quiet = self.clock.monotonic() - self._last_seen
            self.idle = batch.idle or quiet >= stamping.idle_after.micros
        else:
            self.idle = batch.idle
        return block

    def position(self) -> Position:
        """Where a new reader would resume."""
        return self._reader.position()

    def close(self) -> None:
        """Release what the reader holds."""
        self._reader.close()

    def _advance(self, watermark: int | None) -> None:
        if watermark is not None and watermark > self.watermark:
            self.watermark = watermark

    def _read(self, limit: int) -> Batch:
        try:
            return self._reader.read(limit)
        except TidegateError as error:
            rethrow(located(error, self.node.label, self.node.where))
        except Exception as error:
            rethrow(user_error(error, step=self.node.label, where=self.node.where, method="read"))

    def _stamped(self, block: Block) -> tuple[Sequence[int], tuple[int, int]]:
        """The timestamps, and the least and the greatest of them."""
        assert self._stamp is not None
        try:
            return element_column(list(map(self._stamp, block.values)))
        except Exception:  # once more, to find the element
            timestamps = self._stamped_singly(block)
            return timestamps, (min(timestamps), max(timestamps))

    def _stamped_singly(self, block: Block) -> list[int]:
        assert self._stamp is not None
        timestamps = []
        value = None
        try:
            for value in block.values:
                timestamps.append(element_micros(self._stamp(value)))
        except Exception as error:
            rethrow(user_error(error, step=self.node.label, where=self.node.where, element=value, method="timestamp"))
        return timestamps
