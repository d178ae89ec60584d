"""The Spark runner: bounded pipelines as DataFrames of blocks. The driver plans, starts one action, and commits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tidegate.runners.engine.run_warnings import log_warnings
from tidegate.runners.plan import Plan
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.errors import RunError, UnsupportedError
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.seal import located, seal
from tidegate.sdk.runner import Finished, PipelineResult, PipelineState, Runner, RunOptions

if TYPE_CHECKING:
    from tidegate.runners.spark.plan.options import SparkOptions


class SparkRunner(Runner):
    """Runs bounded pipelines through PySpark's DataFrame API, classic or Connect."""

    name = "spark"

    @classmethod
    def options_model(cls) -> type[SparkOptions]:
        from tidegate.runners.spark.plan.options import SparkOptions

        return SparkOptions

    @classmethod
    def missing(cls) -> list[str]:
        from tidegate.runners.spark.driver.session import missing

        return missing()

    def check(self, pipeline: portable.Pipeline, options: RunOptions) -> list[str]:
        self.plan(pipeline, options)
        return []

    def plan(self, pipeline: portable.Pipeline, options: RunOptions) -> Plan:
        _refuse(pipeline, options)
        return plan(pipeline, Traits(parallel=True, blocking=True))

    def explain(self, plan: Plan, options: RunOptions) -> str:
        from tidegate.runners.spark.explain import explain

        return explain(plan, options.view_as(self.options_model()))

    def run(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        from tidegate.runners.spark.driver.commit_log import finish_interrupted, noted
        from tidegate.runners.spark.driver.element_counts import LiveCounts
        from tidegate.runners.spark.driver.execution import Execution, parallelism, settings
        from tidegate.runners.spark.driver.progress import Contents
        from tidegate.runners.spark.driver.session import checked, runs_here, session
        from tidegate.runners.spark.driver.shared_paths import check_shared
        from tidegate.runners.spark.driver.sinks import SinkCommit, abort_later, abort_leftovers
        from tidegate.runners.spark.driver.worker_env import prepare
        from tidegate.runners.spark.plan.artifacts import Artifacts
        from tidegate.runners.spark.plan.failures import Cancelled, raised_by
        from tidegate.runners.spark.task_io.frames import session_of

        planned = self.plan(_with_classes_of_values(pipeline), options)
        own: SparkOptions = options.view_as(self.options_model())
        metrics = MetricCells()
        run_id = os.urandom(6).hex()
        sinks = {step.id: SinkCommit(step, run_id) for step in planned.steps if step.is_sink}
        abort_leftovers()
        finish_interrupted(own.spark_commit_dir)
        if self.tell is not None:
            self.tell("starting Spark…")
        spark = checked(session_of(planned) or session(own))
        if self.tell is not None:
            self.tell("")
        local = runs_here(spark)
        counts = None
        if self.watch is not None:
            live = MetricCells()
            self.watch(live)
            counts = LiveCounts(spark, run_id, metrics, live)
        frames: dict[str, Any] = {}
        artifacts = Artifacts(spark, local=local)
        try:
            with settings(spark), Contents(spark, self.tell, counts.refresh if counts else None) as shown:
                if not local:
                    name = planned.pipeline.name
                    said = "the workers' Python does not run a first task"
                    with shown.action(f"{name}: what the workers have"), raised_by(said):
                        prepare(spark, own.spark_archive)
                    with shown.action(f"{name}: whether the workers see the same files"), raised_by():
                        check_shared(spark, planned, run_id, parallelism(spark))
                run = Execution(
                    spark,
                    planned,
                    own,
                    run_id,
                    metrics,
                    artifacts,
                    counts=counts,
                    local=local,
                    describe=shown.action,
                )
                try:
                    for id, committables in run.run().committables.items():
                        sinks[id].committables += committables
                    frames = run.dataframes()
                finally:
                    run.close()
            with noted(own.spark_commit_dir, run_id, list(sinks.values())):
                for committing in sinks.values():
                    metrics.merge(committing.commit())
            if frames:  # of which Spark may make lost parts again, by tasks that write too
                abort_later(sinks.values())
        except Cancelled:
            abort_later(sinks.values())
            return _Finished(metrics, {}, PipelineState.CANCELLED)
        except BaseException:
            abort_later(sinks.values())
            raise
        finally:
            artifacts.close(kept=bool(frames))
            if counts is not None:
                counts.close()
            for committing in sinks.values():
                committing.abort()
        log_warnings(metrics, own.max_end_timers, planned.pipeline)
        return _Finished(metrics, frames, PipelineState.DONE)


class _Finished(Finished):
    """A run that is over, with the DataFrames it made. CANCELLED, and nothing was committed, if somebody has cancelled
    its jobs in Spark."""

    def __init__(self, metrics: MetricCells, frames: dict[str, Any], state: PipelineState) -> None:
        super().__init__(metrics)
        self._frames = frames
        self._state = state

    @property
    def state(self) -> PipelineState:
        return self._state

    def dataframe(self, label: str) -> Any:
        try:
            return self._frames[label]
        except KeyError:
            there = ", ".join(map(repr, self._frames)) or "none"
            raise RunError(f"no ToDataFrame has the label {label!r}; there are: {there}") from None


def _with_classes_of_values(pipeline: portable.Pipeline) -> portable.Pipeline:
    """A sealed pipeline that brings the classes of the values of its `Create`s too."""
    from tidegate.runners.spark.driver.split_assignment import all_plain

    if all(all_plain(node.values.load()) for node in pipeline.nodes if isinstance(node, portable.Create)):
        return pipeline
    return seal(pipeline, values=True)


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
