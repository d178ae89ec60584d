"""The status of a collection, the minimum watermark of several inputs, and how far the steps of a graph are in time."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.sdk.time import MAX_MICROS, MIN_MICROS


@dataclass(frozen=True, slots=True)
class CollectionStatus:
    """The watermark (µs) of a collection, and whether the collection is idle or has ended.

    An idle collection doesn't hold back the watermark downstream (SEMANTICS, Time); its watermark stays where it is.

    >>> CollectionStatus().advances_time, CollectionStatus(idle=True).advances_time
    (False, True)
    """

    watermark: int = MIN_MICROS
    idle: bool = False
    ended: bool = False

    @property
    def advances_time(self) -> bool:
        """Whether event time can advance downstream. The initial watermark holds it at the beginning of time."""
        return self.watermark > MIN_MICROS or self.idle or self.ended


class MinWatermark:
    """The watermark of several inputs: the minimum of their watermarks (SEMANTICS, Time). It never goes back.

    Inputs that are idle or have ended are left out of the minimum. An input that was idle counts again once its
    watermark has caught up with the minimum of the others. If all are idle, none holds back another: the watermark is
    the greatest one, in whatever order they became idle.

    >>> inputs = MinWatermark()
    >>> inputs.of({"left": CollectionStatus(30), "right": CollectionStatus(20)}).watermark
    20
    >>> inputs.of({"left": CollectionStatus(30), "right": CollectionStatus(20, idle=True)}).watermark
    30
    >>> inputs.of({"left": CollectionStatus(40), "right": CollectionStatus(25)}).watermark
    40
    >>> inputs.of({"left": CollectionStatus(50, idle=True), "right": CollectionStatus(25, idle=True)})
    CollectionStatus(watermark=50, idle=True, ended=False)
    """

    __slots__ = ("_returning", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_MICROS
        self._returning: set[Hashable] = set()

    def of(self, inputs: Mapping[Any, CollectionStatus]) -> CollectionStatus:
        """The status of all inputs together."""
        live = [(name, status) for name, status in inputs.items() if not status.ended]
        if not live:
            return CollectionStatus(MAX_MICROS, ended=True)
        active = []
        for name, status in live:
            if status.idle:
                self._returning.add(name)
            elif name in self._returning and status.watermark < self.watermark:
                continue
            else:
                self._returning.discard(name)
                active.append(status.watermark)
        if not active:
            idle = all(status.idle for _, status in live)
            if idle:
                self.watermark = max(self.watermark, *(status.watermark for _, status in live))
            return CollectionStatus(self.watermark, idle=idle)
        self.watermark = max(self.watermark, min(active))
        return CollectionStatus(self.watermark)

    def progress(self) -> MinProgress:
        """What `continue_from` restores."""
        return MinProgress(self.watermark, frozenset(self._returning))

    def continue_from(self, progress: MinProgress) -> None:
        """Go on exactly where `progress` was taken."""
        self.watermark = progress.watermark
        self._returning = set(progress.returning)


@dataclass(frozen=True, slots=True)
class MinProgress:
    """The minimum that a `MinWatermark` has come to, and the inputs that have been idle and have not caught up."""

    watermark: int
    returning: frozenset[Hashable]


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a step has come: its input watermark and processing time (µs), the watermarks of its side inputs, whether
    its inputs have ended or are idle, and whether they have ever been idle."""

    watermark: int
    clock: int
    sides: Mapping[str, int]
    ended: bool
    idle: bool
    was_idle: bool
    inputs: MinProgress


@dataclass(frozen=True, slots=True)
class GraphProgress:
    """How far the steps of a graph have come, by the name of their state, and the status of each collection."""

    statuses: Mapping[str, CollectionStatus]
    steps: Mapping[str, StepProgress]
