"""The state of an operator that calls out: the elements whose results have not been emitted. They are called again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate.sdk.data.panes import PaneInfo

Waiting: TypeAlias = tuple[int, Any, int, tuple[Any, ...], PaneInfo]
"""The watermark before an element, its value, timestamp (µs), windows and pane."""


@dataclass(frozen=True, slots=True)
class AsyncSnapshot:
    """Plain data. `elements` are in the order in which they arrived, so their watermarks never go back;
    `watermark` is the last one.

    `in_flight`: how many calls the metric `calls_in_flight` counts, which the restored operator begins anew.
    """

    elements: list[Waiting]
    watermark: int
    in_flight: int

    def select(self, keeps: Callable[[int], bool]) -> AsyncSnapshot:
        """The part of one of several new tasks: its share of the elements, which have no key, by their number."""
        mine = [element for number, element in enumerate(self.elements) if keeps(number)]
        return AsyncSnapshot(mine, self.watermark, self.in_flight if keeps(0) else 0)

    @staticmethod
    def merged(parts: Sequence[AsyncSnapshot]) -> AsyncSnapshot:
        """The elements of several tasks, by their watermarks."""
        elements = sorted((each for part in parts for each in part.elements), key=lambda waiting: waiting[0])
        watermark = min(part.watermark for part in parts)
        return AsyncSnapshot(elements, watermark, sum(part.in_flight for part in parts))
