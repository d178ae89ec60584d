"""Files of spilled data, which a forked child process can read while the parent continues to write to them.

A checkpoint may be written by a forked child. The child has a copy of the parent's memory as of the fork, but shares
the parent's files. So spill files are append-only; a reader stops at the size that its own process knows; and a removed
file stays on disk until no child needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import TYPE_CHECKING, BinaryIO, Final

from tidegate.sdk.errors import RunError, write_failure
from tidegate.sdk.private_files import owner_only

if TYPE_CHECKING:
    from pathlib import Path


def new_file(directory: Callable[[], Path], kind: str) -> Path:
    """A path in `directory` that is new in this process.

    Forked processes continue the same count, so two processes must not share a directory.
    """
    return directory() / f"{kind}-{next(_serial)}"


@contextlib.contextmanager
def spilling(path: Path) -> Iterator[None]:
    """A context for writing spilled data to `path`: raises RunError if the disk is full or the write fails."""
    try:
        yield
    except OSError as error:
        why = write_failure(error, "another --temp_dir", path)
        raise RunError(f"data that exceeds memory can't be spilled to disk: {why}") from error


class SpillFile:
    """An append-only file. `size` is the number of bytes that this process knows of; it must not read any others."""

    __slots__ = ("path", "size")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0

    def append(self, parts: Iterable[bytes]) -> None:
        """Append to the file. It is not kept open, since there may be very many files."""
        size = self.size
        with spilling(self.path), open(self.path, "ab" if size else "xb", opener=owner_only) as file:
            for part in parts:
                size += file.write(part)
        self.size = size

    def reader(self) -> BinaryIO:
        """The file, open for reading; stop reading at `size`."""
        return self.path.open("rb")

    def remove(self) -> None:
        """Delete the file as soon as no child that was forked earlier needs it."""
        if not _deferred:
            self.path.unlink()
        for removed in _deferred.values():
            removed.add(self.path)


def keep_removed_files() -> Callable[[], None]:
    """Defer the deletion of removed files, for a child that is about to be forked, until the returned function is
    called. Further calls of that function have no effect."""
    holder = next(_serial)
    _deferred[holder] = set()

    def release() -> None:
        for path in _deferred.pop(holder, ()):
            if not any(path in removed for removed in _deferred.values()):
                path.unlink(missing_ok=True)  # the run's directory may have been deleted

    return release


_serial: Final = count()
_deferred: Final[dict[int, set[Path]]] = {}
"""The removed files that each holder, a child or its parent, still needs."""
