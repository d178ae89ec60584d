"""Elements grouped by key: the elements that one producer has for a key are adjacent, in order of arrival.

An exchange that feeds a step which brings equal keys together anyway hands them over like this, so that it has a key
to look up once and not for each element.
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
    """`counts[n]` elements of `keys[n]`, one key's after another's; windows and pane are the same for all."""

    keys: list[Any]
    counts: list[int]
    values: list[Any]
    timestamps: TimestampsColumn
    windows: WindowsColumn
    pane: PaneInfo

    def __len__(self) -> int:
        return len(self.values)

    def blocks(self, limit: int) -> Iterator[Block]:
        """The same as blocks of pairs (key, value), of at most `limit` elements."""
        keys = chain.from_iterable(map(repeat, self.keys, self.counts))
        pairs = list(zip(keys, self.values, strict=True))
        yield from Block(pairs, self.timestamps, self.windows, self.pane).split(limit)


def only_window(column: WindowsColumn) -> Any:
    """The one window that all elements of a column are in; None if it can't be told without their timestamps."""
    match column:
        case Same((window,)):
            return window
        case DerivedFrom(GlobalWindows()):
            return GLOBAL_WINDOW
        case _:
            return None
