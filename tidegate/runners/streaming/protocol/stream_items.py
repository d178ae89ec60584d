"""The items of a channel: blocks of elements and, in order between them, control events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.sdk.data.block import Block
from tidegate.sdk.time import MAX_MICROS

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


@dataclass(frozen=True, slots=True)
class LoopMark:
    """Goes round a feedback loop: everything that its heads had sent before it has been handled where it has passed.

    `loop`: the step of the head. `low`: the least timestamp (µs) of what is kept on the way and will be emitted without
    a further watermark; `clock`: when the next timer on the way fires, by the clock. `entering`: the statuses of the
    collections that enter the body beside the loop's input, by where they enter.
    """

    loop: int
    number: int
    low: int
    entering: tuple[tuple[str, CollectionStatus], ...] = ()
    clock: int = MAX_MICROS


@dataclass(frozen=True, slots=True)
class Hops:
    """The blocks that follow on a channel in a loop have gone round so often."""

    number: int


Event: TypeAlias = CollectionStatus | Barrier | LoopMark | Hops
"""Control events. A collection status with `ended` is the last item of its channel."""

Item: TypeAlias = Block | Event
