"""The job's process: it does what the coordinator wants done, and tells it what has happened.

One loop over sockets, signals and the coordinator's next wake; what waits for the storage is done beside it. Workers
are forked from here, each with one end of a socket to this process and of one to every other worker, so that there is
no name or port to find, and nobody to authenticate. While a job is at work, no code of the author's runs here: what
travels by value stays bytes. Only the sinks of a job that had finished before are loaded, to remove what was left.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import signal
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from tidegate.runners.engine.time.clock import monotonic_micros
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened
from tidegate.runners.streaming.model.exit_status import how_ended
from tidegate.runners.streaming.network.framing import CONTROL, Link, WireError, pair, unpickled
from tidegate.runners.streaming.network.waker import Waker
from tidegate.runners.streaming.process.child import leave_process
from tidegate.runners.streaming.process.job_storage import JobStorage
from tidegate.runners.streaming.process.metrics_file import MetricsFile
from tidegate.runners.streaming.process.worker_process import MakeTasks, run_worker
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.protocol.client_messages import FromClient, ToClient
from tidegate.runners.streaming.protocol.coordinator_io import Action, CoordinatorEvent
from tidegate.runners.streaming.protocol.worker_messages import AbortOutput, Commit, ToCoordinator, ToWorker
from tidegate.runners.streaming.storage.factory import open_storage
from tidegate.runners.streaming.worker.spill_directories import clear_spilled
from tidegate.sdk.time import SECOND


class CoordinatorProtocol(Protocol):
    """What decides (see `coordinator.Coordinator`)."""

    def handle(self, event: CoordinatorEvent, now: int) -> list[Action]: ...
    def next_wake(self) -> int | None: ...


@dataclass(slots=True)
class _Child:
    """A worker's process, and this end of the socket to it."""

    index: int
    attempt: int
    pid: int
    link: Link


