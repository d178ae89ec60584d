"""The state of a loop between two rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate.sdk import moved

Blocks: TypeAlias = list[tuple[Any, ...]]
"""The columns of blocks."""


@dataclass(frozen=True, slots=True)
class LoopSnapshot:
    """What a loop has read, by collection, and the elements of its variables after the rounds that are `done`.

    `is_over`: it has emitted its results. `paused`: its inputs have ended, and it goes on without another event. It has
    no keys: one task runs all rounds.
    """

    inputs: dict[str, Blocks]
    variables: list[Blocks] | None
    done: int
    is_over: bool
    paused: bool = False

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)
