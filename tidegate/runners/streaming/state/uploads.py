"""Files of state on their way into a checkpoint directory: into a folder at once, into a store beside the loop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from zlib import crc32

from tidegate.runners.streaming.state.files import StateFile
from tidegate.runners.streaming.storage.background import Background, Steps
from tidegate.runners.streaming.storage.base import Storage


class PendingFile(Protocol):
    """A file on its way into the checkpoint directory."""

    def poll(self) -> StateFile | None:
        """Which file it is, once it is stored; None: not yet. Never waits. OSError when it can't be stored."""

    def abandon(self) -> None:
        """It is not wanted any more."""


class StateFileStore(Protocol):
    """Where state files go, by their names in the checkpoint directory. Stored files are durable once the storage has
    been told to settle them. Nothing here waits for a network. Raises OSError."""

    def put(self, name: str, data: bytes) -> PendingFile:
        """Write a file."""

    def move(self, name: str, path: Path, size: int, check: int) -> PendingFile:
        """Take in a local file, which is gone afterwards."""

    def link(self, name: str, path: Path) -> PendingFile:
        """Take in a local file that never changes: it has to stay until it is stored."""

    def begin(self, name: str) -> Path | None:
        """Where a file is written before it is moved; None: nowhere."""


class StoredFile:
    """A file that is in its place."""

    def __init__(self, file: StateFile) -> None:
        self._file = file

    def poll(self) -> StateFile:
        return self._file

    def abandon(self) -> None:
        return


class DirectFileStore:
    """State files in a storage that keeps nobody waiting. `root`: the folder of a local one, where files are moved and
    linked; `place` makes the folder where long ones are written before they are moved."""

    def __init__(self, storage: Storage, root: Path | None = None, place: Callable[[], Path] | None = None) -> None:
        self._storage = storage
        self._root = root
        self._place = place

    def put(self, name: str, data: bytes) -> StoredFile:
        """Write a file."""
        self._storage.put(name, data)
        return StoredFile((name, len(data), crc32(data)))

    def move(self, name: str, path: Path, size: int, check: int) -> StoredFile:
        """Take in a local file."""
        target = self._local(name, path)
        if target is None:
            self._storage.put_file(name, path)
        else:
            path.chmod(0o600)  # a store's own library makes files that follow the umask
            os.replace(path, target)
        path.unlink(missing_ok=True)
        return StoredFile((name, size, check))

    def link(self, name: str, path: Path) -> StoredFile:
        """Take in a local file that never changes, once: by its name it is known whether it is there."""
        size, check = measured(path)
        target = self._local(name, path)
        if target is None:
            self._storage.put_file(name, path)
        else:
            path.chmod(0o600)
            os.link(path, target)
        return StoredFile((name, size, check))

    def begin(self, name: str) -> Path | None:
        """Where a file is written before it is moved."""
        return None if self._place is None else part_of(self._place(), name)

    def _local(self, name: str, path: Path) -> Path | None:
        """Where to move or link it to; None if that is elsewhere, or on another device."""
        if self._root is None:
            return None
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target if target.parent.stat().st_dev == path.stat().st_dev else None


class UploadingFileStore:
    """State files in a store that takes its time: they are uploaded in the background, one after another.

    At most `room` bytes wait in memory; the rest waits in local files of the folder that `place` makes. A file that is
    given up while it is being uploaded is deleted again.
    """

    def __init__(
        self, storage: Storage, background: Background, place: Callable[[], Path], room: int | None = None
    ) -> None:
        self._storage = storage
        self._background = background
        self._place = place
        self._room = ROOM if room is None else room
        self._held = 0
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> PendingFile:
        """Write a file."""
        check = crc32(data)
        with self._lock:
            fits = self._held + len(data) <= self._room
            if fits:
                self._held += len(data)
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
            self._uploaded(name, partial(self._storage.put, name, data), lambda: file),
            partial(self._let_go, len(data)),
        )

    def move(self, name: str, path: Path, size: int, check: int) -> PendingFile:
        """Take in a local file."""
        return self._background.begin(
            self._uploaded(name, partial(self._storage.put_file, name, path), lambda: (name, size, check)),
            partial(path.unlink, missing_ok=True),
        )

    def link(self, name: str, path: Path) -> PendingFile:
        """Take in a local file that never changes."""
        return self._background.begin(
            self._uploaded(name, partial(self._storage.put_file, name, path), lambda: (name, *measured(path)))
        )

    def begin(self, name: str) -> Path:
        """Where a file is written before it is moved."""
        return part_of(self._place(), name)

    def _let_go(self, size: int) -> None:
        with self._lock:
            self._held -= size

    def _uploaded(self, name: str, upload: Callable[[], None], file: Callable[[], StateFile]) -> Steps[StateFile]:
        try:
            told = file()
            upload()
        except Exception as error:  # of a remote store, whatever its client raises
            raise OSError(f"{name} could not be uploaded: {type(error).__name__}: {error}") from error
        try:
            yield
        except GeneratorExit:
            self._storage.delete(name)
            raise
        return told


def part_of(folder: Path, name: str) -> Path:
    """The file in a folder of this machine that becomes the one of that name."""
    return folder / f"{os.getpid()}-{name.replace('/', '-')}"


def measured(path: Path) -> tuple[int, int]:
    """Size and checksum of a file."""
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
"""Bytes that may wait in a worker's memory to be uploaded."""
_PIECE: Final = 1 << 20
