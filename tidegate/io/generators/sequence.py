"""`GenerateSequence`: whole numbers in order, as fast as they are read or at a steady rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Unpack

from tidegate.sdk.connectors.schedule import Schedule
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import BLOCK_SIZE, Block
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import Read, ReadOptions
from tidegate.sdk.steps.transform import PTransform

MAX_RATE: Final = 1_000_000
"""Elements per second. Timestamps are microseconds, and no two elements of a schedule should share one."""


class GenerateSequence(PTransform[Pipeline, PCollection[int]]):
    """The whole numbers from `start` up to, but not including, `stop`.

    Without `stop` the sequence is unbounded. With `rate`, in elements per second, it is unbounded too, and each number
    comes when it is due; the number's timestamp is that instant, and the watermark is the instant of the next number.
    A stream that has fallen behind, or resumes from a checkpoint, emits at once what has become due since. Without
    `rate`, numbers come as fast as they are read and have no timestamp, unless `timestamp` assigns one.

    Other keyword arguments are those of `tg.Read`. Raises BuildError for numbers that make no sequence.
    """

    def __init__(
        self,
        start: int,
        stop: int | None = None,
        *,
        rate: float | None = None,
        name: str | None = None,
        **options: Unpack[ReadOptions],
    ) -> None:
        for what, value in (("start", start), ("stop", stop)):
            if type(value) is not int and not (what == "stop" and value is None):
                raise BuildError(f"GenerateSequence: {what} must be a whole number, not {value!r}")
        if rate is not None and (type(rate) not in (int, float) or not 0 < rate <= MAX_RATE):
            raise BuildError(
                f"GenerateSequence: rate is a number of elements per second, above 0 and at most {MAX_RATE:,}, "
                f"not {rate!r}"
            )
        self.label = name
        self.read: Read[int] = Read(SequenceSource(start, stop, rate), name="Read", **options)

    def expand(self, input: Pipeline) -> PCollection[int]:
        return input | self.read


@dataclass(frozen=True)
class SequenceSource(Source[int]):
    """See `GenerateSequence` for what the fields mean."""

    start: int
    stop: int | None
    rate: float | None

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        return self.stop is not None and self.rate is None

    @property
    def name(self) -> str:
        rate = "" if self.rate is None else f", {self.rate:g} a second"
        return f"numbers {self.start:,} to {'…' if self.stop is None else f'{self.stop:,}'}{rate}"

    @property
    def element_type(self) -> type[int]:
        return int

    def splits(self, desired: int) -> list[Split]:
        """Ranges of at least a block for a bounded sequence; for an unbounded one, each split takes every n-th number,
        so that all splits advance together."""
        if self.bounded and self.stop is not None:
            size = max(BLOCK_SIZE, -(-(self.stop - self.start) // desired))
            starts = range(self.start, self.stop, size)
            return [Split(f"{at}", None, range(at, min(at + size, self.stop))) for at in starts]
        return [Split(f"{first}/{desired}", None, (first, desired)) for first in range(desired)]

    def reader(self, split: Split, position: Position = None) -> Reader[int]:
        if isinstance(split.payload, range):
            return _RangeReader(split.payload, position)
        first, step = split.payload
        return _DealtReader(self, first, step, position)


class _RangeReader(Reader[int]):
    """The position is the next number."""

    def __init__(self, numbers: range, position: Position) -> None:
        self._next = numbers.start if position is None else position
        self._stop = numbers.stop

    def read(self, limit: int) -> Batch:
        first, self._next = self._next, min(self._next + limit, self._stop)
        return Batch(Block.of(range(first, self._next)), end=self._next >= self._stop)

    def position(self) -> Position:
        return self._next


class _DealtReader(Reader[int]):
    """Every `step`-th number, of a sequence that is unbounded or paced.

    The position is the next index in the sequence and when the schedule began (µs; None without a rate).
    """

    def __init__(self, source: SequenceSource, first: int, step: int, position: Position) -> None:
        self._first_number = source.start
        self._end = None if source.stop is None else max(0, source.stop - source.start)
        self._rate = source.rate
        self._step = step
        self._index: int = first
        self._began: int | None = None
        if position is not None:
            self._index, self._began = position

    def read(self, limit: int) -> Batch:
        stop = self._index + limit * self._step
        schedule = None
        if self._rate is not None:
            if self._began is None:
                self._began = self.now()
            schedule = Schedule.of_rate(self._rate, self._began)
            stop = min(stop, schedule.due(self.now()))
        if self._end is not None:
            stop = min(stop, self._end)
        indices = range(self._index, stop, self._step)
        if indices:
            self._index = indices[-1] + self._step
        values = range(self._first_number + indices.start, self._first_number + indices.stop, self._step)
        end = self._end is not None and self._index >= self._end
        if schedule is None:
            return Batch(Block.of(values), end=end)
        return Batch(
            Block.of(values, schedule.instants(indices)),
            schedule.instant(self._index),
            end=end,
            wait=schedule.seconds_until(self._index, self.now()),
        )

    def position(self) -> Position:
        return [self._index, self._began]
