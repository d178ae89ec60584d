"""Processes, as the tests of the streaming runner look at them from outside."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

PATIENCE: Final = 120.0
"""Seconds after which a test takes it that nothing more will happen."""


def children(parent: int) -> list[int]:
    """The processes that a process has started, those that have ended aside."""
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


def wait_until_gone(pids: Iterable[int]) -> None:
    """Until these processes have ended, whoever their parents are."""
    for pid in pids:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([watched], [], [], PATIENCE)[0], f"process {pid} lives on"
        finally:
            os.close(watched)


class Told:
    """The reading end of a named pipe on which a run tells what happens, a byte for each thing."""

    def __init__(self, path: str) -> None:
        os.mkfifo(path)
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def watch(self, what: str, times: int = 1, *, fault: Callable[[], str] = lambda: "") -> None:
        """Wait until so many things of these kinds have happened from now on; `fault` says why they never will."""
        self.happened()
        left, deadline = times, time.monotonic() + PATIENCE
        while left > 0:
            ready, _, _ = select.select([self._pipe], [], [], 1.0)
            left -= sum(char in what for char in self.happened()) if ready else 0
            assert not fault(), fault()
            assert time.monotonic() < deadline, f"nothing of {what!r} for {PATIENCE:g} s"

    def happened(self) -> str:
        """What has been told and not yet been looked at."""
        try:
            return os.read(self._pipe, 1 << 16).decode()
        except BlockingIOError:
            return ""

    def close(self) -> None:
        """Nobody listens any more."""
        os.close(self._pipe)
