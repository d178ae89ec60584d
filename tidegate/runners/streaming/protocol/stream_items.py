"""What travels in a channel: blocks of elements, and between them, in order, the events that control them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.sdk.data.block import Block

BarrierKind: TypeAlias = Literal["checkpoint", "savepoint", "settle"]
"""A settling barrier takes no snapshot: whoever sends it wants to know when all before it has been handled."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Splits a stream into what belongs to a checkpoint and what comes after it.

    `unaligned`: it may overtake blocks, which are then stored with the checkpoint. `clock` (µs), of a settling
    barrier: processing time moves to this as it passes.
    """

    checkpoint: int
    kind: BarrierKind = "checkpoint"
    unaligned: bool = False
    clock: int | None = None


Event: TypeAlias = CollectionStatus | Barrier
"""A mark says how the channel's collection stands; one with `ended` is the last thing in a channel."""

Item: TypeAlias = Block | Event
