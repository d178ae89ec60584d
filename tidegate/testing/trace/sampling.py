"""Evenly spread samples, so that the picture of a long run stays readable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST_DRAWN: Final = 3000
"""The most elements of all keys that a picture shows, and also the most late and dropped elements."""


class Sample(Generic[T]):
    """An evenly spread sample of at most `most` of the items offered: one in `every`, which doubles when it is full.

    An item's weight is the number of items that it stands for, itself and those that were not offered.

    >>> sample = Sample[int](4)
    >>> for n in range(16):
    ...     sample.offer(lambda: n)
    >>> sample.kept, sample.every
    ([0, 4, 8, 12], 4)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.every = 1
        self.kept: list[T] = []
        self._offered = 0
        self._next_kept = 0

    def offer(self, make: Callable[[], T], weight: int = 1) -> None:
        """Offer an item, which is made only if it is sampled."""
        if self._offered >= self._next_kept:
            self.kept.append(make())
            if len(self.kept) > self.most:
                del self.kept[1::2]
                self.every *= 2
            self._next_kept = (self._offered // self.every + 1) * self.every
        self._offered += weight

    def thinned(self, every: int) -> list[T]:
        """The sampled items, or about one in `every` of all items if those are fewer."""
        return self.kept[:: max(1, every // self.every)]


def drawn(samples: list[Sample[T]]) -> tuple[list[T], int]:
    """The items of several samples to draw, and how many each represents; the densest samples are thinned first."""
    every = 1
    while sum(len(sample.thinned(every)) for sample in samples) > max(MOST_DRAWN, len(samples)):
        every *= 2
    return [one for sample in samples for one in sample.thinned(every)], max(every, *(s.every for s in samples))
