"""A worker's process: one loop that runs its tasks and polls their sockets; it makes the state backend they ask for.

One thread does everything except commits, and uploads of checkpoint files to a remote storage. After each round of work
it polls the sockets, and waits only if the tasks have nothing to do.
"""

from __future__ import annotations

import gc
import io
import pickle
import re
import signal
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from socket import socket
from typing import Final, Protocol

from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.errors.transport import packed
from tidegate.runners.engine.time.clock import Clock, ManualClock, SystemClock
from tidegate.runners.streaming.model.fork_safety import allows_forks
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.network.codec import decode_items, encode_items
from tidegate.runners.streaming.network.event_loop import EventLoop
from tidegate.runners.streaming.network.framing import CONTROL, CREDIT, FRAME, Link, WireError, unpickled
from tidegate.runners.streaming.protocol.stream_items import Item
from tidegate.runners.streaming.protocol.worker_messages import Ready, TaskFailed, ToCoordinator, ToWorker
from tidegate.runners.streaming.state.backend import Operators, StateBackend
from tidegate.runners.streaming.state.memory import MemoryBackend
from tidegate.runners.streaming.state.rocksdb import RocksBackend
from tidegate.runners.streaming.state.staging import AT_ONCE, StagedFiles, StagedFileStore
from tidegate.runners.streaming.state.uploads import DirectFileStore, PendingFile, StateFileStore, UploadingFileStore
from tidegate.runners.streaming.storage.background import Background, Work
from tidegate.runners.streaming.worker.environment import WorkerServices
from tidegate.runners.streaming.worker.spill_directories import store_directory
from tidegate.sdk.data.coders import install
from tidegate.sdk.errors import RunError
from tidegate.sdk.portable.model import TestStream
from tidegate.sdk.time import SECOND
from tidegate.sdk.user_code.sealing import install_classes

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

    def __call__(self, job: Job, index: int, attempt: int, services: WorkerServices) -> Tasks: ...


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
    """Run a worker in a process that has just been forked; returns the exit code."""
    _set_up_process(batch=job.settings.batch)
    services = ProcessServices(job, control, peers, directory, storage)
    try:
        install_user_types(job)
        tasks = make(job, index, attempt, services)
        services.report(Ready())
        loop = _WorkerLoop(job, tasks, services)
        try:
            loop.run()
        finally:
            tasks.close()
    except BaseException as error:  # also SystemExit and the like: nobody else would report it
        services.report(TaskFailed(None, packed(error), user=False))
        services.leave()
        return 1
    services.leave()
    return 0


def install_user_types(job: Job) -> None:
    """Install the author's classes that were pickled by value, and the coders, in this process."""
    pipeline = job.plan.pipeline
    install_classes(pipeline.classes)
    install(tuple((cls.load(), coder.load()) for cls, coder in pipeline.coders))


class ProcessServices:
    """The environment of a worker that is a process of its own."""

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
        self._forks = allows_forks(job.plan.pipeline)
        self.loop = EventLoop()
        self._root = storage.root if isinstance(storage, LocalStorage) else None
        self._parts = (self._root or directory) / "chk-parts"
        self._uploads = Background(self.loop.wake)
        self._committing = Background(self.loop.wake)
        self.commits: Work = self._committing
        self._files = self._files_of(storage)
        self.staged = self._staged_files_of(storage)

    def _files_of(self, storage: Storage | None) -> StateFileStore | None:
        """Files are stored in a folder at once, and in any other storage in the background."""
        create_parts = partial(_created, self._parts)
        if storage is None:
            return None
        if self._root is not None:
            return DirectFileStore(storage, self._root, create_parts)
        return UploadingFileStore(storage, self._uploads, create_parts)

    def _staged_files_of(self, storage: Storage | None) -> StagedFiles:
        """A bounded job stages files in the run's directory."""
        if storage is None:
            return StagedFileStore(LocalStorage(self._directory), self._directory)
        return StagedFileStore(storage, self._root, self._uploads, at_once=0 if self._root is None else AT_ONCE)

    def report(self, message: ToCoordinator) -> None:
        """Queue a message for the coordinator."""
        self.control.post(CONTROL, [pickle.dumps(message, 5)])

    def send(self, worker: int, channel: ChannelId, items: Sequence[Item], *, flush: bool) -> None:
        """Queue items. They are encoded at once, so that the caller can attribute a PicklingError to a step.

        Unless `flush` is set, they are sent at the end of the round.
        """
        link = self.peers[worker]
        link.post(FRAME, [_CHANNEL.pack(channel.edge, channel.source, channel.target), *encode_items(items)])
        if flush:
            link.push()

    def grant(self, worker: int, channel: ChannelId, credit: int) -> None:
        """Queue credit, which overtakes other messages."""
        message = _CREDIT.pack(channel.edge, channel.source, channel.target, credit)
        self.peers[worker].post(CREDIT, [message], urgent=True)

    def background(self) -> Background:
        """Another background thread, which wakes the loop when its work is done."""
        return Background(self.loop.wake)

    def wake(self) -> None:
        """End the current wait of the loop, or the next."""
        self.loop.wake()

    def seconds(self) -> float:
        """A clock for measuring durations, in seconds."""
        return time.perf_counter()

    def backend(self, task: TaskId, attempt: int, operators: Operators, budget: int) -> StateBackend:
        """The backend that the settings name. Removes incomplete files of earlier attempts first."""
        assert self._files is not None
        settings, files = self._settings, self._files
        _remove_incomplete(self._parts, attempt)
        if settings.state_backend == "rocksdb":
            create_directory = partial(store_directory, self._directory, task, attempt)
            full_every = settings.checkpoints.full_every
            return RocksBackend(operators, files, create_directory, budget=budget, full_every=full_every)
        return MemoryBackend(operators, files, forks=self._forks, full_every=settings.checkpoints.full_every)

    def store(self, name: str, state: bytes) -> PendingFile:
        """Begin to write a task's state to the checkpoint directory."""
        if self._files is None:
            raise RunError("this run has no checkpoint directory")
        return self._files.put(name, state)

    def directory(self) -> Path:
        """The run's working directory; the job's process removes it."""
        return self._directory

    def leave(self) -> None:
        """Send all messages for the coordinator; the job's process receives until this one has ended. Before that, wait
        for the commit that is in progress, if any, until the job's process kills this one."""
        if not self.control.closed:
            self._committing.join(_PATIENCE)
        self.control.wait_until_sent()


