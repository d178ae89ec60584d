"""One task of a level: it runs the level's steps on its part of the data, one micro-batch after another.

In a batch a task first advances processing time to the instant of the batch, then reads its sources and handles its
rows, and ends its bundles. So timers of processing time fire once in a batch, before its elements.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tidegate.runners.engine.errors.attribution import quietly
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.engine.operator_graph import Graph, continue_from, progress_of
from tidegate.runners.engine.time.clock import Clock, ManualClock
from tidegate.runners.engine.time.watermarks import CollectionStatus, GraphProgress, MinWatermark
from tidegate.runners.exchange.block_codec import blocks_of
from tidegate.runners.plan import Step
from tidegate.runners.spark.streaming.inputs import InputProgress, TaskInputs
from tidegate.runners.spark.streaming.job import SavedTask, StreamJob, TaskReport
from tidegate.runners.spark.streaming.outputs import TaskOutputs
from tidegate.runners.spark.streaming.rows import BLOCKS, REPORT, SPLITS, STATUS, Row, checksum, messages, task_index
from tidegate.runners.spark.streaming.savepoint.task_files import ended_stages, read_state, write_state
from tidegate.runners.spark.streaming.sources import Sources, make_sources
from tidegate.sdk import moved
from tidegate.sdk.data.block import BLOCK_SIZE
from tidegate.sdk.data.coders import decode_columns
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey, collecting
from tidegate.sdk.options.defaults import default_memory_budget
from tidegate.sdk.user_code.redefined_classes import dumps

MakeSources: TypeAlias = Callable[[StreamJob, int, int, list[Step], Clock], Sources]


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """All of a task's state but its operators': how far its steps, inputs, outputs and sources have come.

    `clock`: the instant (µs) of its last batch. `query`: the start of the Spark query to which that belonged.
    """

    graph: GraphProgress
    inputs: dict[str, InputProgress]
    outputs: dict[int, Any]
    sources: Any
    ended: bool
    clock: int = 0
    query: str | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)


@dataclass(slots=True)
class _SpillFolder:
    """A folder for spilled data, created when it is first needed."""

    parent: Path | None
    _path: Path | None = field(default=None, init=False)

    def __call__(self) -> Path:
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="tidegate-", dir=self.parent))
        return self._path

    def remove(self) -> None:
        """Remove the folder, if there is one."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)


