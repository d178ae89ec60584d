"""Who runs on a checkpoint: one process at a time, which says so in a file there, and again every few seconds.

A process that has died on this machine is known to be dead. Of one on another machine it is known only that its file
has not changed for a while; should it still run, it finds out before it commits anything.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from tidegate.sdk.errors import OptionsError, RunError

_OWNER: Final = "owner.json"
_BEATS: Final = "owner.beats"
_BEAT: Final = 3.0
"""How often (s) the owner says that it is alive."""
_EXPIRY: Final = 15.0
"""For how long (s) a file of another machine's process must not change."""
_held: Final[set[str]] = set()
"""The leases of this process."""


class Folder(Protocol):
    """The folder of a checkpoint."""

    path: str

    def exists(self, name: str) -> bool: ...
    def read(self, name: str) -> bytes: ...
    def write(self, name: str, data: bytes) -> None: ...
    def remove(self, name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that runs on a checkpoint: its machine, its number, when it began, and the name of its lease."""

    machine: str
    process: int
    began: str
    lease: str
    host: str

    @property
    def is_here(self) -> bool:
        """Whether it belongs to this machine, and to the processes that can be seen."""
        return self.machine == _machine()

    @property
    def is_alive(self) -> bool:
        """Whether the process, if it belongs here, still runs."""
        if self.process == os.getpid():
            return self.lease in _held
        return _began(self.process) == self.began

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Lease:
    """The right to run on a checkpoint, from when it is made until `release`.

    Raises OptionsError if another process has it. `wait` waits for some seconds.
    """

    def __init__(self, folder: Folder, wait: Callable[[float], Any] | None = None) -> None:
        self._folder = folder
        self._over = threading.Event()
        self._own = Owner(_machine(), os.getpid(), _began(os.getpid()), os.urandom(8).hex(), socket.gethostname())
        self._refuse_living(wait or self._over.wait)
        folder.write(_OWNER, json.dumps(asdict(self._own)).encode())
        _held.add(self._own.lease)
        self._thread = threading.Thread(target=self._beat, name="tidegate-spark-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise RunError if another process has taken the checkpoint."""
        owner = self._owner()
        if owner not in (None, self._own):
            raise RunError(
                f"{owner} has taken over --spark_checkpoint_dir {self._folder.path}, since this run had not been heard "
                f"of for {_EXPIRY:g} seconds: this one has committed nothing since then"
            )

    def release(self) -> None:
        """Let others run on the checkpoint."""
        self._over.set()
        self._thread.join()
        _held.discard(self._own.lease)
        with contextlib.suppress(Exception):  # the JVM may have died; the process is seen not to hold the lease
            if self._owner() == self._own:
                self._folder.remove(_OWNER)

    def _refuse_living(self, wait: Callable[[float], Any]) -> None:
        owner = self._owner()
        if owner is None:
            return
        if owner.is_here:
            lives = owner.is_alive
        else:
            before = self._beats()
            wait(_EXPIRY)
            lives = self._beats() != before and self._owner() == owner
        if lives:
            raise OptionsError(
                f"--spark_checkpoint_dir {self._folder.path} is in use by {owner}: stop that run first, or give "
                "another folder to run beside it"
            )

    def _owner(self) -> Owner | None:
        return Owner(**json.loads(self._folder.read(_OWNER))) if self._folder.exists(_OWNER) else None

    def _beats(self) -> bytes:
        return self._folder.read(_BEATS) if self._folder.exists(_BEATS) else b""

    def _beat(self) -> None:
        beats = 0
        while not self._over.wait(_BEAT):
            beats += 1
            with contextlib.suppress(Exception):  # the store may be away for now
                if self._owner() == self._own:
                    self._folder.write(_BEATS, f"{self._own.lease} {beats}".encode())


def _machine() -> str:
    """The running system whose processes this one sees."""
    parts = [socket.gethostname()]
    boot, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    if boot.exists():
        parts += [boot.read_text().strip(), os.readlink(namespace)]
    return " ".join(parts)


def _began(process: int) -> str:
    """When a process began, as far as the system tells; "" if there is none."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    try:
        state, *fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "unknown"
    return "" if state == "Z" else fields[18]
