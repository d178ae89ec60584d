"""The simulated world: a coordinator's process, its workers, the links between them, a clock and a disk, from one seed.

Everything is an entry in one queue of what happens when; who comes first where nothing says so, how long a message
takes, and who is killed at which moment, the seed decides. Links keep their order, as sockets do, and what a process
sent before it died still arrives.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from streaming.simulation.outside import OUTSIDES, Disk, Killed, Outside
from streaming.simulation.pipeline import Broken, Checker
from tidegate.runners.streaming import actions
from tidegate.runners.streaming.coordinator import Coordinator
from tidegate.runners.streaming.events import Item
from tidegate.runners.streaming.job import Job
from tidegate.runners.streaming.layout import ChannelId
from tidegate.runners.streaming.messages import StateHandle, ToCoordinator
from tidegate.runners.streaming.opening import Opened, open_job
from tidegate.runners.streaming.worker import Worker
from tidegate.sdk.block import Block
from tidegate.sdk.time import SECOND

NAME = "simulation"
MILLISECOND = SECOND // 1000


@dataclass(frozen=True)
class Faults:
    """How hard a simulation is. `kills`: of workers, at most; `crashes`: of the coordinator; `strikes`: one in so many
    dangerous places is where it happens."""

    kills: int = 3
    crashes: int = 1
    strikes: int = 150
    torn: bool = True


class SimulatedClock:
    """The clock of the simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def now(self) -> int:
        return self._simulation.now

    def wait(self, seconds: float, stop: Any) -> None:
        raise AssertionError("nobody waits in a simulation")


@dataclass
class Process:
    """A process that may be killed. Its links are empty when it is forgotten."""

    name: str
    alive: bool = True


class WorkerProcess(Process):
    """A worker, and its view of the world."""

    def __init__(self, simulation: Simulation, crew: Crew, index: int) -> None:
        super().__init__(f"worker {index} of attempt {crew.attempt}")
        self.simulation = simulation
        self.crew = crew
        self.index = index
        self.clock: Any = SimulatedClock(simulation)
        self.storage: Any = simulation.disk
        self.worker = simulation.make_worker(simulation.job, index, crew.attempt, self)
        self.in_flight: dict[ChannelId, int] = {}

    def tell(self, message: ToCoordinator) -> None:
        simulation, crew = self.simulation, self.crew
        event = actions.FromWorker(self.index, crew.attempt, message)
        simulation.post(("up", crew.attempt, self.index), lambda: simulation.to_coordinator(crew, event))

    def send(self, worker: int, channel: ChannelId, items: Sequence[Item], *, flush: bool) -> None:
        target = self.crew.workers[worker]
        blocks = sum(isinstance(item, Block) for item in items)
        self.in_flight[channel] = self.in_flight.get(channel, 0) + blocks
        credit = self.simulation.job.settings.credit
        if self.in_flight[channel] > credit:
            raise Broken(f"{self.in_flight[channel]} blocks are under way in {channel}, and credit is {credit}")
        copied = list(items)
        self.simulation.post(
            ("data", self.crew.attempt, channel), lambda: target.do(lambda: target.worker.on_items(channel, copied))
        )

    def grant(self, worker: int, channel: ChannelId, credit: int) -> None:
        sender = self.crew.workers[worker]

        def arrives() -> None:
            sender.in_flight[channel] = sender.in_flight.get(channel, 0) - credit
            sender.do(lambda: sender.worker.on_credit(channel, credit))

        self.simulation.post(("credit", self.crew.attempt, channel), arrives)

    def store(self, name: str, state: bytes) -> StateHandle:
        self.simulation.disk.write(name, state)
        return StateHandle(((name, len(state), crc32(state)),))

    def seconds(self) -> float:
        return self.simulation.now / SECOND

    def directory(self) -> Path:
        raise AssertionError("nothing is kept between regions in a stream")

    def do(self, call: Callable[[], Any]) -> Any:
        """Run something in this process, which may be killed by it."""
        if not self.alive:
            return None
        self.simulation.running = self
        try:
            return call()
        except Killed:
            self.die()
            return None
        finally:
            self.simulation.running = None

    def die(self) -> None:
        """The process ends here; the coordinator hears of it when all that it said has arrived."""
        if self.alive:
            self.alive = False
            self.simulation.log(f"{self.name} is killed")
            gone = actions.WorkerGone(self.index, self.crew.attempt, "killed")
            crew = self.crew
            self.simulation.post(
                ("up", crew.attempt, self.index), lambda: self.simulation.to_coordinator(crew, gone)
            )