class _WorkerLoop:
    def __init__(self, job: Job, tasks: Tasks, services: ProcessServices) -> None:
        self._job = job
        self._tasks = tasks
        self._services = services

    def run(self) -> None:
        """Run until the tasks have been closed, or the coordinator has gone."""
        tasks, services = self._tasks, self._services
        for link in (services.control, *services.peers.values()):
            services.loop.register(link, partial(self._receive, link))
        while not tasks.closed and not services.control.closed:
            until = services.clock.monotonic() + _BETWEEN_POLLS
            while (busy := tasks.work()) and not tasks.closed and services.clock.monotonic() < until:
                pass
            services.loop.poll(0 if busy else self._timeout())

    def _timeout(self) -> float | None:
        """Seconds until the tasks have something to do without any input."""
        wake = self._tasks.next_wake()
        return None if wake is None else max(0.0, (wake - self._services.clock.monotonic()) / SECOND)

    def _receive(self, link: Link) -> None:
        tasks = self._tasks
        for kind, body, owned in link.receive():
            match kind:
                case _ if kind == FRAME:
                    channel = self._channel(_CHANNEL, body[: _CHANNEL.size])[0]
                    items = self._decode(channel, body[_CHANNEL.size :], owned=owned)
                    tasks.on_items(channel, items)
                case _ if kind == CREDIT:
                    channel, credit = self._channel(_CREDIT, body)
                    tasks.on_credit(channel, *credit)
                case _:
                    tasks.on_message(unpickled(kind, body, ToWorker))

    def _channel(self, form: struct.Struct, body: memoryview) -> tuple[ChannelId, list[int]]:
        """The channel that a message names, and the numbers after it. WireError if they are malformed."""
        try:
            edge, source, target, *more = form.unpack(body)
        except struct.error as error:
            raise WireError(f"the name of a channel is malformed: {error}") from error
        return ChannelId(edge, source, target), more

    def _decode(self, channel: ChannelId, body: memoryview, *, owned: bool) -> list[Item]:
        """The items of a frame. If an element can't be unpickled, its task fails, and the frame is dropped."""
        try:
            return decode_items(body, owned=owned)
        except RunError as error:
            plan = self._job.plan
            step = plan.steps[plan.edges[channel.edge].target]
            packed_error = packed(located(error, step.label, step.head.where))
            self._services.report(TaskFailed(TaskId(step.stage, channel.target), packed_error, user=True))
            return []


def _created(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _remove_incomplete(parts: Path, attempt: int) -> None:
    """Remove files that workers of earlier attempts had begun to write when they were killed."""
    for path in parts.glob("*-chk-*"):
        matched = _PART_NAME.fullmatch(path.name)
        if matched is not None and int(matched[1]) < attempt:
            path.unlink(missing_ok=True)


_PART_NAME: Final = re.compile(r"\d+-chk-\d+-[\d.]+\.(\d+)\.(?:data|state)")


_BETWEEN_POLLS: Final = 1_000
"""For how long (µs) tasks work at least before the process looks at its sockets again, if they have anything to do."""

_PATIENCE: Final = 30.0
"""Seconds that a commit in progress has to complete when the worker ends."""


_GC_BATCH: Final = (50_000, 20, 1_000)
"""Thresholds of the garbage collector for a bounded job, which is over before the first full collection."""
_GC_STREAM: Final = (50_000, 10, 5)
"""Thresholds for an unbounded job. The engine leaves no cyclic garbage, but the author's code may: a full collection
follows after some millions of new objects, once the number of long-lived objects has grown by a quarter."""


def _set_up_process(*, batch: bool) -> None:
    """Prepare a process for running the author's code."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    gc.enable()
    gc.set_threshold(*(_GC_BATCH if batch else _GC_STREAM))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                line_buffering=True, write_through=False
            )  # several processes print, so lines must not mix
