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
    """`path`: where it is, for every process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Leave no room on it, also where others have made some since."""
        with open(self._ballast, "ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(_PIECE))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def make_room(self) -> None:
        """Take away what `fill` has put there."""
        self._ballast.unlink()


@contextmanager
def mount_small_filesystem(folder: Path, megabytes: int) -> Iterator[SmallFilesystem]:
    """A file system in memory, mounted where only one process sees it, through which the others reach it: the system
    takes it away with that process, whatever becomes of the test. Skips the test where there can be none."""
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
