"""A stop request is honoured in every phase, also while a job starts, restores or waits for its restart.

The workers here respond correctly. Each sequence of events is run once for every position of the stop request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from tests.support.streaming.coordinator_harness import (
    CoordinatorHarness,
    actions_of_type,
    count_words_to_text,
    make_job,
    messages_sent,
)
from tidegate.runners.checkpoint.manifest_json import loads
from tidegate.runners.checkpoint.parts import AssignedSplit, StateHandle
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.streaming.checkpoint.job_record import RECORDED
from tidegate.runners.streaming.checkpoint.recovery import Resume, resumed
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.protocol.coordinator_io import (
    Action,
    CoordinatorEvent,
    Finish,
    FromWorker,
    Report,
    Send,
    StartWorkers,
    StopJob,
    StopWorkers,
    Store,
    Stored,
    WorkerGone,
)
from tidegate.runners.streaming.protocol.worker_messages import (
    AbortOutput,
    Acknowledge,
    Cancel,
    Commit,
    Committed,
    Deploy,
    ListSplits,
    OutputAborted,
    Prepared,
    Ready,
    SplitsListed,
    StopSources,
    TaskEnded,
    ToCoordinator,
    TriggerBarrier,
)
from tidegate.sdk.connectors.sinks import Committable

WITH_DIRECTORY = CheckpointSettings(directory="/somewhere", interval=10.0)
WITHOUT_DIRECTORY = CheckpointSettings(interval=10.0)
LIFE = 45.0
"""Seconds for which a job without a stop request is simulated: long enough for four checkpoints."""


class SimulatedJob(CoordinatorHarness):
    """A job whose workers and storage answer every request at once and in order."""

    def __init__(self, job: Job, resume: Resume | None, epoch: int, injected: dict[int, CoordinatorEvent]) -> None:
        self.waiting: deque[CoordinatorEvent] = deque()
        self.deployed: set[TaskId] = set()
        self.ended: set[TaskId] = set()
        self.happened = 0
        self.injected = injected
        super().__init__(job, resume, epoch)

    def handle(self, event: CoordinatorEvent) -> list[Action]:
        actions = super().handle(event)
        for action in actions:
            self.waiting += self.answers(action)
        return actions

    def follow(self) -> None:
        """Handle events until the job finishes or `LIFE` seconds pass; `injected` maps positions to injected events."""
        while not actions_of_type(self.actions, Finish) and self.now < LIFE * 1_000_000:
            self.happened += 1
            if self.happened in self.injected:
                self.interfere(self.injected[self.happened])
            elif self.waiting:
                self.handle(self.waiting.popleft())
            else:
                self.wait(1.0)

    def interfere(self, event: CoordinatorEvent) -> None:
        if isinstance(event, WorkerGone):
            event = WorkerGone(event.worker, self.attempt, event.reason)
        self.handle(event)

    def answers(self, action: Action) -> list[CoordinatorEvent]:
        workers = range(self.job.settings.workers)
        match action:
            case StartWorkers(attempt=attempt):
                self.attempt = attempt
                self.silence()
                self.deployed.clear()
                self.ended.clear()
                return [self.by(worker, Ready()) for worker in workers]
            case StopWorkers(grace=0.0):
                self.silence()
            case Store(checkpoint=checkpoint):
                return [Stored(checkpoint)]
            case Send(worker=worker, message=message):
                return self.replies(worker, message)
            case _:
                pass
        return []

    def silence(self) -> None:
        """Drop the workers' pending messages; writes to the storage complete."""
        self.waiting = deque(event for event in self.waiting if isinstance(event, Stored))

    def replies(self, worker: int, message: object) -> list[CoordinatorEvent]:
        match message:
            case ListSplits(step=step):
                return [self.by(worker, SplitsListed(step, tuple(AssignedSplit(f"{n}", b"") for n in range(4))))]
            case AbortOutput(step=step):
                return [self.by(worker, OutputAborted(step))]
            case Commit(step=step, checkpoint=checkpoint):
                return [self.by(worker, Committed(step, checkpoint))]
            case Deploy(tasks=tasks):
                self.deployed.update(tasks)
            case StopSources(drain=True):
                mine = sorted(task for task in self.deployed - self.ended if task.index == worker)
                self.ended.update(mine)
                return [self.by(worker, TaskEnded(task)) for task in mine]
            case TriggerBarrier(checkpoint=checkpoint):
                mine = sorted(task for task in self.deployed if task.index == worker)
                return [self.by(worker, self.share(checkpoint, task)) for task in mine]
            case Cancel():
                return [WorkerGone(worker, self.attempt, "its process ended with exit code 0")]
            case _:
                pass
        return []

    def share(self, checkpoint: int, task: TaskId) -> Acknowledge:
        writers = {step.stage: step.label for step in self.job.plan.steps if step.is_sink}
        pieces = (Committable((task.index, checkpoint), "x"),)
        prepared = (Prepared(writers[task.stage], pieces),) if task.stage in writers else ()
        handle = StateHandle(((f"chk-{checkpoint:06}/{task}.{self.attempt}", 10, 1),))
        return Acknowledge(checkpoint, task, handle, (), prepared, task in self.ended)

    def by(self, worker: int, message: ToCoordinator) -> FromWorker:
        return FromWorker(worker, self.attempt, message)


