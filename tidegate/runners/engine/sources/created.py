"""The elements of a `Create` as a source, whose splits are consecutive ranges of the elements."""

from __future__ import annotations

from typing import Any

from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import BLOCK_SIZE, RawBlock


class Created(Source[Any]):
    """Reads the author's elements without copying them."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def splits(self, desired: int) -> list[Split]:
        """Ranges of about equal size, at least a block each, so that few elements stay together and in order."""
        size = max(-(-len(self._values) // desired), BLOCK_SIZE)
        return [Split(f"{at}", None, (at, at + size)) for at in range(0, len(self._values), size)]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        start, stop = split.payload
        return _CreatedReader(self._values, start if position is None else position, min(stop, len(self._values)))


class _CreatedReader(Reader[Any]):
    def __init__(self, values: Any, at: int, stop: int) -> None:
        self._values = values
        self._at = at
        self._stop = stop

    def read(self, limit: int) -> Batch:
        start, self._at = self._at, min(self._at + limit, self._stop)
        return Batch(RawBlock(self._values[start : self._at]), end=self._at >= self._stop)

    def position(self) -> Position:
        return self._at