@dataclass
class Crew:
    """The workers of one attempt, and the coordinator's process that started them."""

    attempt: int
    coordinator: CoordinatorProcess
    workers: list[WorkerProcess] = field(default_factory=list)


class CoordinatorProcess(Process):
    """The job's process: what it starts with is on the disk."""

    def __init__(self, simulation: Simulation, serial: int) -> None:
        super().__init__(f"coordinator {serial}")
        self.simulation = simulation
        self.crew: Crew | None = None
        self.opened: Opened | None = None
        self.machine: Coordinator | None = None
        self.woken_at: int | None = None

    def begin(self) -> None:
        """Claim the directory, and go on from what is there."""

        def start() -> None:
            simulation = self.simulation
            self.opened = open_job(simulation.job, Path(), self.name)
            self.machine = simulation.make_coordinator(self.opened.job, self.opened.resume, self.opened.epoch)
            self.take(actions.Begin())

        self.do(start)

    def do(self, call: Callable[[], Any]) -> None:
        if not self.alive:
            return
        self.simulation.running = self
        try:
            call()
        except Killed:
            self.die()
        finally:
            self.simulation.running = None

    def die(self) -> None:
        """The process ends; its workers see that some time later, and a new one is started."""
        self.alive = False
        simulation = self.simulation
        simulation.log(f"{self.name} is killed")
        for worker in self.crew.workers if self.crew else ():
            simulation.after(simulation.random.randrange(400) * MILLISECOND, lambda worker=worker: worker.die())
        simulation.after(simulation.random.randrange(1, 400) * MILLISECOND, simulation.start_coordinator)

    def take(self, event: actions.CoordinatorEvent) -> None:
        """Something has happened; perform what the machine wants done."""
        assert self.machine is not None
        for action in self.machine.handle(event, self.simulation.now):
            self.perform(action)
        wake = self.machine.next_wake()
        if wake is not None and wake != self.woken_at:
            self.woken_at = wake
            self.simulation.after(max(0, wake - self.simulation.now), lambda: self.wake(wake))

    def wake(self, at: int) -> None:
        if self.woken_at == at:
            self.woken_at = None
            self.do(lambda: self.take(actions.Passing()))

    def perform(self, action: actions.Action) -> None:
        simulation = self.simulation
        match action:
            case actions.StartWorkers(attempt=attempt):
                self.kill_all()
                assert self.opened is not None
                if reason := self.opened.fenced():
                    self.take(actions.Fenced(reason))
                    return
                self.crew = simulation.start_crew(attempt, self)
            case actions.StopWorkers():
                self.kill_all()
            case actions.Send(worker=worker, message=message):
                assert self.crew is not None
                target = self.crew.workers[worker]
                simulation.post(
                    ("down", self.crew.attempt, worker),
                    lambda: target.do(lambda: target.worker.on_message(message)),
                )
            case actions.Store():
                self.store(action)
            case actions.Delete(names=names):
                for name in names:
                    simulation.disk.delete(name)
            case actions.Report(state=state, text=text):
                simulation.log(f"{self.name}: {state} {text}")
            case actions.CheckpointReport(checkpoint=checkpoint, error=error_text):
                simulation.log(f"{self.name}: checkpoint {checkpoint} {error_text or 'is complete'}")
                if not error_text:
                    simulation.checkpoints += 1
            case actions.Finish():
                simulation.finish(action)
            case _:
                pass

    def store(self, action: actions.Store) -> None:
        """Write a manifest; then see whether the job is still this process's."""
        assert self.opened is not None
        if action.name.endswith("manifest.json"):
            if not self.simulation.disk.create(action.name, action.data):
                self.take(actions.Stored(action.checkpoint, "is there already"))
                return
        else:
            self.simulation.disk.write(action.name, action.data)
        if reason := self.opened.fenced():
            self.take(actions.Fenced(reason))
            return
        self.take(actions.Stored(action.checkpoint))

    def kill_all(self) -> None:
        for worker in self.crew.workers if self.crew else ():
            worker.die()


