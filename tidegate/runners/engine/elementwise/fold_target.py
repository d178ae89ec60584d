"""What a fused loop needs of the grouping that it ends in."""

from __future__ import annotations

from typing import Any, Protocol

from tidegate.runners.engine.elementwise.codegen import Fold, FoldedWindows
from tidegate.sdk.data.block import Block
from tidegate.sdk.windowing.assigners import BuiltinAssigner


class FoldTarget(Protocol):
    """A grouping whose tables a fused loop fills: the loop adds elements to the tables itself and emits no blocks."""

    @property
    def label(self) -> str:
        """The step's label, to which the loop's last lines are attributed."""

    def fold(self, windows: FoldedWindows) -> Fold:
        """The lines that add one element, given how its windows are found."""

    def environment(self) -> dict[str, Any]:
        """The names that the lines of `fold` use."""

    def finds_windows(self, assigner: BuiltinAssigner) -> bool:
        """Whether `assigner` puts each timestamp into exactly one window, whose bounds `bounds` then returns."""

    def bounds(self, t: int) -> tuple[int, int]:
        """The bounds (µs) of the only window of a timestamp, after `finds_windows` has returned True."""

    def adds_whole(self, block: Block) -> bool:
        """Add a whole block at once where that is possible; False leaves the block to the loop."""

    def block_added(self, n: int) -> None:
        """A block of `n` elements has been added: account for its memory and its late elements."""

    def blamed(self, error: BaseException, element: Any) -> BaseException:
        """The error to raise to the author for `error`, raised while `element` was added."""
