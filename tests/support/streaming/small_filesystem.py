"""A real file system of a few megabytes, for tests that fill it."""

from __future__ import annotations

import errno
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_PIECE: Final = 1 << 12


class SmallFilesystem:
    """`path` reaches the file system from every process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Fill all free space, including space freed since the last call."""
        with open(self._ballast, "ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(_PIECE))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def make_room(self) -> None:
        """Delete the ballast file that `fill` wrote."""
        self._ballast.unlink()


@contextmanager
def mount_small_filesystem(folder: Path, megabytes: int) -> Iterator[SmallFilesystem]:
    """Mount a file system in memory, in the mount namespace of a child process, through whose /proc entry other
    processes reach it: the mount ends with that process, however the test ends. Skip the test if mounting fails."""
    if shutil.which("unshare") is None:
        pytest.skip("a small file system needs the command unshare, which is not here")
    folder.mkdir()
    mount = f'mount -t tmpfs -o size={megabytes}m tmpfs "$1" && echo mounted && exec cat'
    holder = subprocess.Popen(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", mount, "sh", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    try:
        if holder.stdout.readline() != "mounted\n":
            _, why = holder.communicate()
            pytest.skip(f"no small file system can be mounted here: {why.strip()}")
        yield SmallFilesystem(Path(f"/proc/{holder.pid}/root{folder}"))
    finally:
        holder.communicate()
