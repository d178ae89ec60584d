"""The step of a loop's body that looks keys up in the solution."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidegate.runners.engine.checks.contracts import check_pair
from tidegate.runners.engine.errors.attribution import located, not_pairs, rethrow
from tidegate.runners.engine.iteration.kept_solution import KeptSolution
from tidegate.runners.engine.iteration.solution import by_window
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.sdk.data.block import Block, Pairs, as_pairs
from tidegate.sdk.data.keys import check_keys
from tidegate.sdk.errors import KeyEncodingError
from tidegate.sdk.portable.model import Lookup
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS


class LookupOperator(Operator):
    """Adds to each pair what the solution had for its key and window when the round began; None for nothing.

    An element in several windows becomes one for each. If the solution is on disk, pairs wait for the end of the round.
    """

    def __init__(self, node: Lookup, context: Context) -> None:
        self.node = node
        self.context = context
        solution = node.inputs[1]
        part = context.tables.parts.get(solution)
        assert part is None or isinstance(part, KeptSolution)
        self._part = part
        self._tables = context.tables.solutions[solution] if part is None else part.tables
        self._waiting = part.waiting() if part is not None and part.spilled else None
        self._ended = False

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        for window, part in by_window(block):
            pairs = self._pairs_of(part)
            if self._waiting is None:
                yield self._found(pairs, part, self._tables.get(window, {}))
            else:
                self._waiting.add(pairs, part)

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros >= MAX_MICROS and self._waiting is not None:
            assert self._part is not None
            for number, blocks in self._waiting.drain():
                tables = self._part.tables_of(number)
                for block in blocks:
                    for window, part in by_window(block):
                        yield self._found(self._pairs_of(part), part, tables.get(window, {}))
            self._ended = True

    def hold(self) -> int:
        return MAX_MICROS if self._waiting is None or self._ended else MIN_MICROS

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.clear()

    def _found(self, pairs: Pairs, block: Block, table: Mapping[Any, Any]) -> Emitted:
        self.context.count(self.node.label, "elements_out", len(block))
        found = Pairs(pairs.firsts, list(zip(pairs.seconds, map(table.get, pairs.firsts), strict=True)))
        return self.node.output(), Block(found, block.timestamps, block.windows, block.panes)

    def _pairs_of(self, block: Block) -> Pairs:
        pairs = as_pairs(block.values)
        if pairs is None:
            pairs = self._pairs(block.values)
        try:
            check_keys(pairs.firsts)
        except KeyEncodingError as error:
            rethrow(located(error, self.node.label, self.node.where))
        return pairs

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
