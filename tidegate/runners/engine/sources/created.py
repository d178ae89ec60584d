"""Elements of a `Create`, read as a source is: in splits, which are runs of them."""

from __future__ import annotations

from typing import Any

from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import BLOCK_SIZE, Block
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.time import MIN_MICROS


class Created(Source[Any]):
    """The author's own elements; not copied."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def splits(self, desired: int) -> list[Split]:
        """About equal runs, of at least a block: few elements stay together, and in their order."""
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
        return Batch(created(self._values[start : self._at]), end=self._at >= self._stop)

    def position(self) -> Position:
        return self._at


def created(elements: Any) -> Block:
    """Elements of a `Create` as a block; `TimestampedValue`s give their timestamps."""
    kinds = set() if isinstance(elements, range) else set(map(type, elements))
    if TimestampedValue not in kinds:
        return Block(elements)
    if len(kinds) == 1:
        return Block([e.value for e in elements], [e.micros for e in elements])
    values = [e.value if type(e) is TimestampedValue else e for e in elements]
    return Block(values, [e.micros if type(e) is TimestampedValue else MIN_MICROS for e in elements])
