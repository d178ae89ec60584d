"""Checks that elements survive pickling, on the exchanges that don't pickle them."""

from __future__ import annotations

from tidegate.runners.engine.checks import contracts
from tidegate.runners.engine.errors.attribution import rethrow, user_error
from tidegate.runners.engine.operator import Context
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import Node


class ExchangeCheck:
    """Checks a sample of one step's input."""

    def __init__(self, node: Node, context: Context) -> None:
        self.node = node
        self.checks = context.checks
        self._seen = self._blocks = 0

    def check(self, block: Block) -> None:
        """Raise CheckError, naming the step, for an element that can't be sent to another worker."""
        if self.checks is None:
            return
        self._blocks += 1
        n = self.checks.elements_to_check(self._seen, self._blocks, len(block))
        self._seen += len(block)
        if not n:
            return
        try:
            for value in block.values[:n]:
                contracts.check_travels(value)
        except Exception as error:
            rethrow(user_error(error, step=self.node.label, where=self.node.where))
