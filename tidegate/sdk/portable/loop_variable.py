"""A loop variable as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoopVariable:
    """A loop variable, by the ids of its collections: as the loop starts, as a round finds it, and as it leaves it.

    `before` exists in the body alone. `after` is a collection of the body, or one that the loop reads.
    """

    name: str
    start: str
    before: str
    after: str
