"""One task of one level, in a Spark Python worker: rows in, the level's steps, rows out."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import pickle
import tempfile
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
from tidegate.runners.spark.plan.artifacts import Artifact, content_of
from tidegate.runners.spark.plan.failures import marked
from tidegate.runners.spark.plan.task_spec import TaskSpec
from tidegate.runners.spark.shuffle.partitioner import Partitioner
from tidegate.runners.spark.shuffle.row_codec import RESULT, OutgoingRows, decode, encode_result, read_rows, row_sum
from tidegate.runners.spark.side_inputs.broadcast import SideInputWriter, open_view
from tidegate.runners.spark.task_io.frames import FrameWriting, by_feed, read_batches
from tidegate.runners.spark.task_io.sources import read_elements, read_splits
from tidegate.runners.spark.task_io.unpickling import unpickling
from tidegate.runners.spark.task_io.writer import writing
from tidegate.sdk.data.block import BLOCK_SIZE, Block
from tidegate.sdk.data.coders import install
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import ENGINE, MetricKey, collecting
from tidegate.sdk.options.defaults import default_memory_budget
from tidegate.sdk.portable.model import Create, Read
from tidegate.sdk.user_code.sealing import install_classes

_FEW: Final = 64


def run_task(
    payload: bytes | Artifact,
    run_id: str,
    level: int,
    feeds: tuple[int, ...],
    batches: Iterable[Any],
    counts: Any = None,
) -> Iterator[Any]:
    """Run the task of this Spark partition over Arrow batches: of rows, or of the DataFrames that the steps `feeds`
    read."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    _leave_out_of_collections()
    before = gc.get_threshold()
    # Millions of tuples make no cycles: to look through them again and again takes a third of the time. They are
    # looked through once, while they are in the processor's cache; what stays, hardly ever again.
    gc.set_threshold(20_000, 100, 1_000)
    try:
        spec: TaskSpec = pickle.loads(content_of(payload))
        for feed, part in by_feed(feeds, batches) if feeds else [(None, batches)]:
            task = LevelTask(spec, run_id, level, context.partitionId(), feed)
            yield from task.run(part)
            if counts is not None:
                counts.add({run_id: task.counted})
    except Exception as error:
        raise marked(error) from None
    finally:
        gc.set_threshold(*before)


_tasks: Final = itertools.count(1)
_ALL_AGAIN: Final = 64


def _leave_out_of_collections() -> None:
    """Leave what this worker holds between tasks, its modules above all, out of garbage collections.

    PySpark collects after each task, which takes 50 ms with the modules: longer than a small task. At every 64th task
    everything is looked through, so that cycles which have become garbage since do go.
    """
    if next(_tasks) % _ALL_AGAIN:
        gc.freeze()
    else:
        gc.unfreeze()


