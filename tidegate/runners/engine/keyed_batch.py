"""Elements grouped by key: the elements of one producer and key are adjacent, in order of arrival.

An exchange that feeds a keyed step delivers keyed batches, so that the step looks up each key once and not for each
element.

>>> from tidegate.sdk.data.panes import NO_PANE
>>> batch = KeyedBatch(["a", "b"], [2, 1], [1, 2, 3], 0, Same((GLOBAL_WINDOW,)), NO_PANE)
>>> [list(block.values) for block in batch.blocks(limit=2)]
[[('a', 1), ('a', 2)], [('b', 3)]]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from tidegate.sdk.data.block import Block, DerivedFrom, Same, TimestampsColumn, WindowsColumn
from tidegate.sdk.data.panes import PaneInfo
from tidegate.sdk.windowing.assigners import GlobalWindows
from tidegate.sdk.windowing.window import GLOBAL_WINDOW


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """For each `n`, `counts[n]` elements of the key `keys[n]`. The pane is the same for all elements."""

    keys: list[Any]
    counts: list[int]
    values: list[Any]
    timestamps: TimestampsColumn
    windows: WindowsColumn
    pane: PaneInfo

    def __len__(self) -> int:
        return len(self.values)

    def blocks(self, limit: int) -> Iterator[Block]:
        """The elements as blocks of pairs (key, value), of at most `limit` elements."""
        keys = chain.from_iterable(map(repeat, self.keys, self.counts))
        pairs = list(zip(keys, self.values, strict=True))
        yield from Block(pairs, self.timestamps, self.windows, self.pane).split(limit)


def only_window(column: WindowsColumn) -> Any:
    """The one window that all elements of a column are in; None if that depends on their timestamps."""
    match column:
        case Same((window,)):
            return window
        case DerivedFrom(GlobalWindows()):
            return GLOBAL_WINDOW
        case _:
            return None