class Simulation:
    """One run from one seed. `run` returns when the job has finished and everything is as it must be; else it raises."""

    def __init__(self, seed: int, job: Job, outside: Outside, keys: int, faults: Faults) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.job = job
        self.now = 1_000 * SECOND
        self.disk = Disk()
        self.checkpoints = 0
        self.happened: list[str] = []
        self.finished: actions.Finish | None = None
        self.running: WorkerProcess | CoordinatorProcess | None = None
        self.coordinator: CoordinatorProcess | None = None
        self.make_worker: Callable[..., Worker] = Worker
        self.make_coordinator: Callable[..., Coordinator] = Coordinator
        self._faults = faults
        self._kills = self.random.randrange(faults.kills + 1)
        self._crashes = self.random.randrange(faults.crashes + 1)
        self._queue: list[tuple[int, int, int, Callable[[], None]]] = []
        self._serial = 0
        self._links: dict[Any, int] = {}
        self._coordinators = 0
        OUTSIDES[NAME] = outside
        outside.strike = self.disk.strike = self.strike
        self.outside = outside
        self.checker = Checker(outside, keys)

    def run(self, most: int = 400_000) -> None:
        """To the end of the job. Broken, or whatever the engine raises, with what had happened."""
        self.start_coordinator()
        for _ in range(most):
            if self.finished is not None or not self._queue:
                break
            self.now, _, _, happen = heapq.heappop(self._queue)
            happen()
        if self.finished is None:
            raise Broken("it never finishes")
        if self.finished.state != "finished":
            from tidegate.runners.streaming.failures import unpacked

            error = unpacked(self.finished.error) if self.finished.error else None
            raise Broken(f"it ended as {self.finished.state}") from error
        self.checker.finish()

    # -- time

    def after(self, delay: int, happen: Callable[[], None]) -> None:
        """Let something happen `delay` µs from now."""
        self._serial += 1
        heapq.heappush(self._queue, (self.now + delay, self.random.randrange(1 << 30), self._serial, happen))

    def post(self, link: Any, arrive: Callable[[], None]) -> None:
        """Let something arrive by a link: after all that was sent there before."""
        slow = self.random.random() < 0.05
        delay = self.random.randrange(200 if slow else 5) * MILLISECOND + self.random.randrange(1000)
        at = max(self.now + delay, self._links.get(link, 0) + 1)
        self._links[link] = at
        self.after(at - self.now, arrive)

    def log(self, text: str) -> None:
        """For whoever looks at a failing seed."""
        self.happened.append(f"{self.now / SECOND:.3f} {text}")

    # -- processes

    def start_coordinator(self) -> None:
        """A new process for the job."""
        self._coordinators += 1
        self.coordinator = CoordinatorProcess(self, self._coordinators)
        self.log(f"{self.coordinator.name} starts")
        self.coordinator.begin()

    def start_crew(self, attempt: int, coordinator: CoordinatorProcess) -> Crew:
        """All workers of an attempt."""
        from tidegate.runners.streaming.messages import Ready

        crew = Crew(attempt, coordinator)
        for index in range(self.job.settings.workers):
            crew.workers.append(WorkerProcess(self, crew, index))
        for worker in crew.workers:
            worker.tell(Ready())
            self.after(self.random.randrange(10) * MILLISECOND, lambda worker=worker: self.let_work(worker))
        return crew

    def let_work(self, process: WorkerProcess) -> None:
        """A worker's loop: a round now, and another one soon, or later if there was nothing to do."""
        if not process.alive or process.worker.closed:
            return
        did = process.do(process.worker.work)
        hangs = self.random.random() < 0.002
        pause = self.random.randrange(1, 2000 if hangs else 4 if did else 12)
        self.after(pause * MILLISECOND, lambda: self.let_work(process))

    def to_coordinator(self, crew: Crew, event: actions.CoordinatorEvent) -> None:
        """Something arrives at the process that started this crew, if that is still there."""
        process = crew.coordinator
        process.do(lambda: process.take(event))

    def finish(self, outcome: actions.Finish) -> None:
        """The job is over."""
        self.finished = outcome

    def strike(self, place: str) -> None:
        """A dangerous place: it may be here that the process is killed."""
        process = self.running
        if process is None or self.random.randrange(self._faults.strikes):
            return
        match process:
            case WorkerProcess() if self._kills > 0:
                self._kills -= 1
            case CoordinatorProcess() if self._crashes > 0:
                self._crashes -= 1
            case _:
                return
        self.log(f"{process.name} is struck at: {place}")
        raise Killed(place)
