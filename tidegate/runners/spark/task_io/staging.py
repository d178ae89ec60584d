"""Staged files of a bounded run, which are in the run's folder on the driver's machine until they are committed.

Tasks on the driver's machine write them there. Those on other machines send them to the driver in pieces, with their
other results.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from tidegate.runners.engine.sinks.staged_files import StoredFile, openable, remove_local_files, stored_as
from tidegate.sdk.connectors.sinks import Committable, StagedFile
from tidegate.sdk.private_files import owner_only


def staging_folder(parent: Path, run_id: str, step: int) -> Path:
    """The folder of the files that a sink stages in a run."""
    return parent / f"{run_id}.staged" / str(step)


def stage(
    committables: Iterable[Committable], folder: Path | None, send: Callable[[str, int, bytes], None]
) -> list[Committable]:
    """Store the files of a sink's committables in its folder; without one, `send` their pieces to the driver."""
    staged = []
    for each in committables:
        staged.append(stored_as(each, [_stage(file, folder, send) for file in each.files]) if each.files else each)
        remove_local_files([each])
    return staged


def add_piece(folder: Path, name: str, offset: int, data: bytes) -> None:
    """Write a piece of a staged file that a task has sent."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / name
    with open(path, "r+b" if path.exists() else "xb", opener=owner_only) as file:
        file.seek(offset)
        file.write(data)


def in_folder(committables: Iterable[Committable], folder: Path) -> list[Committable]:
    """The committables with files that can be opened in the sink's folder, for the commit."""
    return list(openable(committables, partial(_open, folder)))


def sync_folder(folder: Path) -> None:
    """Make the files of a sink durable."""
    if not folder.is_dir():
        return
    for path in (*folder.iterdir(), folder, folder.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove the files of a sink, and the folder of the run if it has no others."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):  # not empty, or already removed
        folder.parent.rmdir()


def _open(folder: Path, name: str) -> BinaryIO:
    return (folder / name).open("rb")


def _stage(file: StagedFile, folder: Path | None, send: Callable[[str, int, bytes], None]) -> StoredFile:
    name = uuid.uuid4().hex  # another attempt of the task has other names
    size = check = 0
    for piece in _pieces(file):
        if folder is None:
            send(name, size, piece)
        else:
            add_piece(folder, name, size, piece)
        size += len(piece)
        check = crc32(piece, check)
    return name, size, check


def _pieces(file: StagedFile) -> Iterator[bytes]:
    """The contents in pieces, of which an empty file has one, too."""
    with file.open() as opened:
        yield opened.read(_PIECE)
        while piece := opened.read(_PIECE):
            yield piece


_PIECE: Final = 4 << 20
