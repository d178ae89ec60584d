"""A process that has imported the engine, and forks the process of each job: for many small pipelines, as in tests.

Importing what a job needs takes longer than most pipelines of tests run. A fork server lives as long as the process
that started it, and serves only that process.
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
from typing import Final

from tidegate.runners.streaming.process.child import leave_process

_LENGTH: Final = struct.Struct("<Q")
_STATUS: Final = struct.Struct("<i")
_ENTRY: Final = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from tidegate.runners.streaming.process.main import serve; serve(int(sys.argv.pop(1)))"
)


class ForkedProcess:
    """A job's process that a fork server has forked; as `subprocess.Popen`, as far as it is asked for.

    the fork server reaps it as soon as it has ended, and its pid may then be another process's: nothing is sent to it.
    """

    def __init__(self, pid: int, status: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status

    def wait(self) -> int:
        """Its exit code, or the negative number of the signal that killed it, as soon as it has ended."""
        if self.returncode is None:
            data = os.read(self._status, _STATUS.size)
            os.close(self._status)
            # Without a word the fork server has been killed, and all that it forked with it or before.
            self.returncode = _STATUS.unpack(data)[0] if data else -signal.SIGKILL
        return self.returncode


class ForkServer:
    """The client's end."""

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
        """Whether it can be asked: it is this process's own, and has not ended."""
        return self._owner == os.getpid() and self._process.poll() is None

    def close(self) -> None:
        """End it; jobs that are running go on."""
        self._socket.close()
        if self._owner == os.getpid():
            self._process.wait()

    def fork(self, job: socket.socket, stdout: int, stderr: int, paths: list[str], cwd: str | None) -> ForkedProcess:
        """A new job's process, with its end of the socket to its client."""
        status, told = os.pipe()
        try:
            request = pickle.dumps((paths, cwd or os.getcwd(), dict(os.environ)), 5)
            with self._lock:
                socket.send_fds(self._socket, [_LENGTH.pack(len(request))], [job.fileno(), stdout, stderr, told])
                self._socket.sendall(request)
                (pid,) = _LENGTH.unpack(_exactly(self._socket, _LENGTH.size))
        finally:
            os.close(told)
        return ForkedProcess(pid, status)


def serve_forks(descriptor: int, main: Callable[[int], None]) -> None:
    """the fork server's own life: until its client's end closes. Each process that it forks calls `main`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    client = socket.socket(fileno=descriptor)
    waiting: dict[int, int] = {}
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    import selectors

    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    _report_ended(waiting)
                    continue
                head, descriptors, _, _ = socket.recv_fds(client, _LENGTH.size, 4)
                if not head:
                    return
                request = _exactly(client, _LENGTH.unpack(head + _exactly(client, _LENGTH.size - len(head)))[0])
                pid = os.fork()
                if not pid:
                    selector.close()
                    for end in (client, woken, waker):
                        end.close()
                    for other in waiting.values():
                        os.close(other)
                    _run_child(request, descriptors, main)
                waiting[pid] = descriptors.pop()
                for passed in descriptors:
                    os.close(passed)
                client.sendall(_LENGTH.pack(pid))


def _run_child(request: bytes, descriptors: list[int], main: Callable[[int], None]) -> None:
    """What a job's process does that has just been forked."""
    code = 1
    try:
        job, stdout, stderr, told = descriptors
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for passed, own in ((stdout, 1), (stderr, 2)):
            os.dup2(passed, own)
            os.close(passed)
        os.close(told)
        paths, cwd, environment = pickle.loads(request)
        sys.path[:] = paths
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        main(job)
        code = 0
    finally:
        leave_process(code)


def _report_ended(waiting: dict[int, int]) -> None:
    for pid in list(waiting):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            told = waiting.pop(pid)
            with contextlib.suppress(OSError):  # nobody may wait for it any more
                os.write(told, _STATUS.pack(os.waitstatus_to_exitcode(status)))
            os.close(told)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the other end of a fork server's socket has closed")
        data += part
    return data
