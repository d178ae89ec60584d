"""The check of a simulation's output, of which a seed may repeat or lose nothing, and what pipelines have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tidegate as tg
from tests.streaming.simulation.outside import Outside, Record
from tidegate.sdk.time import SECOND

WINDOW = 3
"""The length of the windows (s)."""


class InvariantViolation(AssertionError):
    """An invariant does not hold."""


def summed(records: Any, by_digit: Callable[[Record], tuple[int, int]]) -> Any:
    """How many records there are for each last digit of a number and each window: `("sum", digit, end, count)`."""
    return (
        records
        | "rekey" >> tg.Map(by_digit).with_output_types(tuple[int, int])
        | "windows" >> tg.WindowInto(tg.FixedWindows(WINDOW))
        | "sums" >> tg.CombinePerKey(InPlaceSum())
        | "end" >> tg.ParDo(WithWindow())
    )


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


class WithWindow(tg.DoFn):
    def process(self, element: tuple[int, int], window: Any = tg.DoFn.WindowParam) -> Iterator[Record]:
        yield ("sum", element[0], window.end.micros, element[1])


class Checker(ABC):
    """Checks every commit against the output that is expected."""

    def __init__(self, outside: Outside, keys: int) -> None:
        self.outside = outside
        self.keys = keys
        self.share = outside.numbers // outside.partitions
        self._final = 0
        self._begin()

    def _begin(self) -> None:
        self._checked = 0
        self._counts: dict[int, int] = defaultdict(int)
        self._sums: dict[tuple[int, int], int] = {}
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """Forget what has been checked."""

    @abstractmethod
    def check_record(self, record: Record) -> None:
        """Check a record that has been committed, of a kind that only this pipeline has. Raises InvariantViolation."""

    @abstractmethod
    def finish(self, *, drained: bool) -> None:
        """Check that the output is complete. `drained`: the source ended early, in each partition at any position."""

    def check(self) -> None:
        """Check the output that has been committed since the last call."""
        committed = self.outside.committed
        while self._checked < len(committed):
            self._checked += 1
            for record in committed[self._checked - 1][1]:
                self._check(record)

    def mark_final(self) -> None:
        """Checkpoint numbers start again at 1: none of the output committed so far will be repeated."""
        self._final = len(self.outside.committed)

    def rewind(self, checkpoint: int) -> None:
        """The job resumes from this checkpoint because later ones are damaged: their output is going to be repeated."""
        committed = self.outside.committed
        committed[self._final :] = [(at, records) for at, records in committed[self._final :] if at <= checkpoint]
        self._begin()
        self.check()

    def _check(self, record: Record) -> None:
        match record:
            case ("sum", digit, end, n):
                if (digit, end) in self._sums:
                    raise InvariantViolation(f"the window of {digit} that ends at {end} came twice")
                self._sums[digit, end] = n
            case _:
                self.check_record(record)

    def check_count(self, key: int, count: int) -> None:
        """Check the next number that a key's state has counted to."""
        self._counts[key] += 1
        if count != self._counts[key]:
            raise InvariantViolation(f"key {key}: count {count} follows {self._counts[key] - 1}")

    def check_numbers(self, numbers: set[int], *, drained: bool) -> None:
        """Check that all numbers are there that the source has; `drained` as for `finish`."""
        missing = set(range(self.share * self.outside.partitions)) - numbers
        if drained:
            missing = {number for number in missing if number + 1 in numbers and (number + 1) % self.share}
        if missing:
            raise InvariantViolation(f"{len(missing)} numbers are lost, such as {min(missing)}")

    def check_sums(self, counted: Iterable[tuple[int, int]], *, late: bool = False) -> None:
        """Check the windows' sums, of a number and its timestamp (µs) each. `late`: some may have been dropped."""
        expected: dict[tuple[int, int], int] = defaultdict(int)
        for number, at in counted:
            expected[number % 10, (at // (WINDOW * SECOND) + 1) * WINDOW * SECOND] += 1
        wrong = {
            at
            for at in expected.keys() | self._sums.keys()
            if self._sums.get(at, 0) > expected.get(at, 0) or (not late and self._sums.get(at) != expected.get(at))
        }
        if wrong:
            raise InvariantViolation(f"{len(wrong)} window sums are wrong, such as {min(wrong)}")