def undisturbed(job: Job) -> SimulatedJob:
    harness = SimulatedJob(job, None, 1, {})
    harness.follow()
    return harness


def beginnings(checkpoints: CheckpointSettings) -> dict[str, Callable[[dict[int, CoordinatorEvent]], SimulatedJob]]:
    """Ways to start a job: without state, and from a checkpoint with uncommitted output."""
    job = make_job(count_words_to_text(), checkpoints=checkpoints)
    stored = next(store for store in actions_of_type(undisturbed(job).actions, Store) if store.checkpoint == 1)
    resume = resumed(job, loads(stored.data), "checkpoint 1")
    return {
        "without-state": lambda injected: SimulatedJob(job, None, 1, injected),
        "from-a-checkpoint": lambda injected: SimulatedJob(job, resume, 2, injected),
    }


ASKED = {
    "stop": (WITH_DIRECTORY, StopJob(), "stopped"),
    "drain": (WITH_DIRECTORY, StopJob(drain=True), "finished"),
    "into-a-savepoint": (WITHOUT_DIRECTORY, StopJob(savepoint="/saved"), "stopped"),
    "nothing-retained": (WITHOUT_DIRECTORY, StopJob(), "finished"),
}


@pytest.mark.parametrize("death", [False, True], ids=["in-peace", "with-a-death"])
@pytest.mark.parametrize("begins", ["without-state", "from-a-checkpoint"])
@pytest.mark.parametrize("asked", ASKED)
def test_a_stop_request_at_any_moment_ends_the_job_with_all_output_committed(
    asked: str, begins: str, death: bool
) -> None:
    checkpoints, stop, state = ASKED[asked]
    begin = beginnings(checkpoints)[begins]
    undisturbed_job = begin({})
    undisturbed_job.follow()
    assert not actions_of_type(undisturbed_job.actions, Finish)
    for at in range(1, undisturbed_job.happened):
        for behind in (1, 4) if death else (0,):
            injected: dict[int, CoordinatorEvent] = {at: stop}
            if death:  # during the stop, or after it
                injected[at + behind] = WorkerGone(1, 0, "killed by SIGKILL")
            harness = begin(injected)
            harness.follow()
            where = f"the stop came before event {at}"
            assert [finish.state for finish in actions_of_type(harness.actions, Finish)] == [state], where
            assert [report.state for report in actions_of_type(harness.actions, Report)][-1] == "finishing", where
            assert all_committed(harness), where


def all_committed(harness: SimulatedJob) -> bool:
    """True if exactly the stored checkpoints have been committed."""
    stored = {
        store.checkpoint
        for store in actions_of_type(harness.actions, Store)
        if store.checkpoint != RECORDED and not store.directory
    }
    commits = {commit.checkpoint for commit in messages_sent(harness.actions, Commit)}
    begun = {1} if harness.attempt > 1_000_000 else set()
    return commits == stored | begun
