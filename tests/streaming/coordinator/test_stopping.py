"""A stop may be asked for at any moment: a job that is only starting, restoring or waiting to restart keeps it in mind.

The workers here do as they should. Each history is played once for every place at which the stop can come.
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
from tidegate.runners.streaming.checkpoint.job_record import RECORDED
from tidegate.runners.streaming.checkpoint.manifest_json import loads
from tidegate.runners.streaming.checkpoint.recovery import Resume, resumed
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.model.topology import TaskId
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
    AssignedSplit,
    Cancel,
    Commit,
    Committed,
    Deploy,
    ListSplits,
    OutputAborted,
    Prepared,
    Ready,
    SplitsListed,
    StateHandle,
    StopSources,
    TaskEnded,
    ToCoordinator,
    TriggerBarrier,
)
from tidegate.sdk.connectors.sinks import Committable

KEPT = CheckpointSettings(directory="/somewhere", interval=10.0)
NOWHERE = CheckpointSettings(interval=10.0)
LIFE = 45.0
"""Seconds after which whoever plays a job that nobody stops looks no further: it has had four checkpoints."""


class Following(CoordinatorHarness):
    """A job whose workers and store do at once what they are asked to, one thing after another, until it is over."""

    def __init__(self, job: Job, resume: Resume | None, epoch: int, meanwhile: dict[int, CoordinatorEvent]) -> None:
        self.waiting: deque[CoordinatorEvent] = deque()
        self.deployed: set[TaskId] = set()
        self.ended: set[TaskId] = set()
        self.happened = 0
        self.meanwhile = meanwhile
        super().__init__(job, resume, epoch)

    def tell(self, event: CoordinatorEvent) -> list[Action]:
        actions = super().tell(event)
        for action in actions:
            self.waiting += self.answers(action)
        return actions

    def follow(self) -> None:
        """Until it is over, or has gone on for long enough. `meanwhile` happens before what would have been next."""
        while not actions_of_type(self.said, Finish) and self.now < LIFE * 1_000_000:
            self.happened += 1
            if self.happened in self.meanwhile:
                self.interfere(self.meanwhile[self.happened])
            elif self.waiting:
                self.tell(self.waiting.popleft())
            else:
                self.wait(1.0)

    def interfere(self, event: CoordinatorEvent) -> None:
        if isinstance(event, WorkerGone):  # what it would have said is not said any more
            event = WorkerGone(event.worker, self.attempt, event.reason)
        self.tell(event)

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
        """Workers say no more; what is being stored is stored."""
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


def undisturbed(job: Job) -> Following:
    play = Following(job, None, 1, {})
    play.follow()
    return play


def beginnings(checkpoints: CheckpointSettings) -> dict[str, Callable[[dict[int, CoordinatorEvent]], Following]]:
    """Ways to begin: anew, and from a checkpoint that holds output yet to be committed."""
    job = make_job(count_words_to_text(), checkpoints=checkpoints)
    stored = next(store for store in actions_of_type(undisturbed(job).said, Store) if store.checkpoint == 1)
    resume = resumed(job, loads(stored.data), "checkpoint 1")
    return {
        "anew": lambda meanwhile: Following(job, None, 1, meanwhile),
        "from-a-checkpoint": lambda meanwhile: Following(job, resume, 2, meanwhile),
    }


ASKED = {
    "stop": (KEPT, StopJob(), "stopped"),
    "drain": (KEPT, StopJob(drain=True), "finished"),
    "into-a-savepoint": (NOWHERE, StopJob(savepoint="/saved"), "stopped"),
    "nothing-kept": (NOWHERE, StopJob(), "finished"),
}


@pytest.mark.parametrize("death", [False, True], ids=["in-peace", "with-a-death"])
@pytest.mark.parametrize("begins", ["anew", "from-a-checkpoint"])
@pytest.mark.parametrize("asked", ASKED)
def test_a_stop_ends_the_job_whenever_it_comes_and_all_is_committed(asked: str, begins: str, death: bool) -> None:
    checkpoints, stop, state = ASKED[asked]
    begin = beginnings(checkpoints)[begins]
    length = begin({})
    length.follow()
    assert not actions_of_type(length.said, Finish)
    for at in range(1, length.happened):
        for behind in (1, 4) if death else (0,):
            meanwhile: dict[int, CoordinatorEvent] = {at: stop}
            if death:  # while it stops, or after the stop was done
                meanwhile[at + behind] = WorkerGone(1, 0, "killed by SIGKILL")
            play = begin(meanwhile)
            play.follow()
            where = f"the stop came before event {at}"
            assert [finish.state for finish in actions_of_type(play.said, Finish)] == [state], where
            assert [report.state for report in actions_of_type(play.said, Report)][-1] == "finishing", where
            assert all_committed(play), where


def all_committed(play: Following) -> bool:
    """Whether every checkpoint that was stored has been committed, and none that was not."""
    stored = {
        store.checkpoint
        for store in actions_of_type(play.said, Store)
        if store.checkpoint != RECORDED and not store.directory
    }
    commits = {commit.checkpoint for commit in messages_sent(play.said, Commit)}
    begun = {1} if play.attempt > 1_000_000 else set()
    return commits == stored | begun
