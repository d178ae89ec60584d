"""Evenly spread samples of a run that may go on for long, for a picture that can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST_DRAWN: Final = 3000
"""Elements of all keys together that a picture shows, and as many late and dropped ones."""


class Sample(Generic[T]):
    """An evenly spread part of what is offered, at most `most` things: one of every `every`, which doubles.

    A thing may stand for several that were not offered: its weight.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.every = 1
        self.kept: list[T] = []
        self._offered = 0
        self._due = 0

    def offer(self, make: Callable[[], T], weight: int = 1) -> None:
        """One more thing, made if it is kept."""
        if self._offered >= self._due:
            self.kept.append(make())
            if len(self.kept) > self.most:
                del self.kept[1::2]
                self.every *= 2
            self._due = (self._offered // self.every + 1) * self.every
        self._offered += weight

    def thinned(self, every: int) -> list[T]:
        """What is kept, or about one of `every` if that is fewer."""
        return self.kept[:: max(1, every // self.every)]


def drawn(samples: list[Sample[T]]) -> tuple[list[T], int]:
    """What a picture shows of several samples, and how many each thing stands for: the densest are thinned first."""
    every = 1
    while sum(len(sample.thinned(every)) for sample in samples) > max(MOST_DRAWN, len(samples)):
        every *= 2
    return [one for sample in samples for one in sample.thinned(every)], max(every, *(s.every for s in samples))