class LevelTask:
    """The steps of one level at work in one partition.

    A task with a `feed` takes a partition of the DataFrame that this step reads, beside the level's other tasks: it
    has a number of its own, its elements start out as if from some partition, and it runs only the steps that they
    reach.
    """

    def __init__(self, spec: TaskSpec, run_id: str, level: int, partition: int, feed: int | None = None) -> None:
        self.spec = spec
        self._run_id = run_id
        self.plan = spec.plan
        self.level = level
        self._feed = feed
        self._number = partition
        if feed is None and partition >= spec.levels.partitions(level, spec.partitions):
            raise RunError(f"Spark runs more tasks than the {spec.partitions} partitions of level {level}")
        if feed is not None:
            self._number += sum(isinstance(step.head, Read) for step in spec.plan.steps[: feed + 1]) << 20
        self.partition = partition % spec.partitions
        self._src = level * spec.partitions + self._number
        levels = spec.levels
        kept = [number for number, edge in enumerate(spec.edges) if levels.kept(edge)]
        self._out = OutgoingRows({number for number in kept if levels.of_step[spec.edges[number].source] == level})
        self._found = {number: 0 for number in kept if level == levels.start_of(spec.edges[number])}
        self._results = 0
        self.counted: dict[str, int] = {}
        """How many elements each step has given, when it has run."""
        steps = spec.levels.steps(self.plan, level)
        if feed is not None:
            reached = spec.levels.reached_from(feed, self.plan)
            steps = [step for step in steps if step.id in reached]
        self._sources = [step for step in steps if step.is_source]
        self._sinks = [step for step in steps if step.is_sink and self._is_here(step)]
        self._inner = [step for step in steps if not (step.is_source or step.is_sink) and self._is_here(step)]

    def _is_here(self, step: Step) -> bool:
        """Whether a step runs in this task: what is gathered runs in the first alone."""
        gathered = any(edge.exchange and edge.exchange.routing == "gather" for edge in self.plan.inputs(step.id))
        return self._number == 0 or not gathered

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Everything; the rows that leave, batch by batch."""
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
            )
            with collecting(context.metrics):
                for _ in self._drive(context, batches):
                    if self._out.full:
                        yield from self._out.batches()
        for step in self._inner:
            if step.phase == "parts":  # what a step gives is what its merge gives
                context.metrics.counters.pop(MetricKey(step.label, ENGINE, "elements_out"), None)
        counters = context.metrics.counters.items()
        self.counted = {key.step: n for key, n in counters if (key.namespace, key.name) == (ENGINE, "elements_out")}
        self._result("metrics", context.metrics)
        if self._out.sums:
            self._result("kept", self._out.sums)
        if self._found:
            self._result("found", self._found)
        yield from self._out.batches()

    def _with_sides(self, _: Step, operator: Operator) -> Operator:
        """What side inputs show is known before the first element comes."""
        if isinstance(operator, SideInputOperator):
            for id, view in operator.sides.items():
                view.share(*open_view(self.spec.sides[id]))
        return operator

    # -- driving the level's steps

    def _drive(self, context: Context, batches: Iterable[Any]) -> Iterator[None]:
        """The whole task; control comes back now and then so that rows can leave."""
        levels = self.spec.levels
        ids = {step.id for step in self._inner}
        tasks = levels.partitions(self.level, self.spec.partitions)
        inside = [edge for edge in self.spec.edges if edge.target in ids and not levels.crosses(edge)]
        sinks = {step.id: self._writing(step, tasks) for step in self._sinks}
        outlets, routers = self._outputs(sinks)
        graph = Graph(self.plan, self._inner, inside, context, outlets)
        try:
            graph.open()
            if self._feed is not None:
                (step,) = self._sources
                blocks = read_batches(step, batches, unpickling(self.plan.pipeline.classes))
                yield from self._enter(step, blocks, graph, context)
            else:
                yield from self._read(graph, context)
                yield from self._take_rows(graph, context, sinks, batches)
            for collection in self._outside():
                yield from graph.updating(collection, CollectionStatus(ended=True))
            for router in routers:
                router.close()
                yield
            for id, sink in sinks.items():
                self._result("committables", (id, sink.prepare(last=True)))
                if isinstance(sink, FrameWriting):
                    self._result("columns", (id, list(sink.schemas)))
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
                blocks = read_splits(step, inputs.splits[step.id][self.partition])
            else:
                blocks = read_elements(step, inputs, self.partition)
            yield from self._enter(step, blocks, graph, context)

    def _enter(self, step: Step, blocks: Iterable[Block], graph: Graph, context: Context) -> Iterator[None]:
        for whole in _few_first(blocks):
            for block in whole.split(BLOCK_SIZE):
                context.count(step.label, "elements_out", len(block))
                yield from graph.pushing(step.outputs[0], block)
                yield

    def _take_rows(
        self, graph: Graph, context: Context, sinks: dict[int, SinkWriter | FrameWriting], batches: Iterable[Any]
    ) -> Iterator[None]:
        """The rows for this level, in order; those for a later one go on."""
        levels, edges = self.spec.levels, self.spec.edges
        here = {step.id for step in (*self._inner, *self._sinks)}
        moved = self.level not in levels.starts
        pieces: list[bytes] = []
        for target, number, src, seq, left, data in read_rows(batches):
            if moved and target != self.partition:
                raise RunError(f"Spark gave partition {self.partition} a row of partition {target}'s")
            if number in self._found:
                self._found[number] += row_sum(src, seq, data)
            if number == RESULT:
                self._out.forward(0, number, src, seq, left, data.to_pybytes())
                continue
            if levels.of_step[edges[number].target] != self.level:
                self._out.forward(self.partition, number, src, seq, left, data.to_pybytes())
                yield
                continue
            if left or pieces:
                pieces.append(data.to_pybytes())
                if left:
                    continue
                data, pieces = b"".join(pieces), []
            edge = edges[number]
            if edge.target not in here:
                continue
            for whole in decode(data):
                if isinstance(whole, KeyedBatch):
                    yield from graph.delivering_keyed(edge, whole)
                    continue
                if edge.target in sinks:
                    sinks[edge.target].write(whole)
                    continue
                for block in whole.split(BLOCK_SIZE):
                    yield from graph.delivering(edge, block)

    def _outside(self) -> list[str]:
        """The collections that come from outside the level's steps."""
        made_here = {collection for step in self._inner for collection in step.outputs}
        ids = {step.id for step in self._inner}
        outside = dict.fromkeys(
            edge.collection for edge in self.spec.edges if edge.target in ids and edge.collection not in made_here
        )
        return list(outside)

    # -- what leaves

    def _writing(self, step: Step, tasks: int) -> SinkWriter | FrameWriting:
        if step.id in self.spec.frames:
            return FrameWriting(
                step,
                self.spec.frames[step.id],
                self.spec.wished.get(step.id),
                self._out,
                self._src,
                self.partition,
            )
        return writing(step, self._run_id, self._number, tasks)

    def _outputs(
        self, sinks: dict[int, SinkWriter | FrameWriting]
    ) -> tuple[dict[str, list[Outlet]], list[Partitioner | SideInputWriter]]:
        outlets: dict[str, list[Outlet]] = {}
        routers: list[Partitioner | SideInputWriter] = []
        makers = {step.id for step in (*self._sources, *self._inner)}
        asides = {
            edge.collection: self.plan.steps[edge.source]
            for edge in self.spec.edges
            if edge.side is not None and edge.source in makers
        }
        for collection, step in asides.items():
            if not isinstance(step.head, Create):  # whose elements the driver has
                aside = SideInputWriter(collection, step, self._src, self._result)
                routers.append(aside)
                outlets.setdefault(collection, []).append(aside.write)
        for number, edge in enumerate(self.spec.edges):
            if edge.source not in makers or edge.side is not None:
                continue
            if self.spec.levels.crosses(edge):
                router = self._router(edge, number)
                routers.append(router)
                outlets.setdefault(edge.collection, []).append(router.write)
            elif edge.target in sinks:
                outlets.setdefault(edge.collection, []).append(sinks[edge.target].write)
        return outlets, routers

    def _router(self, edge: Edge, number: int) -> Partitioner:
        return Partitioner(self.plan, edge, number, self._src, self.partition, self.spec.partitions, self._out)

    def _result(self, kind: str, value: Any) -> None:
        self._results = self._out.send(0, RESULT, self._src, self._results, encode_result(kind, value))


def _few_first(blocks: Iterable[Block]) -> Iterator[Block]:
    """Blocks of which the first is short: by its elements steps learn what they give, and go about the rest at once."""
    rest = iter(blocks)
    for block in rest:
        yield block.slice(0, _FEW)
        if len(block) > _FEW:
            yield block.slice(_FEW, len(block))
        break
    yield from rest


@contextlib.contextmanager
def _spill_directory(parent: Path | None) -> Iterator[Callable[[], Path]]:
    made: list[tempfile.TemporaryDirectory[str]] = []

    def directory() -> Path:
        if not made:
            made.append(tempfile.TemporaryDirectory(prefix="tidegate-", dir=parent))
        return Path(made[0].name)

    try:
        yield directory
    finally:
        for temporary in made:
            temporary.cleanup()
