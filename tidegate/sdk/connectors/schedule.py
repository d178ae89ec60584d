"""A schedule of instants at a steady rate, for sources that emit elements by the clock."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.sdk.time import SECOND


@dataclass(frozen=True, slots=True)
class Schedule:
    """Element `n`, counted from 0, is due at `start + n * interval` (µs, rounded down).

    The interval is the exact quotient of two whole numbers, so the schedule never drifts.

    >>> three_a_second = Schedule(start=0, interval=(1_000_000, 3))
    >>> three_a_second.instants(range(4))
    [0, 333333, 666666, 1000000]
    >>> three_a_second.due(now=666_665), three_a_second.due(now=666_666)
    (2, 3)
    >>> three_a_second.seconds_until(3, now=900_000)
    0.1
    """

    start: int
    interval: tuple[int, int]

    @staticmethod
    def of_rate(rate: float, start: int) -> Schedule:
        """The schedule of `rate` elements per second."""
        numerator, denominator = rate.as_integer_ratio()
        return Schedule(start, (SECOND * denominator, numerator))

    def instant(self, n: int) -> int:
        """When element `n` is due (µs)."""
        numerator, denominator = self.interval
        return self.start + n * numerator // denominator

    def instants(self, numbers: range) -> list[int]:
        """When each of these elements is due (µs)."""
        start, (numerator, denominator) = self.start, self.interval
        return [start + n * numerator // denominator for n in numbers]

    def due(self, now: int) -> int:
        """How many elements are due at `now` (µs)."""
        if now < self.start:
            return 0
        numerator, denominator = self.interval
        # The last one is the greatest n with n * interval < now - start + 1.
        return -(-(now - self.start + 1) * denominator // numerator)

    def seconds_until(self, n: int, now: int) -> float:
        """How long until element `n` is due, in seconds; 0 if it is due."""
        return max(0, self.instant(n) - now) / SECOND
