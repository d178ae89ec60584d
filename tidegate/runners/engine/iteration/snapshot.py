"""The state of a loop between two rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Blocks: TypeAlias = list[tuple[Any, ...]]
"""The columns of blocks."""


@dataclass(slots=True)
class LoopSnapshot:
    """What a loop has read, by collection, and the elements of its variables after the rounds that are `done`.

    `is_over`: it has emitted its results. It has no keys: one task runs all rounds.
    """

    inputs: dict[str, Blocks]
    variables: list[Blocks] | None
    done: int
    is_over: bool
