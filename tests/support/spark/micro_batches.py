"""Runs the levels of `--runner spark`'s streams in this process: the same tasks, rows and state, without a JVM.

Each event of a test stream is a micro-batch, after which every task has handled it. Rows arrive in random order, and
between two batches some tasks forget what is in memory, so that they are restored from their state.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.runners.checkpoint.parts import AssignedSplit, EnumeratorState
from tidegate.runners.engine.factory import load_operators
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph
from tidegate.runners.engine.run_warnings import log_warnings
from tidegate.runners.engine.sinks.writer import commit_output
from tidegate.runners.engine.sources.test_stream import ScriptEvent, StreamScript
from tidegate.runners.engine.time.clock import Clock
from tidegate.runners.plan import Plan, Step
from tidegate.runners.planner import Traits, plan
from tidegate.runners.spark.streaming.driver.start import from_savepoint, listed_splits
from tidegate.runners.spark.streaming.job import StreamJob, TaskReport
from tidegate.runners.spark.streaming.levels import assign_levels
from tidegate.runners.spark.streaming.rows import OutgoingRows, Row, messages
from tidegate.runners.spark.streaming.savepoint.storing import new_target, store_savepoint
from tidegate.runners.spark.streaming.sources import NewSplits, make_sources
from tidegate.runners.spark.streaming.state_log import Head, Piece
from tidegate.runners.spark.streaming.task import StreamTask
from tidegate.runners.spark.streaming.worker import LiveTasks
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.seal import seal
from tidegate.sdk.runner import Finished, PipelineResult, Runner, RunOptions


@dataclass
class MemoryStore:
    """The state of one task, as its store has it after each batch."""

    saved: Head | None = None
    log: list[Piece] = field(default_factory=list)

    def head(self) -> Head | None:
        return self.saved

    def pieces(self) -> Iterable[Piece]:
        return iter(self.log)

    def save(self, head: Head, pieces: list[Piece], *, anew: bool) -> None:
        self.saved = head
        self.log = [*([] if anew else self.log), *pieces]


class ScriptedSources:
    """The sources of a task, one of which may be a test stream, whose events the driver hands out."""

    def __init__(
        self, driver: Batches, job: StreamJob, level: int, index: int, steps: list[Step], clock: Clock
    ) -> None:
        self._driver = driver
        scripted = [step for step in steps if isinstance(step.head, portable.TestStream)]
        self._script = scripted[0] if scripted and index == 0 else None
        self._others = make_sources(job, level, index, [step for step in steps if step not in scripted], clock)

    def start(self) -> None:
        self._others.start()

    @property
    def ended(self) -> bool:
        return self._others.ended and (self._script is None or self._driver.script_ended)

    def assign(self, step: int, splits: NewSplits) -> None:
        self._others.assign(step, splits)

    def read(self, graph: Graph, context: Context, rows: OutgoingRows) -> None:
        if not self._others.ended:
            self._others.read(graph, context, rows)
        event = self._driver.event
        if self._script is None or event is None:
            return
        if event.block is not None:
            context.count(self._script.label, "elements_out", len(event.block))
            graph.push(event.collection, event.block)
        if event.status is not None:
            graph.update(event.collection, event.status)

    @property
    def due(self) -> int | None:
        return self._others.due

    def progress(self) -> Any:
        return self._others.progress()

    def resume(self, progress: Any) -> None:
        self._others.resume(progress)

    def splits(self) -> Mapping[int, tuple[tuple[AssignedSplit, ...], int]]:
        return self._others.splits()

    def enumerators(self) -> Mapping[int, EnumeratorState]:
        return self._others.enumerators()

    def close(self) -> None:
        self._others.close()


class Batches:
    """A job, run one micro-batch after another. `events`: of its test stream, one for each batch."""

    def __init__(self, job: StreamJob, restores: float, seed: int, block_size: int = 4096) -> None:
        self.job = job
        self.event: ScriptEvent | None = None
        self.metrics = MetricCells()
        self.epoch = 0
        self._random = random.Random(seed)
        self._restores = restores
        self._tasks = {
            (level, index): LiveTasks(self._made(block_size))
            for level in range(job.levels.count)
            for index in range(job.tasks)
        }
        self._stores = {task: MemoryStore() for task in self._tasks}
        self._reports: list[TaskReport] = []
        """Those of the last batch."""
        self._sinks = {step.id: step for step in job.plan.steps if step.is_sink}
        nodes = [step.head for step in job.plan.steps if isinstance(step.head, portable.TestStream)]
        self.script = StreamScript(nodes[0]) if nodes else None
        self.clock = 0
        """The instant (µs) of the batch."""
        self.due: int | None = 0
        """When (µs) the next batch has something to do; None: never."""

    @property
    def script_ended(self) -> bool:
        return self.script is None or (self.script.ended and self.event is None)

    def _made(self, block_size: int) -> Any:
        def make(job: StreamJob, level: int, index: int) -> StreamTask:
            return StreamTask(job, level, index, make_sources=partial(ScriptedSources, self), block_size=block_size)

        return make

    def run(self) -> None:
        """Run batches until every task has ended."""
        try:
            while not self.batch():
                pass
        finally:
            for live in self._tasks.values():
                live.close()

    def drain(self) -> None:
        """Let the sources end in the next batch, as a new query does."""
        self.job = replace(self.job, drains=True, query="draining")

    def savepoint(self, directory: Path) -> None:
        """Run a batch in which all tasks write their state to a savepoint."""
        job = self.job
        self.job = replace(job, savepoint=new_target(str(directory)), query="saving")
        self.batch()
        store_savepoint(self.job, self._reports, self.metrics)
        self.job = replace(job, query="after saving")

    def batch(self) -> bool:
        """Run one batch, and commit its output. Returns whether every task has ended."""
        if self.script is not None and self.epoch and not self.script.ended:
            self.event = self.script.next()
            self.clock += self.event.elapsed
        else:
            self.event = None
            self.clock += 0 if self.script is not None else 1_000_000
        self.epoch += 1
        rows: list[Row] = []
        for level in range(self.job.levels.count):
            rows = list(self._level(level, rows))
        reports = [pickle.loads(data) for row, data in messages(rows)]
        assert all(isinstance(report, TaskReport) for report in reports)
        assert sum(report.sent for report in reports) == sum(report.received for report in reports)
        assert len(reports) == len(self._tasks)
        self.due = min((report.due for report in reports if report.due is not None), default=None)
        self._reports = reports
        prepared: dict[int, list[Committable]] = {}
        for report in reports:
            self.metrics.merge(report.metrics)
            for id, committables in report.committables.items():
                prepared.setdefault(id, []).extend(committables)
        for id, all_committables in prepared.items():
            node = self._sinks[id].tail
            assert isinstance(node, portable.Write)
            self.metrics.merge(commit_output(node, node.sink.load(), self.job.run, all_committables, self.epoch))
        return all(report.ended for report in reports)

    def _level(self, level: int, rows: list[Row]) -> Iterator[Row]:
        for index in range(self.job.tasks):
            live = self._tasks[level, index]
            if self._random.random() < self._restores:
                live.close()
            mine = [Row(*pickle.loads(pickle.dumps(tuple(row)))) for row in rows if row.target == index]
            self._random.shuffle(mine)
            yield from live.run(self.job, level, index, self._stores[level, index], mine, self.clock)


class MicroBatches(Runner):
    """The runner of these tests. `restores`: how often a task is restored between two batches, of which each reads at
    most `elements` of a source in a task."""

    name = "micro_batches"

    def __init__(self, tasks: int, restores: float = 0.3, seed: int = 1, elements: int = 10_000) -> None:
        self.tasks = tasks
        self.elements = elements
        self.restores = restores
        self.seed = seed

    def check(self, pipeline: portable.Pipeline, options: RunOptions) -> list[str]:
        self.plan(pipeline, options)
        return []

    def plan(self, pipeline: portable.Pipeline, options: RunOptions) -> Plan:
        return plan(pipeline, Traits(parallel=True, streaming=options.mode == "streaming"))

    def batches(
        self, pipeline: portable.Pipeline, options: RunOptions, savepoint: Path | None = None, run: str = "run"
    ) -> Batches:
        """The job of a sealed pipeline, of which no batch has run. `savepoint`: it begins with that state."""
        load_operators()
        planned = self.plan(seal(pipeline, values=True), options)
        job = StreamJob(
            planned,
            assign_levels(planned),
            self.tasks,
            run,
            listed_splits(planned, self.tasks),
            batch_elements=self.elements,
            runtime_types=options.type_check == "runtime",
            max_end_timers=options.max_end_timers,
            inline=options.inline,
        )
        counted = MetricCells()
        if savepoint is not None:
            job, counted = from_savepoint(job, str(savepoint), allow_dropped=False)
        batches = Batches(job, self.restores, self.seed)
        batches.metrics.merge(counted)
        return batches

    def run(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        batches = self.batches(pipeline, options)
        try:
            batches.run()
        finally:
            log_warnings(batches.metrics, options.max_end_timers, batches.job.plan.pipeline)
        return Finished(batches.metrics)


def micro_batches_1() -> MicroBatches:
    """The runner with one task for each level."""
    return MicroBatches(1)


def micro_batches_3() -> MicroBatches:
    """The runner with three tasks for each level."""
    return MicroBatches(3)
