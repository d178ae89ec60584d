"""The worker processes of a job: forked for each attempt, connected by socket pairs, and reaped when they end.

Each worker has one socket to the job's process and one to every other worker. The sockets are inherited, so that there
is no address to find and no peer to authenticate.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.runners.streaming.checkpoint.epoch_fencing import Opened
from tidegate.runners.streaming.model.exit_status import describe_exit
from tidegate.runners.streaming.network.event_loop import EventLoop
from tidegate.runners.streaming.network.framing import CONTROL, Link, WireError, pair, unpickled
from tidegate.runners.streaming.process.child import leave_process
from tidegate.runners.streaming.process.worker_process import MakeTasks, run_worker
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.protocol.coordinator_io import CoordinatorEvent
from tidegate.runners.streaming.protocol.worker_messages import ToCoordinator, ToWorker
from tidegate.runners.streaming.worker.spill_directories import clear_spilled
from tidegate.sdk.options.defaults import processors


@dataclass(eq=False, slots=True)
class ForkedWorker:
    """A worker's process, with this process's end of the socket to it."""

    index: int
    attempt: int
    pid: int
    link: Link

    def send(self, message: ToWorker) -> None:
        """Queue a message for it."""
        self.link.post(CONTROL, [pickle.dumps(message, 5)])

    def kill(self) -> None:
        """Kill the process, which has not been reaped yet."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Wait for the end of the process; returns its exit status."""
        return os.waitpid(self.pid, 0)[1]


class WorkerPool:
    """The workers of the current attempt.

    `on_event` is called with the messages of the workers, and with the end of each. `close_inherited` is called in a
    forked worker, to close the descriptors that belong to the job's process.
    """

    def __init__(
        self,
        opened: Opened,
        directory: Path,
        make: MakeTasks,
        loop: EventLoop,
        on_event: Callable[[CoordinatorEvent], None],
        close_inherited: Callable[[], None],
    ) -> None:
        self._opened = opened
        self._directory = directory
        self._make = make
        self._loop = loop
        self._on_event = on_event
        self._close_inherited = close_inherited
        self._workers: dict[int, ForkedWorker] = {}

    def __len__(self) -> int:
        return len(self._workers)

    def get(self, index: int) -> ForkedWorker | None:
        """The worker of that index, unless it has ended."""
        return self._workers.get(index)

    def start(self, attempt: int) -> None:
        """Fork the workers of an attempt; those of the previous one have been reaped."""
        clear_spilled(self._directory)
        count = self._opened.job.settings.workers
        _raise_file_limit(count * count + 3 * count + 64)
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
                self._run_child(index, attempt, controls, peers)
            self._workers[index] = ForkedWorker(index, attempt, pid, Link(controls[index][0]))
        for _, theirs in controls:
            theirs.close()
        for ends in peers:
            for end in ends.values():
                end.close()
        for worker in self._workers.values():
            self._loop.register(worker.link, partial(self._handle, worker))

    def _run_child(
        self,
        index: int,
        attempt: int,
        controls: list[tuple[socket.socket, socket.socket]],
        peers: list[dict[int, socket.socket]],
    ) -> None:
        """Run a worker in a forked child. It closes the sockets of the others, so that each end sees its peer leave."""
        code = 1
        try:
            _share_cores(self._opened.job.settings.workers)
            self._close_inherited()
            for other, (ours, theirs) in enumerate(controls):
                ours.close()
                if other != index:
                    theirs.close()
                    for end in peers[other].values():
                        end.close()
            job, storage = self._opened.job, self._opened.storage
            url = job.settings.checkpoints.directory
            if storage is not None and url is not None:
                storage = open_storage(url)  # a connection belongs to one process
            code = run_worker(
                self._make, job, index, attempt, controls[index][1], peers[index], self._directory, storage
            )
        finally:
            leave_process(code)

    def kill(self) -> None:
        """Kill every worker; their ends are reported as any other."""
        for worker in self._workers.values():
            worker.kill()

    def kill_and_reap(self) -> None:
        """Kill every worker and wait for its end, without reporting it."""
        self.kill()
        for worker in self._workers.values():
            worker.reap()
            self._release(worker)
        self._workers.clear()

    def reap_ended(self) -> None:
        """Report the workers whose processes have ended."""
        for worker in list(self._workers.values()):
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid:
                self._report_end(worker, status)

    def _handle(self, worker: ForkedWorker) -> None:
        """Receive a worker's messages. Once its link is closed, its process is of no use, even if it has yet to end."""
        fault = self._receive(worker)
        if worker.link.closed:
            worker.kill()
            self._report_end(worker, worker.reap(), fault)

    def _receive(self, worker: ForkedWorker) -> str:
        """Pass on a worker's messages. Drops its link at the first invalid one; returns why it is invalid."""
        try:
            for kind, body, _ in worker.link.receive():
                message = unpickled(kind, body, ToCoordinator)
                self._on_event(coordinator_io.FromWorker(worker.index, worker.attempt, message))
        except WireError as error:
            worker.link.drop()
            return f"it was killed because it sent an invalid message: {error}"
        return ""

    def _report_end(self, worker: ForkedWorker, status: int, fault: str = "") -> None:
        """Report the end of a process, after the messages that it had sent. `fault`: why it had to be killed."""
        while not worker.link.closed and worker.link.wait(0):
            fault = self._receive(worker)
        self._release(worker)
        del self._workers[worker.index]
        self._on_event(coordinator_io.WorkerGone(worker.index, worker.attempt, fault or describe_exit(status)))

    def _release(self, worker: ForkedWorker) -> None:
        self._loop.unregister(worker.link)
        worker.link.close()


def _share_cores(workers: int) -> None:
    """Have libraries of arrays (OpenBLAS, MKL and others) that this worker imports start no more threads than its share
    of the cores: each starts one for every core, and those of all workers would wait for one another.

    The user's own setting counts, as does that of a library's variable, which it prefers. PySpark does so, too.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, processors() // workers)))


def _raise_file_limit(count: int) -> None:
    """Raise the limit of open files to `count` if it is lower, as far as the system allows."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
