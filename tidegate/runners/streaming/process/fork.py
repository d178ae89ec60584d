"""A job's process forked from its client's: at once there, and with the elements of `Create`s without copying them.

Only a process of one thread may be forked: the child has that thread alone, and whatever another held stays held. The
child keeps nothing open that was the author's, hears no signal in the author's way, and never comes back. What was open
keeps its number, behind which there is nothing: use of it fails, rather than reach what has been opened since. What is
printed comes where the client's process prints, also if its script has put something else in the place of `sys.stdout`.
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


class Forked:
    """The child; as `subprocess.Popen`, as far as a client asks for it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def wait(self) -> int:
        """Its exit code, or the negative number of the signal that killed it, as soon as it has ended."""
        if self.returncode is None:
            try:
                _, status = os.waitpid(self.pid, 0)
            except ChildProcessError:  # the author's code waits for all children, or lets the system do so
                status = 0
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def fork_job(submitted: Submit, theirs: socket.socket, run: Callable[[Link, Submit], None]) -> Forked:
    """Fork the process of a job, which calls `run`; `theirs` is its end of the socket to this process."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # what waits in it is this process's to print
                stream.flush()
    pid = os.fork()
    if not pid:
        _be_job(submitted, theirs, run)
    return Forked(pid)


def _be_job(submitted: Submit, theirs: socket.socket, run: Callable[[Link, Submit], None]) -> NoReturn:
    """What the child does."""
    code = 1
    try:
        _settle_in(kept=theirs.fileno())
        run(Link(theirs), submitted)
        code = 0
    finally:
        leave_process(code)


def _settle_in(kept: int) -> None:
    """Become a process that only its client's socket ties to what it was forked from."""
    sys.settrace(None)
    sys.setprofile(None)
    signal.set_wakeup_fd(-1)
    for heard in signal.valid_signals():
        if callable(signal.getsignal(heard)):
            signal.signal(heard, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if _descriptor(getattr(sys, name)) != number:
            setattr(sys, name, getattr(sys, f"__{name}__"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    barred = os.open("/", os.O_PATH)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        if number > 2 and number not in (kept, barred):
            with contextlib.suppress(OSError):  # the one that listed them
                os.dup2(barred, number, inheritable=False)


def _descriptor(stream: Any) -> int | None:
    """Where a stream goes; None: to none of the system's files."""
    try:
        number: int = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return number
