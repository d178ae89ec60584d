"""Splits a block whose elements are in a few windows into one block per window.

Only blocks whose timestamps are an `array` are split: numpy is loaded then.
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

_MIN_ELEMENTS: Final = 256
"""The least number of elements per window that pays for a block."""


def split_by_window(block: Block, bounds: Bounds) -> Iterable[Block]:
    """The elements of a block as one block per window, in the order of windows; the block itself if that does not pay.

    `bounds` returns the bounds (µs) of the only window of a timestamp.
    """
    np = loaded_numpy()
    splittable = not isinstance(block.windows, Each) and isinstance(block.panes, PaneInfo)
    if np is None or not splittable or not isinstance(block.timestamps, array):
        return (block,)
    times = np.array(block.timestamps)
    first, last = int(times.min()), int(times.max())
    low, high = bounds(first)
    if last < high:
        return (Block(block.values, block.timestamps, block.windows, block.panes, (first, last)),)
    if (last - low) * _MIN_ELEMENTS > len(block) * (high - low):
        return (block,)
    return _split(block, times, first, last, bounds)


def _split(block: Block, times: Any, first: int, last: int, bounds: Bounds) -> Iterator[Block]:
    end = first
    while end <= last:
        first = int(times[times >= end].min())
        end = bounds(first)[1]
        inside = (times >= first) & (times < end)
        values = list(compress(block.values, inside.tobytes()))
        yield Block(values, array("q", times[inside].tobytes()), block.windows, block.panes, (first, end - 1))
