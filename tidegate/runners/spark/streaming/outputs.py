"""The output side of a task: its partitioners, whose blocks become rows for tasks of later levels, and its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidegate.runners.engine.errors.attribution import located, quietly, rethrow
from tidegate.runners.engine.operator_graph import Graph, Outlet
from tidegate.runners.engine.sinks.staged_files import remove_local_files
from tidegate.runners.engine.sinks.writer import SinkWriter
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.exchange.block_codec import block_columns
from tidegate.runners.exchange.stream_partitioner import Partitioner, PartitionerProgress
from tidegate.runners.plan import Step
from tidegate.runners.spark.streaming.job import StreamJob
from tidegate.runners.spark.streaming.rows import BLOCKS, STATUS, OutgoingRows, producer
from tidegate.sdk.connectors.sinks import Committable, StagedFile
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.coders import encode_columns
from tidegate.sdk.errors import PicklingError
from tidegate.sdk.portable.model import Write
from tidegate.sdk.user_code.redefined_classes import dumps

_ROW_ELEMENTS: Final = 16_384
"""The elements of several blocks share a row until it has this many."""


class _Target:
    """The rows that carry the elements of one edge to one task."""

    def __init__(self, outputs: TaskOutputs, step: Step, edge: int, target: int) -> None:
        self._outputs = outputs
        self._step = step
        self._edge = edge
        self._target = target
        self._held: list[Block] = []
        self._count = 0

    def add(self, block: Block, now: int) -> None:
        self._held.append(block)
        self._count += len(block)
        if self._count >= _ROW_ELEMENTS:
            self.flush()

    def send_status(self, status: CollectionStatus, now: int) -> None:
        self.flush()
        self._outputs.rows.send(self._target, STATUS, self._edge, dumps(status))

    def flush(self) -> None:
        """Send the blocks that are held."""
        held, self._held, self._count = self._held, [], 0
        if not held:
            return
        columns = [column for block in held for column in block_columns(block)]
        try:
            data = encode_columns(tuple(columns))
        except PicklingError as error:
            rethrow(located(error, self._step.label, self._step.tail.where))
        self._outputs.rows.send(self._target, BLOCKS, self._edge, data)


class TaskOutputs:
    """The outputs of task `index` of a level. `rows` are those of the current batch."""

    def __init__(self, job: StreamJob, level: int, index: int, steps: list[Step]) -> None:
        plan, levels = job.plan, job.levels
        self._src = producer(level, index)
        self.rows = OutgoingRows(self._src)
        self._plan = plan
        self.sinks = {step.id: _writer(job, step, index) for step in steps if step.is_sink}
        self._targets: list[_Target] = []
        self._partitioners: dict[int, Partitioner] = {}
        self._inside: dict[str, list[int]] = {}
        here = {step.id for step in steps}
        for number, edge in enumerate(plan.edges):
            if edge.source not in here:
                continue
            if levels.crosses(edge):
                targets = [
                    _Target(self, plan.steps[edge.source], number, target)
                    for target in levels.targets_of(plan, edge, index, job.tasks)
                ]
                self._targets += targets
                self._partitioners[number] = Partitioner(plan, edge, index, targets, job.max_parallelism)
            elif edge.target in self.sinks:
                self._inside.setdefault(edge.collection, []).append(edge.target)

    def outlets(self) -> dict[str, list[Outlet]]:
        """The receivers of each collection that leaves the operators of the task."""
        outlets: dict[str, list[Outlet]] = {}
        for collection, sinks in self._inside.items():
            outlets.setdefault(collection, []).extend(self.sinks[id].write for id in sinks)
        for number, partitioner in self._partitioners.items():
            outlets.setdefault(self._plan.edges[number].collection, []).append(_outlet(partitioner))
        return outlets

    def forward_statuses(self, graph: Graph) -> None:
        """Send the current status of every collection that leaves the task, if it has changed."""
        for number, partitioner in self._partitioners.items():
            partitioner.send_status(graph.status(self._plan.edges[number].collection), 0)

    def prepare(self, *, last: bool) -> Mapping[int, tuple[Committable, ...]]:
        """The prepared output of each sink in this batch. `last`: they will write no more."""
        prepared = {id: _carried(sink.prepare(last=last)) for id, sink in self.sinks.items()}
        return {id: committables for id, committables in prepared.items() if committables}

    def take(self) -> OutgoingRows:
        """The rows of this batch, complete."""
        for target in self._targets:
            target.flush()
        rows, self.rows = self.rows, OutgoingRows(self._src)
        return rows

    def progress(self) -> Mapping[int, PartitionerProgress]:
        """How far each partitioner has come, by the number of its edge."""
        return {number: partitioner.progress() for number, partitioner in self._partitioners.items()}

    def resume(self, progress: Mapping[int, PartitionerProgress]) -> None:
        """Go on from what `progress` returned."""
        for number, each in progress.items():
            self._partitioners[number].continue_from(each)

    def abandon(self) -> None:
        """Discard the output that is not prepared yet."""
        for sink in self.sinks.values():
            quietly(sink.abandon)


def _carried(committables: tuple[Committable, ...]) -> tuple[Committable, ...]:
    """The committables with the contents of the files that they stage, which travel to the driver with them."""
    if not any(each.files for each in committables):
        return committables
    carried = []
    for each in committables:
        files = []
        for file in each.files:
            with file.open() as opened:
                files.append(StagedFile.of_bytes(file.name, opened.read()))
        carried.append(replace(each, files=tuple(files)))
    remove_local_files(committables)
    return tuple(carried)


def _outlet(partitioner: Partitioner) -> Outlet:
    return lambda block: partitioner.write(block, 0)


def _writer(job: StreamJob, step: Step, index: int) -> SinkWriter:
    node = step.tail
    assert isinstance(node, Write)
    tasks = job.levels.tasks(step, job.tasks)
    shards = list(range(index, node.shards, tasks)) if node.shards else [index]
    return SinkWriter(step, job.run, shards, always=bool(node.shards) or index == 0)
