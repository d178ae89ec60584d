"""The keys of the elements that cross a keyed exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.runners.engine.errors.attribution import rethrow, unfit_for_key
from tidegate.runners.plan import Edge, Plan
from tidegate.sdk.data.block import Block, keys_of
from tidegate.sdk.portable.model import CombinePerKey


class KeyExtractor:
    """The keys of a block's elements: the first halves of pairs, or the elements themselves where a combiner counts
    whole elements and nothing has been combined yet."""

    def __init__(self, plan: Plan, edge: Edge) -> None:
        step = plan.steps[edge.target]
        self.label, self.where = step.label, step.head.where
        self._elements_are_keys = (
            isinstance(step.tail, CombinePerKey) and step.tail.key == "element" and step.phase != "merge"
        )

    def keys(self, block: Block) -> Sequence[Any]:
        """The key of each element. Raises the author's error, naming the step, for an element that is not a pair."""
        if self._elements_are_keys:
            return block.values
        try:
            return keys_of(block.values)
        except (TypeError, ValueError) as error:
            rethrow(self.refusal(block, error))

    def refusal(self, block: Block, error: BaseException) -> BaseException:
        """The author's error for a block: names the element that is not a pair, or the key that has no encoding."""
        return unfit_for_key(block.values, error, self.label, self.where, pairs=not self._elements_are_keys)
