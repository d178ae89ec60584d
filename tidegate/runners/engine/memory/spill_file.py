"""Files of what does not fit in memory, which a forked child may read while its parent goes on.

A checkpoint may be written by a child that was forked for it: what is in memory stays for it as it was at that instant,
but what is on disk it shares with its parent. So these files only grow, whoever reads one stops where it ended when
this process last wrote to it or was forked, and a file that is removed stays on disk until no child needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final

from tidegate.sdk.errors import RunError, unwritten
from tidegate.sdk.private_files import owner_only


def new_file(directory: Callable[[], Path], kind: str) -> Path:
    """A name in `directory` that nothing else in this process has been given.

    Processes forked from one another count on from the same number, so a directory belongs to one process alone.
    """
    return directory() / f"{kind}-{next(_serial)}"


@contextlib.contextmanager
def spilling(path: Path) -> Iterator[None]:
    """Inside, a file of what does not fit in memory is written. RunError if the disk has no room for it either."""
    try:
        yield
    except OSError as error:
        why = unwritten(error, "another --temp_dir", path)
        raise RunError(f"what does not fit in memory can't be written to disk: {why}") from error


class SpillFile:
    """A file that only grows. `size` is how many bytes of it this process knows of, and no others are to be read."""

    __slots__ = ("path", "size")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0

    def append(self, parts: Iterable[bytes]) -> None:
        """Write more. The file is open only meanwhile: there may be very many."""
        size = self.size
        with spilling(self.path), open(self.path, "ab" if size else "xb", opener=owner_only) as file:
            for part in parts:
                size += file.write(part)
        self.size = size

    def reader(self) -> BinaryIO:
        """The file, open for reading; `size` says where to stop."""
        return self.path.open("rb")

    def remove(self) -> None:
        """Delete it, as soon as no child that was forked before needs it."""
        if not _keepers:
            self.path.unlink()
        for removed in _keepers.values():
            removed.add(self.path)


def keep_removed_files() -> Callable[[], None]:
    """Files that are removed from now on stay on disk, for a child that is about to be forked, until the function that
    this returns is called. To call it again does nothing."""
    keeper = next(_serial)
    _keepers[keeper] = set()

    def let_go() -> None:
        for path in _keepers.pop(keeper, ()):
            if not any(path in removed for removed in _keepers.values()):
                path.unlink(missing_ok=True)  # the run's directory may be gone by now

    return let_go


_serial: Final = count()
_keepers: Final[dict[int, set[Path]]] = {}
"""By whom removed files are kept, and which."""
