"""Watermarks: the status of a collection, and the minimum over the inputs that are neither idle nor finished."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.sdk.time import MAX_MICROS, MIN_MICROS


@dataclass(frozen=True, slots=True)
class Mark:
    """The status of a collection: its watermark (µs), whether it is idle, whether it has ended."""

    watermark: int = MIN_MICROS
    idle: bool = False
    ended: bool = False

    @property
    def tells(self) -> bool:
        """Whether event time can advance downstream. An initial watermark holds it at the beginning of time."""
        return self.watermark > MIN_MICROS or self.idle or self.ended


class MinWatermark:
    """The watermark of inputs that are read as one: the minimum of theirs (SEMANTICS, Time). It never goes back.

    Inputs that are idle or have ended hold nothing back; an input that was idle counts again once it has caught up.

    >>> inputs = MinWatermark()
    >>> inputs.of({"left": Mark(30), "right": Mark(20)}).watermark
    20
    >>> inputs.of({"left": Mark(30), "right": Mark(20, idle=True)}).watermark
    30
    >>> inputs.of({"left": Mark(40), "right": Mark(25)}).watermark
    40
    """

    __slots__ = ("_returning", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_MICROS
        self._returning: set[Hashable] = set()

    def of(self, marks: Mapping[Any, Mark]) -> Mark:
        """The status of all inputs together."""
        live = [(name, mark) for name, mark in marks.items() if not mark.ended]
        if not live:
            return Mark(MAX_MICROS, ended=True)
        counting = []
        for name, mark in live:
            if mark.idle:
                self._returning.add(name)
            elif name in self._returning and mark.watermark < self.watermark:
                continue
            else:
                self._returning.discard(name)
                counting.append(mark.watermark)
        if not counting:
            return Mark(self.watermark, idle=all(mark.idle for _, mark in live))
        self.watermark = max(self.watermark, min(counting))
        return Mark(self.watermark)
