"""The step behind a loop whose rounds all tasks run: it emits what the rounds have left."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.plan import left_as
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import Iterate


class LoopResults(Operator):
    """Emits what it reads under the names of the loop's results."""

    def __init__(self, node: Iterate, context: Context) -> None:
        self._label = node.label
        self._context = context
        self._results = {left_as(out.collection): out.collection for out in node.outputs}
        self._variables = {out.collection for out in node.outputs[: len(node.variables)]}

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        result = self._results[collection]
        if result in self._variables:
            self._context.count(self._label, "elements_out", len(block))
        yield result, block
