"""The parts of a job that its phases share: checkpoints, deployment, workers, the current attempt, a requested stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from tidegate.runners.checkpoint.step_state import is_live
from tidegate.runners.streaming.checkpoint.recovery import Resume
from tidegate.runners.streaming.coordinator.checkpoint_coordinator import CheckpointCoordinator
from tidegate.runners.streaming.coordinator.deployment import Deployment
from tidegate.runners.streaming.coordinator.outbox import Outbox
from tidegate.runners.streaming.coordinator.restart_strategy import RestartStrategy
from tidegate.runners.streaming.coordinator.workers import EndedTasks, Workers
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, StartWorkers, StopJob
from tidegate.runners.streaming.protocol.worker_messages import AbortOutput
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import TestStream
from tidegate.sdk.time import SECOND

ATTEMPTS_PER_EPOCH: Final = 1_000_000
"""Files are named after attempts, so each process of a job numbers its attempts from where its epoch begins."""


class JobRun:
    """A job at run time. `resume`, `epoch`, `first`, `leftovers` and `wall` are as for `Coordinator`."""

    def __init__(
        self,
        job: Job,
        resume: Resume | None,
        epoch: int,
        first: int,
        leftovers: Iterable[str],
        wall: Callable[[], int],
    ) -> None:
        settings = job.settings
        self.job = job
        self.resume = resume
        self.scripted = any(isinstance(step.head, TestStream) for step in job.plan.steps)
        self.sinks = {step.id: step.label for step in job.plan.steps if step.is_sink}
        self.out = Outbox(settings.workers)
        self.deployment = Deployment(job, resume)
        self.regions = self.deployment.regions
        ends = settings.batch or not (settings.streaming or any(is_live(step, job.plan) for step in job.plan.steps))
        self.restarts = RestartStrategy(settings.restart, retry_user_errors=not (ends or self.scripted))
        self.ended_tasks = EndedTasks(resume.counted if resume else None)
        self.checkpoints = CheckpointCoordinator(
            job, epoch, self.deployment, resume, self.out, self.ended_tasks, wall, first, leftovers
        )
        self.workers = Workers(settings.workers, None)
        """The workers of the current attempt."""
        self.attempt = self._first_attempt = (epoch - 1) * ATTEMPTS_PER_EPOCH + 1
        self.stop: StopJob | None = None
        """The clean stop that was requested, if any."""
        self.run_until: int | None = None
        """When the job stops because of `--run_for` (µs)."""
        self.wrote = False
        """Whether any attempt has deployed tasks, whose sinks may have written."""
        self.written = MetricCells()
        """The metrics of all commits."""
        self._output_runs = job.output_runs(resume.since if resume else 1)
        self._progress_at = 0

    @property
    def draining(self) -> bool:
        """Whether the requested stop ends the sources for good: on request, or because no checkpoint would outlive the
        job. A loop might go on without end, so what is in it then is dropped unless a drain was requested."""
        stop = self.stop
        if stop is None:
            return False
        is_resumable = stop.savepoint is not None or self.job.settings.checkpoints.directory is not None
        may_stop = is_resumable or bool(self.job.loops)
        return stop.drain or not may_stop or self.job.settings.batch or self.scripted

    @property
    def is_first_attempt(self) -> bool:
        """Whether this process of the job has not restarted its workers yet."""
        return self.attempt == self._first_attempt

    def start_workers(self) -> None:
        """Start the workers of the current attempt."""
        self.workers = Workers(self.job.settings.workers, self.job.settings.task_timeout)
        self.checkpoints.attempt = self.attempt
        self.out.add(StartWorkers(self.attempt))

    def reset_attempt(self, now: int) -> None:
        """Forget the failed attempt: its workers are gone, and with them all state that is not in files."""
        self.checkpoints.reset(now)
        self.deployment.reset(self.checkpoints.resume)
        self.ended_tasks.reset(self.regions.done_before())

    def exposed_sinks(self) -> set[int]:
        """The sinks for which an earlier attempt may have written output that no checkpoint made final."""
        is_new = self.attempt == 1 and self.resume is None
        return set() if is_new else self.deployment.exposed_sinks()

    def abort_output(self, steps: Iterable[int]) -> set[int]:
        """Have sinks remove their uncommitted output; returns the sinks that have yet to do so."""
        for step in sorted(steps):
            self.out.send(0, AbortOutput(step, self._output_runs))
        return set(steps)

    def request_savepoint(self, directory: str) -> None:
        """Request a savepoint. A job that does not support savepoints reports a failure."""
        if self.job.settings.batch or self.scripted:
            kind = "a bounded job" if self.job.settings.batch else "a test stream"
            self.out.add(CheckpointReport(0, 0.0, 0, 0.0, 0.0, f"{kind} has no savepoints", directory))
        else:
            self.checkpoints.request_savepoint(directory)

    def report_progress(self, now: int) -> None:
        """Report the status of all tasks, and all metrics."""
        self._progress_at = now
        cells = [*self.ended_tasks.metrics, self.written, self.deployment.loops.metrics]
        if not self.job.settings.batch:
            cells.append(self.checkpoints.backpressure.metrics(self.checkpoints.commits.backlogs))
        self.out.add(self.workers.progress(cells))

    def report_progress_if_due(self, now: int) -> None:
        """Report progress about once per heartbeat interval."""
        if now - self._progress_at >= 0.9 * self.job.settings.heartbeat * SECOND:
            self.report_progress(now)
