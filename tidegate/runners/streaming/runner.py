"""The streaming runner: it plans the pipeline, and submits it to a job's process."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.runners.checkpoint.matching import check_names
from tidegate.runners.engine.factory import load_operators
from tidegate.runners.engine.run_warnings import announce_endless_run, announce_lossy_sources, log_warnings
from tidegate.runners.plan import Plan
from tidegate.runners.planner import Traits, plan
from tidegate.runners.streaming.client.console import ConsoleReporter
from tidegate.runners.streaming.client.job_client import JobClient
from tidegate.runners.streaming.client.serialization import register_element_classes, with_values
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import Settings
from tidegate.runners.streaming.protocol.client_messages import Submit
from tidegate.runners.streaming.result import StreamingResult, submit
from tidegate.runners.streaming.state.rocksdb_store import rocksdb
from tidegate.sdk.options.defaults import DefaultOptions, default_memory_budget, processors
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.secrets import secrets_of
from tidegate.sdk.runner import Finished, PipelineResult, Runner, RunOptions

if TYPE_CHECKING:
    from tidegate.runners.streaming.model.options import StreamingOptions


class StreamingRunner(Runner):
    """Runs pipelines in worker processes of this machine, exactly once."""

    name = "streaming"

    @classmethod
    def options_model(cls) -> type[StreamingOptions]:
        from tidegate.runners.streaming.model.options import StreamingOptions

        return StreamingOptions

    def apart(self, options: RunOptions) -> RunOptions:
        if isinstance(options, DefaultOptions):
            return options
        streaming = options.view_as(self.options_model())
        flags = ("checkpoint_dir", "from_savepoint", "allow_dropped_state", "begin_anew", "discard_state", "detach")
        fields = type(streaming).model_fields
        defaults = {name: fields[name].default for name in (*flags, "metrics_file")}
        return streaming.model_copy(update=defaults)

    def check(self, pipeline: portable.Pipeline, options: RunOptions) -> list[str]:
        self.plan(pipeline, options)
        return []

    def plan(self, pipeline: portable.Pipeline, options: RunOptions) -> Plan:
        settings = _settings(pipeline, options)
        if settings.state_backend == "rocksdb":
            rocksdb()
        # Parallel even with one worker, so that its state can be restored by any number of workers.
        traits = Traits(
            parallel=True,
            streaming=settings.streaming,
            blocking=settings.exchange == "blocking",
            parallel_loops=settings.batch,
        )
        planned = plan(pipeline, traits)
        if settings.checkpoints.directory is not None and not settings.batch:
            check_names(planned)
        return planned

    def submission(self, pipeline: portable.Pipeline, options: RunOptions) -> Submit:
        """The request by which a client submits a sealed pipeline to a job's process or a session."""
        return self._serialized(pipeline, options, self._submission(pipeline, options))

    def _submission(self, pipeline: portable.Pipeline, options: RunOptions) -> Submit:
        """The request for a process that is forked from this one, with the values of `Create`s as objects."""
        settings = _settings(pipeline, options)
        name = os.urandom(6).hex()
        directory = Path(settings.temp_dir or tempfile.gettempdir()).absolute() / f"tidegate-{name}"
        parts: dict[str, str] = {}
        if (
            settings.checkpoints.directory is not None
            and not settings.batch
            and not isinstance(options, DefaultOptions)
        ):
            from tidegate.runners.streaming.model.fingerprint import parts_of

            parts = parts_of(pipeline, options)
        return Submit(Job(name, name, self.plan(pipeline, options), settings, parts=parts), str(directory))

    def _serialized(self, pipeline: portable.Pipeline, options: RunOptions, submitted: Submit) -> Submit:
        serialized = with_values(pipeline)
        job = replace(submitted.job, plan=self.plan(serialized, options))
        return replace(submitted, job=job, secrets=tuple(secrets_of(serialized).items()))

    def run(self, pipeline: portable.Pipeline, options: RunOptions) -> PipelineResult:
        announce_lossy_sources(pipeline)
        if not isinstance(options, DefaultOptions) and (view := options.view_as(self.options_model())).detach:
            return submit(self.submission(pipeline, options), view.session)
        load_operators()
        register_element_classes(pipeline)
        submitted = self._submission(pipeline, options)
        serialize = partial(self._serialized, pipeline, options)
        job = JobClient(submitted, serialize=serialize, on_report=ConsoleReporter(submitted.job))
        if self.watch is not None:
            self.watch(job.metrics)
        scripted = any(isinstance(node, portable.TestStream) for node in pipeline.nodes)
        if not (scripted or _bounded(pipeline)):
            announce_endless_run(pipeline, options, previewing=self.enough is not None)
            return StreamingResult(job)
        try:
            job.wait()
        finally:
            job.close()
            log_warnings(job.metrics, submitted.job.settings.max_end_timers, submitted.job.plan.pipeline)
        if job.error is not None:
            raise job.error from job.error.__cause__
        return Finished(job.metrics)


def _bounded(pipeline: portable.Pipeline) -> bool:
    return all(collection.bounded for collection in pipeline.collections)


def _settings(pipeline: portable.Pipeline, options: RunOptions) -> Settings:
    """The settings that the options make. Doesn't import the options' model if there are no options."""
    # A loop in a stream is one also where the input ends.
    bounded = _bounded(pipeline) and not any(isinstance(node, portable.Feedback) for node in pipeline.nodes)
    if isinstance(options, DefaultOptions):
        workers = processors()
        return replace(Settings(workers, False, bounded), memory_budget=default_memory_budget() // workers)
    from tidegate.runners.streaming.model.options import StreamingOptions, settings_of

    view = options.view_as(StreamingOptions)
    workers = view.workers or processors()
    memory = (view.memory_budget or default_memory_budget()) // workers
    return settings_of(view, workers=workers, memory=memory, bounded=bounded)
