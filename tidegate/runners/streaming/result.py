"""The results of runs on the streaming runner: of a job of this process, and of a session's job."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidegate.runners.completion import Latch
from tidegate.runners.engine.run_warnings import log_warnings
from tidegate.runners.plan import Plan
from tidegate.runners.streaming.client.job_client import JobClient
from tidegate.runners.streaming.protocol.client_messages import Submit, ToClient
from tidegate.runners.streaming.protocol.coordinator_io import (
    CancelJob,
    CheckpointReport,
    JobState,
    StopJob,
    TakeSavepoint,
)
from tidegate.runners.streaming.protocol.worker_messages import TaskStatus, watermark_of
from tidegate.runners.streaming.session.names import DEFAULT
from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.metrics import MetricResults
from tidegate.sdk.runner import PipelineResult, PipelineState, StageProgress
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND

if TYPE_CHECKING:
    from tidegate.runners.streaming.session.client import JobInfo

_STATES: Final[dict[JobState, PipelineState]] = {
    "finished": PipelineState.DONE,
    "stopped": PipelineState.DONE,
    "failed": PipelineState.FAILED,
    "cancelled": PipelineState.CANCELLED,
}


def submit(submitted: Submit, session: str) -> Detached:
    """Submit a job to a session. EndpointError if there is no such session."""
    from tidegate.runners.streaming.session.client import open_session

    with open_session(session) as connection:
        info = connection.submit(submitted, tuple(sys.path), os.getcwd())
    option = "" if session == DEFAULT else f" --session {session}"
    print(f"submitted as job {info.id}; `tidegate jobs show {info.id}{option}` shows its state", file=sys.stderr)
    return Detached(info.id, session)


class Detached(PipelineResult):
    """A job of a session. It continues when this process ends, and `wait_until_finish` does not wait for it."""

    def __init__(self, id: str, session: str) -> None:
        self.id = id
        self.session = session

    @property
    def state(self) -> PipelineState:
        return _STATES.get(self._info().state, PipelineState.RUNNING)

    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        return self.state

    def savepoint(self, directory: str) -> None:
        """Take a savepoint in a folder or URL; the job continues. RunError if that fails."""
        from tidegate.runners.streaming.session.client import open_session

        with open_session(self.session) as connection:
            connection.savepoint(self.id, absolute(directory))

    def cancel(self) -> PipelineState:
        from tidegate.runners.streaming.session.client import open_session

        with open_session(self.session) as connection:
            for _ in connection.send_and_follow(self.id, CancelJob()):
                continue
        return self.state

    def metrics(self) -> MetricResults:
        return MetricResults(self._info().metrics)

    def _info(self) -> JobInfo:
        from tidegate.runners.streaming.session.client import open_session

        with open_session(self.session) as connection:
            return connection.info(self.id)


class StreamingResult(PipelineResult):
    """A job of this process, which runs in processes of its own.

    Ctrl-C in `wait_until_finish` stops the job cleanly: with a last checkpoint if there is a checkpoint directory,
    otherwise after everything that has been read is processed and committed. A second Ctrl-C cancels the job.
    """

    def __init__(self, job: JobClient) -> None:
        self._job = job
        self._over = Latch()
        self._interrupted = False
        self._failed: TidegateError | None = None
        self._changed = threading.Condition()
        """Notified of savepoint reports and of the end of the job."""
        self._savepoints: dict[str, deque[CheckpointReport]] = {}
        self._on_report, job.on_report = job.on_report, self._handle_report
        threading.Thread(target=self._follow, name="tidegate-streaming", daemon=True).start()

    def _follow(self) -> None:
        try:
            self._job.wait()
        except Exception as error:  # an error that can't be unpickled, for instance
            self._failed = RunError(f"the connection to the job was lost: {type(error).__name__}: {error}")
        finally:
            self._job.close()
            job = self._job.submitted.job
            log_warnings(self._job.metrics, job.settings.max_end_timers, job.plan.pipeline)
            self._over.open()
            with self._changed:
                self._changed.notify_all()

    def _handle_report(self, message: ToClient) -> None:
        if isinstance(message, CheckpointReport) and message.savepoint:
            with self._changed:
                self._savepoints.setdefault(message.savepoint, deque()).append(message)
                self._changed.notify_all()
        if self._on_report is not None:
            self._on_report(message)

    @property
    def state(self) -> PipelineState:
        if not self._over.opened:
            return PipelineState.RUNNING
        state = _STATES.get(self._job.state, PipelineState.FAILED)
        return PipelineState.CANCELLED if self._interrupted and state is PipelineState.DONE else state

    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        try:
            self._over.wait(timeout)
        except KeyboardInterrupt:
            self._interrupted = True
            self.stop()
            try:
                self._over.wait()
            except KeyboardInterrupt:
                return self.cancel()
        error = self._failed or self._job.error
        if self._over.opened and error is not None:
            raise error.with_traceback(None) from error.__cause__
        return self.state

    def stop(self, *, drain: bool = False, savepoint: str | None = None) -> None:
        """Request a clean stop. `drain`: advance the watermark to the end of time, so that all windows fire.
        `savepoint`: a folder or URL to which the final state is copied."""
        self._job.send(StopJob(drain=drain, savepoint=savepoint))

    def savepoint(self, directory: str) -> None:
        """Take a savepoint in a folder or URL, and wait until it is complete; the job continues. RunError if that
        fails."""
        self._job.send(TakeSavepoint(directory))
        with self._changed:
            self._changed.wait_for(lambda: self._savepoints.get(directory) or self._over.opened)
            reports = self._savepoints.get(directory)
            error = reports.popleft().error if reports else "the run ended before it was complete"
        if error:
            raise RunError(f"the savepoint in {directory} failed: {error}")

    def cancel(self) -> PipelineState:
        self._job.send(CancelJob())
        self._over.wait()
        return self.state

    def metrics(self) -> MetricResults:
        return MetricResults(self._job.metrics)

    def stages(self) -> list[StageProgress]:
        return stages_of(self._job.submitted.job.plan, self._job.tasks, time.time())


def absolute(directory: str) -> str:
    """The absolute path of a folder, for a process with another working directory; a URL unchanged."""
    return directory if "://" in directory else os.path.abspath(directory)


def stages_of(plan: Plan, tasks: Sequence[TaskStatus], now: float) -> list[StageProgress]:
    """The progress of the stages, from the status of their tasks; `now` is in seconds since 1970."""
    found = []
    for stage in sorted({task.task.stage for task in tasks}):
        stage_tasks = [task for task in tasks if task.task.stage == stage]
        watermark = watermark_of(stage_tasks)
        found.append(
            StageProgress(
                tuple(node.label for step in plan.stage_steps(stage) for node in step.nodes),
                sum(task.busy for task in stage_tasks),
                sum(task.idle for task in stage_tasks),
                sum(task.backpressured for task in stage_tasks),
                now - watermark / SECOND if MIN_MICROS < watermark < MAX_MICROS else None,
            )
        )
    return found
