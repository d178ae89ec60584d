"""What a checkpoint directory has to do, wherever it is: the interface that `local` and `object_store` implement."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Protocol


class Storage(Protocol):
    """Where checkpoints are; names are relative paths with `/`. Raises OSError: FileNotFoundError for what is gone."""

    def read(self, name: str) -> bytes:
        """The whole of a file."""

    def write(self, name: str, data: bytes) -> None:
        """Durable when it returns, whole or not at all; replaces what was there."""

    def put(self, name: str, data: bytes) -> None:
        """As `write`, but durable only when `sync` has been told its name: nobody waits for the disk."""

    def put_file(self, name: str, path: Path) -> None:
        """As `put`, what a file of this machine holds, which need not fit into memory."""

    def sync(self, names: Iterable[str]) -> None:
        """Make durable what has been put under these names, by this process or another."""

    def create(self, name: str, data: bytes) -> bool:
        """As `write`, but False, and nothing changed, where the name exists already. Exactly one of many succeeds."""

    def unfinished(self, folder: str) -> list[str]:
        """What `list` does not name: files that writes which were cut short have left under a folder."""

    def list(self, folder: str) -> list[str]:
        """The names of all files under a folder, [] if it isn't there. Raises if any part of it can't be listed."""

    def delete(self, name: str) -> None:
        """A file that need not be there."""


def checked_name(name: str) -> str:
    """The name as it is. ValueError if it leads out of the checkpoint directory."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{name!r} is not a name within a checkpoint directory")
    return str(path)