class StreamTask:
    """Task `index` of a level. `open` it before the first `run`; with `states` and `progress` it continues from those.

    A task that has failed, or is not needed any more, is closed by `abandon`.
    """

    def __init__(
        self,
        job: StreamJob,
        level: int,
        index: int,
        *,
        make_sources: MakeSources = make_sources,
        block_size: int = BLOCK_SIZE,
    ) -> None:
        self._job = job
        self._level = level
        self._index = index
        self._clock = ManualClock()
        self._spill = _SpillFolder(job.temp_dir)
        self.ended = False
        self._steps = steps = job.levels.steps(job.plan, level, index)
        sources = [step for step in steps if step.is_source]
        inner = [step for step in steps if not (step.is_source or step.is_sink)]
        self._parts = [step.label for step in inner if step.phase == "parts"]
        self._context = Context(
            job.memory_budget or default_memory_budget() // (os.cpu_count() or 1),
            self._spill,
            block_size=block_size,
            runtime_types=job.runtime_types,
            now=self._clock.now,
            max_end_timers=job.max_end_timers,
            inline=job.inline,
        )
        ids = {step.id for step in inner}
        edges = [edge for edge in job.plan.edges if edge.target in ids and not job.levels.crosses(edge)]
        with collecting(self._context.metrics):
            self._inputs = TaskInputs(job, index, steps)
            self._outputs = TaskOutputs(job, level, index, steps)
            self._sources = make_sources(job, level, index, sources, self._clock)
            self._graph = Graph(job.plan, inner, edges, self._context, self._outputs.outlets())

    def open(self, now: int, states: dict[str, Any] | None = None, progress: TaskProgress | None = None) -> None:
        """Open the operators, which runs the author's set-up, and restore the state if there is one.

        `now`: the instant (µs) of the first batch. For how long a split has been quiet is measured from the last batch
        on, as in a task that has lived on; but the time in which no query was running does not count.
        """
        if progress is None:
            self._clock.reach(now)
        else:
            self._clock.reach(progress.clock)
            if progress.query != self._job.query:
                self._clock.reach(now)
        with collecting(self._context.metrics):
            self._graph.open()
            if progress is None:
                if self._job.restored is not None:
                    self._clock.reach(read_state(self._job, self._level, self._index, self._steps, self._graph))
                self._sources.start()
                for collection in self._inputs.unfed:
                    self._graph.update(collection, CollectionStatus(ended=True))
                return
            live = self._graph.operators()
            self._graph.restore({name: state for name, state in (states or {}).items() if name in live})
            continue_from(self._graph, progress.graph)
            self._inputs.resume(progress.inputs)
            self._outputs.resume(progress.outputs)
            self._sources.resume(progress.sources)
            self.ended = progress.ended

    def run(self, rows: Iterable[Row], now: int) -> list[Row]:
        """Run one batch at the instant `now` (µs). Returns the rows for tasks of later levels, and a report."""
        began = time.monotonic()
        self._clock.reach(now)  # the machine's clock may have been set back since the last batch
        mine, passing, received = [], [], 0
        for row in rows:
            if self._receives(row):
                mine.append(row)
                received += checksum(row)
            else:
                passing.append(row)
        saved = None
        if self._job.savepoint is not None:
            saved = self._saved()
        elif not self.ended:
            with collecting(self._context.metrics):
                self._handle(mine, self._clock.now())
        ends = saved is None and not self.ended and self._has_ended
        committables = {} if self.ended or saved is not None else self._outputs.prepare(last=ends)
        self.ended = self.ended or ends
        out = self._outputs.take()
        report = TaskReport(
            self._level,
            self._index,
            self.ended,
            committables,
            self._take_metrics(),
            out.checksum,
            received,
            self._due,
            saved,
            time.monotonic() - began,
            self._status,
        )
        out.send(self._index, REPORT, 0, dumps(report))
        return [*passing, *out.rows]

    def _receives(self, row: Row) -> bool:
        """Whether a row is for this task; others pass through to a later level."""
        if row.kind == SPLITS:
            return self._level == self._job.levels.sources
        return row.kind != REPORT and self._inputs.receives(row.edge)

    def _handle(self, rows: list[Row], now: int) -> None:
        """Handle a batch: first all elements, and then the statuses, of which each producer sends one at its end."""
        graph, edges = self._graph, self._job.plan.edges
        graph.tick(now)
        for row, data in messages([row for row in rows if row.kind == SPLITS]):
            self._sources.assign(row.edge, moved.loads(data))
        if not self._sources.ended:
            self._sources.read(graph, self._context, self._outputs.rows)
        for row, data in messages([row for row in rows if row.kind == BLOCKS]):
            edge = edges[row.edge]
            for whole in blocks_of(decode_columns(data)):
                if edge.target in self._outputs.sinks:
                    self._outputs.sinks[edge.target].write(whole)
                    continue
                for block in whole.split(BLOCK_SIZE):
                    graph.deliver(edge, block)
        statuses = {}
        for row, data in messages([row for row in rows if row.kind == STATUS]):
            collection, status = self._inputs.update(row.edge, task_index(row.src), moved.loads(data))
            statuses[collection] = status
        for collection, status in statuses.items():
            graph.update(collection, status)
        graph.end_bundles()
        self._outputs.forward_statuses(graph)

    @property
    def _has_ended(self) -> bool:
        return self._inputs.ended and self._sources.ended and not self._graph.operators()

    @property
    def _status(self) -> CollectionStatus:
        """The status of all inputs and sources together."""
        read = [self._graph.status(step.outputs[0]) for step in self._steps if step.is_source]
        return MinWatermark().of(dict(enumerate([*self._inputs.statuses(), *read])))

    @property
    def _due(self) -> int | None:
        """When (µs) a timer, a trigger or a source of the task has something to do; None: never."""
        if self.ended:
            return None
        instants = [at for at in (self._graph.next_clock(), self._sources.due) if at is not None]
        return min(instants, default=None)

    def _take_metrics(self) -> MetricCells:
        """The metrics since the last batch. The pre-combining part of a combine reports no output: its merge does."""
        metrics = self._context.metrics
        for label in self._parts:
            metrics.counters.pop(MetricKey(label, ENGINE, "elements_out"), None)
        taken = metrics.copy()
        for table in metrics.tables:
            table.clear()
        return taken

    # -- state

    def operators(self) -> dict[str, Operator]:
        """The operators whose state is to be saved."""
        return self._graph.operators()

    def progress(self) -> TaskProgress:
        """The rest of the state, for `open`."""
        return TaskProgress(
            progress_of(self._graph),
            dict(self._inputs.progress()),
            dict(self._outputs.progress()),
            self._sources.progress(),
            self.ended,
            self._clock.now(),
            self._job.query,
        )

    def _saved(self) -> SavedTask:
        """Write all state to the savepoint."""
        now = self._clock.now()
        handles = write_state(self._job, self._level, self._index, self._steps, self._graph, now, self._spill())
        ended = ended_stages(self._steps, self._graph)
        return SavedTask(handles, ended, self._sources.splits(), self._sources.enumerators())

    def close(self) -> None:
        """Release everything, and run the author's tear-down."""
        try:
            with collecting(self._context.metrics):
                self._graph.close()
            self._sources.close()
        finally:
            self._outputs.abandon()
            self._spill.remove()

    def abandon(self) -> None:
        """Release everything after a failure; errors of that are ignored."""
        with collecting(self._context.metrics):
            self._graph.abandon()
        quietly(self._sources.close)
        self._outputs.abandon()
        self._spill.remove()
