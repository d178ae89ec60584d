"""The interface of the grouping that a fused loop ends in."""

from __future__ import annotations

from typing import Any, Protocol

from tidegate.runners.engine.elementwise.shape import Fold, FoldedWindows
from tidegate.runners.engine.loops.inlining import Step
from tidegate.sdk.data.block import Block
from tidegate.sdk.windowing.assigners import BuiltinAssigner


class FoldTarget(Protocol):
    """A grouping whose tables a fused loop fills: the loop adds elements to the tables itself and emits no blocks."""

    @property
    def label(self) -> str:
        """The step's label, to which the loop's last lines are attributed."""

    @property
    def adding(self) -> Step | None:
        """The author's function that adds an element, which a loop may contain; None if there is none."""

    def fold(self, windows: FoldedWindows) -> Fold:
        """The lines that add one element, given how its windows are found."""

    def environment(self) -> dict[str, Any]:
        """The names that the lines of `fold` use."""

    def use_single_window(self, assigner: BuiltinAssigner) -> bool:
        """Return whether `assigner` puts each timestamp into exactly one window; if so, `bounds` returns its bounds."""

    def bounds(self, t: int) -> tuple[int, int]:
        """The bounds (µs) of the only window of a timestamp, after `use_single_window` has returned True."""

    def add_block(self, block: Block) -> bool:
        """Add a block without a loop over its elements, if possible; return whether it was."""

    def block_added(self, n: int) -> None:
        """A block of `n` elements has been added: account for its memory and its late elements."""

    def attributed(self, error: BaseException, element: Any) -> BaseException:
        """The error to raise to the author for `error`, raised while `element` was added."""
