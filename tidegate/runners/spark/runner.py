"""The Spark runner: bounded pipelines as DataFrames of blocks. The driver plans, starts one action, and commits."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.runners.plan import Plan
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.errors import UnsupportedError
from tidegate.sdk.metrics import MetricCells, MetricResults
from tidegate.sdk.portable import pipeline as portable
from tidegate.sdk.portable.seal import located, seal
from tidegate.sdk.runner import PipelineResult, PipelineState, Runner, RunOptions

if TYPE_CHECKING:
    from tidegate.runners.spark.options import SparkOptions


class SparkRunner(Runner):
    """Runs bounded pipelines through PySpark's DataFrame API, classic or Connect."""

    name = "spark"

    @classmethod
    def options_model(cls) -> type[SparkOptions]:
        from tidegate.runners.spark.options import SparkOptions

        return SparkOptions

    @classmethod
    def missing(cls) -> list[str]:
        from tidegate.runners.spark.session import missing

        return missing()

    def check(self, pipeline: portable.Pipeline, options: RunOptions) -> list[str]:
        self.plan(pipeline, options)
        return []

    def plan(self, pipeline: portable.Pipeline, options: RunOptions) -> Plan:
        _refuse(pipeline, options)
        return plan(pipeline, Traits(parallel=True, blocking=True))

    def run(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        from tidegate.runners.spark.manifest import finish_others, noted
        from tidegate.runners.spark.session import session
        from tidegate.runners.spark.writing import Committing, sweep_late, sweep_later

        planned = self.plan(_with_classes_of_values(pipeline), options)
        own: SparkOptions = options.view_as(self.options_model())
        metrics = MetricCells()
        if self.watch is not None:
            self.watch(metrics)
        run_id = os.urandom(6).hex()
        sinks = {step.id: Committing(step, run_id) for step in planned.steps if step.is_sink}
        sweep_late()
        finish_others(own.spark_commit_dir)
        spark = session(own)
        try:
            for kind, value in _results(spark, planned, own, run_id):
                match kind:
                    case "metrics":
                        metrics.merge(value)
                    case "committables":
                        sinks[value[0]].committables += value[1]
            with noted(own.spark_commit_dir, run_id, list(sinks.values())):
                for committing in sinks.values():
                    committing.commit()
        except BaseException:
            sweep_later(sinks.values())
            raise
        finally:
            for committing in sinks.values():
                committing.sweep()
        return _Finished(metrics)


class _Finished(PipelineResult):
    """A run that is over: `run` returns when it is, and has raised if it failed."""

    def __init__(self, metrics: MetricCells) -> None:
        self._metrics = metrics

    @property
    def state(self) -> PipelineState:
        return PipelineState.DONE

    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        return self.state

    def cancel(self) -> PipelineState:
        return self.state

    def metrics(self) -> MetricResults:
        return MetricResults(self._metrics)


def _results(spark: Any, planned: Plan, options: SparkOptions, run_id: str) -> Iterator[tuple[str, Any]]:
    """Run the plan, in one Spark action; what its tasks tell the driver."""
    from tidegate.runners.spark.bootstrap import entry
    from tidegate.runners.spark.failures import raised_by
    from tidegate.runners.spark.levels import assign_levels
    from tidegate.runners.spark.reading import deal_out, without_values
    from tidegate.runners.spark.rows import ORDER, SCHEMA, decode_result
    from tidegate.runners.spark.session import is_local
    from tidegate.runners.spark.work import Work, numbered
    from tidegate.runners.spark.workers import prepare

    levels = assign_levels(planned)
    if not levels.count:
        return iter(())
    partitions = options.spark_partitions or _parallelism(spark)
    inputs = deal_out(planned, partitions)
    bare = without_values(planned)
    work = Work(
        bare,
        levels,
        numbered(bare),
        inputs,
        partitions,
        run_id,
        options.memory_budget,
        options.temp_dir,
        options.type_check == "runtime",
    )
    local = is_local(spark.conf.get("spark.master", "")) and hasattr(spark, "_sc")
    paths = _paths() if local else ()
    if not local:
        prepare(spark)
    frame = _rows_in(spark, work) if inputs.rows else spark.range(0, partitions, 1, partitions)
    inputs.rows.clear()
    for level in range(levels.count):
        if level:
            frame = frame.repartitionById(levels.partitions(level, partitions), "target").sortWithinPartitions(*ORDER)
        steps = levels.steps(bare, level)
        name = " + ".join(dict.fromkeys(step.label for step in steps)) or "pass on"
        frame = frame.mapInArrow(entry(name[:200], paths, pickle.dumps(work.of_level(level), 5), level), SCHEMA)
    with _described(spark, planned), raised_by():
        rows = frame.select("data").collect()
    return (decode_result(bytes(row[0])) for row in rows)


def _rows_in(spark: Any, work: Any) -> Any:
    """The elements of large `Create`s as the first level's input."""
    import pyarrow as pa  # type: ignore[import-untyped]

    from tidegate.runners.spark.rows import COLUMNS, ORDER, record_batch
    from tidegate.runners.spark.task import created_by

    rows = [
        (partition, created_by(step), partition, number, 0, data) for step, partition, number, data in work.inputs.rows
    ]
    frame = spark.createDataFrame(pa.Table.from_batches([record_batch(rows)])).select(*COLUMNS)
    return frame.repartitionById(work.partitions, "target").sortWithinPartitions(*ORDER)


def _parallelism(spark: Any) -> int:
    """How many tasks run at once, as far as can be told."""
    context = getattr(spark, "_sc", None)
    return max(2, context.defaultParallelism if context is not None else os.cpu_count() or 1)


def _paths() -> tuple[str, ...]:
    """Where this process finds Tidegate: workers of a local master find it there too."""
    return (str(Path(__file__).resolve().parents[3]),)


@contextlib.contextmanager
def _described(spark: Any, planned: Plan) -> Iterator[None]:
    """Spark's settings and its UI's words for the run's one job, as they were afterwards."""
    wanted = {"spark.sql.execution.arrow.maxRecordsPerBatch": "16"}
    before = {name: spark.conf.get(name, None) for name in wanted}
    context = getattr(spark, "_sc", None)
    for name, value in wanted.items():
        spark.conf.set(name, value)
    if context is not None:
        context.setJobDescription(f"tidegate: {planned.pipeline.name}")
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
        if context is not None:
            context.setLocalProperty("spark.job.description", None)


def _with_classes_of_values(pipeline: portable.Pipeline) -> portable.Pipeline:
    """A sealed pipeline that brings the classes of the values of its `Create`s too."""
    from tidegate.runners.spark.reading import all_plain

    if all(all_plain(node.values.load()) for node in pipeline.nodes if isinstance(node, portable.Create)):
        return pipeline
    sealed = seal(pipeline, values=True)
    classes = {fn.name: fn for fn in (*pipeline.classes, *sealed.classes)}
    return replace(sealed, classes=tuple(classes.values()))


def _refuse(pipeline: portable.Pipeline, options: RunOptions) -> None:
    """Raise UnsupportedError, by name, for what only a stream has."""
    if options.mode == "streaming":
        raise UnsupportedError("the spark runner does not run --mode streaming: it runs bounded data as a batch")
    if options.run_for is not None:
        raise UnsupportedError("the spark runner does not run --run_for: bounded data runs until it ends")
    for node in pipeline.nodes:
        feature = None
        match node:
            case portable.Read(bounded=False):
                feature = "unbounded sources"
            case portable.TestStream():
                feature = "TestStream"
        if feature:
            raise located(UnsupportedError(f"the spark runner does not run {feature}"), node.label, node.where)
