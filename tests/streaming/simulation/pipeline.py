"""The pipeline of a simulation, and the check of its output.

Numbers go through a rebalance, keyed state with timers, a second shuffle into windows, and into three checked sinks:
one that stores prepared output itself, and two that stage files, one of which commits by task.
"""

from __future__ import annotations

from collections.abc import Iterator

import tidegate as tg
from tests.streaming.simulation.checking import Checker, InvariantViolation, summed
from tests.streaming.simulation.outside import Checked, DiscoveredNumbers, Numbers, Record, event_time

SEEN = tg.ValueStateSpec("seen")
GATHERED = tg.BagStateSpec("gathered")
FLUSH = tg.EventTimer("flush")
FLUSH_AFTER = 2


class Counting(tg.DoFn):
    """Numbers the elements of each key as they arrive, and emits the gathered ones when a timer fires."""

    def process(
        self,
        element: tuple[int, int],
        at: tg.Timestamp = tg.DoFn.TimestampParam,
        seen: tg.ValueState[int] = tg.DoFn.StateParam(SEEN),
        gathered: tg.BagState[int] = tg.DoFn.StateParam(GATHERED),
        flush: tg.Timer = tg.DoFn.TimerParam(FLUSH),
    ) -> Iterator[Record]:
        key, number = element
        count = (seen.read() or 0) + 1
        seen.write(count)
        if not any(True for _ in gathered.read()):
            flush.set(at + FLUSH_AFTER)
        gathered.add(number)
        yield ("seen", key, count, number)

    @tg.on_timer(FLUSH)
    def flush(
        self,
        key: int = tg.DoFn.KeyParam,
        gathered: tg.BagState[int] = tg.DoFn.StateParam(GATHERED),
    ) -> Iterator[Record]:
        numbers = tuple(gathered.read())
        gathered.clear()
        if numbers:
            yield ("flushed", key, numbers)


LAST = tg.MapStateSpec("last")


class InOrder(tg.DoFn):
    """Emits, with each element, the previous one of its partition and key."""

    def __init__(self, share: int) -> None:
        self.share = share

    def process(
        self, element: tuple[int, int], last: tg.MapState[int, int] = tg.DoFn.StateParam(LAST)
    ) -> Iterator[Record]:
        key, number = element
        partition = number // self.share
        yield ("order", key, partition, last.get(partition, -1), number)
        last.put(partition, number)


def build(name: str, numbers: int, partitions: int, keys: int, *, discovers: bool = False) -> tg.Pipeline:
    """The pipeline of the simulation of that name. `discovers`: partitions are discovered while it runs."""
    pipeline = tg.Pipeline()
    kind = DiscoveredNumbers if discovers else Numbers
    source = pipeline | "numbers" >> tg.Read(kind(name, numbers, partitions, keys, endless=False))
    counted = source | "spread" >> tg.Reshuffle() | "count" >> tg.ParDo(Counting())
    ordered = source | "order" >> tg.ParDo(InOrder(numbers // partitions))
    _ = ordered | "ordered" >> tg.Write(Checked(name))
    _ = counted | "counted" >> tg.Write(Checked(name, stages=True, commit_by="task"))
    seen = counted | "only seen" >> tg.Filter(is_seen)
    _ = summed(seen, by_digit) | "summed" >> tg.Write(Checked(name, stages=True))
    return pipeline


def is_seen(record: Record) -> bool:
    return bool(record[0] == "seen")


def by_digit(record: Record) -> tuple[int, int]:
    return record[3] % 10, 1


class NumbersChecker(Checker):
    """Checks the output of the pipeline."""

    def begin(self) -> None:
        self._numbers: set[int] = set()
        self._flushed: set[int] = set()
        self._order: dict[tuple[int, int], int] = {}
        self._ordered = 0

    def check_record(self, record: Record) -> None:
        match record:
            case ("seen", key, count, number):
                if number in self._numbers:
                    raise InvariantViolation(f"{number} came twice")
                self._numbers.add(number)
                self.check_count(key, count)
            case ("order", key, partition, before, number):
                if self._order.get((key, partition), -1) != before or number <= before:
                    raise InvariantViolation(f"key {key}, partition {partition}: {number} follows {before}")
                self._order[key, partition] = number
                self._ordered += 1
            case ("flushed", key, numbers):
                for number in numbers:
                    if number in self._flushed:
                        raise InvariantViolation(f"{number} was flushed twice")
                    if number % self.keys != key:
                        raise InvariantViolation(f"{number} was flushed for key {key}")
                    self._flushed.add(number)
            case other:
                raise InvariantViolation(f"what is {other}?")

    def finish(self, *, drained: bool) -> None:
        self.check_numbers(self._numbers, drained=drained)
        if self._ordered != len(self._numbers):
            raise InvariantViolation(f"{len(self._numbers) - self._ordered} numbers are missing in order")
        if self._numbers != self._flushed:
            lost = self._numbers - self._flushed
            raise InvariantViolation(
                f"{len(lost)} numbers were never flushed, such as {min(lost)}: a timer was forgotten"
            )
        counted = ((number, event_time(number % self.share)) for number in self._numbers)
        self.check_sums(counted, late=self.outside.discovers)  # elements of partitions discovered later may be dropped
