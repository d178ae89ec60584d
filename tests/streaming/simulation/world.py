"""The simulated world: a coordinator's process, its workers, the links between them, a clock and a disk, from one seed.

All events are in one queue, ordered by time. The seed decides the order of simultaneous events, the delay of each
message, and which process is killed when. Links deliver in order, as sockets do, and messages that a process sent
before it died still arrive.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar
from zlib import crc32

from tests.streaming.simulation.checking import Checker, InvariantViolation
from tests.streaming.simulation.outside import OUTSIDES, Disk, Killed, Outside
from tests.support.streaming.inline_work import InlineWork
from tidegate.runners.checkpoint.catalog import checkpoint_numbers, latest
from tidegate.runners.checkpoint.manifest import ManifestError
from tidegate.runners.checkpoint.manifest_json import loads
from tidegate.runners.checkpoint.state_files import StateFile
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.engine.errors.transport import packed, unpacked
from tidegate.runners.engine.time.clock import Clock, SystemClock
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened, open_job
from tidegate.runners.streaming.checkpoint.job_record import RECORD, RECORDED
from tidegate.runners.streaming.checkpoint.ownership import Ownership
from tidegate.runners.streaming.coordinator.coordinator import Coordinator
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.protocol.stream_items import Item
from tidegate.runners.streaming.protocol.worker_messages import AbortOutput, Commit, Ready, ToCoordinator, ToWorker
from tidegate.runners.streaming.state.backend import Operators, StateBackend
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.uploads import DirectFileStore, PendingFile, StateFileStore
from tidegate.runners.streaming.storage.background import Steps, outcome
from tidegate.runners.streaming.worker.worker import Worker
from tidegate.sdk.connectors.sinks import InMemory, StagedFile
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import TidegateError
from tidegate.sdk.time import SECOND

T = TypeVar("T")

NAME = "simulation"
MILLISECOND = SECOND // 1000
DAY = 86_400 * SECOND
NEW_YEAR = 54 * 365 * DAY
"""The time of the clock at the start of the simulation."""


@dataclass(frozen=True)
class Faults:
    """The greatest number of each kind of fault in a simulation.

    `kills` of workers, half of them together with their messages in transit; `crashes` of the coordinator, at one in
    `crash_points` of the places where that is dangerous. `hangs` of the coordinator for a while, during which one of
    the `usurpers` may replace it. `damages` to files of the newest checkpoint, before the next coordinator reads it.
    `savepoints`, after which the job continues, and `stops`, after which it ends. `refusals` of uploads by a store.
    `steps` of the clock, forward or back.
    """

    kills: int = 3
    crashes: int = 2
    crash_points: int = 150
    hangs: int = 1
    usurpers: int = 1
    damages: int = 1
    savepoints: int = 2
    stops: int = 1
    refusals: int = 2
    steps: int = 3


@dataclass
class Process:
    """A process that may be killed."""

    name: str
    alive: bool = True


class WorkerProcess(Process):
    """A worker and the services that the simulation provides for it."""

    def __init__(self, simulation: Simulation, pool: WorkerPool, index: int) -> None:
        super().__init__(f"worker {index} of attempt {pool.attempt}")
        self.simulation = simulation
        self.pool = pool
        self.index = index
        self.clock: Clock = SystemClock(simulation.wall, lambda: simulation.now)
        self.storage = simulation.disk
        self.files: StateFileStore = DelayedUploads(self) if simulation.uploads else DirectFileStore(self.storage)
        self.staged = StagedOnDisk(self.files, self.storage)
        self.commits = DelayedWork(self)
        assert pool.coordinator.opened is not None
        self.worker = simulation.make_worker(pool.coordinator.opened.job, index, pool.attempt, self)
        self.in_flight: dict[ChannelId, int] = {}
        self.statuses: dict[ChannelId, CollectionStatus] = {}
        self.cut = False
        """True if everything that it sent is lost."""

    def report(self, message: ToCoordinator) -> None:
        pool = self.pool
        event = coordinator_io.FromWorker(self.index, pool.attempt, message)
        self.post(("up", pool.attempt, self.index), lambda: pool.coordinator.receive(event))

    def post(self, link: Any, arrive: Callable[[], None]) -> None:
        """Send, unless the link is cut before it arrives."""
        self.simulation.post(link, lambda: None if self.cut else arrive())

    def send(self, worker: int, channel: ChannelId, items: Sequence[Item], *, flush: bool) -> None:
        target = self.pool.workers[worker]
        blocks = sum(isinstance(item, Block) for item in items)
        self.in_flight[channel] = self.in_flight.get(channel, 0) + blocks
        credit = self.simulation.job.settings.credit
        if self.in_flight[channel] > credit:
            self.simulation.violation(
                f"{self.in_flight[channel]} blocks are in flight in {channel}, credit is {credit}"
            )
        for item in items:
            self.check_status(channel, item)
        copied = list(items)
        self.post(
            ("data", self.pool.attempt, channel), lambda: target.do(lambda: target.receive_items(channel, copied))
        )

    def receive_items(self, channel: ChannelId, items: Sequence[Item]) -> None:
        """Receive items. No more may be queued than there was credit for, plus the items restored from a snapshot."""
        self.worker.on_items(channel, items)
        end = self.worker._input(channel)
        waiting = sum(isinstance(item, Block) for item in end._items) - end._without_credit
        if waiting > self.simulation.job.settings.credit:
            self.simulation.violation(f"{waiting} blocks wait in {channel}, which is more than its credit")

    def check_status(self, channel: ChannelId, item: Item) -> None:
        """Check that the watermark doesn't go back, and that nothing follows the end of a channel."""
        before = self.statuses.get(channel, CollectionStatus())
        if before.ended:
            self.simulation.violation(f"{item} arrives in {channel} after its end")
        if isinstance(item, CollectionStatus):
            if not item.ended and item.watermark < before.watermark:
                self.simulation.violation(f"the watermark of {channel} goes from {before} back to {item}")
            self.statuses[channel] = item

    def grant(self, worker: int, channel: ChannelId, credit: int) -> None:
        sender = self.pool.workers[worker]

        def arrive() -> None:
            sender.in_flight[channel] = sender.in_flight.get(channel, 0) - credit
            sender.do(lambda: sender.worker.on_credit(channel, credit))

        self.post(("credit", self.pool.attempt, channel), arrive)

    def backend(self, task: TaskId, attempt: int, operators: Operators, budget: int) -> StateBackend:
        full_every = self.simulation.job.settings.checkpoints.full_every
        return MemoryBackend(operators, self.files, forks=False, full_every=full_every)

    def store(self, name: str, state: bytes) -> PendingFile:
        return self.files.put(name, state)

    def background(self) -> InlineWork:
        """Work whose result arrives some time later."""

        def arrival() -> Callable[[], bool]:
            at = self.simulation.now + self.simulation.random.randrange(100) * MILLISECOND
            return lambda: self.simulation.now >= at

        return InlineWork(arrival)

    def wake(self) -> None:
        return

    def seconds(self) -> float:
        return self.simulation.now / SECOND

    def directory(self) -> Path:
        raise AssertionError("a stream stores nothing between regions")

    def do(self, call: Callable[[], Any]) -> Any:
        """Run something in this process, which may kill the process."""
        if not self.alive:
            return None
        self.simulation.running = self
        try:
            done = call()
        except Killed:
            self.cut = self.simulation.random.random() < 0.5
            self.die(", and its messages in transit are lost" if self.cut else "")
            return None
        finally:
            self.simulation.running = None
        if self.worker.closed:
            self.die(", having closed its tasks")
        return done

    def die(self, cause: str = "") -> None:
        """End the process; the coordinator learns of it after all messages from the process have arrived."""
        if self.alive:
            self.alive = False
            self.simulation.log(f"{self.name} ends{cause}")
            pool = self.pool
            gone = coordinator_io.WorkerGone(self.index, pool.attempt, "killed")
            self.simulation.post(("up", pool.attempt, self.index), lambda: pool.coordinator.receive(gone))


