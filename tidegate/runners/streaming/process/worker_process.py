"""A worker's process: one loop that lets its tasks work, and carries what they say and what is said to them.

Everything is done by one thread, except uploads of checkpoint files to a remote store. Between two rounds of work the
sockets are looked at, without waiting while there is work; what is queued is sent as far as the sockets take it.
"""

from __future__ import annotations

import gc
import io
import pickle
import re
import selectors
import signal
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from socket import socket
from typing import Final, Protocol

from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.errors.transport import packed
from tidegate.runners.engine.time.clock import Clock, ManualClock, SystemClock
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.topology import ChannelId, TaskId
from tidegate.runners.streaming.network.codec import decode_items, encode_items
from tidegate.runners.streaming.network.framing import CONTROL, CREDIT, FRAME, Link, WireError, unpickled
from tidegate.runners.streaming.network.waker import Waker
from tidegate.runners.streaming.protocol.stream_items import Item
from tidegate.runners.streaming.protocol.worker_messages import Ready, TaskFailed, ToCoordinator, ToWorker
from tidegate.runners.streaming.state.backend import Operators, StateBackend
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.rocksdb import RocksBackend
from tidegate.runners.streaming.state.uploads import Files, StorageFiles, Storing, UploadedFiles
from tidegate.runners.streaming.storage.background import Background
from tidegate.runners.streaming.storage.base import Storage
from tidegate.runners.streaming.storage.local import LocalStorage
from tidegate.runners.streaming.worker.environment import World
from tidegate.runners.streaming.worker.spill_directories import store_directory
from tidegate.sdk.data.coders import install
from tidegate.sdk.errors import RunError
from tidegate.sdk.portable.model import TestStream
from tidegate.sdk.time import SECOND
from tidegate.sdk.user_code.user_fn import install_classes

_CHANNEL: Final = struct.Struct("<III4x")
_CREDIT: Final = struct.Struct("<IIII")


class Tasks(Protocol):
    """The tasks of a worker, as its process drives them (see `worker.Worker`)."""

    closed: bool

    def on_message(self, message: ToWorker) -> None: ...
    def on_items(self, channel: ChannelId, items: Sequence[Item]) -> None: ...
    def on_credit(self, channel: ChannelId, credit: int) -> None: ...
    def work(self) -> bool: ...
    def next_wake(self) -> int | None: ...
    def close(self) -> None: ...


class MakeTasks(Protocol):
    """Makes the tasks of a worker."""

    def __call__(self, job: Job, index: int, attempt: int, world: World) -> Tasks: ...


def run_worker(
    make: MakeTasks,
    job: Job,
    index: int,
    attempt: int,
    control: socket,
    peers: Mapping[int, socket],
    directory: Path,
    storage: Storage | None,
) -> int:
    """All that a worker does, in a process that has just been forked; returns the exit code."""
    _settle_in(batch=job.settings.batch)
    world = ProcessWorld(job, control, peers, directory, storage)
    try:
        arrive(job)
        tasks = make(job, index, attempt, world)
        world.tell(Ready())
        shell = _Shell(job, tasks, world)
        try:
            shell.run()
        finally:
            tasks.close()
    except BaseException as error:  # also what is no Exception: nobody else would hear of it
        world.tell(TaskFailed(None, packed(error), user=False))
        world.leave()
        return 1
    world.leave()
    return 0


def arrive(job: Job) -> None:
    """Make the author's classes that travel by value, and the coders, hold in this process."""
    pipeline = job.plan.pipeline
    install_classes(pipeline.classes)
    install(tuple((cls.load(), coder.load()) for cls, coder in pipeline.coders))


class ProcessWorld:
    """The world of a worker that is a process of its own."""

    def __init__(
        self, job: Job, control: socket, peers: Mapping[int, socket], directory: Path, storage: Storage | None
    ) -> None:
        scripted = any(isinstance(node, TestStream) for node in job.plan.pipeline.nodes)
        self.clock: Clock = ManualClock() if scripted else SystemClock()
        self.storage = storage
        self.control = Link(control)
        self.peers = {worker: Link(peer) for worker, peer in peers.items()}
        self._directory = directory
        self._settings = job.settings
        self.waker = Waker()
        self._root = storage.root if isinstance(storage, LocalStorage) else None
        self._parts = (self._root or directory) / "chk-parts"
        self._files = self._files_of(storage)

    def _files_of(self, storage: Storage | None) -> Files | None:
        """A folder takes files at once, any other store in the background."""
        place = partial(_made, self._parts)
        if storage is None:
            return None
        if self._root is not None:
            return StorageFiles(storage, self._root, place)
        return UploadedFiles(storage, Background(self.waker.wake), place)

    def tell(self, message: ToCoordinator) -> None:
        """Put a message for the coordinator in the queue."""
        self.control.post(CONTROL, [pickle.dumps(message, 5)])

    def send(self, worker: int, channel: ChannelId, items: Sequence[Item], *, flush: bool) -> None:
        """Encode items at once, so that what can't be pickled is raised where it is known which step gave it.

        What is not flushed leaves at the end of the round.
        """
        link = self.peers[worker]
        link.post(FRAME, [_CHANNEL.pack(channel.edge, channel.source, channel.target), *encode_items(items)])
        if flush:
            link.push()

    def grant(self, worker: int, channel: ChannelId, credit: int) -> None:
        """Put credit in the queue, before whatever is long."""
        message = _CREDIT.pack(channel.edge, channel.source, channel.target, credit)
        self.peers[worker].post(CREDIT, [message], urgent=True)

    def seconds(self) -> float:
        """A clock that only goes on, for what takes how long."""
        return time.perf_counter()

    def backend(self, task: TaskId, attempt: int, operators: Operators, budget: int) -> StateBackend:
        """As the settings say. What is written before it has its place is where leftovers are swept from."""
        assert self._files is not None
        settings, files = self._settings, self._files
        _clear(self._parts, attempt)
        if settings.state_backend == "rocksdb":
            place = partial(store_directory, self._directory, task, attempt)
            full_every = settings.checkpoints.full_every
            return RocksBackend(operators, files, place, budget=budget, full_every=full_every)
        return MemoryBackend(operators, files, forks=True, full_every=settings.checkpoints.full_every)

    def store(self, name: str, state: bytes) -> Storing:
        """Have a task's state written to the checkpoint directory."""
        if self._files is None:
            raise RunError("this run keeps no checkpoints")
        return self._files.put(name, state)

    def directory(self) -> Path:
        """The run's own directory; the job's process removes it."""
        return self._directory

    def links(self) -> Iterator[Link]:
        """Those that are open."""
        yield self.control
        yield from (link for link in self.peers.values() if not link.closed)

    def leave(self) -> None:
        """Send what the coordinator is still to hear; it reads until this process has gone."""
        self.control.wait_until_sent()


