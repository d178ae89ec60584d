"""Storing state files in a checkpoint directory: at once in a local folder, in the background in a remote store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from zlib import crc32

from tidegate.runners.checkpoint.state_files import StateFile
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.streaming.storage.background import Background, Steps


class PendingFile(Protocol):
    """A file that is being stored in the checkpoint directory."""

    def poll(self) -> StateFile | None:
        """Return the file once it is stored, None until then. Never waits. OSError if it can't be stored."""

    def abandon(self) -> None:
        """Stop storing the file: it is not needed any more."""


class StateFileStore(Protocol):
    """Stores state files under their names in the checkpoint directory.

    Stored files are durable only after `Storage.sync` of their names. No method waits for a network. Raises OSError.
    """

    def put(self, name: str, data: bytes) -> PendingFile:
        """Write a file."""

    def move(self, name: str, path: Path, size: int, check: int) -> PendingFile:
        """Store a local file, and delete it there."""

    def link(self, name: str, path: Path) -> PendingFile:
        """Store a local file that never changes; the caller must not delete it before it is stored."""

    def begin(self, name: str) -> Path | None:
        """The path at which to write a file before `move`; None: files can't be written locally first."""


class StoredFile:
    """A file that is already stored."""

    def __init__(self, file: StateFile) -> None:
        self._file = file

    def poll(self) -> StateFile:
        return self._file

    def abandon(self) -> None:
        return


class DirectFileStore:
    """Stores state files at once, in a storage that responds without delay.

    `root`: the folder of a local storage, into which files are moved and linked. `place` makes the folder in which long
    files are written before they are moved.
    """

    def __init__(self, storage: Storage, root: Path | None = None, place: Callable[[], Path] | None = None) -> None:
        self._storage = storage
        self._root = root
        self._place = place

    def put(self, name: str, data: bytes) -> StoredFile:
        """Write a file."""
        self._storage.put(name, data)
        return StoredFile((name, len(data), crc32(data)))

    def move(self, name: str, path: Path, size: int, check: int) -> StoredFile:
        """Store a local file, and delete it there."""
        target = self._local(name, path)
        if target is None:
            self._storage.put_file(name, path)
        else:
            path.chmod(0o600)  # RocksDB creates files with the permissions of the umask
            os.replace(path, target)
        path.unlink(missing_ok=True)
        return StoredFile((name, size, check))

    def link(self, name: str, path: Path) -> StoredFile:
        """Store a local file that never changes."""
        size, check = measured(path)
        target = self._local(name, path)
        if target is None:
            self._storage.put_file(name, path)
        else:
            path.chmod(0o600)
            os.link(path, target)
        return StoredFile((name, size, check))

    def begin(self, name: str) -> Path | None:
        """The path at which to write a file before `move`; None without a place."""
        return None if self._place is None else part_of(self._place(), name)

    def _local(self, name: str, path: Path) -> Path | None:
        """The target of a move or link; None if the storage is not local or on another device than `path`."""
        if self._root is None:
            return None
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target if target.parent.stat().st_dev == path.stat().st_dev else None


class UploadingFileStore:
    """Uploads state files to a remote store in the background, one after another.

    At most `room` bytes wait in memory; the others wait in local files, in the folder that `place` makes. A file
    abandoned during its upload is deleted from the store afterwards.
    """

    def __init__(
        self, storage: Storage, background: Background, place: Callable[[], Path], room: int | None = None
    ) -> None:
        self._storage = storage
        self._background = background
        self._place = place
        self._room = ROOM if room is None else room
        self._waiting_bytes = 0
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> PendingFile:
        """Write a file."""
        check = crc32(data)
        with self._lock:
            fits = self._waiting_bytes + len(data) <= self._room
            if fits:
                self._waiting_bytes += len(data)
        if not fits:
            path = self.begin(name)
            try:
                path.write_bytes(data)
            except OSError as error:
                path.unlink(missing_ok=True)
                error.filename = str(path)
                raise
            return self.move(name, path, len(data), check)
        file = (name, len(data), check)
        return self._background.begin(
            self._upload(name, partial(self._storage.put, name, data), lambda: file),
            partial(self._release, len(data)),
        )

    def move(self, name: str, path: Path, size: int, check: int) -> PendingFile:
        """Store a local file, and delete it there."""
        return self._background.begin(
            self._upload(name, partial(self._storage.put_file, name, path), lambda: (name, size, check)),
            partial(path.unlink, missing_ok=True),
        )

    def link(self, name: str, path: Path) -> PendingFile:
        """Store a local file that never changes; the caller must not delete it before it is stored."""
        return self._background.begin(
            self._upload(name, partial(self._storage.put_file, name, path), lambda: (name, *measured(path)))
        )

    def begin(self, name: str) -> Path:
        """The path at which to write a file before `move`."""
        return part_of(self._place(), name)

    def _release(self, size: int) -> None:
        """An upload from memory has ended."""
        with self._lock:
            self._waiting_bytes -= size

    def _upload(self, name: str, upload: Callable[[], None], file: Callable[[], StateFile]) -> Steps[StateFile]:
        try:
            described = file()
            upload()
        except Exception as error:  # clients of remote stores raise exceptions of any class
            raise OSError(f"{name} could not be uploaded: {type(error).__name__}: {error}") from error
        try:
            yield
        except GeneratorExit:
            self._storage.delete(name)
            raise
        return described


def part_of(folder: Path, name: str) -> Path:
    """The local path at which the file of that name is written before it is stored."""
    return folder / f"{os.getpid()}-{name.replace('/', '-')}"


def measured(path: Path) -> tuple[int, int]:
    """The size and checksum of a file."""
    size = check = 0
    for data in _pieces(path):
        size += len(data)
        check = crc32(data, check)
    return size, check


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(_PIECE):
            yield data


ROOM: Final = 32 << 20
"""The bytes that may wait for their upload in a worker's memory."""
_PIECE: Final = 1 << 20