class JobProcess:
    """A job at work. `directory` is the run's own."""

    def __init__(
        self,
        opened: Opened,
        directory: Path,
        coordinator: CoordinatorProtocol,
        client: Link,
        make: MakeTasks,
    ) -> None:
        self._job = opened.job
        self._opened = opened
        self._directory = directory
        self._coordinator = coordinator
        self._client = client
        self._make = make
        self._metrics: MetricsFile | None = None
        self._state: coordinator_io.JobState = "created"
        self._progress: coordinator_io.Progress | None = None
        self._children: dict[int, _Child] = {}
        self._attempt = 0
        self._events: deque[CoordinatorEvent] = deque()
        self._finish: coordinator_io.Finish | None = None
        self._kill_at: float | None = None
        self._selector = selectors.DefaultSelector()
        self._asked: dict[Link, int] = {}
        self._waker = Waker()
        self._storage = JobStorage(opened, self._waker.wake)
        self._starting: int | None = None
        """The attempt whose workers are to be forked as soon as that may be."""
        self._may_start = False

    def run(self) -> None:
        """From the job's begin to its end; what was printed by workers has been written when the client hears of it."""
        self._heed_signals()
        if (path := self._job.settings.metrics_file) is not None:
            self._metrics = MetricsFile(self._job, path)
        self._ask(self._client)
        self._selector.register(self._waker, selectors.EVENT_READ)
        try:
            self._events.append(coordinator_io.Begin())
            self._hear_client()  # what it said in one breath with the job itself
            while True:
                self._decide()
                if self._start_if_due():
                    continue
                if self._finish is not None and not self._children:
                    break
                self._wait()
        finally:
            self._kill()
            self._storage.close()
        if self._progress is not None:
            self._post(self._progress)
        self._tell(self._finish)
        self._client.wait_until_sent()

    # -- what the coordinator wants

    def _decide(self) -> None:
        while True:
            if self._events:
                event = self._events.popleft()
            elif (
                self._finish is None
                and (wake := self._coordinator.next_wake()) is not None
                and wake <= monotonic_micros()
            ):
                event = coordinator_io.Tick()
            else:
                return
            for action in self._coordinator.handle(event, monotonic_micros()):
                if self._finish is None or isinstance(action, coordinator_io.Progress):  # workers count to their end
                    self._perform(action)

    def _perform(self, action: Action) -> None:
        match action:
            case coordinator_io.Send(worker=worker, message=message):
                child = self._children.get(worker)
                if child is not None and isinstance(message, Commit | AbortOutput):
                    self._storage.unless_fenced(partial(self._send_unless, child, message))
                elif child is not None:
                    child.link.post(CONTROL, [pickle.dumps(message, 5)])
            case coordinator_io.StartWorkers(attempt=attempt):
                self._kill_at = None
                self._kill()
                self._starting, self._may_start = attempt, False
                self._storage.unless_fenced(partial(self._allow_start, attempt))
            case coordinator_io.StopWorkers(grace=grace):
                self._kill_at = time.monotonic() + grace
                self._forgo_start()
            case coordinator_io.Store():
                self._storage.store(action, self._events.append)
            case coordinator_io.Withdraw(name=name):
                self._storage.withdraw(name)
            case coordinator_io.Delete():
                self._storage.delete(action)
            case coordinator_io.Finish():
                self._finish = action
                self._forgo_start()
                if self._kill_at is None:
                    self._kill_at = time.monotonic()  # whoever is there now has not been given any time
            case _:
                self._tell(action)

    def _send_unless(self, child: _Child, message: ToWorker, happened: CoordinatorEvent | None) -> None:
        """Send what only the job's own process may, unless it is not that now, or the worker has gone meanwhile."""
        wanted = self._finish is None and self._children.get(child.index) is child
        if self._is_free_to(happened, wanted=wanted):
            child.link.post(CONTROL, [pickle.dumps(message, 5)])

    def _allow_start(self, attempt: int, happened: CoordinatorEvent | None) -> None:
        if self._is_free_to(happened, wanted=attempt == self._starting):
            self._may_start = True

    def _is_free_to(self, happened: CoordinatorEvent | None, *, wanted: bool) -> bool:
        """Whether to do what had to wait for the storage. That it could not be asked ends the attempt for which it was,
        and no later one, which asks again."""
        if happened is not None and (wanted or isinstance(happened, coordinator_io.Fenced)):
            self._events.append(happened)
        return wanted and happened is None

    def _forgo_start(self) -> None:
        """Workers that have not been forked yet are not wanted any more."""
        if self._starting is not None:
            for index in range(self._job.settings.workers):
                self._events.append(coordinator_io.WorkerGone(index, self._starting, "it was never started"))
            self._starting = None
            self._storage.resume()

    def _tell(self, message: ToClient) -> None:
        if isinstance(message, coordinator_io.Report):
            self._state = message.state
        if self._metrics is not None and (fault := self._metrics.take(message)):
            self._post(coordinator_io.Report(self._state, fault))
        if isinstance(message, coordinator_io.Progress) and self._client.waiting:
            self._progress = message  # a client that is slow to hear misses those that are out of date
        else:
            self._post(message)

    def _post(self, message: ToClient) -> None:
        self._client.post(CONTROL, [pickle.dumps(message, 5)])

    # -- workers

    def _start_if_due(self) -> bool:
        """Fork the workers that are wanted, once no other thread is there, for what it holds would stay held in them.
        Whether that has been done now."""
        if self._starting is not None and self._may_start and self._storage.halt():
            attempt, self._starting = self._starting, None
            self._start(attempt)
            self._storage.resume()
            self._events.append(coordinator_io.WorkersStarted(attempt))
            return True
        return False

    def _start(self, attempt: int) -> None:
        """Fork all workers of an attempt; those of the one before have been reaped."""
        clear_spilled(self._directory)
        count = self._job.settings.workers
        self._attempt = attempt
        _allow_files(count * count + 3 * count + 64)
        controls = [pair() for _ in range(count)]
        peers: list[dict[int, socket.socket]] = [{} for _ in range(count)]
        for one in range(count):
            for other in range(one):
                peers[one][other], peers[other][one] = pair()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        for index in range(count):
            pid = os.fork()
            if not pid:
                self._be_worker(index, attempt, controls, peers)
            self._children[index] = _Child(index, attempt, pid, Link(controls[index][0]))
        for _, theirs in controls:
            theirs.close()
        for ends in peers:
            for end in ends.values():
                end.close()
        for child in self._children.values():
            self._ask(child.link)

    def _be_worker(
        self,
        index: int,
        attempt: int,
        controls: list[tuple[socket.socket, socket.socket]],
        peers: list[dict[int, socket.socket]],
    ) -> None:
        """What a forked process does: it keeps its own ends alone, so that each sees when the other end has gone."""
        code = 1
        try:
            self._selector.close()
            self._client.close()
            self._waker.close()
            for other, (ours, theirs) in enumerate(controls):
                ours.close()
                if other != index:
                    theirs.close()
                    for end in peers[other].values():
                        end.close()
            url = self._job.settings.checkpoints.directory
            storage = self._opened.storage
            if storage is not None and url is not None:
                storage = open_storage(url)  # anew: a connection is of one process
            code = run_worker(
                self._make, self._job, index, attempt, controls[index][1], peers[index], self._directory, storage
            )
        finally:
            leave_process(code)

    def _kill(self) -> None:
        """End and reap every worker there is."""
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
        for child in self._children.values():
            _reap(child.pid)
            self._forget(child)
        self._children.clear()

    def _gone(self, child: _Child, status: int, fault: str = "") -> None:
        """A worker's process has ended. What it said before is heard first. `fault`: why it had to be killed."""
        while not child.link.closed and child.link.wait(0):
            fault = self._hear(child)
        self._forget(child)
        del self._children[child.index]
        self._events.append(coordinator_io.WorkerGone(child.index, child.attempt, fault or how_ended(status)))

    def _forget(self, child: _Child) -> None:
        if self._asked.pop(child.link, 0):
            self._selector.unregister(child.link)
        child.link.close()

    def _hear(self, child: _Child) -> str:
        """Take what a worker has sent. If that is no message, its link is dropped: returns why."""
        try:
            for kind, body, _ in child.link.receive():
                message = unpickled(kind, body, ToCoordinator)
                self._events.append(coordinator_io.FromWorker(child.index, child.attempt, message))
        except WireError as error:
            child.link.drop()
            return f"it was killed because what it sent can't be understood: {error}"
        return ""

    # -- the loop

    def _wait(self) -> None:
        """Until something happens, or is due."""
        for child in self._children.values():
            self._ask(child.link)
        self._ask(self._client)
        if self._progress is not None and not self._client.waiting:
            self._post(self._progress)
            self._progress = None
            self._ask(self._client)
        for key, _ in self._selector.select(self._patience()):
            if key.fileobj is self._waker:
                self._waker.heard()
                self._storage.take()
                self._look_for_dead()
            elif key.fileobj is self._client:
                self._hear_client()
            else:
                for child in [child for child in self._children.values() if child.link is key.fileobj]:
                    fault = self._hear(child)
                    if child.link.closed:  # it is about to end, if it has not
                        self._gone(child, _reap(child.pid, kill=True), fault)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._kill_at = None
            for child in self._children.values():
                os.kill(child.pid, signal.SIGKILL)

    def _patience(self) -> float | None:
        dues = []
        if self._finish is None and (wake := self._coordinator.next_wake()) is not None:
            dues.append((wake - monotonic_micros()) / SECOND)
        if self._kill_at is not None:
            dues.append(self._kill_at - time.monotonic())
        return max(0.0, min(dues)) if dues else None

    def _ask(self, link: Link) -> None:
        """Send what a link takes, and have the selector look at it for what is still to be done."""
        link.push()
        if link.closed:
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.waiting else 0)
        before = self._asked.get(link)
        if before is None:
            self._selector.register(link, events)
        elif before != events:
            self._selector.modify(link, events)
        self._asked[link] = events

    def _hear_client(self) -> None:
        for kind, body, _ in self._client.receive():
            self._events.append(unpickled(kind, body, FromClient))
        if self._client.closed:
            self._selector.unregister(self._client)
            self._asked.pop(self._client)
            self._events.append(coordinator_io.CancelJob())

    def _heed_signals(self) -> None:
        """A child's end wakes the loop. Ctrl-C is the client's to hear: it decides what becomes of the job."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._waker.signals, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _look_for_dead(self) -> None:
        for child in list(self._children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                self._gone(child, status)


def _reap(pid: int, *, kill: bool = False) -> int:
    if kill:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _allow_files(count: int) -> None:
    """Raise the limit of open files as far as it is needed."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
