"""What all phases of a job have in common."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.errors.transport import packed
from tidegate.runners.streaming.checkpoint.job_record import RECORDED
from tidegate.runners.streaming.coordinator.job_run import JobRun
from tidegate.runners.streaming.coordinator.restart_strategy import Failure
from tidegate.runners.streaming.protocol.coordinator_io import (
    CancelJob,
    CoordinatorEvent,
    Fenced,
    Finish,
    FromWorker,
    StopJob,
    StopWorkers,
    Stored,
    TakeSavepoint,
    Unreachable,
    WorkerGone,
    WorkersStarted,
)
from tidegate.runners.streaming.protocol.worker_messages import (
    Committed,
    Heartbeat,
    OutputAborted,
    PeerWatermark,
    Ready,
    SplitsDiscovered,
    SplitsDivided,
    SplitsListed,
    TaskFailed,
    ToCoordinator,
    ToWorker,
)
from tidegate.sdk.errors import ReadError, RunError


class Phase:
    """One phase. `cleanup`: the sinks that have yet to remove uncommitted output; None before they are asked to."""

    has_workers = True
    """Whether the attempt has workers whose messages count."""
    reports_progress = True

    def __init__(self, run: JobRun) -> None:
        self.run = run
        self.cleanup: set[int] | None = None

    def handle(self, event: CoordinatorEvent, now: int) -> Phase:
        """React to an event; returns the phase that the job is in afterwards."""
        run = self.run
        match event:
            case WorkersStarted(attempt=attempt) if self._is_current(attempt):
                run.workers.started(now)
            case FromWorker(worker=worker, attempt=attempt, message=message) if self._is_current(attempt):
                run.workers.mark_alive(worker, now)
                return self.on_message(worker, message, now)
            case WorkerGone(worker=worker, attempt=attempt, reason=reason) if self._is_current(attempt):
                run.workers.gone.add(worker)
                return self.on_worker_gone(worker, reason, now)
            case Stored(checkpoint=checkpoint, error=error) if checkpoint == RECORDED:
                return self.on_recorded(error, now)
            case Stored():
                return self.on_stored(event, now)
            case Fenced(reason=reason):
                run.out.add(StopWorkers(0.0))
                return self.finish(Finish("failed", packed(RunError(reason))), now)
            case Unreachable(error=error):
                return self.on_unreachable(error, now)
            case CancelJob():
                return self.on_cancel(now)
            case StopJob() if run.stop is None:
                self.on_stop(event)
            case TakeSavepoint(directory=directory):
                run.request_savepoint(directory)
            case _:
                pass
        return self

    def advance(self, now: int) -> Phase:
        """Do whatever has become possible; returns the phase that the job is in afterwards."""
        return self

    def next_wake(self) -> int | None:
        """When `advance` is needed even if no event arrives (µs); None: never."""
        return None

    # -- events

    def on_message(self, worker: int, message: ToCoordinator, now: int) -> Phase:
        """A worker of the current attempt sent a message."""
        run = self.run
        match message:
            case Ready():
                run.workers.ready.add(worker)
            case Heartbeat():
                run.workers.on_heartbeat(worker, message)
                if run.job.settings.drift is not None:
                    run.out.send(worker, PeerWatermark(run.workers.min_watermark_except(worker)))
                if self.reports_progress:
                    run.report_progress_if_due(now)
            case TaskFailed(task=task, error=error, text=text):
                stage = None if task is None else task.stage
                where = _describe(task, worker)
                text = f"{where}: {text}" if text else where
                return self.fail(Failure(error, text, True, stage, message.element, message.outage, message.final), now)
            case OutputAborted(step=step, error=error, text=text, outage=outage) if self.cleanup is not None:
                if error is not None:
                    what = f"the uncommitted output of {run.sinks[step]!r} could not be removed"
                    text = f"{what}: {text}" if text else what
                    return self.on_cleanup_failed(step, Failure(error, text, from_user=True, outage=outage), now)
                self.cleanup.discard(step)
            case Committed(step=step, checkpoint=checkpoint, error=error, text=text, task=task):
                if message.written is not None:
                    run.written.merge(message.written)
                if error is None:
                    run.checkpoints.commits.acknowledge(step, checkpoint, task)
                    return self
                what = f"the commit of {run.sinks[step]!r} failed"
                text = f"{what}: {text}" if text else what
                return self.fail(Failure(error, text, from_user=True, outage=message.outage), now)
            case SplitsListed(step=step, splits=splits):
                run.deployment.on_splits_listed(step, splits)
            case SplitsDivided():
                run.deployment.on_splits_divided(message)
            case SplitsDiscovered(step=step):
                try:
                    self._send(run.deployment.on_splits_discovered(message))
                except ValueError as error:
                    node = run.job.plan.steps[step].head
                    refused = located(ReadError(str(error)), node.label, node.where)
                    return self.fail(Failure(packed(refused), f"{refused}", from_user=True), now)
            case _:
                pass
        return self

    def on_worker_gone(self, worker: int, reason: str, now: int) -> Phase:
        """A worker's process has ended."""
        return self

    def on_stored(self, event: Stored, now: int) -> Phase:
        """A manifest or a savepoint has been stored, or could not be."""
        checkpoints = self.run.checkpoints
        before = checkpoints.resume
        why = checkpoints.stored(event.checkpoint, event.error, now, in_place=event.in_place)
        if checkpoints.resume is not before:
            self.run.restarts.progressed()
        return self.lost(why, now) if why else self

    def on_recorded(self, error: str, now: int) -> Phase:
        """The end of the job has been recorded in the checkpoint directory, or could not be."""
        return self

    def on_unreachable(self, error: str, now: int) -> Phase:
        """Ownership of the checkpoint directory could not be checked."""
        return self.lost(f"the checkpoint directory can't be read: {error}", now, outage=True)

    def on_cancel(self, now: int) -> Phase:
        """The job was cancelled. This has no effect on a job that is ending already."""
        return self

    def on_stop(self, stop: StopJob) -> None:
        """A clean stop was requested."""
        self.run.stop = stop

    def on_cleanup_failed(self, step: int, failure: Failure, now: int) -> Phase:
        """A sink could not remove its uncommitted output."""
        return self.fail(failure, now)

    # -- transitions

    def fail(self, failure: Failure, now: int) -> Phase:
        """The attempt has failed. Without an attempt, a failure has no effect."""
        return self

    def lost(self, text: str, now: int, *, outage: bool = False) -> Phase:
        """The attempt has failed, but not because of an error in user code."""
        return self.fail(Failure(packed(RunError(text)), text, outage=outage), now)

    def finish(self, outcome: Finish, now: int, *, progress: bool = True) -> Phase:
        """The job is over. `progress`: report progress a last time."""
        if progress:
            self.run.report_progress(now)
        self.run.out.add(outcome)
        return Over(self.run)

    def _send(self, messages: Iterable[tuple[int, ToWorker]]) -> None:
        for worker, message in messages:
            self.run.out.send(worker, message)

    def _is_current(self, attempt: int) -> bool:
        return self.has_workers and attempt == self.run.attempt


class Over(Phase):
    """The job is over; no event has any effect."""

    def handle(self, event: CoordinatorEvent, now: int) -> Phase:
        return self


def _describe(task: TaskId | None, worker: int) -> str:
    return f"worker {worker} failed" if task is None else f"task {task} failed"
