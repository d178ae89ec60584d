"""Converts blocks to columns, to be written in one pickle, and back.

Pairs become two columns, which takes pickle half the time.

>>> block = Block([("a", 1), ("b", 2)])
>>> columns = block_columns(block)
>>> columns[:2]
(['a', 'b'], [1, 2])
>>> [list(each.values) for each in blocks_of(columns)]
[[('a', 1), ('b', 2)]]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tidegate.sdk.data.block import Block, Pairs, as_pairs

BLOCK_COLUMNS: Final = 5
"""The number of columns of a block."""


def block_columns(block: Block) -> tuple[Any, ...]:
    """The columns of a block: keys (None unless its values are pairs), values, timestamps, windows and panes."""
    pairs = as_pairs(block.values)
    if pairs is not None:
        return pairs.firsts, pairs.seconds, block.timestamps, block.windows, block.panes
    values = block.values if type(block.values) is list else list(block.values)
    return None, values, block.timestamps, block.windows, block.panes


def block_of(keys: Any, values: Any, timestamps: Any, windows: Any, panes: Any) -> Block:
    """The block with these columns."""
    return Block(values if keys is None else Pairs(keys, values), timestamps, windows, panes)


def blocks_of(columns: Sequence[Any]) -> Iterator[Block]:
    """The blocks of a sequence of columns. ValueError if its length is not a multiple of `BLOCK_COLUMNS`."""
    rest = iter(columns)
    for block in zip(*[rest] * BLOCK_COLUMNS, strict=True):
        yield block_of(*block)
