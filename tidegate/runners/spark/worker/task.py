"""One task of a level: it reads rows, runs the level's steps, and emits rows."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.engine.operator_graph import Graph, Outlet
from tidegate.runners.engine.side_inputs.operator import SideInputOperator
from tidegate.runners.engine.sinks.writer import SinkWriter
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Edge, Step
from tidegate.runners.spark.plan.task_spec import BroadcastView, TaskSpec, label_of, labels_read
from tidegate.runners.spark.shuffle.partitioner import Partitioner
from tidegate.runners.spark.shuffle.row_codec import (
    RESULT,
    OutgoingRows,
    Row,
    decode,
    encode_result,
    read_rows,
    row_checksum,
)
from tidegate.runners.spark.side_inputs.broadcast import SideInputWriter, open_view
from tidegate.runners.spark.task_io.frames import DataFrameWriter, read_batches
from tidegate.runners.spark.task_io.sources import read_elements, read_splits
from tidegate.runners.spark.task_io.staging import stage, staging_folder
from tidegate.runners.spark.task_io.unpickling import unpickling
from tidegate.runners.spark.task_io.writer import sink_writer
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.data.block import BLOCK_SIZE, Block
from tidegate.sdk.data.coders import install
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import ENGINE, MetricKey, collecting
from tidegate.sdk.options.defaults import default_memory_budget
from tidegate.sdk.portable.model import Create, Read
from tidegate.sdk.user_code.sealing import install_classes

_FIRST_BLOCK: Final = 64
"""The length of the first block of a source."""


class LevelTask:
    """Runs the steps of one level in one partition.

    A task with a `frame_step` reads a partition of that step's DataFrame, in addition to the level's other tasks. It
    has its own task number, counts as one of the partitions, and runs only the steps that its elements reach.

    Beside elements, a task sends results to the driver: `metrics`, `committables`, pieces of the files that these have
    `staged` unless it can write them to the run's folder itself, the schemas (`columns`) of DataFrame sinks, elements
    of `side` inputs, and, so that the driver notices recomputed rows that differ, the checksums of the rows that were
    `persisted` and `reread`.
    """

    def __init__(self, spec: TaskSpec, run_id: str, level: int, partition: int, frame_step: int | None = None) -> None:
        self.spec = spec
        self._place = partition
        """What rows for this task are addressed to."""
        self._run_id = run_id
        self.plan = spec.plan
        self.level = level
        self._frame_step = frame_step
        self._task_number = partition
        tasks = spec.levels.partitions(level, spec.partitions)
        if frame_step is None and partition >= tasks:
            raise RunError(f"Spark runs more tasks than level {level} has ({tasks}; others have {spec.partitions})")
        if frame_step is not None:
            self._task_number += sum(isinstance(step.head, Read) for step in spec.plan.steps[: frame_step + 1]) << 20
        self.partition = partition % spec.partitions
        self._src = level * spec.partitions + self._task_number
        levels = spec.levels
        self._out = OutgoingRows(self._written())
        self._read_as = (
            labels_read(spec.edges, levels, lambda edge: levels.persisted(edge) and levels.start_of(edge) == level)
            if level in levels.starts
            else {}
        )
        """The edges on which stored rows are read, by the number that the rows have."""
        self._reread_checksums = Counter(dict.fromkeys(self._read_as, 0))
        self._next_result = 0
        self.element_counts: dict[str, int] = {}
        """The number of elements that each step has emitted, by label; filled at the end of the task."""
        steps = spec.levels.steps(self.plan, level)
        if frame_step is not None:
            reached = spec.levels.reached_from(frame_step, self.plan)
            steps = [step for step in steps if step.id in reached]
        self._sources = [step for step in steps if step.is_source]
        self._sinks = [step for step in steps if step.is_sink and self._runs_here(step)]
        self._inner = [step for step in steps if not (step.is_source or step.is_sink) and self._runs_here(step)]

    def _written(self) -> set[int]:
        """The numbers of the rows that are stored for later actions or rounds, and come from this level."""
        levels = self.spec.levels
        return {
            label_of(number, edge, levels)
            for number, edge in enumerate(self.spec.edges)
            if levels.persisted(edge) and levels.of_step[edge.source] == self.level
        }

    def _runs_here(self, step: Step) -> bool:
        """Whether a step runs in this task: one with gathered input runs only in the first task."""
        gathered = any(edge.exchange and edge.exchange.routing == "gather" for edge in self.plan.inputs(step.id))
        return self._task_number == 0 or not gathered

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Run the task. Yields the rows it emits as Arrow batches."""
        install_classes(self.plan.pipeline.classes)
        install(tuple((cls.load(), coder.load()) for cls, coder in self.plan.pipeline.coders))
        budget = self.spec.memory_budget or default_memory_budget() // (os.cpu_count() or 1)
        with _spill_directory(self.spec.temp_dir) as temp_dir:
            context = Context(
                budget,
                temp_dir,
                runtime_types=self.spec.runtime_types,
                wrap=self._with_sides,
                max_end_timers=self.spec.max_end_timers,
                inline=self.spec.inline,
            )
            with collecting(context.metrics):
                for _ in self._drive(context, read_rows(batches) if self._frame_step is None else batches):
                    if self._out.full:
                        yield from self._out.batches()
        for step in self._inner:
            if step.phase == "parts":  # the elements that a combiner emits are those of its merge phase
                context.metrics.counters.pop(MetricKey(step.label, ENGINE, "elements_out"), None)
        counters = context.metrics.counters.items()
        self.element_counts = {
            key.step: n for key, n in counters if (key.namespace, key.name) == (ENGINE, "elements_out")
        }
        self._send_result("metrics", context.metrics)
        if self._out.checksums:
            self._send_result("persisted", self._out.checksums)
        if self._reread_checksums:
            self._send_result("reread", self._reread_checksums)
        yield from self._out.batches()

    def _with_sides(self, _: Step, operator: Operator) -> Operator:
        """Give an operator its side inputs, whose contents are known before the first element arrives."""
        if isinstance(operator, SideInputOperator):
            for id, view in operator.sides.items():
                view.use_shared(*open_view(self.sides[id]))
        return operator

    @property
    def sides(self) -> dict[str, BroadcastView]:
        """The contents of side inputs, by `side_id`."""
        return self.spec.sides

    # -- driving the level's steps

    def _drive(self, context: Context, read: Iterable[Any]) -> Iterator[None]:
        """Read all input and run the steps. Yields regularly, so that the caller can hand over rows. `read` are rows,
        or batches of a DataFrame."""
        levels = self.spec.levels
        ids = {step.id for step in self._inner}
        tasks = levels.partitions(self.level, self.spec.partitions)
        inside = [edge for edge in self.spec.edges if edge.target in ids and not levels.crosses(edge)]
        sinks = {step.id: self._sink_writer(step, tasks) for step in self._sinks}
        outlets, writers = self._outputs(sinks)
        graph = Graph(self.plan, self._inner, inside, context, outlets)
        try:
            graph.open()
            if self._frame_step is not None:
                (step,) = self._sources
                inline = context.inline != "off"
                blocks = read_batches(step, read, unpickling(self.plan.pipeline.classes), inline=inline)
                yield from self._push_blocks(step, blocks, graph, context)
            else:
                yield from self._read(graph, context)
                yield from self._process_rows(graph, sinks, read)
            for collection in self._external_collections():
                yield from graph.updating(collection, CollectionStatus(ended=True))
            for writer in writers:
                writer.close()
                yield
            for id, sink in sinks.items():
                self._send_result("committables", (id, self._stage(id, sink.prepare(last=True))))
                if isinstance(sink, DataFrameWriter):
                    self._send_result("columns", (id, list(sink.schemas)))
            graph.close()
        except BaseException:
            for sink in sinks.values():
                sink.abandon()
            graph.abandon()
            raise

    def _read(self, graph: Graph, context: Context) -> Iterator[None]:
        inputs = self.spec.inputs
        for step in self._sources:
            if step.id in inputs.splits:
                assigned = inputs.splits[step.id]
                inline = context.inline != "off"
                blocks = read_splits(step, assigned[self.partition], len(assigned), inline=inline)
            else:
                blocks = read_elements(step, inputs, self.partition)
            yield from self._push_blocks(step, blocks, graph, context)

    def _push_blocks(self, step: Step, blocks: Iterable[Block], graph: Graph, context: Context) -> Iterator[None]:
        for read in _shorten_first_block(blocks):
            for block in read.split(BLOCK_SIZE):
                context.count(step.label, "elements_out", len(block))
                yield from graph.pushing(step.outputs[0], block)
                yield

    def _process_rows(
        self, graph: Graph, sinks: dict[int, SinkWriter | DataFrameWriter], rows: Iterable[Row]
    ) -> Iterator[None]:
        """Process the rows for this level, in order, and forward those for later levels, actions and rounds."""
        levels, edges = self.spec.levels, self.spec.edges
        own_steps = {step.id for step in (*self._inner, *self._sinks)}
        addressed = self._addressed
        pieces: list[bytes] = []
        for target, label, src, seq, left, data in rows:
            if addressed and target != self._place:
                raise RunError(f"Spark sent a row for partition {target} to partition {self._place}")
            if label in self._reread_checksums:
                self._reread_checksums[label] += row_checksum(src, seq, data)
            numbers = self._read_as.get(label, (label,))
            later = [
                at for at in numbers if at >= len(edges) or at < 0 or levels.of_step[edges[at].target] != self.level
            ]
            for number in later:
                self._out.forward(target, number, src, seq, left, data.to_pybytes())
                yield
            if len(later) == len(numbers):
                continue
            if left or pieces:
                pieces.append(data.to_pybytes())
                if left:
                    continue
                data, pieces = b"".join(pieces), []
            for number in numbers:
                if number not in later and edges[number].target in own_steps:
                    yield from self._process(edges[number], decode(data), graph, sinks)

    @property
    def _addressed(self) -> bool:
        """Whether all rows are addressed to this task."""
        return self.level not in self.spec.levels.starts

    def _process(
        self,
        edge: Edge,
        elements: Iterable[Block | KeyedBatch],
        graph: Graph,
        sinks: dict[int, SinkWriter | DataFrameWriter],
    ) -> Iterator[None]:
        """Process elements that have come on an edge."""
        for received in elements:
            if isinstance(received, KeyedBatch):
                yield from graph.delivering_keyed(edge, received)
            elif edge.target in sinks:
                sinks[edge.target].write(received)
            else:
                for block in received.split(BLOCK_SIZE):
                    yield from graph.delivering(edge, block)

    def _external_collections(self) -> list[str]:
        """The collections that the level's inner steps read but do not produce."""
        produced = {collection for step in self._inner for collection in step.outputs}
        ids = {step.id for step in self._inner}
        external = dict.fromkeys(
            edge.received for edge in self.spec.edges if edge.target in ids and edge.received not in produced
        )
        return list(external)

    # -- outputs

    def _sink_writer(self, step: Step, tasks: int) -> SinkWriter | DataFrameWriter:
        if step.id in self.spec.frames:
            return DataFrameWriter(
                step,
                self.spec.frames[step.id],
                self.spec.preferred.get(step.id),
                self._out,
                self._src,
                self.partition,
            )
        return sink_writer(step, self._run_id, self._task_number, tasks)

    def _outputs(
        self, sinks: dict[int, SinkWriter | DataFrameWriter]
    ) -> tuple[dict[str, list[Outlet]], list[Partitioner | SideInputWriter]]:
        outlets: dict[str, list[Outlet]] = {}
        writers: list[Partitioner | SideInputWriter] = []
        producers = {step.id for step in (*self._sources, *self._inner)}
        side_producers = {
            edge.collection: self.plan.steps[edge.source]
            for edge in self.spec.edges
            if edge.side is not None and edge.source in producers
        }
        for collection, step in side_producers.items():
            if not isinstance(step.head, Create):  # the driver has the elements of a `Create`
                writer = SideInputWriter(collection, step, self._src, self._send_result)
                writers.append(writer)
                outlets.setdefault(collection, []).append(writer.write)
        for number, edge in enumerate(self.spec.edges):
            if edge.source not in producers or edge.side is not None or edge.files is not None:
                continue
            if self.spec.levels.crosses(edge):
                partitioner = self._partitioner(edge, number)
                writers.append(partitioner)
                outlets.setdefault(edge.collection, []).append(partitioner.write)
            elif edge.target in sinks:
                outlets.setdefault(edge.collection, []).append(sinks[edge.target].write)
        return outlets, writers

    def _partitioner(self, edge: Edge, number: int) -> Partitioner:
        label = label_of(number, edge, self.spec.levels)
        return Partitioner(self.plan, edge, label, self._src_on(edge), self.partition, self.spec.partitions, self._out)

    def _src_on(self, edge: Edge) -> int:
        """The number under which this task sends rows on an edge."""
        return self._src

    def _stage(self, step: int, committables: Iterable[Committable]) -> list[Committable]:
        """Store the files that a sink has staged where the driver finds them."""
        parent = self.spec.staging
        folder = None if parent is None else staging_folder(parent, self._run_id, step)
        return stage(committables, folder, lambda *piece: self._send_result("staged", (step, *piece)))

    def _send_result(self, kind: str, value: Any) -> None:
        self._next_result = self._out.send(0, RESULT, self._src, self._next_result, encode_result(kind, value))


def _shorten_first_block(blocks: Iterable[Block]) -> Iterator[Block]:
    """Make the first block short. A chain chooses the loop for a block by the results of earlier blocks, so the first
    elements determine a fitting loop for the rest."""
    rest = iter(blocks)
    for block in rest:
        yield block.slice(0, _FIRST_BLOCK)
        if len(block) > _FIRST_BLOCK:
            yield block.slice(_FIRST_BLOCK, len(block))
        break
    yield from rest


@contextlib.contextmanager
def _spill_directory(parent: Path | None) -> Iterator[Callable[[], Path]]:
    """Yield a function that creates a directory when first called; the directory is removed at the end."""
    created: list[tempfile.TemporaryDirectory[str]] = []

    def directory() -> Path:
        if not created:
            created.append(tempfile.TemporaryDirectory(prefix="tidegate-", dir=parent))
        return Path(created[0].name)

    try:
        yield directory
    finally:
        for temporary in created:
            temporary.cleanup()
