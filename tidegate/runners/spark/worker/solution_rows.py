"""A partition's part of a loop's solution, which goes from round to round as rows, a bucket of its keys each.

A bucket that a round neither looks up nor updates is passed on as it is, without being decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.runners.engine.errors.attribution import located, rethrow, user_error
from tidegate.runners.engine.iteration.buckets import Buckets, Tables
from tidegate.runners.engine.iteration.kept_solution import KeptSolution
from tidegate.runners.engine.iteration.solution import blocks_of, by_window, merging_function
from tidegate.runners.engine.operator import Context
from tidegate.runners.plan import Loop, Plan, SolutionUpdate, Step
from tidegate.runners.spark.plan.levels import Levels
from tidegate.runners.spark.shuffle.row_codec import OutgoingRows, decode_blocks, encode_blocks
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import PicklingError
from tidegate.sdk.portable.model import Lookup


def update_of(plan: Plan, loop: Loop) -> Step | None:
    """The step that updates a loop's solution; None if it has none."""
    for step in plan.steps:
        if isinstance(step.tail, SolutionUpdate) and step.tail.loop == loop.node.label:
            return step
    return None


class RowBuckets(Buckets):
    """Buckets as the data of rows."""

    def __init__(self) -> None:
        self.data: dict[int, bytes] = {}

    def load(self, number: int) -> Tables:
        tables: Tables = {}
        for block in decode_blocks(self.data[number]) if number in self.data else ():
            for window, part in by_window(block):
                tables.setdefault(window, {}).update(part.values)
        return tables

    def store(self, number: int, tables: Tables) -> None:
        self.data[number] = encode_blocks(blocks_of(tables))

    def clear(self) -> None:
        self.data.clear()


class SolutionRows(KeptSolution):
    """The part of the solution that a task reads as rows and, as it is after the task, writes as rows.

    Rows have the number of their bucket as `src`.
    """

    def __init__(self, update: Step, context: Context) -> None:
        node = update.tail
        assert isinstance(node, SolutionUpdate)
        super().__init__(
            merging_function(node.merge),
            None if node.changed is None else node.changed.load(),
            lambda error, key: user_error(error, step=node.loop, where=node.where, key=key),
            budget=context.memory_budget // 4,
            directory=lambda: context.temp_dir(),
        )
        self.collection = node.inputs[1]
        """The solution, as a round finds it."""
        self._node = node
        self._rows = self._buckets = RowBuckets()
        self._new = self.waiting()
        self._pieces: list[bytes] = []
        self._start: list[Block] = []

    def take(self, bucket: int, left: int, data: bytes) -> None:
        """Take the row of a bucket, or a piece of it, of which so many are `left`."""
        self._pieces.append(data)
        if not left:
            self._rows.data[bucket], self._pieces = b"".join(self._pieces), []

    def take_start(self, left: int, data: bytes) -> None:
        """Take a row of what the loop begins with."""
        self._pieces.append(data)
        if not left:
            whole, self._pieces = b"".join(self._pieces), []
            self._start += decode_blocks(whole)

    def begin(self) -> None:
        """All rows have been taken."""
        start, self._start = self._start, []
        if start:
            with self._located():
                self.fill(start)

    def send(self, out: OutgoingRows, partition: int, label: int) -> None:
        """Write all buckets as rows of a number."""
        for bucket, data in sorted(self._rows.data.items()):
            out.send(partition, label, bucket, 0, data)

    def next_round(self) -> None:
        with self._located():
            super().next_round()

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Attribute values that can't be pickled to the loop."""
        try:
            yield
        except PicklingError as error:
            rethrow(located(error, self._node.loop, self._node.where))


def uses(levels: Levels, plan: Plan, loop: Loop, level: int) -> bool:
    """Whether steps of a level look up or update the solution of a loop."""
    update = update_of(plan, loop)
    assert update is not None
    assert isinstance(update.tail, SolutionUpdate)
    solution = update.tail.inputs[1]
    return any(isinstance(step.tail, Lookup) and step.tail.inputs[1] == solution for step in levels.steps(plan, level))
