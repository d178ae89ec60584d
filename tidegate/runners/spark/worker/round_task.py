"""One task of a level in the body of a loop: it runs the level's steps for one round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph, Outlet
from tidegate.runners.engine.sinks.writer import SinkWriter
from tidegate.runners.plan import Edge, Step, step_in_round
from tidegate.runners.spark.plan.task_spec import BroadcastView, Round, label_of
from tidegate.runners.spark.shuffle.partitioner import Partitioner
from tidegate.runners.spark.shuffle.places import places
from tidegate.runners.spark.shuffle.row_codec import OutgoingRows, Row, row_checksum
from tidegate.runners.spark.side_inputs.broadcast import SideInputWriter
from tidegate.runners.spark.task_io.frames import DataFrameWriter
from tidegate.runners.spark.worker.level_cache import LevelCache, worker_name
from tidegate.runners.spark.worker.solution_rows import SolutionRows, update_of, uses
from tidegate.runners.spark.worker.task import LevelTask
from tidegate.sdk.data.block import Block


class RoundTask(LevelTask):
    """Runs the steps of a level in the body of a loop, in one partition and one round. It also reports the workers that
    have functions to tear down when the loop ends (`worker`), and how many elements were `emitted` for each result of
    the round."""

    def __init__(self, cache: LevelCache, run_id: str, level: int, partition: int, of_round: Round) -> None:
        super().__init__(cache.spec, run_id, level, partition)
        self._cache = cache
        self._round = of_round
        self._loop = self.plan.loop(cache.loop)
        self._place = places(self.spec.partitions)[partition]
        self._out = OutgoingRows(self._written(), places(self.spec.partitions))
        self._inner = [step_in_round(step, of_round.number) for step in self._inner]
        self._reread_checksums.update(dict.fromkeys(cache.constant, 0))
        self._update = update_of(self.plan, self._loop)
        self._emitted: Counter[str] = Counter()

    @property
    def sides(self) -> dict[str, BroadcastView]:
        return {**self.spec.sides, **self._round.sides}

    @property
    def _addressed(self) -> bool:
        return True

    def _src_on(self, edge: Edge) -> int:
        return self._round.number * self.spec.partitions + self._task_number if edge.turn == "all" else self._src

    def _drive(self, context: Context, read: Iterable[Any]) -> Iterator[None]:
        context, self._elements, begun = self._cache.begin(self.partition, iter(read), context)
        for number, checksum in begun.checksums.items():
            self._reread_checksums[number] += checksum
        rows = begun.rows
        update, solution = self._update, None
        if update is not None and self.level <= self.spec.levels.of_step[update.id]:
            solution = SolutionRows(update, context)
            context = replace(context, tables=replace(context.tables, parts={solution.collection: solution}))
            rows = self._without_solution(update, solution, rows)
        yield from super()._drive(context, rows)
        if update is not None and solution is not None:
            self._pass_on(update, solution)
        if self._emitted:
            self._send_result("emitted", dict(self._emitted))
        if self._cache.tears_down:
            self._send_result("worker", worker_name())

    # -- the solution

    def _numbers(self, update: Step) -> tuple[int, int]:
        """The edges of what a solution begins with, and of what it is after the rounds."""
        edges = list(enumerate(self.spec.edges))
        (begin,) = (at for at, edge in edges if edge.turn == "solution" and edge.target == update.id)
        (left,) = (at for at, edge in edges if edge.turn == "solution" and edge.source == update.id)
        return begin, left

    def _without_solution(self, update: Step, solution: SolutionRows, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows without those of the solution, which it takes."""
        begin, left_at = self._numbers(update)
        first = self.level in self.spec.levels.starts
        of_solution = label_of(left_at, self.spec.edges[left_at], self.spec.levels) if first else left_at
        for row in rows:
            _, label, src, seq, left, data = row
            if label not in (begin, of_solution):
                yield row
                continue
            if first:
                self._reread_checksums[label] += row_checksum(src, seq, data)
            if label == begin:
                solution.take_start(left, data.to_pybytes())
            else:
                solution.take(src, left, data.to_pybytes())
        solution.begin()

    def _pass_on(self, update: Step, solution: SolutionRows) -> None:
        """Write the solution for the next round, or for later levels of this one."""
        levels = self.spec.levels
        at = self._numbers(update)[1]
        last = levels.end(levels.action(self.level)) - 1
        if levels.of_step[update.id] == self.level:
            solution.next_round()
            solution.send(self._out, self.partition, label_of(at, self.spec.edges[at], levels))
        elif any(uses(levels, self.plan, self._loop, level) for level in range(self.level + 1, last + 1)):
            solution.send(self._out, self.partition, at)

    def _process_rows(
        self, graph: Graph, sinks: dict[int, SinkWriter | DataFrameWriter], rows: Iterable[Row]
    ) -> Iterator[None]:
        own_steps = {step.id for step in self._inner}
        for number, received in self._elements:
            edge = self.spec.edges[number]
            if edge.target in own_steps:
                yield from self._process(edge, (received,), graph, sinks)
        yield from super()._process_rows(graph, sinks, rows)

    def _outputs(
        self, sinks: dict[int, SinkWriter | DataFrameWriter]
    ) -> tuple[dict[str, list[Outlet]], list[Partitioner | SideInputWriter]]:
        outlets, writers = super()._outputs(sinks)
        results = {part for parts in self._loop.results.values() for part in parts}
        for step in self._inner:
            for part in results.intersection(out.collection for out in step.tail.outputs):
                if step.phase != "parts":
                    outlets.setdefault(part, []).append(partial(self._count, part))
        return outlets, writers

    def _count(self, collection: str, block: Block) -> None:
        self._emitted[collection] += len(block)
