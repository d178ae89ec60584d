"""A run on the streaming runner, over or going on."""

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
    """Have a session run a job. EndpointError if there is no such session."""
    from tidegate.runners.streaming.session.client import open_session

    with open_session(session) as connection:
        info = connection.submit(submitted, tuple(sys.path), os.getcwd())
    option = "" if session == DEFAULT else f" --session {session}"
    print(f"submitted as job {info.id}; `tidegate jobs show {info.id}{option}` says how it is doing", file=sys.stderr)
    return Detached(info.id, session)


class Detached(PipelineResult):
    """A job of a session. Nothing waits for it: it goes on when this process has ended."""

    def __init__(self, id: str, session: str) -> None:
        self.id = id
        self.session = session

    @property
    def state(self) -> PipelineState:
        return _STATES.get(self._info().state, PipelineState.RUNNING)

    def wait_until_finish(self, timeout: float | None = None) -> PipelineState:
        return self.state

    def savepoint(self, directory: str) -> None:
        """Take a savepoint in a folder or URL, and go on. RunError if it could not be taken."""
        from tidegate.runners.streaming.session.client import open_session

        with open_session(self.session) as connection:
            connection.savepoint(self.id, absolute(directory))

    def cancel(self) -> PipelineState:
        from tidegate.runners.streaming.session.client import open_session

        with open_session(self.session) as connection:
            for _ in connection.tell_and_follow(self.id, CancelJob()):
                continue
        return self.state

    def metrics(self) -> MetricResults:
        return MetricResults(self._info().metrics)

    def _info(self) -> JobInfo:
        from tidegate.runners.streaming.session.client import open_session

        with open_session(self.session) as connection:
            return connection.info(self.id)


class StreamingResult(PipelineResult):
    """A run that goes on in processes of its own.

    Ctrl-C while waiting for one that goes on is a clean stop: with a last checkpoint if there is a directory for them,
    else everything that has been read is worked off and committed. A second Ctrl-C cancels it.
    """

    def __init__(self, job: JobClient) -> None:
        self._job = job
        self._over = Latch()
        self._interrupted = False
        self._failed: TidegateError | None = None
        self._news = threading.Condition()
        self._saved: dict[str, deque[CheckpointReport]] = {}
        self._say, job.on_report = job.on_report, self._heard
        threading.Thread(target=self._follow, name="tidegate-streaming", daemon=True).start()

    def _follow(self) -> None:
        try:
            self._job.wait()
        except Exception as error:  # what it tells can't be understood
            self._failed = RunError(f"the run was lost: {type(error).__name__}: {error}")
        finally:
            self._job.close()
            job = self._job.submitted.job
            log_warnings(self._job.metrics, job.settings.max_end_timers, job.plan.pipeline)
            self._over.open()
            with self._news:
                self._news.notify_all()

    def _heard(self, message: ToClient) -> None:
        if isinstance(message, CheckpointReport) and message.savepoint:
            with self._news:
                self._saved.setdefault(message.savepoint, deque()).append(message)
                self._news.notify_all()
        if self._say is not None:
            self._say(message)

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
        """Ask for a clean end. `drain`: the watermark goes to the end of time, so that all windows fire. `savepoint`: a
        folder or URL; the last state goes there, too."""
        self._job.send(StopJob(drain=drain, savepoint=savepoint))

    def savepoint(self, directory: str) -> None:
        """Take a savepoint in a folder or URL, and go on; it is there when this returns. RunError if it could not be
        taken."""
        self._job.send(TakeSavepoint(directory))
        with self._news:
            self._news.wait_for(lambda: self._saved.get(directory) or self._over.opened)
            told = self._saved.get(directory)
            error = told.popleft().error if told else "the run ended before it was complete"
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
    """A folder's whole path, for a process that may have another current one; a URL as it is."""
    return directory if "://" in directory else os.path.abspath(directory)


def stages_of(plan: Plan, tasks: Sequence[TaskStatus], now: float) -> list[StageProgress]:
    """How the stages are doing, by what their tasks have told; `now` in seconds since 1970."""
    found = []
    for stage in sorted({task.task.stage for task in tasks}):
        own = [task for task in tasks if task.task.stage == stage]
        watermark = watermark_of(own)
        found.append(
            StageProgress(
                tuple(node.label for step in plan.stage_steps(stage) for node in step.nodes),
                sum(task.busy for task in own),
                sum(task.idle for task in own),
                sum(task.backpressured for task in own),
                now - watermark / SECOND if MIN_MICROS < watermark < MAX_MICROS else None,
            )
        )
    return found
