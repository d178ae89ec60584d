"""The status of a collection, and the watermark of several inputs: the minimum over those that are active."""

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
