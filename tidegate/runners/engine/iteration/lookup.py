"""The step of a loop's body that looks keys up in the solution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.runners.engine.checks.contracts import check_pair
from tidegate.runners.engine.errors.attribution import located, not_pairs, rethrow
from tidegate.runners.engine.iteration.solution import by_window
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.sdk.data.block import Block, Pairs, as_pairs
from tidegate.sdk.data.keys import check_key
from tidegate.sdk.errors import KeyEncodingError
from tidegate.sdk.portable.model import Lookup


class LookupOperator(Operator):
    """Adds to each pair what the solution had for its key and window when the round began; None for nothing.

    An element in several windows becomes one for each.
    """

    def __init__(self, node: Lookup, context: Context) -> None:
        self.node = node
        self.context = context
        self._tables = context.tables.solutions[node.inputs[1]]

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        for window, part in by_window(block):
            self.context.count(self.node.label, "elements_out", len(part))
            yield self.node.output(), Block(self._found(part, window), part.timestamps, part.windows, part.panes)

    def _found(self, block: Block, window: Any) -> Pairs:
        pairs = as_pairs(block.values)
        if pairs is None:
            self._refuse(block)
            pairs = Pairs([key for key, _ in block.values], [value for _, value in block.values])
        table: Mapping[Any, Any] = self._tables.get(window, {})
        try:
            return Pairs(pairs.firsts, list(zip(pairs.seconds, map(table.get, pairs.firsts), strict=True)))
        except TypeError:  # a key that can't be hashed
            self._refuse(block)
            raise

    def _refuse(self, block: Block) -> None:
        """Raise the author's error for the first element that is not a pair with a key."""
        for element in block.values:
            try:
                check_pair(element)
            except (TypeError, ValueError):
                rethrow(not_pairs(element, self.node.label, self.node.where))
            try:
                check_key(element[0])
            except KeyEncodingError as error:
                rethrow(located(error, self.node.label, self.node.where))
