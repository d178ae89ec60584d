"""A streaming job with one worker in the test's process: the real coordinator, worker, tasks, backend and files, with a
clock that only the test advances. Messages between coordinator and worker are pickled and arrive at once.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import tidegate as tg
from tests.support.streaming.inline_work import InlineWork
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.engine.errors.transport import unpacked
from tidegate.runners.engine.time.clock import Clock, ManualClock, SystemClock
from tidegate.runners.planner import Traits, plan
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened
from tidegate.runners.streaming.checkpoint.ownership import Ownership
from tidegate.runners.streaming.client.metrics import MetricsObserver
from tidegate.runners.streaming.coordinator.coordinator import Coordinator
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import Settings
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.protocol.stream_items import Item
from tidegate.runners.streaming.protocol.worker_messages import Ready, ToCoordinator
from tidegate.runners.streaming.state.backend import Operators, StateBackend
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.rocksdb import RocksBackend
from tidegate.runners.streaming.state.staging import StagedFileStore
from tidegate.runners.streaming.state.uploads import DirectFileStore, PendingFile
from tidegate.runners.streaming.storage.background import outcome
from tidegate.runners.streaming.worker.worker import Worker
from tidegate.sdk.time import SECOND

ONE_WORKER = Settings(workers=1, streaming=True, batch=False)

MAX_IDLE_WAKEUPS = 100
"""More consecutive wake-ups without progress than this are a busy loop."""


class InProcessJob:
    """The job of a pipeline, and the environment of its worker. With `settles=False` the test calls `turn` itself.

    `ahead`: how far (µs) the machine's clock has been set forward.
    """

    def __init__(
        self, pipeline: tg.Pipeline, folder: Path, settings: Settings = ONE_WORKER, *, settles: bool = True
    ) -> None:
        planned = plan(pipeline.sealed(values=True), Traits(parallel=True, streaming=True))
        self.job = Job("alone", "run", planned, settings)
        self.moved = ManualClock(1_000 * SECOND)
        self.ahead = 0
        self.clock: Clock = self._new_clock()
        self.storage = LocalStorage(folder / "checkpoints")
        self._ownership = Ownership(Opened(self.job, storage=self.storage), LocalStorage)
        self.files = DirectFileStore(self.storage, self.storage.root, partial(self._made, "parts"))
        self.staged = StagedFileStore(self.storage, self.storage.root)
        self.commits = InlineWork()
        self.completed = 0
        self.failed: list[str] = []
        self.rounds = 0
        """How often the worker has checked for work."""
        self.finish: coordinator_io.Finish | None = None
        self._folder = folder
        self._messages: list[bytes] = []
        self._crashes = False
        self._observed = MetricsObserver(planned)
        self.coordinator = Coordinator(self.job)
        self.worker: Worker | None = None
        self._handle(coordinator_io.Begin())
        if settles:
            self.settle()

    # -- what the test does

    @property
    def deployed(self) -> bool:
        """True if the worker has its tasks."""
        return self.worker is not None and bool(self.worker._tasks)

    def settle(self) -> None:
        """Run the worker until it is idle."""
        while self.turn():
            pass

    def turn(self) -> bool:
        """One round of the worker and of the messages it sent; False if there was nothing to do."""
        if self.finish is not None:
            return False
        self.rounds += 1
        worked = self.worker is not None and self.worker.work()
        messages, self._messages = self._messages, []
        for message in messages:
            if self.worker is not None:
                self._handle(coordinator_io.FromWorker(0, self.worker.attempt, pickle.loads(message)))
        return bool(worked or messages or self._messages)

    def advance(self, seconds: float) -> None:
        """Advance the clock, waking coordinator and worker whenever they ask to be woken."""
        until, idle_wakeups = self.moved.now() + round(seconds * SECOND), 0
        while self.finish is None:
            wakes = [self.coordinator.next_wake(), None if self.worker is None else self.worker.next_wake()]
            wake = min((at for at in wakes if at is not None), default=until)
            passes = min(wake, until) - self.moved.now()
            idle_wakeups = 0 if passes > 0 else idle_wakeups + 1
            assert idle_wakeups < MAX_IDLE_WAKEUPS, "wake-ups follow each other without progress"
            self.moved.advance(max(0, passes))
            self._handle(coordinator_io.Tick())
            self.settle()
            if self.moved.now() >= until:
                break

    def crash(self) -> None:
        """Lose the worker and its memory; the coordinator starts another a second later."""
        assert self.worker is not None
        self._crashes = True
        self._handle(coordinator_io.WorkerGone(0, self.worker.attempt, "killed"))
        self._crashes = False

    # -- the job's process

    def _new_clock(self) -> Clock:
        """The clock of a new process."""
        return SystemClock(lambda: self.moved.now() + self.ahead, self.moved.now)

    def _handle(self, event: coordinator_io.CoordinatorEvent) -> None:
        for action in self.coordinator.handle(event, self.moved.now()):
            self._perform(action)

    def _perform(self, action: coordinator_io.Action) -> None:
        match action:
            case coordinator_io.StartWorkers(attempt=attempt):
                self.clock = self._new_clock()
                self.worker = Worker(self.job, 0, attempt, self)
                self.report(Ready())
            case coordinator_io.Send(message=message):
                assert self.worker is not None
                self.worker.on_message(pickle.loads(pickle.dumps(message, 5)))
            case coordinator_io.StopWorkers():
                self.worker = None
            case coordinator_io.Store():
                self._handle(outcome(self._ownership.store(action)))
            case coordinator_io.Delete():
                outcome(self._ownership.delete(action))
            case coordinator_io.Withdraw(name=name):
                self._ownership.withdraw(name)
            case coordinator_io.Finish():
                self.finish = action
                if action.error is not None:
                    raise unpacked(action.error)
            case coordinator_io.Report(state="restarting", text=text) if not self._crashes:
                raise AssertionError(text)
            case _:
                report = pickle.loads(pickle.dumps(action, 5))
                self._observed.update(report, 0.0)
                if isinstance(report, coordinator_io.CheckpointReport):
                    self.completed += not report.error
                    self.failed += [report.error] if report.error else []

    # -- the worker's environment

    def report(self, message: ToCoordinator) -> None:
        self._messages.append(pickle.dumps(message, 5))

    def send(self, worker: int, channel: ChannelId, items: Sequence[Item], *, flush: bool) -> None:
        raise AssertionError("there is no other worker")

    def grant(self, worker: int, channel: ChannelId, credit: int) -> None:
        raise AssertionError("there is no other worker")

    def backend(self, task: TaskId, attempt: int, operators: Operators, budget: int) -> StateBackend:
        files = self.files
        full_every = self.job.settings.checkpoints.full_every
        if self.job.settings.state_backend == "rocksdb":
            place = partial(self._made, f"state-{task}.{attempt}")
            return RocksBackend(operators, files, place, budget=budget, full_every=full_every)
        return MemoryBackend(operators, files, forks=False, full_every=full_every)

    def store(self, name: str, state: bytes) -> PendingFile:
        return self.files.put(name, state)

    def background(self) -> InlineWork:
        return InlineWork()

    def wake(self) -> None:
        return

    def seconds(self) -> float:
        return self.moved.now() / SECOND

    def directory(self) -> Path:
        return self._folder

    def _made(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder
