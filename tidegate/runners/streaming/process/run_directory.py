"""A run's directory in the temporary folder. It goes when the run is over, however that ended.

The run's process holds a lock in it, which its workers inherit: the system releases the lock when the last of them has
ended. A run that was killed can't remove its directory, so every run begins by removing those that nobody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidegate.sdk.errors import RunError

_LOCK: Final = "lock"
_NAME: Final = re.compile(r"tidegate-[0-9a-f]{12}")


@contextlib.contextmanager
def run_directory(name: str) -> Iterator[Path]:
    """The run's own directory, for this user alone, as long as it runs. RunError if it can't be made."""
    directory = Path(name)
    sweep(directory.parent)
    lock = _made(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def sweep(folder: Path) -> None:
    """Remove this user's directories of runs all of whose processes were killed. One that is being made has no lock
    yet, and is left alone; so is one that can't be examined, for it may be in use."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                        _remove_unless_held(Path(entry.path))


def _made(directory: Path) -> int:
    """Make the directory, and hold its lock. Another run that sweeps may have taken the lock first: wait for it."""
    try:
        while True:
            directory.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(directory / _LOCK), os.fstat(lock)):
                    return lock
            os.close(lock)
    except OSError as error:
        raise RunError(f"can't make {directory}, for what the run keeps meanwhile: {error.strerror}") from error


def _remove_unless_held(directory: Path) -> None:
    lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory)
    finally:
        os.close(lock)
