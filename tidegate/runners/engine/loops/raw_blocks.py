"""Runs a loop that unpacks pairs over elements whose types nothing has looked at.

A `TimestampedValue` can't be unpacked: the loop fails at the first one, before it has done anything with it. From there
on, the elements are looked at, and the loop runs over their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from tidegate.runners.engine.loops.compiled import LoopPosition
from tidegate.sdk.data.block import Block, RawBlock
from tidegate.sdk.data.values import TimestampedValue

T = TypeVar("T")


class Timestamped(Exception):
    """The element at `index` of a RawBlock is a TimestampedValue."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def timestamped(error: BaseException, position: LoopPosition) -> Timestamped | None:
    """What to raise for an error of the loop if it is that of unpacking a TimestampedValue; None otherwise."""
    if isinstance(error, TypeError) and position.raised_here and type(position.element) is TimestampedValue:
        return Timestamped(position.index)
    return None


def run_raw(block: RawBlock, run: Callable[[Block, int], Iterator[T]]) -> Iterator[T]:
    """Run a loop over a block. `run` runs it over elements without TimestampedValues, and counts as many as it is told.

    `run` raises `Timestamped` where there is one after all.
    """
    try:
        yield from run(Block(block.elements), len(block))
        return
    except Timestamped as found:
        index = found.index
    yield from run(Block.of_elements(block.elements[index:]), 0)
