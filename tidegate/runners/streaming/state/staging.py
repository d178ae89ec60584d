"""Storing staged files, which attempts of sinks hand over with their committables, without blocking the event loop.

They are in a folder for each attempt, apart from those of checkpoints: output that was prepared for an aborted
checkpoint is committed with a later one, but output of a failed attempt never is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, Protocol
from zlib import crc32

from tidegate.runners.checkpoint.state_files import StateFile
from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.streaming.state.uploads import DirectFileStore, PendingFile, StoredFile, measured
from tidegate.runners.streaming.storage.background import Background, Steps
from tidegate.sdk.connectors.sinks import InLocalFile, InMemory, StagedFile

STAGED: Final = "staged"
"""The folder of staged files within the checkpoint directory."""
AT_ONCE: Final = 64 << 10
"""The bytes that a worker writes to a local folder itself, because a thread would take longer."""


class StagedFiles(Protocol):
    """Stores staged files under their names, and opens them for the commit."""

    def put(self, name: str, file: StagedFile) -> PendingFile:
        """Begin to store a file. One in a local path is moved, and stays there if it can't be stored."""

    def open(self, name: str) -> BinaryIO:
        """Open a stored file, seekable. FileNotFoundError if it is missing."""


def staged_name(attempt: int, task: object, serial: int) -> str:
    """The name of the file number `serial` that a task stages in an attempt.

    >>> staged_name(3, "1.0", 7)
    'staged/3/1.0.7'
    """
    return f"{STAGED}/{attempt}/{task}.{serial}"


def attempt_of(name: str) -> int | None:
    """The attempt in which a file was staged; None if it is no staged file.

    >>> attempt_of("staged/3/1.0.7"), attempt_of("chk-000003/1.0.3.state")
    (3, None)
    """
    matched = _NAME.match(name)
    return None if matched is None else int(matched[1])


class StagedFileStore:
    """Stores staged files in a checkpoint storage. `root`: the folder of a local one, into which files are moved.

    Files are stored by the thread of `background`, except for those of at most `at_once` bytes in memory; without a
    background, all are stored at once.
    """

    def __init__(
        self, storage: Storage, root: Path | None = None, background: Background | None = None, *, at_once: int = 0
    ) -> None:
        self._storage = storage
        self._files = DirectFileStore(storage, root)
        self._background = background
        self._at_once = at_once

    def put(self, name: str, file: StagedFile) -> PendingFile:
        """Begin to store a file."""
        is_small = isinstance(file.content, InMemory) and file.size <= self._at_once
        if self._background is None or is_small:
            return StoredFile(self._put(name, file))
        return self._background.begin(self._store(name, lambda: self._put(name, file)))

    def open(self, name: str) -> BinaryIO:
        """Open a stored file."""
        return self._storage.open(name)

    def _put(self, name: str, file: StagedFile) -> StateFile:
        match file.content:
            case InMemory(data=data):
                self._storage.put(name, data)
                return name, len(data), crc32(data)
            case InLocalFile(path=path):
                size, check = measured(Path(path))
                self._files.move(name, Path(path), size, check)
                return name, size, check
            case content:
                raise TypeError(f"{type(content).__name__} is no content of a new staged file")

    def _store(self, name: str, put: Callable[[], StateFile]) -> Steps[StateFile]:
        try:
            file = put()
        except Exception as error:  # clients of remote stores raise exceptions of any class
            raise OSError(f"{name} could not be stored: {type(error).__name__}: {error}") from error
        try:
            yield
        except GeneratorExit:
            self._storage.delete(name)
            raise
        return file


_NAME: Final = re.compile(rf"{STAGED}/(\d+)/")