class StagedOnDisk:
    """Staged files, which arrive on the disk as other files do."""

    def __init__(self, files: StateFileStore, disk: Disk) -> None:
        self._files = files
        self._disk = disk

    def put(self, name: str, file: StagedFile) -> PendingFile:
        assert isinstance(file.content, InMemory)
        return self._files.put(name, file.content.data)

    def open(self, name: str) -> BinaryIO:
        return self._disk.open(name)


class DelayedWork:
    """Work that another thread of a process does some time later, each piece after all before it."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    def begin(self, steps: Steps[T]) -> PendingWork[T]:
        process, work = self._process, PendingWork[T]()

        def arrive() -> None:
            if not work.abandoned:
                work.result = outcome(steps)

        process.simulation.post(
            ("commit", process.pool.attempt, process.index), lambda: process.do(arrive), max_delay=2000
        )
        return work


class PendingWork(Generic[T]):
    """A piece of work that another thread does."""

    def __init__(self) -> None:
        self.result: T | None = None
        self.abandoned = False

    def poll(self) -> T | None:
        return self.result

    def abandon(self) -> None:
        self.abandoned = True


class DelayedUploads:
    """The files of a worker whose checkpoints are in an object store.

    Uploads arrive one after another, each perhaps much later, or never if the process is killed first; the store may
    refuse some.
    """

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    def put(self, name: str, data: bytes) -> PendingFile:
        process, upload = self._process, Upload()
        link = ("upload", process.pool.attempt, process.index)
        process.simulation.post(link, lambda: process.do(lambda: self._arrive(upload, name, data)))
        return upload

    def _arrive(self, upload: Upload, name: str, data: bytes) -> None:
        if upload.abandoned:
            return
        if self._process.simulation.refuses():
            upload.error = OSError(f"{name} is refused")
            return
        self._process.storage.put(name, data)
        upload.file = name, len(data), crc32(data)

    def move(self, name: str, path: Path, size: int, check: int) -> PendingFile:
        raise AssertionError("nothing is written to a local disk")

    def link(self, name: str, path: Path) -> PendingFile:
        raise AssertionError("nothing is written to a local disk")

    def begin(self, name: str) -> None:
        return


class Upload:
    """A file on its way to the store."""

    def __init__(self) -> None:
        self.file: StateFile | None = None
        self.error: OSError | None = None
        self.abandoned = False

    def poll(self) -> StateFile | None:
        if self.error is not None:
            raise self.error
        return self.file

    def abandon(self) -> None:
        self.abandoned = True


@dataclass
class WorkerPool:
    """The workers of one attempt, and the coordinator's process that started them."""

    attempt: int
    coordinator: CoordinatorProcess
    workers: list[WorkerProcess] = field(default_factory=list)


