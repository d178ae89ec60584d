"""The interface of a checkpoint directory, which `local` and `object_store` implement."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol


class Storage(Protocol):
    """A checkpoint directory. Names are relative paths with `/`. Methods raise OSError; FileNotFoundError if a file is
    missing."""

    def read(self, name: str) -> bytes:
        """Read a file."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading, seekable. It need not fit into memory."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file atomically, replacing any file of that name. It is durable when this returns."""

    def put(self, name: str, data: bytes) -> None:
        """As `write`, without waiting for the disk: the file is durable only after `sync` of its name."""

    def put_file(self, name: str, path: Path) -> None:
        """As `put`, with the contents of a local file, which need not fit into memory."""

    def sync(self, names: Iterable[str]) -> None:
        """Make the files durable that this process or another has put under these names."""

    def create(self, name: str, data: bytes) -> bool:
        """As `write`, but return False, changing nothing, if the name exists. Exactly one concurrent call succeeds."""

    def unfinished(self, folder: str) -> list[str]:
        """The partial files that interrupted writes have left under a folder, which `list` does not include."""

    def list(self, folder: str) -> list[str]:
        """The names of all files under a folder, [] if it isn't there. Raises if any part of it can't be listed."""

    def delete(self, name: str) -> None:
        """Delete a file, if it exists."""


def checked_name(name: str) -> str:
    """Return the name. ValueError if it leads out of the checkpoint directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{name!r} is not a name within a checkpoint directory")
    return str(path)
