"""A stream of one worker in the test's own process: the real coordinator, worker, tasks, backend and files, and a clock
that stands until the test moves it. What is said between the two is pickled, and arrives at once.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from zlib import crc32

import tidegate as tg
from tidegate.runners.engine.carried import unpacked
from tidegate.runners.engine.clock import Clock, ManualClock
from tidegate.runners.planner import Traits, plan
from tidegate.runners.streaming import actions
from tidegate.runners.streaming.backends import MemoryBackend, Operators, StateBackend, StorageFiles
from tidegate.runners.streaming.coordinator import Coordinator
from tidegate.runners.streaming.events import Item
from tidegate.runners.streaming.job import Job
from tidegate.runners.streaming.layout import ChannelId, TaskId
from tidegate.runners.streaming.messages import Ready, StateHandle, ToCoordinator
from tidegate.runners.streaming.observed import Observed
from tidegate.runners.streaming.record import RECORDED
from tidegate.runners.streaming.rocks import RocksBackend
from tidegate.runners.streaming.settings import Settings
from tidegate.runners.streaming.storage import LocalStorage
from tidegate.runners.streaming.worker import Worker
from tidegate.sdk.time import SECOND

ALONE = Settings(workers=1, streaming=True, batch=False)


class Alone:
    """The job of a pipeline, and the world of its worker. `clock` is everybody's."""

    def __init__(self, pipeline: tg.Pipeline, folder: Path, settings: Settings = ALONE) -> None:
        planned = plan(pipeline.sealed(values=True), Traits(parallel=True, streaming=True))
        self.job = Job("alone", "run", planned, settings)
        self.moved = ManualClock(1_000 * SECOND)
        self.clock: Clock = self.moved
        self.storage = LocalStorage(folder / "checkpoints")
        self.completed = 0
        self.failed: list[str] = []
        self.finish: actions.Finish | None = None
        self._folder = folder
        self._told: list[bytes] = []
        self._observed = Observed(planned)
        self.coordinator = Coordinator(self.job)
        self.worker: Worker | None = None
        self._happens(actions.Begin())
        self.settle()

    # -- what the test does

    def settle(self) -> int:
        """Let the worker work until it has nothing more to do now; how many rounds that took."""
        rounds = 0
        while self.finish is None:
            rounds += 1
            did = self.worker is not None and self.worker.work()
            told, self._told = self._told, []
            for message in told:
                if self.worker is not None:
                    self._happens(actions.FromWorker(0, self.worker.attempt, pickle.loads(message)))
            if not (did or told or self._told):
                break
        return rounds

    def advance(self, seconds: float) -> None:
        """Let so much time pass, waking whoever wants to be woken meanwhile."""
        until = self.moved.now() + round(seconds * SECOND)
        while self.finish is None:
            wakes = [self.coordinator.next_wake(), None if self.worker is None else self.worker.next_wake()]
            wake = min((at for at in wakes if at is not None), default=until)
            self.moved.advance(max(0, min(wake, until) - self.moved.now()))
            self._happens(actions.Passing())
            self.settle()
            if self.moved.now() >= until:
                break

    # -- the job's process

    def _happens(self, event: actions.CoordinatorEvent) -> None:
        for action in self.coordinator.handle(event, self.moved.now()):
            self._perform(action)

    def _perform(self, action: actions.Action) -> None:
        match action:
            case actions.StartWorkers(attempt=attempt):
                self.worker = Worker(self.job, 0, attempt, self)
                self.tell(Ready())
            case actions.Send(message=message):
                assert self.worker is not None
                self.worker.on_message(pickle.loads(pickle.dumps(message, 5)))
            case actions.StopWorkers():
                self.worker = None
            case actions.Store(checkpoint=checkpoint, name=name, data=data, fresh=fresh):
                self.storage.settle(fresh)
                if checkpoint == RECORDED:
                    self.storage.write(name, data)
                else:
                    assert self.storage.create(name, data)
                self._happens(actions.Stored(checkpoint))
            case actions.Delete(names=names):
                for name in names:
                    self.storage.delete(name)
            case actions.Finish():
                self.finish = action
                if action.error is not None:
                    raise unpacked(action.error)
            case actions.Report(state="restarting", text=text):
                raise AssertionError(text)
            case _:
                told = pickle.loads(pickle.dumps(action, 5))
                self._observed.take(told, 0.0)
                if isinstance(told, actions.CheckpointReport):
                    self.completed += not told.error
                    self.failed += [told.error] if told.error else []

    # -- the worker's world

    def tell(self, message: ToCoordinator) -> None:
        self._told.append(pickle.dumps(message, 5))

    def send(self, worker: int, channel: ChannelId, items: Sequence[Item], *, flush: bool) -> None:
        raise AssertionError("there is no other worker")

    def grant(self, worker: int, channel: ChannelId, credit: int) -> None:
        raise AssertionError("there is no other worker")

    def backend(self, task: TaskId, attempt: int, operators: Operators, budget: int) -> StateBackend:
        files = StorageFiles(self.storage, self.storage.root, partial(self._made, "parts"))
        full_every = self.job.settings.checkpoints.full_every
        if self.job.settings.state_backend == "rocksdb":
            place = partial(self._made, f"state-{task}.{attempt}")
            return RocksBackend(operators, files, place, budget=budget, full_every=full_every)
        return MemoryBackend(operators, files, forks=False, full_every=full_every)

    def store(self, name: str, state: bytes) -> StateHandle:
        self.storage.put(name, state)
        return StateHandle(((name, len(state), crc32(state)),))

    def seconds(self) -> float:
        return self.moved.now() / SECOND

    def directory(self) -> Path:
        return self._folder

    def _made(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder
