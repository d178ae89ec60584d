"""PeriodicImpulse and PeriodicSequence: elements emitted at regular instants of processing time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.sdk.authoring.dofn import DoFn, on_timer
from tidegate.sdk.authoring.state import ProcessingTimer, ValueStateSpec
from tidegate.sdk.connectors.schedule import Schedule
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import FlatMap, Map, ParDo, Read, WindowInto
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import MAX_MICROS, SECOND, Duration, DurationLike, Timestamp, TimestampLike, timestamp_micros
from tidegate.sdk.windowing.assigners import FixedWindows, GlobalWindows


class PeriodicImpulse(PTransform[Pipeline, PCollection[Timestamp]]):
    """An element every `interval` of processing time, from `start` (None: when the run begins) to before `stop`.

    Each element is its instant, a `Timestamp`, which is also its event time; the watermark then advances to the next
    instant. Instants in the past are emitted at once. With `apply_windowing` each element is in a fixed window of its
    own.
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


class PeriodicSequence(PTransform[PCollection[tuple[Any, Any, Any]], PCollection[Timestamp]]):
    """For each element `(start, stop, interval)`, the instants from `start` to before `stop`, each its own timestamp.

    On a stream an instant is emitted when the clock reaches it (at once if it is past), and the watermark is held at
    the next one; a repeated element starts no second sequence. On bounded input all instants are emitted at once.
    """

    def expand(self, input: PCollection[tuple[Any, Any, Any]]) -> PCollection[Timestamp]:
        if input.is_bounded:
            return input | FlatMap(_instants, name="All")
        sequences = input | WindowInto(GlobalWindows(), name="Window") | Map(_as_sequence, name="Sequence")
        ticks: PCollection[Timestamp] = sequences | ParDo(_Ticking(), name="Tick")
        return ticks


def _instants(sequence: tuple[Any, Any, Any]) -> Iterator[TimestampedValue[Timestamp]]:
    start, stop, interval = _as_sequence(sequence)[0]
    for at in range(start, stop, interval):
        yield TimestampedValue(Timestamp.of_micros(at), Timestamp.of_micros(at))


def _as_sequence(sequence: tuple[Any, Any, Any]) -> tuple[tuple[int, int, int], None]:
    start, stop, interval = sequence
    step = Duration.of(interval).micros
    if step <= 0:
        raise ValueError(f"the interval of a sequence must be positive, and is {interval!r}")
    return ((timestamp_micros(start), timestamp_micros(stop), step), None)


_NEXT = ValueStateSpec("next")
_TICK = ProcessingTimer("tick")


class _Ticking(DoFn):
    """Keyed by the sequence; the state is the next instant (µs)."""

    def process(
        self,
        pair: tuple[tuple[int, int, int], None],
        now: Any = DoFn.ProcessingTimeParam,
        due: Any = DoFn.StateParam(_NEXT),
        tick: Any = DoFn.TimerParam(_TICK),
    ) -> Iterable[TimestampedValue[Timestamp]]:
        if due.read() is None:
            due.write(pair[0][0])
            return self._advance(pair[0], now, due, tick)
        return ()

    @on_timer(_TICK)
    def ticked(
        self,
        sequence: Any = DoFn.KeyParam,
        now: Any = DoFn.ProcessingTimeParam,
        due: Any = DoFn.StateParam(_NEXT),
        tick: Any = DoFn.TimerParam(_TICK),
    ) -> Iterable[TimestampedValue[Timestamp]]:
        return self._advance(sequence, now, due, tick)

    @staticmethod
    def _advance(sequence: tuple[int, int, int], now: Timestamp, due: Any, tick: Any) -> Iterator[Any]:
        _, stop, interval = sequence
        at = due.read()
        while at < stop and at <= now.micros:
            yield TimestampedValue(Timestamp.of_micros(at), Timestamp.of_micros(at))
            at += interval
        due.write(at)
        if at < stop:
            tick.set(Timestamp.of_micros(at), output_timestamp=Timestamp.of_micros(at))


@dataclass(frozen=True, slots=True)
class _Ticks(Source[Timestamp]):
    """`interval`, `start` and `stop` in µs."""

    interval: int
    start: int | None
    stop: int

    bounded = False

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
        source, now = self.source, self.now()
        if self._next is None:
            self._next = now
        schedule = Schedule(self._next, (source.interval, 1))
        before_stop = max(0, -(-(source.stop - self._next) // source.interval))
        instants = schedule.instants(range(min(limit, schedule.due(now), before_stop)))
        self._next = schedule.instant(len(instants))
        block = Block.of([Timestamp(micros=at) for at in instants], instants)
        wait = schedule.seconds_until(len(instants), now)
        return Batch(block, min(self._next, source.stop), end=self._next >= source.stop, wait=wait)

    def position(self) -> Position:
        return self._next
