"""Splits a block whose elements are in a few windows into a block for each window.

Only where timestamps are an `array`, which is where numpy is at hand.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from typing import Any, Final, TypeAlias

from tidegate.sdk.data.block import Block, Each
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.data.timestamps import loaded_numpy

Bounds: TypeAlias = Callable[[int], tuple[int, int]]

_LEAST: Final = 256
"""How many elements of a window are worth a block."""


def split_by_window(block: Block, bounds: Bounds) -> Iterable[Block]:
    """The elements of a block, those of an earlier window first, and within a window in their order; the block itself
    where that does not pay. `bounds` gives the bounds of the only window of a timestamp (µs)."""
    np = loaded_numpy()
    whole = not isinstance(block.windows, Each) and isinstance(block.panes, PaneInfo)
    if np is None or not whole or not isinstance(block.timestamps, array):
        return (block,)
    times = np.array(block.timestamps)
    first, last = int(times.min()), int(times.max())
    low, high = bounds(first)
    if last < high:
        return (Block(block.values, block.timestamps, block.windows, block.panes, (first, last)),)
    if (last - low) * _LEAST > len(block) * (high - low):
        return (block,)
    return _parts(block, times, first, last, bounds)


def _parts(block: Block, times: Any, first: int, last: int, bounds: Bounds) -> Iterator[Block]:
    past = first
    while past <= last:
        first = int(times[times >= past].min())
        past = bounds(first)[1]
        here = (times >= first) & (times < past)
        values = list(compress(block.values, here.tobytes()))
        yield Block(values, array("q", times[here].tobytes()), block.windows, block.panes, (first, past - 1))
