"""A source of Nexmark's events of one kind: a bounded table, or a stream with event times and watermarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tidegate as tg
from benchmarks.nexmark.events import Events, count, number
from benchmarks.nexmark.model import Auction, Bid, Person
from tidegate.sdk.connectors.schedule import Schedule
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import Block

LEAST_SPLIT = 4096
"""Bounded splits have at least as many events of the kind."""


@dataclass(frozen=True)
class NexmarkSource(Source[Any]):
    """Those of the first `stop` events that are of a kind, with their times as timestamps.

    `bounded`: one split has a range of the events. Otherwise it is a stream, without end if `stop` is None, whose
    splits each take every n-th event of the kind, and whose watermark is what the next event's time can't be before;
    with `rate`, in events of all kinds per second, each event comes when it is due.
    """

    kind: type
    events: Events
    stop: int | None
    bounded: bool = True
    rate: float | None = None

    @property
    def name(self) -> str:
        return f"Nexmark's {self.kind.__name__.lower()}s"

    @property
    def element_type(self) -> type:
        return self.kind

    def splits(self, desired: int) -> list[Split]:
        if not self.bounded:
            return [Split(f"{first}/{desired}", None, [first, None, desired, None]) for first in range(desired)]
        assert self.stop is not None, "a bounded table has an end"
        rows = count(self.kind, self.stop)
        size = max(LEAST_SPLIT, -(-rows // desired))
        return [Split(f"{at}", None, [at, min(at + size, rows), 1, None]) for at in range(0, max(rows, 1), size)]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _Reader(self, split, position)

    def split_again(self, split: Split, position: Position, desired: int) -> list[Split]:
        first, stop, step, began = split.payload
        at, began = (first, began) if position is None else position
        return [
            Split(f"{split.id} from {at}, {each}/{desired}", None, [at + each * step, stop, step * desired, began])
            for each in range(desired)
        ]


class _Reader(Reader[Any]):
    """The position is the next index among the events of the kind, and when the schedule began (µs, or None)."""

    def __init__(self, source: NexmarkSource, split: Split, position: Position) -> None:
        first, stop, self._step, began = split.payload
        self._source = source
        self._index, self._began = (first, began) if position is None else position
        ends = [
            each
            for each in (stop, None if source.stop is None else count(source.kind, source.stop))
            if each is not None
        ]
        self._stop: int | None = min(ends, default=None)

    def read(self, limit: int) -> Batch:
        source, kind = self._source, self._source.kind
        stop = self._index + limit * self._step
        wait = 0.0
        if self._stop is not None:
            stop = min(stop, self._stop)
        if source.rate is not None:
            if self._began is None:
                self._began = self.now()
            schedule = Schedule.of_rate(source.rate, self._began)
            stop = min(stop, count(kind, schedule.due(self.now())))
            wait = schedule.seconds_until(number(kind, self._index), self.now())
        numbers = [number(kind, index) for index in range(self._index, stop, self._step)]
        self._index += len(numbers) * self._step
        block = Block.of([source.events.at(each) for each in numbers], [source.events.time(each) for each in numbers])
        end = self._stop is not None and self._index >= self._stop
        if source.bounded:
            return Batch(block, end=end)
        return Batch(block, source.events.least_time(number(kind, self._index)), end=end, wait=wait)

    def position(self) -> Position:
        return [self._index, self._began]


def tables(pipeline: tg.Pipeline, events: Events, stop: int | None, **options: Any) -> dict[str, tg.PCollection[Any]]:
    """The three tables, in a new pipeline; options are those of the source."""
    kinds = {"person": Person, "auction": Auction, "bid": Bid}
    return {
        name: pipeline | name >> tg.Read(NexmarkSource(kind, events, stop, **options)) for name, kind in kinds.items()
    }
