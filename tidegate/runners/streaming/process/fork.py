"""Fork a job's process from its client's: it starts at once, and shares the elements of `Create`s without a copy.

Only a process with one thread may be forked: locks that other threads hold would stay locked in the child. The child
keeps none of the author's files and signal handlers, and never returns. Inherited descriptors are redirected to a dead
one, so that stale use fails instead of hitting a newly opened file. The child prints where the client's process prints,
even if the author's script has replaced `sys.stdout`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from tidegate.runners.streaming.network.framing import Link
from tidegate.runners.streaming.process.child import leave_process
from tidegate.runners.streaming.protocol.client_messages import Submit


class ForkedJob:
    """The child process, with the part of the interface of `subprocess.Popen` that a client uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Wait for its end; returns the exit code, or the negative number of the signal that killed it."""
        if self.returncode is None:
            try:
                _, status = os.waitpid(self.pid, 0)
            except ChildProcessError:  # the author's code, or the system on its behalf, has reaped it
                status = 0
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def fork_job(submitted: Submit, theirs: socket.socket, run: Callable[[Link, Submit], None]) -> ForkedJob:
    """Fork the process of a job, which calls `run`; `theirs` is its end of the socket to this process."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # the child must not print this process's buffer
                stream.flush()
    pid = os.fork()
    if not pid:
        _run_child(submitted, theirs, run)
    return ForkedJob(pid)


def _run_child(submitted: Submit, theirs: socket.socket, run: Callable[[Link, Submit], None]) -> NoReturn:
    """Run the job in the child."""
    code = 1
    try:
        _detach(keep=theirs.fileno())
        run(Link(theirs), submitted)
        code = 0
    finally:
        leave_process(code)


def _detach(keep: int) -> None:
    """Detach from everything inherited, except the socket to the client."""
    sys.settrace(None)
    sys.setprofile(None)
    signal.set_wakeup_fd(-1)
    for each in signal.valid_signals():
        if callable(signal.getsignal(each)):
            signal.signal(each, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if _descriptor(getattr(sys, name)) != number:
            setattr(sys, name, getattr(sys, f"__{name}__"))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    dead = os.open("/", os.O_PATH)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in (keep, dead):
            with contextlib.suppress(OSError):  # the descriptor of the listing is closed already
                os.dup2(dead, number, inheritable=False)


def _descriptor(stream: Any) -> int | None:
    """The descriptor of a stream; None if it has none."""
    try:
        number: int = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return number