class CoordinatorProcess(Process):
    """The job's process, whose initial state is on disk."""

    def __init__(self, simulation: Simulation, serial: int) -> None:
        super().__init__(f"coordinator {serial}")
        self.simulation = simulation
        self.pool: WorkerPool | None = None
        self.opened: Opened | None = None
        self.directory_ownership: Ownership | None = None
        self.state_machine: Coordinator | None = None
        self.woken_at: int | None = None
        self.starting: int | None = None
        """The attempt whose workers are about to be started."""
        self.hangs = False
        self._backlog: list[Callable[[], Any]] = []

    def begin(self) -> None:
        """Claim the directory, resume from its contents, and then receive the earlier messages of the client."""

        def start() -> None:
            simulation = self.simulation
            before = {**simulation.disk.files}
            try:
                self.opened = open_job(simulation.job, Path(), self.name)
            except TidegateError as error:
                simulation.finish(self, coordinator_io.Finish("failed", packed(error)))
                return
            for note in self.opened.notes:
                simulation.log(f"{self.name}: {note}")
            if self.opened.over is not None:
                if simulation.disk.files != before:
                    simulation.violation("the directory of a finished job has changed")
                simulation.finish(self, coordinator_io.Finish("finished"))
                return
            simulation.opened(self.opened)
            opened = self.opened
            self.directory_ownership = Ownership(opened, simulation.disk_of)
            self.state_machine = simulation.make_coordinator(
                opened.job, opened.resume, opened.epoch, opened.first, opened.leftovers
            )
            self.handle(coordinator_io.Begin())
            if simulation.stop_request is not None:
                self.handle(simulation.stop_request)

        self.do(start)

    def do(self, call: Callable[[], Any]) -> None:
        if not self.alive:
            return
        if self.hangs:
            self._backlog.append(call)
            return
        self.simulation.running = self
        try:
            call()
        except Killed:
            self.die()
        finally:
            self.simulation.running = None

    def hang(self, delay: int) -> None:
        """Do nothing for a while (µs), then continue."""
        self.hangs = True
        self.simulation.log(f"{self.name} hangs for {delay / SECOND:.3f} s")
        self.simulation.after(delay, self.resume)

    def resume(self) -> None:
        """Continue after a hang with the messages that have arrived in the meantime, in order."""
        self.hangs = False
        backlog, self._backlog = self._backlog, []
        for call in backlog:
            self.do(call)

    def die(self) -> None:
        """End the process; its workers notice some time later, and a new process is started."""
        self.alive = False
        simulation = self.simulation
        simulation.log(f"{self.name} is killed")
        if simulation.coordinator is not self:
            self.kill_all()
            return
        if simulation.damages():
            self.kill_all()  # they could otherwise still commit output of the damaged checkpoint
        for worker in self.pool.workers if self.pool else ():
            simulation.after(simulation.random.randrange(400) * MILLISECOND, worker.die)
        simulation.after(simulation.random.randrange(1, 400) * MILLISECOND, simulation.start_coordinator)

    def receive(self, event: coordinator_io.CoordinatorEvent) -> None:
        """Receive an event."""
        self.do(lambda: self.handle(event))

    def handle(self, event: coordinator_io.CoordinatorEvent) -> None:
        """Pass an event to the coordinator, and perform the actions that it returns."""
        assert self.state_machine is not None
        for action in self.state_machine.handle(event, self.simulation.now):
            self.perform(action)
        wake = self.state_machine.next_wake()
        if wake is not None and wake != self.woken_at:
            self.woken_at = wake
            self.simulation.after(max(0, wake - self.simulation.now), lambda: self.wake(wake))

    def wake(self, at: int) -> None:
        if self.woken_at == at:
            self.woken_at = None
            self.do(self.pass_time)

    def pass_time(self) -> None:
        """Let time pass. The coordinator handles everything that is due, so its next wake-up must be in the future."""
        assert self.state_machine is not None
        self.handle(coordinator_io.Tick())
        wake = self.state_machine.next_wake()
        if wake is not None and wake <= self.simulation.now:
            self.simulation.violation(
                f"{self.name} did what was due at {self.simulation.now}, and is due again at {wake}"
            )

    def perform(self, action: coordinator_io.Action) -> None:
        simulation = self.simulation
        match action:
            case coordinator_io.StartWorkers(attempt=attempt):
                self.kill_all()
                self.starting = attempt
                self.in_background(partial(self.start, attempt))
            case coordinator_io.StopWorkers(grace=grace):
                if self.starting is not None:
                    self.cancel_start(self.starting)
                for process in self.pool.workers if self.pool else ():
                    simulation.after(int(grace * SECOND), process.die)
            case coordinator_io.Send(worker=worker, message=message):
                pool = self.pool
                if pool is not None and isinstance(message, Commit | AbortOutput):
                    self.in_background(lambda: None if self.is_fenced() else self.send(pool, worker, message))
                elif pool is not None:
                    self.send(pool, worker, message)
            case coordinator_io.Store():
                self.in_background(lambda: self.store(action))
            case coordinator_io.Withdraw(name=name):
                self.in_background(lambda: self.ownership.withdraw(name))
            case coordinator_io.Delete():
                self.in_background(lambda: outcome(self.ownership.delete(action)))
            case coordinator_io.Report(state=state, text=text):
                simulation.log(f"{self.name}: {state} {text}")
            case coordinator_io.CheckpointReport(checkpoint=checkpoint, error=error_text):
                simulation.log(f"{self.name}: checkpoint {checkpoint} {error_text or 'is complete'}")
                if not error_text:
                    simulation.checkpoints += 1
            case coordinator_io.Finish():
                simulation.finish(self, action)
            case _:
                pass

    @property
    def ownership(self) -> Ownership:
        """The checkpoint directory through which this process writes."""
        assert self.directory_ownership is not None
        return self.directory_ownership

    def store(self, action: coordinator_io.Store) -> None:
        """Write a manifest; then check whether this process still owns the job."""
        simulation = self.simulation
        if action.directory is None and action.checkpoint != RECORDED:
            undurable = simulation.disk.unsynced - set(action.new_files)
            for name, _, _ in loads(action.data).files():
                if name in undurable:
                    simulation.violation(f"{action.name} is written before {name} is durable")
        answer = outcome(self.ownership.store(action))
        if action.directory is not None and isinstance(answer, coordinator_io.Stored) and answer.error:
            simulation.violation(f"a savepoint is incomplete: {answer.error}")
        self.handle(answer)

    def in_background(self, call: Callable[[], None]) -> None:
        """Do storage work: at once, or over a network, after earlier work of its kind, while the process continues."""
        if self.simulation.uploads:
            self.simulation.post(("storage", self.name), lambda: self.do(call))
        else:
            call()

    def start(self, attempt: int) -> None:
        """Start the workers of an attempt, unless the attempt has been cancelled."""
        if self.starting == attempt and not self.is_fenced():
            self.starting = None
            self.pool = self.simulation.start_workers(attempt, self)
            self.simulation.after(0, lambda: self.receive(coordinator_io.WorkersStarted(attempt)))

    def cancel_start(self, attempt: int) -> None:
        """Cancel an attempt whose workers have not been started."""
        assert self.opened is not None
        self.starting = self.pool = None
        for index in range(self.opened.job.settings.workers):
            gone = coordinator_io.WorkerGone(index, attempt, "it was never started")
            self.simulation.after(0, partial(self.receive, gone))

    def send(self, pool: WorkerPool, worker: int, message: ToWorker) -> None:
        """Send a message to a worker."""
        target = pool.workers[worker]
        down = ("down", pool.attempt, worker)
        self.simulation.post(down, lambda: target.do(lambda: target.worker.on_message(message)))

    def is_fenced(self) -> bool:
        """Return whether another process owns the job now, after telling the coordinator if so."""
        lost = self.ownership.lost()
        if lost is not None:
            self.handle(lost)
        return lost is not None

    def kill_all(self) -> None:
        for worker in self.pool.workers if self.pool else ():
            worker.die()