class _Shell:
    def __init__(self, job: Job, tasks: Tasks, world: ProcessWorld) -> None:
        self._job = job
        self._tasks = tasks
        self._world = world
        self._selector = selectors.DefaultSelector()
        self._asked: dict[Link, int] = {}

    def run(self) -> None:
        """Until the tasks have been closed, or the coordinator has gone."""
        tasks, world = self._tasks, self._world
        for link in world.links():
            self._ask(link, selectors.EVENT_READ)
        self._selector.register(world.waker, selectors.EVENT_READ)
        while not tasks.closed:
            busy = tasks.work()
            self._send()
            for key, _ in self._selector.select(0 if busy else self._patience()):
                if key.fileobj is world.waker:
                    world.waker.heard()
                else:
                    self._receive(key.fileobj)  # type: ignore[arg-type]
            if world.control.closed:
                return

    def _patience(self) -> float | None:
        """Seconds until the tasks have something to do of themselves."""
        wake = self._tasks.next_wake()
        return None if wake is None else max(0.0, (wake - self._world.clock.monotonic()) / SECOND)

    def _send(self) -> None:
        for link in self._world.links():
            if link.waiting:
                link.push()
            self._ask(link, selectors.EVENT_READ | (selectors.EVENT_WRITE if link.waiting else 0))

    def _receive(self, link: Link) -> None:
        tasks = self._tasks
        for kind, body, own in link.receive():
            match kind:
                case _ if kind == FRAME:
                    channel = self._channel(_CHANNEL, body[: _CHANNEL.size])[0]
                    items = self._decode(channel, body[_CHANNEL.size :], own=own)
                    tasks.on_items(channel, items)
                case _ if kind == CREDIT:
                    channel, credit = self._channel(_CREDIT, body)
                    tasks.on_credit(channel, *credit)
                case _:
                    tasks.on_message(unpickled(kind, body, ToWorker))
        if link.closed:
            self._selector.unregister(link)
            del self._asked[link]

    def _channel(self, form: struct.Struct, body: memoryview) -> tuple[ChannelId, list[int]]:
        """The channel that is named, and what else there is; WireError if it can't be told."""
        try:
            edge, source, target, *more = form.unpack(body)
        except struct.error as error:
            raise WireError(f"what is to name a channel can't be read: {error}") from error
        return ChannelId(edge, source, target), more

    def _decode(self, channel: ChannelId, body: memoryview, *, own: bool) -> list[Item]:
        """The items of a frame; where one can't be rebuilt, its task has failed, and nothing comes of the frame."""
        try:
            return decode_items(body, own=own)
        except RunError as error:
            plan = self._job.plan
            step = plan.steps[plan.edges[channel.edge].target]
            told = packed(located(error, step.label, step.head.where))
            self._world.tell(TaskFailed(TaskId(step.stage, channel.target), told, user=True))
            return []

    def _ask(self, link: Link, events: int) -> None:
        """Have the selector look for these events at a link."""
        before = self._asked.get(link, 0)
        if before == events:
            return
        self._asked[link] = events
        if before:
            self._selector.modify(link, events)
        else:
            self._selector.register(link, events)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _clear(parts: Path, attempt: int) -> None:
    """Remove what workers of earlier attempts, killed meanwhile, had begun to write."""
    for path in parts.glob("*-chk-*"):
        begun = _BEGUN.fullmatch(path.name)
        if begun is not None and int(begun[1]) < attempt:
            path.unlink(missing_ok=True)


_BEGUN: Final = re.compile(r"\d+-chk-\d+-[\d.]+\.(\d+)\.(?:data|state)")


_COLLECTS_BATCH: Final = (50_000, 20, 1_000)
"""Thresholds of the garbage collector in bounded work: by the time it would look at everything, the work is done."""
_COLLECTS: Final = (50_000, 10, 5)
"""And in a stream. The engine leaves no cycles behind, but the author's code may: everything is looked at again after
a few millions of them, and no sooner than when a quarter has been added to what stayed the last time."""


def _settle_in(*, batch: bool) -> None:
    """What a process that runs the author's code does first."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.enable()
    gc.set_threshold(*(_COLLECTS_BATCH if batch else _COLLECTS))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)  # several processes print: by whole lines
