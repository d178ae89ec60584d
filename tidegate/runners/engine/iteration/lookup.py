"""The step of a loop's body that looks keys up in the solution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidegate.runners.engine.checks.contracts import check_pair
from tidegate.runners.engine.errors.attribution import located, not_pairs, rethrow
from tidegate.runners.engine.iteration.solution import by_window
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.sdk.data.block import Block, Pairs, as_pairs
from tidegate.sdk.data.keys import check_keys
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
            pairs = self._pairs(block.values)
        table: Mapping[Any, Any] = self._tables.get(window, {})
        try:
            check_keys(pairs.firsts)
        except KeyEncodingError as error:
            rethrow(located(error, self.node.label, self.node.where))
        return Pairs(pairs.firsts, list(zip(pairs.seconds, map(table.get, pairs.firsts), strict=True)))

    def _pairs(self, elements: Iterable[Any]) -> Pairs:
        """The elements as two columns; the author's error for the first that is not a pair."""
        keys, values = [], []
        for element in elements:
            try:
                check_pair(element)
                key, value = element
            except (TypeError, ValueError):
                rethrow(not_pairs(element, self.node.label, self.node.where))
            keys.append(key)
            values.append(value)
        return Pairs(keys, values)
