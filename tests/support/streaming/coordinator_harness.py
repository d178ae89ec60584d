"""Drives a coordinator without processes: plans of small pipelines, and the messages that their workers would send."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import tidegate as tg
from tidegate.runners.checkpoint.parts import AssignedSplit, SplitProgress, StateHandle
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.planner import Traits, plan
from tidegate.runners.streaming.checkpoint.recovery import Resume
from tidegate.runners.streaming.coordinator.coordinator import Coordinator
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import CheckpointSettings, RestartSettings, Settings
from tidegate.runners.streaming.protocol.coordinator_io import (
    Action,
    Begin,
    CoordinatorEvent,
    FromWorker,
    Send,
    Tick,
    WorkersStarted,
)
from tidegate.runners.streaming.protocol.worker_messages import (
    AbortOutput,
    Acknowledge,
    Deploy,
    ListSplits,
    OutputAborted,
    Prepared,
    Ready,
    SplitsListed,
    TaskEnded,
    ToCoordinator,
    ToWorker,
)
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.time import SECOND

M = TypeVar("M")


def make_job(
    write: Callable[[tg.Pipeline], Any],
    *,
    workers: int = 2,
    batch: bool = False,
    checkpoints: CheckpointSettings | None = None,
    restart: RestartSettings | None = None,
    **settings: Any,
) -> Job:
    pipeline = tg.Pipeline()
    write(pipeline)
    planned = plan(pipeline.sealed(), Traits(parallel=True, streaming=not batch, blocking=batch))
    given = Settings(
        workers,
        streaming=not batch,
        batch=batch,
        checkpoints=checkpoints or CheckpointSettings(),
        restart=restart or RestartSettings(),
        **settings,
    )
    return Job("job", "run", planned, given)


def count_words_to_text(folder: str = "out") -> Callable[[tg.Pipeline], Any]:
    """Counts words by key and writes the counts: a source stage, then a grouping with a sink behind it."""

    def write(p: tg.Pipeline) -> None:
        words = p | "words" >> tg.Create(["a", "b", "a"])
        counts = words | "pairs" >> tg.Map(lambda word: (word, 1)) | "sum" >> tg.CombinePerKey(sum)
        counts | "line" >> tg.Map(str) | "write" >> tg.io.WriteToText(folder)

    return write


class CoordinatorHarness:
    """A coordinator and its clock (µs). `actions` accumulates its actions until `new_actions` returns them."""

    def __init__(
        self,
        job: Job,
        resume: Resume | None = None,
        epoch: int = 1,
        first: int = 1,
        leftovers: Iterable[str] = (),
    ) -> None:
        self.job = job
        self.now = 0
        self.attempt = (epoch - 1) * 1_000_000 + 1
        self.coordinator = Coordinator(job, resume, epoch, first, leftovers)
        self.actions: list[Action] = []
        self.handle(Begin())

    def handle(self, event: CoordinatorEvent) -> list[Action]:
        actions = self.coordinator.handle(event, self.now)
        self.actions += actions
        return actions

    def from_worker(self, worker: int, message: ToCoordinator, *, attempt: int | None = None) -> list[Action]:
        return self.handle(FromWorker(worker, self.attempt if attempt is None else attempt, message))

    def wait(self, seconds: float) -> list[Action]:
        """Advance the clock, waking the coordinator whenever it asks to be woken."""
        until = self.now + round(seconds * SECOND)
        done: list[Action] = []
        while (wake := self.coordinator.next_wake()) is not None and wake <= until:
            self.now = max(self.now, wake)
            done += self.handle(Tick())
        self.now = until
        return done

    def new_actions(self) -> list[Action]:
        """The actions since the last call."""
        actions, self.actions = self.actions, []
        return actions

    def tasks(self) -> list[TaskId]:
        """All tasks of the job."""
        topology = self.job.topology
        return [task for region in range(len(self.job.plan.regions)) for task in topology.tasks(region)]

    # -- messages of correct workers

    def ready(self) -> list[Action]:
        """All workers start and list the splits of their sources on request."""
        actions = self.handle(WorkersStarted(self.attempt))
        for worker in range(self.job.settings.workers):
            actions += self.from_worker(worker, Ready())
        return actions + self.list_splits(actions)

    def list_splits(self, asked: Iterable[Action], count: int = 4) -> list[Action]:
        actions: list[Action] = []
        for request in messages_sent(asked, ListSplits):
            splits = tuple(AssignedSplit(f"split {n}", f"payload {n}".encode()) for n in range(count))
            actions += self.from_worker(0, SplitsListed(request.step, splits))
        return actions

    def abort_output(self, asked: Iterable[Action]) -> list[Action]:
        """Report that all requested aborts of output have succeeded."""
        actions: list[Action] = []
        for request in messages_sent(asked, AbortOutput):
            actions += self.from_worker(0, OutputAborted(request.step))
        return actions

    def acknowledge(
        self, checkpoint: int, *, ended: bool = False, prepared: str = "", splits: Iterable[SplitProgress] = ()
    ) -> list[Action]:
        """Every task acknowledges the checkpoint; with `prepared`, sink tasks add a committable."""
        actions: list[Action] = []
        writers = {step.stage: step.label for step in self.job.plan.steps if step.is_sink}
        for task in self.tasks():
            handle = StateHandle(((f"chk-{checkpoint:06}/{task}.state", 10, 1),))
            output: tuple[Prepared, ...] = ()
            if task.stage in writers and prepared:
                pieces = (Committable((task.index, checkpoint), prepared),)
                output = (Prepared(writers[task.stage], pieces),)
            message = Acknowledge(checkpoint, task, handle, tuple(splits), output, ended)
            actions += self.from_worker(task.index, message)
            splits = ()
        return actions

    def end_all(self, tasks: Iterable[TaskId] | None = None) -> list[Action]:
        """Report the end of these tasks, or of all."""
        actions: list[Action] = []
        for task in self.tasks() if tasks is None else tasks:
            actions += self.from_worker(task.index, TaskEnded(task))
        return actions


def messages_sent(actions: Iterable[Action], kind: type[M]) -> list[M]:
    """The messages of one type that the actions send to workers."""
    return [action.message for action in actions if isinstance(action, Send) and isinstance(action.message, kind)]


def messages_sent_to(actions: Iterable[Action], worker: int) -> list[ToWorker]:
    return [action.message for action in actions if isinstance(action, Send) and action.worker == worker]


def actions_of_type(actions: Iterable[Action], kind: type[M]) -> list[M]:
    return [action for action in actions if isinstance(action, kind)]


def deployed_tasks(actions: Iterable[Action]) -> list[TaskId]:
    return sorted(task for deploy in messages_sent(actions, Deploy) for task in deploy.tasks)
