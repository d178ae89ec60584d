"""The items of a channel: blocks of elements and, in order between them, control events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.sdk.data.block import Block

BarrierKind: TypeAlias = Literal["checkpoint", "savepoint", "quiescence"]
"""A quiescence barrier takes no snapshot: its sender waits until every item before it has been processed."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Divides a stream into the items before a checkpoint and the items after it.

    `unaligned`: the barrier may overtake blocks, which are then stored with the checkpoint. `clock`: with a quiescence
    barrier, processing time advances to this instant (µs).
    """

    checkpoint: int
    kind: BarrierKind = "checkpoint"
    unaligned: bool = False
    clock: int | None = None


Event: TypeAlias = CollectionStatus | Barrier
"""Control events. A collection status with `ended` is the last item of its channel."""

Item: TypeAlias = Block | Event
