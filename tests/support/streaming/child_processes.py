"""Observes processes from outside: their children, their exit, and the events they report through a named pipe."""

from __future__ import annotations

import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

TIMEOUT: Final = 120.0
"""Seconds after which a test gives up waiting."""


def child_pids(parent: int) -> list[int]:
    """The running child processes of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, ppid = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(ppid) == parent and state != "Z":
                found.append(int(entry.name))
    return sorted(found)


def wait_for_exit(pids: Iterable[int]) -> None:
    """Wait until these processes, children of this one or not, have exited."""
    for pid in pids:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([watched], [], [], TIMEOUT)[0], f"process {pid} lives on"
        finally:
            os.close(watched)


def lines_until(process: subprocess.Popen[str], holds: Callable[[], bool] | None = None) -> list[str]:
    """The lines that a process prints until something holds, which is looked at after each line, or to its end."""
    assert process.stdout is not None
    late = threading.Timer(TIMEOUT, process.kill)
    late.start()
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            if holds is not None and holds():
                return lines
    finally:
        late.cancel()
    if holds is None:
        return lines
    raise AssertionError(f"the process ended before: {''.join(lines[-20:])}{process.stderr and process.stderr.read()}")


class EventPipe:
    """The reading end of a named pipe on which a run reports events, one byte each."""

    def __init__(self, path: str) -> None:
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def watch(self, what: str, times: int = 1, *, fault: Callable[[], str] = lambda: "") -> None:
        """Wait for `times` further events of the kinds in `what`; `fault` says why none can come any more."""
        self.happened()
        left, deadline = times, time.monotonic() + TIMEOUT
        while left > 0:
            ready, _, _ = select.select([self._pipe], [], [], 1.0)
            left -= sum(char in what for char in self.happened()) if ready else 0
            assert not fault(), fault()
            assert time.monotonic() < deadline, f"nothing of {what!r} for {TIMEOUT:g} s"

    def happened(self) -> str:
        """The events reported since the last call."""
        try:
            return os.read(self._pipe, 1 << 16).decode()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._pipe)
