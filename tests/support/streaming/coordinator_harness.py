"""Jobs without processes: plans of small pipelines, and a coordinator that is told what its workers would say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import tidegate as tg
from tidegate.runners.planner import Traits, plan
from tidegate.runners.streaming.checkpoint.recovery import Resume
from tidegate.runners.streaming.coordinator.coordinator import Coordinator
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import CheckpointSettings, RestartSettings, Settings
from tidegate.runners.streaming.model.topology import TaskId
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
    AssignedSplit,
    Deploy,
    ListSplits,
    OutputAborted,
    Prepared,
    Ready,
    SplitProgress,
    SplitsListed,
    StateHandle,
    TaskEnded,
    ToCoordinator,
    ToWorker,
)
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.time import SECOND

M = TypeVar("M")


def job_of(
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


def to_text(folder: str = "out") -> Callable[[tg.Pipeline], Any]:
    """Words, counted by key and written: a source stage, then a grouping with a sink behind it."""

    def write(p: tg.Pipeline) -> None:
        words = p | "words" >> tg.Create(["a", "b", "a"])
        counts = words | "pairs" >> tg.Map(lambda word: (word, 1)) | "sum" >> tg.CombinePerKey(sum)
        counts | "line" >> tg.Map(str) | "write" >> tg.io.WriteToText(folder)

    return write


class Play:
    """A coordinator, and the clock (µs) that it is told. `said` are all its actions since they were last taken."""

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
        self.said: list[Action] = []
        self.tell(Begin())

    def tell(self, event: CoordinatorEvent) -> list[Action]:
        actions = self.coordinator.handle(event, self.now)
        self.said += actions
        return actions

    def say(self, worker: int, message: ToCoordinator, *, attempt: int | None = None) -> list[Action]:
        return self.tell(FromWorker(worker, self.attempt if attempt is None else attempt, message))

    def wait(self, seconds: float) -> list[Action]:
        """Time passes, and the coordinator is woken whenever it wants to be."""
        until = self.now + round(seconds * SECOND)
        done: list[Action] = []
        while (wake := self.coordinator.next_wake()) is not None and wake <= until:
            self.now = max(self.now, wake)
            done += self.tell(Tick())
        self.now = until
        return done

    def taken(self) -> list[Action]:
        """What it said since the last call."""
        said, self.said = self.said, []
        return said

    def tasks(self) -> list[TaskId]:
        """All tasks of the job."""
        layout = self.job.layout
        return [task for region in range(len(self.job.plan.regions)) for task in layout.tasks(region)]

    # -- workers that do as they should

    def ready(self) -> list[Action]:
        """All workers are up, and list their sources' splits as they are asked to."""
        actions = self.tell(WorkersStarted(self.attempt))
        for worker in range(self.job.settings.workers):
            actions += self.say(worker, Ready())
        return actions + self.list_splits(actions)

    def list_splits(self, asked: Iterable[Action], count: int = 4) -> list[Action]:
        actions: list[Action] = []
        for request in sent(asked, ListSplits):
            splits = tuple(AssignedSplit(f"split {n}", f"payload {n}".encode()) for n in range(count))
            actions += self.say(0, SplitsListed(request.step, splits))
        return actions

    def clear_away(self, asked: Iterable[Action]) -> list[Action]:
        """Sinks remove what they are asked to."""
        actions: list[Action] = []
        for request in sent(asked, AbortOutput):
            actions += self.say(0, OutputAborted(request.step))
        return actions

    def acknowledge(
        self, checkpoint: int, *, ended: bool = False, prepared: str = "", splits: Iterable[SplitProgress] = ()
    ) -> list[Action]:
        """Every task stores its part; those of a sink's stage have prepared something."""
        actions: list[Action] = []
        writers = {step.stage: step.label for step in self.job.plan.steps if step.is_sink}
        for task in self.tasks():
            handle = StateHandle(((f"chk-{checkpoint:06}/{task}.state", 10, 1),))
            output: tuple[Prepared, ...] = ()
            if task.stage in writers and prepared:
                pieces = (Committable((task.index, checkpoint), prepared),)
                output = (Prepared(writers[task.stage], pieces),)
            message = Acknowledge(checkpoint, task, handle, tuple(splits), output, ended)
            actions += self.say(task.index, message)
            splits = ()
        return actions

    def end_all(self, tasks: Iterable[TaskId] | None = None) -> list[Action]:
        """Tasks come to their ends."""
        actions: list[Action] = []
        for task in self.tasks() if tasks is None else tasks:
            actions += self.say(task.index, TaskEnded(task))
        return actions


def sent(actions: Iterable[Action], kind: type[M]) -> list[M]:
    """The messages of a kind that go to workers."""
    return [action.message for action in actions if isinstance(action, Send) and isinstance(action.message, kind)]


def sent_to(actions: Iterable[Action], worker: int) -> list[ToWorker]:
    return [action.message for action in actions if isinstance(action, Send) and action.worker == worker]


def of(actions: Iterable[Action], kind: type[M]) -> list[M]:
    return [action for action in actions if isinstance(action, kind)]


def deployed(actions: Iterable[Action]) -> list[TaskId]:
    return sorted(task for deploy in sent(actions, Deploy) for task in deploy.tasks)
