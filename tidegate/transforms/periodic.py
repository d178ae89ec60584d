"""Elements by the clock: an impulse each time an interval has passed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.sdk.block import Block
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection, Pipeline, PTransform
from tidegate.sdk.primitives import Read, WindowInto
from tidegate.sdk.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.time import MAX_MICROS, SECOND, Duration, DurationLike, Timestamp, TimestampLike, timestamp_micros
from tidegate.sdk.windows import FixedWindows


class PeriodicImpulse(PTransform[Pipeline, PCollection[Timestamp]]):
    """An element each `interval` of processing time from `start` (None: when the run begins) until before `stop`.

    Each is its own instant, as a `Timestamp`, and has it as its event time; the watermark follows to the next one.
    Instants that have passed already are given at once. With `apply_windowing` each is in a fixed window of its own.
    """

    def __init__(
        self,
        interval: DurationLike,
        start: TimestampLike | None = None,
        stop: TimestampLike | None = None,
        *,
        apply_windowing: bool = False,
        name: str | None = None,
    ) -> None:
        self.source = _Ticks(
            Duration.of(interval).micros,
            None if start is None else timestamp_micros(start),
            MAX_MICROS if stop is None else timestamp_micros(stop),
        )
        if self.source.interval <= 0:
            raise BuildError(f"PeriodicImpulse: the interval must be positive, and is {interval!r}")
        self.apply_windowing = apply_windowing
        self.label = name

    def expand(self, input: Pipeline) -> PCollection[Timestamp]:
        ticks: PCollection[Timestamp] = input | Read(self.source, name="Read")
        if self.apply_windowing:
            ticks = ticks | WindowInto(FixedWindows(Duration(micros=self.source.interval)), name="Window")
        return ticks


@dataclass(frozen=True, slots=True)
class _Ticks(Source[Timestamp]):
    """`interval`, `start` and `stop` in µs."""

    interval: int
    start: int | None
    stop: int

    @property
    def bounded(self) -> bool:
        return False

    @property
    def name(self) -> str:
        return f"every {self.interval / SECOND:g} s"

    @property
    def element_type(self) -> Any:
        return Timestamp

    def splits(self, desired: int) -> list[Split]:
        return [Split("clock")]

    def reader(self, split: Split, position: Position = None) -> Reader[Timestamp]:
        return _TickReader(self, position)


class _TickReader(Reader[Timestamp]):
    """The position is the next instant (µs)."""

    def __init__(self, source: _Ticks, position: Position) -> None:
        self.source = source
        self._next: int | None = source.start if position is None else position

    def read(self, limit: int) -> Batch:
        now = self.now()
        if self._next is None:
            self._next = now
        source = self.source
        count = min(limit, max(0, (now - self._next) // source.interval + 1))
        last = min(self._next + count * source.interval, source.stop)
        instants = list(range(self._next, last, source.interval))
        if instants:
            self._next = instants[-1] + source.interval
        block = Block.of([Timestamp(micros=at) for at in instants], instants)
        wait = 0.0 if count == limit else max(0.0, (self._next - now) / SECOND)
        return Batch(block, min(self._next, source.stop), end=self._next >= source.stop, wait=wait)

    def position(self) -> Position:
        return self._next
