"""One task of a level in the body of a loop: it runs the level's steps for one round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph, Outlet
from tidegate.runners.engine.sinks.writer import SinkWriter
from tidegate.runners.plan import Edge, step_in_round
from tidegate.runners.spark.plan.task_spec import BroadcastView, Round
from tidegate.runners.spark.shuffle.partitioner import Partitioner
from tidegate.runners.spark.shuffle.places import places
from tidegate.runners.spark.shuffle.row_codec import OutgoingRows, Row
from tidegate.runners.spark.side_inputs.broadcast import SideInputWriter
from tidegate.runners.spark.task_io.frames import DataFrameWriter
from tidegate.runners.spark.worker.loop_share import LevelShare, worker_name
from tidegate.runners.spark.worker.task import LevelTask
from tidegate.sdk.data.block import Block


class RoundTask(LevelTask):
    """Runs the steps of a level in the body of a loop, in one partition and one round. It also reports the workers that
    have functions to tear down when the loop ends (`worker`), and how many elements were `emitted` for each result of
    the round."""

    def __init__(self, share: LevelShare, run_id: str, level: int, partition: int, of_round: Round) -> None:
        super().__init__(share.spec, run_id, level, partition)
        self._share = share
        self._round = of_round
        self._loop = self.plan.loop(share.loop)
        self._place = places(self.spec.partitions)[partition]
        self._out = OutgoingRows(self._written(), places(self.spec.partitions))
        self._inner = [step_in_round(step, of_round.number) for step in self._inner]
        self._reread_checksums.update(dict.fromkeys(share.constant, 0))
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
        context, self._elements, begun = self._share.begin(self.partition, iter(read), context)
        for number, checksum in begun.checksums.items():
            self._reread_checksums[number] += checksum
        yield from super()._drive(context, begun.rows)
        if self._emitted:
            self._send_result("emitted", dict(self._emitted))
        if self._share.tears_down:
            self._send_result("worker", worker_name())

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
