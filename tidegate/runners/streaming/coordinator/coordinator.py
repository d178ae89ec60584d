"""The coordinator of a job: a pure state machine. `handle(event)` returns actions; it performs no I/O.

An attempt starts all workers, repeats commits that may not have been made, removes output that no completed checkpoint
made final, and deploys region after region; the last region of a stream takes checkpoints. Any failure ends the
attempt: its workers are killed, and messages that carry its number are ignored from then on. `phases` has each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidegate.runners.engine.time.clock import wall_micros
from tidegate.runners.streaming.checkpoint.recovery import Resume
from tidegate.runners.streaming.coordinator.job_run import JobRun
from tidegate.runners.streaming.coordinator.phase import Phase
from tidegate.runners.streaming.coordinator.phases import New
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.coordinator_io import Action, CoordinatorEvent


class Coordinator:
    """The coordinator of one job.

    `resume`: the state to restore, if any; `epoch`: the number of this process of the job; `first`: the number of the
    first checkpoint if there is nothing to restore; `leftovers`: files of earlier processes in the checkpoint directory
    that nothing needs. Times are µs of a monotonic clock; `wall` is the wall clock, whose time manifests record.
    """

    def __init__(
        self,
        job: Job,
        resume: Resume | None = None,
        epoch: int = 1,
        first: int = 1,
        leftovers: Iterable[str] = (),
        *,
        wall: Callable[[], int] = wall_micros,
    ) -> None:
        self.job = job
        self.epoch = epoch
        self._run = JobRun(job, resume, epoch, first, leftovers, wall)
        self._phase: Phase = New(self._run)

    def handle(self, event: CoordinatorEvent, now: int) -> list[Action]:
        """React to an event at `now` (µs); returns the actions to perform, in this order."""
        phase = self._phase.handle(event, now)
        while (following := phase.advance(now)) is not phase:
            phase = following
        self._phase = phase
        return self._run.out.take()

    def next_wake(self) -> int | None:
        """When the next `Tick` is needed (µs); None: not before another event."""
        return self._phase.next_wake()
