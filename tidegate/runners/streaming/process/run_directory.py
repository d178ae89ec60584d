"""A run's working directory in the temporary folder. It is removed when the run is over, even if the run was killed.

The run's process locks a file in it, and its workers inherit the lock: the system releases it when the last of these
processes has ended. A killed run can't remove its directory, so every run first removes those that are not locked.
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
    """Create the run's working directory, private to this user, and remove it on exit. RunError if that fails."""
    directory = Path(name)
    sweep(directory.parent)
    lock = _create(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        os.close(lock)


def sweep(folder: Path) -> None:
    """Remove this user's directories of killed runs. A directory without a lock file is just being created, and one
    that can't be examined may be in use: both are skipped."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
                        _remove_unless_locked(Path(entry.path))


def _create(directory: Path) -> int:
    """Create the directory and lock it; returns the lock. Another run may lock it first, to remove it: try again."""
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
        raise RunError(f"can't create {directory}, the run's working directory: {error.strerror}") from error


def _remove_unless_locked(directory: Path) -> None:
    lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory)
    finally:
        os.close(lock)
