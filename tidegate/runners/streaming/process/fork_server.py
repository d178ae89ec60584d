"""A process that has imported the engine, and forks the processes of jobs: for many small pipelines, as in tests.

Importing what a job needs takes longer than most pipelines of tests run. A fork server lives as long as the process
that started it, and serves only that process.

    client: length of the request, with the descriptors of the job's socket, stdout, stderr and status pipe · request
    server: pid; later, on the status pipe: exit code
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Final, NoReturn

from tidegate.runners.streaming.network.event_loop import EventLoop
from tidegate.runners.streaming.process.child import leave_process

_LENGTH: Final = struct.Struct("<Q")
_STATUS: Final = struct.Struct("<i")
_ENTRY: Final = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from tidegate.runners.streaming.process.main import serve; serve(int(sys.argv.pop(1)))"
)


class ForkedProcess:
    """A job's process that a fork server has forked, with the part of `subprocess.Popen` that a client uses.

    It offers no way to signal the process: the fork server reaps it as soon as it ends, and its pid may be reused.
    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def wait(self) -> int:
        """Wait for its end; returns the exit code, or the negative number of the signal that killed it."""
        if self.returncode is None:
            data = os.read(self._status, _STATUS.size)
            os.close(self._status)
            # No status means that the fork server was killed, together with all processes that it had forked.
            self.returncode = _STATUS.unpack(data)[0] if data else -signal.SIGKILL
        return self.returncode


class ForkServer:
    """The client's end: starts the fork server, and requests forks."""

    def __init__(self) -> None:
        import subprocess

        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._socket, theirs = socket.socketpair()
        flags = ["-O"] * sys.flags.optimize + [f"-W{option}" for option in sys.warnoptions]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, *flags, "-c", _ENTRY, str(theirs.fileno()), *sys.path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    @property
    def alive(self) -> bool:
        """Whether it accepts requests: this process started it (not a parent of this process), and it still runs."""
        return self._owner == os.getpid() and self._process.poll() is None

    def close(self) -> None:
        """End it; running jobs continue."""
        self._socket.close()
        if self._owner == os.getpid():
            self._process.wait()

    def fork(self, job: socket.socket, stdout: int, stderr: int, paths: list[str], cwd: str | None) -> ForkedProcess:
        """Fork a job's process; `job` is its end of the socket to its client."""
        status, status_writer = os.pipe()
        try:
            request = pickle.dumps((paths, cwd or os.getcwd(), dict(os.environ)), 5)
            descriptors = [job.fileno(), stdout, stderr, status_writer]
            with self._lock:
                socket.send_fds(self._socket, [_LENGTH.pack(len(request))], descriptors)
                self._socket.sendall(request)
                (pid,) = _LENGTH.unpack(_read_exactly(self._socket, _LENGTH.size))
        finally:
            os.close(status_writer)
        return ForkedProcess(pid, status)


def serve_forks(descriptor: int, main: Callable[[int], None]) -> None:
    """Run a fork server until its client closes the socket `descriptor`. Each process that it forks calls `main`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Server(socket.socket(fileno=descriptor), main).run()


class _Server:
    def __init__(self, client: socket.socket, main: Callable[[int], None]) -> None:
        self._client = client
        self._main = main
        self._client_gone = False
        self._status_pipes: dict[int, int] = {}
        """By the pid of each process that runs, the descriptor to which its exit code is written."""
        self._loop = EventLoop(self._report_ended)

    def run(self) -> None:
        self._loop.wake_on_signal(signal.SIGCHLD)
        self._loop.register(self._client, self._handle_request)
        while not self._client_gone:
            self._loop.poll(None)

    def _handle_request(self) -> None:
        head, descriptors, _, _ = socket.recv_fds(self._client, _LENGTH.size, 4)
        if not head:
            self._client_gone = True
            return
        (size,) = _LENGTH.unpack(head + _read_exactly(self._client, _LENGTH.size - len(head)))
        request = _read_exactly(self._client, size)
        pid = os.fork()
        if not pid:
            self._run_child(request, descriptors)
        self._status_pipes[pid] = descriptors.pop()
        for passed in descriptors:
            os.close(passed)
        self._client.sendall(_LENGTH.pack(pid))

    def _run_child(self, request: bytes, descriptors: list[int]) -> NoReturn:
        """Run a job in a forked child."""
        code = 1
        try:
            self._loop.close()
            self._client.close()
            job, stdout, stderr, status_pipe = descriptors
            for inherited in (*self._status_pipes.values(), status_pipe):
                os.close(inherited)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for passed, standard in ((stdout, 1), (stderr, 2)):
                os.dup2(passed, standard)
                os.close(passed)
            paths, cwd, environment = pickle.loads(request)
            sys.path[:] = paths
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(environment)
            self._main(job)
            code = 0
        finally:
            leave_process(code)

    def _report_ended(self) -> None:
        """Reap the processes that have ended, and report their exit codes."""
        for pid in list(self._status_pipes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                status_pipe = self._status_pipes.pop(pid)
                with contextlib.suppress(OSError):  # the client may have closed its end
                    os.write(status_pipe, _STATUS.pack(os.waitstatus_to_exitcode(status)))
                os.close(status_pipe)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the other end closed the fork server's socket")
        data += part
    return data
