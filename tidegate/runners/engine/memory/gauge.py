"""Detects when a table exceeds its memory budget: one schedule of sampling and checking for all tables that spill."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from tidegate.runners.engine.memory.sizing import deep_size

SAMPLE: Final = 16
"""The number of entries that are sampled from each end of a table."""
_CHECK_EVERY: Final = 8
_SAMPLE_EVERY: Final = 128


class MemoryGauge:
    """Detects after which block a table exceeds its budget, at the cost of a few samples.

    `estimate` returns the estimated size of the table in bytes, from its number of entries and their sampled sizes.
    `sample` takes new samples: after blocks 1, 2, 4, 8, …, since the first elements are the most informative, and after
    every 128th block. `recount` improves the estimate as far as possible; it may be slow, and runs only when the
    estimate exceeds the budget.

    >>> table = {}
    >>> gauge = MemoryGauge(1_000, estimate=lambda: 300 * len(table), sample=lambda: None)
    >>> for n in range(4):
    ...     table[n] = "a large value"
    ...     print(gauge.block_added())
    False
    False
    False
    True
    """

    __slots__ = ("_blocks", "_budget", "_estimate", "_recount", "_sample")

    def __init__(
        self,
        budget: int,
        *,
        estimate: Callable[[], int],
        sample: Callable[[], None],
        recount: Callable[[], None] | None = None,
    ) -> None:
        self._budget = budget
        self._estimate = estimate
        self._sample = sample
        self._recount = sample if recount is None else recount
        self._blocks = 0

    def block_added(self, *, large: bool = False) -> bool:
        """Whether the table exceeds its budget, now that it has one more block. A `large` block is always checked."""
        self._blocks += 1
        n = self._blocks
        large = large or n & (n - 1) == 0
        if large or n % _SAMPLE_EVERY == 0:
            self._sample()
        if not (large or n % _CHECK_EVERY == 0) or self._estimate() <= self._budget:
            return False
        self._recount()
        return self._estimate() > self._budget


def mean_size(values: Iterable[Any]) -> int:
    """The mean size of the values in bytes, estimated; 0 without values."""
    total = n = 0
    for value in values:
        total += deep_size(value)
        n += 1
    return total // n if n else 0


def oldest_and_newest(table: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """A sample of a table's entries: the first and the last `SAMPLE` that were added."""
    return [*islice(table.items(), SAMPLE), *islice(reversed(table.items()), SAMPLE)]
