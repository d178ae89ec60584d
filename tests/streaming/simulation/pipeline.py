"""The pipeline of a simulation, and the check of its output.

Numbers go through a rebalance, keyed state with timers, a second shuffle into windows, and into three checked sinks:
one that stores prepared output itself, and two that stage files, one of which commits by task.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import tidegate as tg
from tests.streaming.simulation.outside import Checked, DiscoveredNumbers, Numbers, Outside, Record, event_time
from tidegate.sdk.time import SECOND

SEEN = tg.ValueStateSpec("seen")
GATHERED = tg.BagStateSpec("gathered")
FLUSH = tg.EventTimer("flush")
WINDOW = 3
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
    windowed = (
        counted
        | "only seen" >> tg.Filter(is_seen)
        | "rekey" >> tg.Map(by_digit)
        | "windows" >> tg.WindowInto(tg.FixedWindows(WINDOW))
        | "sums" >> tg.CombinePerKey(InPlaceSum())
        | "end" >> tg.ParDo(WithWindow())
    )
    _ = windowed | "summed" >> tg.Write(Checked(name, stages=True))
    return pipeline


class InPlaceSum(tg.CombineFn[int, list[int], int]):
    """A sum whose accumulators are changed in place, as the contract allows."""

    def create_accumulator(self) -> list[int]:
        return [0]

    def add_input(self, accumulator: list[int], element: int) -> list[int]:
        accumulator[0] += element
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[int]]) -> list[int]:
        first, *others = accumulators
        for other in others:
            first[0] += other[0]
        return first

    def extract_output(self, accumulator: list[int]) -> int:
        return accumulator[0]


def is_seen(record: Record) -> bool:
    return bool(record[0] == "seen")


def by_digit(record: Record) -> tuple[int, int]:
    return record[3] % 10, 1


class WithWindow(tg.DoFn):
    def process(self, element: tuple[int, int], window: Any = tg.DoFn.WindowParam) -> Iterator[Record]:
        yield ("sum", element[0], window.end.micros, element[1])


class InvariantViolation(AssertionError):
    """An invariant does not hold."""


class Checker:
    """Checks every commit against the expected output."""

    def __init__(self, outside: Outside, keys: int) -> None:
        self._outside = outside
        self._keys = keys
        self._share = outside.numbers // outside.partitions
        self._final = 0
        self._begin()

    def _begin(self) -> None:
        self._checked = 0
        self._counts: dict[int, int] = defaultdict(int)
        self._numbers: set[int] = set()
        self._flushed: set[int] = set()
        self._order: dict[tuple[int, int], int] = {}
        self._ordered = 0
        self._sums: dict[tuple[int, int], int] = {}

    def check(self) -> None:
        """Check the output that has been committed since the last call."""
        committed = self._outside.committed
        while self._checked < len(committed):
            self._checked += 1
            self._check(committed[self._checked - 1][1])

    def mark_final(self) -> None:
        """Checkpoint numbers start again at 1: none of the output committed so far will be repeated."""
        self._final = len(self._outside.committed)

    def rewind(self, checkpoint: int) -> None:
        """The job resumes from this checkpoint because later ones are damaged: their output is going to be repeated."""
        committed = self._outside.committed
        committed[self._final :] = [(at, records) for at, records in committed[self._final :] if at <= checkpoint]
        self._begin()
        self.check()

    def _check(self, records: Iterable[Record]) -> None:
        for record in records:
            match record:
                case ("seen", key, count, number):
                    if number in self._numbers:
                        raise InvariantViolation(f"{number} came twice")
                    self._numbers.add(number)
                    self._counts[key] += 1
                    if count != self._counts[key]:
                        raise InvariantViolation(f"key {key}: count {count} follows {self._counts[key] - 1}")
                case ("order", key, partition, before, number):
                    if self._order.get((key, partition), -1) != before or number <= before:
                        raise InvariantViolation(f"key {key}, partition {partition}: {number} follows {before}")
                    self._order[key, partition] = number
                    self._ordered += 1
                case ("flushed", key, numbers):
                    for number in numbers:
                        if number in self._flushed:
                            raise InvariantViolation(f"{number} was flushed twice")
                        if number % self._keys != key:
                            raise InvariantViolation(f"{number} was flushed for key {key}")
                        self._flushed.add(number)
                case ("sum", digit, end, n):
                    if (digit, end) in self._sums:
                        raise InvariantViolation(f"the window of {digit} that ends at {end} came twice")
                    self._sums[digit, end] = n
                case other:
                    raise InvariantViolation(f"what is {other}?")

    def finish(self, *, drained: bool) -> None:
        """Check that the output is complete. `drained`: sources ended early, each at any position."""
        missing = set(range(self._share * self._outside.partitions)) - self._numbers
        if drained:
            missing = {number for number in missing if number + 1 in self._numbers and (number + 1) % self._share}
        if missing:
            raise InvariantViolation(f"{len(missing)} numbers are lost, such as {min(missing)}")
        if self._ordered != len(self._numbers):
            raise InvariantViolation(f"{len(self._numbers) - self._ordered} numbers are missing in order")
        if self._numbers != self._flushed:
            lost = self._numbers - self._flushed
            raise InvariantViolation(
                f"{len(lost)} numbers were never flushed, such as {min(lost)}: a timer was forgotten"
            )
        expected: dict[tuple[int, int], int] = defaultdict(int)
        for number in self._numbers:
            end = (event_time(number % self._share) // (WINDOW * SECOND) + 1) * WINDOW * SECOND
            expected[number % 10, end] += 1
        late = self._outside.discovers  # some elements of partitions discovered later may be dropped
        wrong = {
            at
            for at in expected.keys() | self._sums.keys()
            if self._sums.get(at, 0) > expected.get(at, 0) or (not late and self._sums.get(at) != expected.get(at))
        }
        if wrong:
            raise InvariantViolation(f"{len(wrong)} window sums are wrong, such as {min(wrong)}")
