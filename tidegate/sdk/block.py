"""The path that authors have imported blocks of elements from; they are in `tidegate.sdk.data.block`."""

from tidegate.sdk.data.block import (
    BLOCK_SIZE,
    GLOBAL,
    Block,
    DerivedFrom,
    Each,
    PanesColumn,
    Same,
    TimestampsColumn,
    WindowsColumn,
)

__all__ = [
    "BLOCK_SIZE",
    "GLOBAL",
    "Block",
    "DerivedFrom",
    "Each",
    "PanesColumn",
    "Same",
    "TimestampsColumn",
    "WindowsColumn",
]
