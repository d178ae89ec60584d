"""The last step of a body that all tasks run: it merges what a round leaves into the task's part of the solution."""

from __future__ import annotations

from collections.abc import Iterator

from tidegate.runners.engine.iteration.kept_solution import KeptSolution
from tidegate.runners.engine.iteration.solution import by_window
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.runners.plan import SolutionUpdate
from tidegate.sdk.data.block import Block, as_pairs
from tidegate.sdk.metrics import in_step
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS


class UpdateOperator(Operator):
    """Emits the pairs whose values have changed, with the new values, which come into force in the next round.

    Metrics of the functions that merge and compare values belong to the loop. If the solution is on disk, pairs wait
    for the end of the round.
    """

    def __init__(self, node: SolutionUpdate, context: Context) -> None:
        self.node = node
        part = context.tables.parts[node.inputs[1]]
        assert isinstance(part, KeptSolution)
        self._part = part
        self._waiting = part.waiting() if part.spilled else None
        self._ended = False

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if self._waiting is None:
            yield from self._emitted(self._part.update(block))
            return
        for _, part in by_window(block):
            pairs = as_pairs(part.values)
            assert pairs is not None
            self._waiting.add(pairs, part)

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        if micros >= MAX_MICROS and not self._ended:
            if self._waiting is not None:
                yield from self._emitted(self._part.update_all(self._waiting))
            self._part.end_round()
            self._ended = True

    def hold(self) -> int:
        return MAX_MICROS if self._ended else MIN_MICROS

    def close(self) -> None:
        if self._waiting is not None:
            self._waiting.clear()

    def _emitted(self, changed: Iterator[Block]) -> Iterator[Emitted]:
        while True:
            with in_step(self.node.loop):
                block = next(changed, None)
            if block is None:
                return
            yield self.node.output(), block
