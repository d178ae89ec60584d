"""How a collection stands, and how several inputs together do: the least watermark of those that are not idle."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.sdk.time import MAX_MICROS, MIN_MICROS


@dataclass(frozen=True, slots=True)
class Mark:
    """How a collection stands: its watermark (µs), whether it is idle, whether it has ended."""

    watermark: int = MIN_MICROS
    idle: bool = False
    ended: bool = False

    @property
    def tells(self) -> bool:
        """Whether it lets time pass downstream. A watermark that has not left the beginning of time holds it there."""
        return self.watermark > MIN_MICROS or self.idle or self.ended


class Least:
    """Inputs that are read as one stand as the least of them (SEMANTICS, Time). Its watermark never goes back.

    One that is idle or has ended holds nothing back; one that was idle counts again once it has caught up.
    """

    __slots__ = ("_returning", "watermark")

    def __init__(self) -> None:
        self.watermark = MIN_MICROS
        self._returning: set[Hashable] = set()

    def of(self, marks: Mapping[Any, Mark]) -> Mark:
        """How they stand together now."""
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
