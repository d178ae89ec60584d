"""A loop variable as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tidegate.sdk import moved


@dataclass(frozen=True, slots=True)
class LoopVariable:
    """A loop variable, by the ids of its collections: as the loop starts, as a round finds it, and as it leaves it.

    `before` exists in the body alone. `after` is a collection of the body, or one that the loop reads. What `after`
    has takes the place of the elements ("all"); or it is merged into them, one value for each key and window, which
    only a `Lookup` reads ("solution"); or those of its pairs come back that have changed the solution ("changes").
    `drives`: the loop is over when it is empty.
    """

    name: str
    start: str
    before: str
    after: str
    form: Literal["all", "solution", "changes"] = "all"
    drives: bool = False

    def __setstate__(self, state: Sequence[object]) -> None:
        moved.set_fields(self, state)
