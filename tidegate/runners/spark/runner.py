"""The Spark runner: bounded pipelines as DataFrames of blocks, unbounded ones as a streaming query."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidegate.runners.engine.run_warnings import announce_endless_run, log_warnings, warn
from tidegate.runners.plan import Plan
from tidegate.runners.planner import Traits, plan, validate
from tidegate.runners.spark.streaming.driver.limits import is_stream, refuse_frames, refuse_unsupported
from tidegate.sdk.errors import RunError, UnsupportedError
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.options.defaults import DefaultOptions
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.seal import located, seal
from tidegate.sdk.runner import Finished, PipelineResult, PipelineState, Runner, RunOptions

if TYPE_CHECKING:
    from pathlib import Path

    from tidegate.runners.spark.plan.options import SparkOptions


class SparkRunner(Runner):
    """Runs bounded pipelines through PySpark's DataFrame API, classic or Connect; unbounded ones through Structured
    Streaming."""

    name = "spark"

    @classmethod
    def options_model(cls) -> type[SparkOptions]:
        from tidegate.runners.spark.plan.options import SparkOptions

        return SparkOptions

    @classmethod
    def missing(cls) -> list[str]:
        from tidegate.runners.spark.driver.session import missing

        return missing()

    def apart(self, options: RunOptions) -> RunOptions:
        if isinstance(options, DefaultOptions):
            return options
        spark = options.view_as(self.options_model())
        flags = ("spark_checkpoint_dir", "spark_savepoint_dir", "from_savepoint", "allow_dropped_state")
        fields = type(spark).model_fields
        return spark.model_copy(update={name: fields[name].default for name in flags})

    def check(self, pipeline: portable.Pipeline, options: RunOptions) -> list[str]:
        self.plan(pipeline, options)
        return []

    def plan(self, pipeline: portable.Pipeline, options: RunOptions) -> Plan:
        _refuse(pipeline, options)
        if is_stream(pipeline):
            planned = plan(pipeline, Traits(parallel=True, streaming=options.mode == "streaming"))
            refuse_frames(planned)
            return planned
        traits = Traits(parallel=True, blocking=True, parallel_loops=True, costly_rounds=True)
        if not any(isinstance(node, portable.Relate) for node in pipeline.nodes):
            return plan(pipeline, traits)
        validate(pipeline)
        spark_options: SparkOptions = options.view_as(self.options_model())
        if spark_options.spark_native == "off":
            return plan(pipeline, traits)
        from tidegate.runners.spark.catalyst.regions import with_regions

        found = with_regions(pipeline)
        planned = plan(found.pipeline, traits)
        return replace(planned, decisions=(*planned.decisions, *found.decisions))

    def explain(self, plan: Plan, options: RunOptions) -> str:
        from tidegate.runners.spark.explain import explain, explain_stream

        if is_stream(plan.pipeline):
            return explain_stream(plan, options.view_as(self.options_model()))
        return explain(plan, options.view_as(self.options_model()))

    def run(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        if is_stream(pipeline):
            return self._run_stream(pipeline, options)
        return self._run_batch(pipeline, options)

    def _run_stream(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        from tidegate.runners.spark.driver.execution import package_paths
        from tidegate.runners.spark.driver.progress import no_logged_exceptions
        from tidegate.runners.spark.driver.session import get_session, require_supported, workers_are_local
        from tidegate.runners.spark.streaming.driver.start import start
        from tidegate.runners.spark.streaming.savepoint.storing import refuse_unwritable

        planned = self.plan(_with_classes_of_values(pipeline), options)
        spark_options: SparkOptions = options.view_as(self.options_model())
        if spark_options.spark_savepoint_dir is not None:
            refuse_unwritable(spark_options.spark_savepoint_dir)
        if self.tell is not None:
            self.tell("starting Spark…")
        spark = require_supported(get_session(spark_options))
        if self.tell is not None:
            self.tell("")
        with no_logged_exceptions():
            local = workers_are_local(spark)
            result = start(spark, planned, spark_options, package_paths(spark_options, local=local), local=local)
        announce_endless_run(pipeline, options, previewing=self.enough is not None)
        return result

    def _run_batch(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        from tidegate.runners.spark.driver.commit_log import finish_interrupted, logged_commit
        from tidegate.runners.spark.driver.element_counts import LiveCounts
        from tidegate.runners.spark.driver.execution import Execution
        from tidegate.runners.spark.driver.native_steps import needs_no_workers
        from tidegate.runners.spark.driver.progress import Progress
        from tidegate.runners.spark.driver.session import get_session, require_supported, workers_are_local
        from tidegate.runners.spark.driver.shared_paths import check_shared
        from tidegate.runners.spark.driver.sinks import SinkCommit, abort_later, abort_leftovers
        from tidegate.runners.spark.driver.spark_settings import parallelism, spark_settings
        from tidegate.runners.spark.driver.worker_env import prepare
        from tidegate.runners.spark.plan.artifacts import Artifacts
        from tidegate.runners.spark.plan.failures import JobCancelled, translated_errors
        from tidegate.runners.spark.plan.levels import assign_levels
        from tidegate.runners.spark.task_io.frames import session_of
        from tidegate.runners.spark.task_io.staging import staging_folder

        planned = self.plan(_with_classes_of_values(pipeline), options)
        spark_options: SparkOptions = options.view_as(self.options_model())
        for flag in ("from_savepoint", "spark_savepoint_dir", "spark_checkpoint_dir"):
            if getattr(spark_options, flag) is not None:
                warn(f"--{flag} is not used: bounded data is read anew by each run")
        metrics = MetricCells()
        run_id = os.urandom(6).hex()
        staging = _staging(spark_options)
        sinks = {
            step.id: SinkCommit(step, run_id, staging_folder(staging, run_id, step.id))
            for step in planned.steps
            if step.is_sink
        }
        abort_leftovers()
        finish_interrupted(spark_options.spark_commit_dir)
        if self.tell is not None:
            self.tell("starting Spark…")
        spark = require_supported(session_of(planned) or get_session(spark_options))
        if self.tell is not None:
            self.tell("")
        local = workers_are_local(spark)
        counts = None
        if self.watch is not None:
            live = MetricCells()
            self.watch(live)
            counts = LiveCounts(spark, run_id, metrics, live)
        frames: dict[str, Any] = {}
        artifacts = Artifacts(spark, local=local)
        try:
            with (
                spark_settings(spark, planned, spark_options),
                Progress(spark, self.tell, counts.refresh if counts else None) as progress,
            ):
                if not local and not needs_no_workers(planned, assign_levels(planned)):
                    name = planned.pipeline.name
                    failure = "the workers' Python can't run a first task"
                    with progress.action(f"{name}: check the workers' packages"), translated_errors(failure):
                        prepare(spark, spark_options.spark_archive)
                    with progress.action(f"{name}: check that the workers see the same files"), translated_errors():
                        check_shared(spark, planned, run_id, parallelism(spark))
                run = Execution(
                    spark,
                    planned,
                    spark_options,
                    run_id,
                    metrics,
                    artifacts,
                    counts=counts,
                    staging=staging,
                    local=local,
                    describe=progress.action,
                )
                try:
                    for id, committables in run.run().committables.items():
                        sinks[id].committables += committables
                    frames = run.dataframes()
                finally:
                    run.close()
            with logged_commit(spark_options.spark_commit_dir, run_id, list(sinks.values())):
                for sink in sinks.values():
                    metrics.merge(sink.commit())
            if frames:  # to recompute lost partitions of these, Spark may run tasks that also write to the sinks
                abort_later(sinks.values())
        except JobCancelled:
            abort_later(sinks.values())
            return _Finished(metrics, {}, PipelineState.CANCELLED)
        except BaseException:
            abort_later(sinks.values())
            raise
        finally:
            artifacts.close(keep_files=bool(frames))
            if counts is not None:
                counts.close()
            for sink in sinks.values():
                sink.abort()
        log_warnings(metrics, spark_options.max_end_timers, planned.pipeline)
        return _Finished(metrics, frames, PipelineState.DONE)


def _staging(options: SparkOptions) -> Path:
    """Where the driver has staged files: beside the commit log, so that the next run finds them there."""
    import tempfile
    from pathlib import Path

    return Path(options.spark_commit_dir or options.temp_dir or tempfile.gettempdir()).absolute()


class _Finished(Finished):
    """The result of a run, with its DataFrames. CANCELLED means that its Spark jobs were cancelled; nothing was
    committed then."""

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
            labels = ", ".join(map(repr, self._frames)) or "none"
            raise RunError(f"no ToDataFrame has the label {label!r}; there are: {labels}") from None


def _with_classes_of_values(pipeline: portable.Pipeline) -> portable.Pipeline:
    """The sealed pipeline, including the classes of the values of its `Create`s."""
    from tidegate.runners.spark.driver.split_assignment import all_plain

    if all(all_plain(node.values.load()) for node in pipeline.nodes if isinstance(node, portable.Create)):
        return pipeline
    return seal(pipeline, values=True)


def _refuse(pipeline: portable.Pipeline, options: RunOptions) -> None:
    """Raise UnsupportedError for what the runner does not run, naming it."""
    for node in pipeline.nodes:
        if isinstance(node, portable.Feedback):
            error = UnsupportedError(
                "the spark runner does not run tg.Feedback: use --runner direct, or, for bounded input, tg.Iterate"
            )
            raise located(error, node.label, node.where)
    if is_stream(pipeline):
        refuse_unsupported(pipeline)
    elif options.mode == "streaming":
        raise UnsupportedError("the spark runner does not run --mode streaming: it runs bounded data as a batch")
    elif options.run_for is not None:
        raise UnsupportedError("the spark runner does not run --run_for: bounded data runs until it ends")
