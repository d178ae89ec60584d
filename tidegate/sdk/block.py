"""An older import path of `tidegate.sdk.data.block`, kept for authors who use it."""

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
