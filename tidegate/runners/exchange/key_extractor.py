"""Extracts the keys of elements that cross a keyed exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.runners.engine.errors.attribution import rethrow, unfit_for_key
from tidegate.runners.plan import Edge, Plan
from tidegate.sdk.data.block import Block, keys_of
from tidegate.sdk.portable.model import CombinePerKey


class KeyExtractor:
    """Extracts the keys of a block: the first items of pairs. Before a `CombinePerElement`, each element is its key.

    >>> import tidegate as tg
    >>> from tidegate.runners.planner import Traits, plan
    >>> p = tg.Pipeline()
    >>> _ = p | tg.Create([("a", 1)]) | tg.GroupByKey()
    >>> planned = plan(p.portable(), Traits(parallel=True, drops_unread=False))
    >>> (edge,) = [edge for edge in planned.edges if edge.exchange]
    >>> KeyExtractor(planned, edge).keys(Block([("a", 1), ("b", 2)]))
    ['a', 'b']
    """

    def __init__(self, plan: Plan, edge: Edge) -> None:
        step = plan.steps[edge.target]
        self.label, self.where = step.label, step.head.where
        self._elements_are_keys = (
            isinstance(step.tail, CombinePerKey) and step.tail.key == "element" and step.phase == "whole"
        )

    def keys(self, block: Block) -> Sequence[Any]:
        """The key of each element. For an element that is not a pair, raises an error that names the step."""
        if self._elements_are_keys:
            return block.values
        try:
            return keys_of(block.values)
        except (TypeError, ValueError) as error:
            rethrow(self.refusal(block, error))

    def refusal(self, block: Block, error: BaseException) -> BaseException:
        """The error for a block: names the element that is not a pair, or whose key has no encoding."""
        return unfit_for_key(block.values, error, self.label, self.where, pairs=not self._elements_are_keys)