class Simulation:
    """A run that a seed determines. `run` returns if the job has finished and all invariants hold; else it raises.

    `uploads`: checkpoints are in a store over the network, so that each request to it takes a while.
    """

    def __init__(
        self,
        seed: int,
        job: Job,
        outside: Outside,
        checker: Checker,
        faults: Faults,
        *,
        uploads: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.seed = seed
        self.job = job
        self.now = 1_000 * SECOND
        self.disks: dict[str, Disk] = {}
        self.checkpoints = 0
        self.history: list[str] = []
        self.finished: coordinator_io.Finish | None = None
        self.running: WorkerProcess | CoordinatorProcess | None = None
        self.coordinator: CoordinatorProcess | None = None
        self.stop_request: coordinator_io.StopJob | None = None
        self.make_worker: Callable[..., Worker] = Worker
        self.make_coordinator: Callable[..., Coordinator] = partial(Coordinator, wall=self.wall)
        self._faults = faults
        self._kills = self.random.randrange(faults.kills + 1)
        self._crashes = self.random.randrange(faults.crashes + 1)
        self._hangs = self.random.randrange(faults.hangs + 1)
        self._usurpers = self.random.randrange(faults.usurpers + 1)
        self._damages = self.random.randrange(faults.damages + 1)
        self._savepoints = self.random.randrange(faults.savepoints + 1)
        self._stops = self.random.randrange(faults.stops + 1)
        self.uploads = uploads
        self._refusals = self.random.randrange(faults.refusals + 1) if uploads else 0
        self._again = False
        """True if the job is run again although it has finished."""
        self._damaged: int | None = None
        """The number of the coordinator that will find a damaged file."""
        # A generator of its own, so that other events of a seed don't depend on steps.
        clock = random.Random(seed ^ 0xC10C)
        self._steps = [
            (self.now + clock.randrange(4 * SECOND), clock.choice([-1, 1]) * clock.choice([SECOND, 3600 * SECOND, DAY]))
            for _ in range(clock.randrange(faults.steps + 1))
        ]
        self._broken: list[InvariantViolation] = []
        self._queue: list[tuple[int, int, int, Callable[[], None]]] = []
        self._serial = 0
        self._links: dict[Any, int] = {}
        self._coordinators = 0
        OUTSIDES[NAME] = outside
        outside.crash_point = self.crash_point
        outside.on_commit = self.committed
        self.outside = outside
        self.checker = checker

    def run(self, max_events: int = 400_000) -> None:
        """Run to the end of the job. Raises InvariantViolation, or the engine's error, with the log in `history`."""
        self.start_coordinator()
        if self._hangs:
            self.after(self.random.randrange(2000) * MILLISECOND, self.hang)
        for number in range(self._savepoints):
            self.after(self.random.randrange(2000) * MILLISECOND, lambda number=number: self.savepoint(number))
        if self._stops:
            self.after(self.random.randrange(3000) * MILLISECOND, self.stop)
        for _ in range(max_events):
            if self.finished is not None or self._broken or not self._queue:
                break
            self.now, _, _, action = heapq.heappop(self._queue)
            action()
        self.log(f"ended after {self._serial} events; the next random number is {self.random.random()}")
        if self._broken:
            raise self._broken[0]
        if self.finished is None:
            raise InvariantViolation("the job does not finish")
        if self.finished.state != "finished":
            error = unpacked(self.finished.error) if self.finished.error else None
            raise InvariantViolation(f"the job ended as {self.finished.state}") from error
        self.checker.finish(drained=self.stop_request is not None and self.stop_request.drain)

    def violation(self, text: str) -> None:
        """Record that an invariant is broken. An exception raised here would be attributed to the author's code."""
        self._broken.append(InvariantViolation(text))

    def committed(self) -> None:
        """Check the output after a commit."""
        try:
            self.checker.check()
        except InvariantViolation as broken:
            self._broken.append(broken)

    # -- time

    def wall(self) -> int:
        """The time of the machines' clocks."""
        return NEW_YEAR + self.now + sum(step for at, step in self._steps if at <= self.now)

    def after(self, delay: int, action: Callable[[], None]) -> None:
        """Schedule something `delay` µs from now."""
        self._serial += 1
        heapq.heappush(self._queue, (self.now + delay, self.random.getrandbits(30), self._serial, action))

    def post(self, link: Any, arrive: Callable[[], None], max_delay: int = 200) -> None:
        """Schedule an arrival over a link after everything sent over it before, at most `max_delay` ms from now."""
        slow = self.random.random() < 0.05
        delay = int(self.random.random() * (max_delay if slow else 5) * MILLISECOND)
        at = max(self.now + delay, self._links.get(link, 0) + 1)
        self._links[link] = at
        self.after(at - self.now, arrive)

    def log(self, text: str) -> None:
        """Log an event for debugging a failing seed."""
        self.history.append(f"{self.now / SECOND:.3f} {text}")

    # -- disks

    def disk_of(self, directory: str) -> Disk:
        """The directory of that name."""
        if directory not in self.disks:
            self.disks[directory] = Disk(crash_point=self.crash_point)
        return self.disks[directory]

    @property
    def disk(self) -> Disk:
        """The disk with the job's checkpoints."""
        directory = self.job.settings.checkpoints.directory
        assert directory is not None
        return self.disk_of(directory)

    def damages(self) -> bool:
        """Perhaps damage a file of the newest checkpoint, if there is an earlier one to fall back to."""
        if not self._damages or self.job.settings.checkpoints.retained == 1:
            return False
        names = checkpoint_numbers(set(self.disk.files))
        if len(names) < 2:
            return False
        files = sorted(name for name in self.disk.files if name.startswith(f"chk-{names[-1]:06}/"))
        name = self.random.choice(files)
        data = bytearray(self.disk.files[name])
        original = bytes(data)
        at = self.random.randrange(len(data))
        if self.random.random() < 0.3:
            del data[at:]
        else:
            data[at] ^= 1 << self.random.randrange(8)
        self.disk.files[name] = bytes(data)
        try:
            manifest, reports = latest(Disk(self.disk.files), thorough=True)
        except ManifestError:
            manifest, reports = None, []
        if manifest is None or not reports:
            self.disk.files[name] = original
            return False
        self._damages -= 1
        self._damaged = self._coordinators + 1
        self.log(f"{name} is damaged at {at}")
        return True

    def opened(self, opened: Opened) -> None:
        """Check a coordinator's choice of checkpoint; output that a damaged checkpoint committed is repeated."""
        finder, self._damaged = self._damaged, None
        if finder is None:
            return
        reported = any("is damaged" in note for note in opened.notes)
        if opened.resume is None or (finder == self._coordinators and not reported):
            self.violation("a damaged checkpoint has not been reported")
            return
        self.checker.rewind(opened.resume.retained[-1].number)

    # -- processes

    def start_coordinator(self) -> None:
        """Start a new process for the job."""
        self._coordinators += 1
        self.coordinator = CoordinatorProcess(self, self._coordinators)
        self.log(f"{self.coordinator.name} starts")
        self.coordinator.begin()

    def start_workers(self, attempt: int, coordinator: CoordinatorProcess) -> WorkerPool:
        """Start all workers of an attempt."""
        assert coordinator.opened is not None
        pool = WorkerPool(attempt, coordinator)
        for index in range(coordinator.opened.job.settings.workers):
            pool.workers.append(WorkerProcess(self, pool, index))
        for worker in pool.workers:
            worker.report(Ready())
            self.after(self.random.randrange(10) * MILLISECOND, partial(self.run_turn, worker))
        return pool

    def run_turn(self, process: WorkerProcess) -> None:
        """Run one turn of a worker's loop, and schedule the next: soon, or later if there was nothing to do."""
        if not process.alive or process.worker.closed:
            return
        worked = process.do(process.worker.work)
        if worked is False and process.alive:
            self.check_sleep(process)
        hangs = self.random.random() < 0.002
        pause = 1 + int(self.random.random() * (2000 if hangs else 4 if worked else 20))
        self.after(pause * MILLISECOND, lambda: self.run_turn(process))

    def check_sleep(self, process: WorkerProcess) -> None:
        """The time that an idle worker sleeps: longer each time, but not beyond its next heartbeat."""
        wake = process.worker.next_wake()
        longest = self.now + round(self.job.settings.heartbeat * SECOND)
        if wake is None or not self.now < wake <= longest:
            self.violation(f"{process.name} has nothing to do at {self.now}, and asks to be woken at {wake}")

    def crash_point(self, place: str) -> None:
        """A place at which the process may be killed, with a higher probability while the job is being stopped."""
        process = self.running
        if process is None or self.random.random() * self._faults.crash_points > (
            1 if self.stop_request is None else 5
        ):
            return
        match process:
            case WorkerProcess() if self._kills > 0:
                self._kills -= 1
            case CoordinatorProcess() if self._crashes > 0:
                self._crashes -= 1
            case _:
                return
        self.log(f"{process.name} is killed at: {place}")
        raise Killed(place)

    def refuses(self) -> bool:
        """Return whether the store refuses this upload."""
        if self._refusals and self.random.random() < 0.05:
            self._refusals -= 1
            self.log("an upload is refused")
            return True
        return False

    def hang(self) -> None:
        """Let the coordinator hang; perhaps another one replaces it, which it notices only when it continues."""
        process = self.coordinator
        if self.finished is not None or process is None or not process.alive:
            return
        finished = b'"finished"' in self.disk.files.get(RECORD, b"")
        process.hang(self.random.randrange(1, 1500) * MILLISECOND)
        if self._usurpers and not finished:
            self.after(self.random.randrange(1, 300) * MILLISECOND, lambda: self.usurp(process))

    def usurp(self, process: CoordinatorProcess) -> None:
        """Start another coordinator in place of one that seems to be dead."""
        finished = b'"finished"' in self.disk.files.get(RECORD, b"")
        if process is self.coordinator and process.alive and not finished:
            self._damages = 0  # with two writers, the simulation doesn't know which output is committed
            self.log(f"{process.name} is presumed dead")
            self.start_coordinator()

    def savepoint(self, number: int) -> None:
        """Request a savepoint in another directory."""
        if self.coordinator is not None and self.coordinator.state_machine is not None:
            self.log(f"a savepoint is requested: saved-{number}")
            self.coordinator.receive(coordinator_io.TakeSavepoint(f"saved-{number}"))

    # -- the job's end

    def stop(self) -> None:
        """Request a stop: for good, or to resume with another number of workers."""
        if self.finished is not None or self.coordinator is None:
            return
        kind = self.random.choice(["drain", "savepoint", "stop"])
        self.log(f"the job is requested to end: {kind}")
        self._kills += self.random.randrange(2)
        self.stop_request = coordinator_io.StopJob(kind == "drain", "saved" if kind == "savepoint" else None)
        coordinator = self.coordinator
        if coordinator.state_machine is not None:
            coordinator.receive(self.stop_request)

    def finish(self, process: CoordinatorProcess, outcome: coordinator_io.Finish) -> None:
        """Handle the end of a coordinator; another job follows one that was stopped to be resumed."""
        self.log(f"{process.name} ends: {outcome.state}")
        process.kill_all()
        process.alive = False
        if process is not self.coordinator:
            return
        if outcome.state == "finished" and self.random.random() < 0.5 and not self._again:
            # The client's supervisor has not noticed that the job is finished.
            self.log("and is run again")
            self._again = True
            self._crashes = self._damages = 0
            self.job = replace(self.job, id="again", run="again")
            self.after(SECOND, self.start_coordinator)
            return
        if outcome.state != "stopped" or self.stop_request is None:
            self.finished = outcome
            return
        saved, settings = self.stop_request.savepoint, self.job.settings
        self.stop_request = None
        workers = self.random.choice([n for n in (1, 2, 3) if n != settings.workers])
        settings = replace(settings, workers=workers, from_savepoint=saved)
        if saved is not None:
            settings = replace(settings, checkpoints=replace(settings.checkpoints, directory="another"))
            self.checker.mark_final()
        self.job = replace(self.job, id="another", settings=settings)
        self.log(f"and resumes with {workers} workers")
        self.after(SECOND, self.start_coordinator)
