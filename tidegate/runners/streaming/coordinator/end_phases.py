"""The phases of a job whose outcome is known: record the outcome, close the workers, remove leftover output."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from tidegate.runners.streaming.coordinator.job_run import JobRun
from tidegate.runners.streaming.coordinator.phase import Phase
from tidegate.runners.streaming.coordinator.restart_strategy import Failure
from tidegate.runners.streaming.protocol.coordinator_io import (
    Delete,
    Finish,
    StopWorkers,
    Store,
)
from tidegate.runners.streaming.protocol.worker_messages import (
    Cancel,
)
from tidegate.sdk.time import SECOND

_GRACE: Final = 30.0
"""Seconds that workers have for the user code's teardown after the job has done its work."""
_GRACE_SHORT: Final = 5.0
"""Seconds that workers have for the teardown after a failure or a cancellation."""


def end(run: JobRun, outcome: Finish, now: int, *, has_workers: bool = True) -> Phase:
    """Have the workers, if there are any, close their tasks; then finish."""
    wake: int | None = None
    if has_workers:
        grace = _GRACE if outcome.state in ("finished", "stopped") else _GRACE_SHORT
        run.out.send_all(Cancel())
        run.out.add(StopWorkers(grace))
        wake = now + round((grace + 1) * SECOND)
    else:
        run.workers.gone.update(range(run.workers.count))
    run.out.report("finishing")
    return Closing(run, outcome, wake)


class EndPhase(Phase):
    """A phase with a known outcome, unless a teardown in user code fails. `wake` (µs): when to stop waiting."""

    def __init__(self, run: JobRun, outcome: Finish, wake: int | None = None) -> None:
        super().__init__(run)
        self.outcome = outcome
        self._wake = wake

    def next_wake(self) -> int | None:
        return self._wake

    def fail(self, failure: Failure, now: int) -> Phase:
        if failure.from_user and self.outcome.state in ("finished", "stopped"):
            self.outcome = Finish("failed", failure.error)
        return self

    def _is_overdue(self, now: int) -> bool:
        return self._wake is not None and now >= self._wake


class Recording(EndPhase):
    """The checkpoint directory is being updated, since all output is committed: `stores` are written one after another,
    then files that are not needed any more are removed."""

    def __init__(self, run: JobRun, outcome: Finish, stores: Sequence[Store], unneeded: Delete | None) -> None:
        super().__init__(run, outcome)
        self._stores = deque(stores)
        self._unneeded = unneeded
        run.out.add(self._stores.popleft())

    def on_recorded(self, error: str, now: int) -> Phase:
        run = self.run
        if error:
            run.out.report("finishing", f"the end of the job could not be recorded: {error}")
        elif self._stores:
            run.out.add(self._stores.popleft())
            return self
        elif self._unneeded is not None:
            run.out.add(self._unneeded)
        return end(run, self.outcome, now)


class Closing(EndPhase):
    """The workers close their tasks, and exit."""

    def advance(self, now: int) -> Phase:
        run = self.run
        if not (run.workers.all_gone or self._is_overdue(now)):
            return self
        if not self._leaves_output():
            return self.finish(self.outcome, now)
        run.report_progress(now)
        run.attempt += 1
        run.start_workers()
        return Sweeping(run, self.outcome, now + round(_GRACE * SECOND))

    def _leaves_output(self) -> bool:
        """Whether a job that failed or was cancelled has written output that will never be committed."""
        run = self.run
        if self.outcome.state in ("finished", "stopped") or not (run.sinks and run.wrote):
            return False
        return not run.checkpoints.has_uncommitted_output or run.job.settings.checkpoints.directory is None


class Sweeping(EndPhase):
    """New workers remove the output that a failed job leaves behind."""

    reports_progress = False

    def advance(self, now: int) -> Phase:
        run = self.run
        if self.cleanup is None and run.workers.all_ready:
            self.cleanup = run.abort_output(run.sinks)
        if self._is_overdue(now) or self.cleanup == set() or run.workers.gone:
            return self._stop(now)
        return self

    def on_unreachable(self, error: str, now: int) -> Phase:
        return self._stop(now)

    def on_cleanup_failed(self, step: int, failure: Failure, now: int) -> Phase:
        """Report the error and leave the output: the job is over anyway."""
        assert self.cleanup is not None
        self.run.out.report("finishing", failure.text)
        self.cleanup.discard(step)
        return self

    def _stop(self, now: int) -> Phase:
        self.run.out.add(StopWorkers(0.0))
        return self.finish(self.outcome, now, progress=False)
