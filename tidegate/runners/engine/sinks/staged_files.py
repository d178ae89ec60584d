"""Staged files in a runner's storage: their contents, checked when they are opened, and how committables carry them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final, TypeAlias
from zlib import crc32

from tidegate.sdk.connectors.sinks import Committable, InLocalFile, StagedFile
from tidegate.sdk.errors import WriteError

StoredFile: TypeAlias = tuple[str, int, int]
"""The name of a file in the storage, its size in bytes and its CRC-32."""
Open: TypeAlias = Callable[[str], BinaryIO]
"""Opens a file of the storage by its name, seekable; FileNotFoundError if it is missing."""


@dataclass(frozen=True, slots=True)
class InStorage:
    """The contents of a staged file that a runner has stored. `opens` is None until `openable` sets it."""

    file: StoredFile
    opens: Open | None = field(default=None, compare=False, repr=False)

    def open(self) -> BinaryIO:
        name, size, check = self.file
        assert self.opens is not None
        try:
            opened = self.opens(name)
        except FileNotFoundError as error:
            raise WriteError(
                f"the staged file {name} is missing, and the output in it is lost: it was removed from the storage "
                "before its commit was acknowledged"
            ) from error
        try:
            found = _measured(opened)
            if found != (size, check):
                raise WriteError(
                    f"the staged file {name} is damaged: it has {found[0]} bytes with the checksum {found[1]:08x}, not "
                    f"{size} bytes with {check:08x}"
                )
            opened.seek(0)
        except BaseException:
            opened.close()
            raise
        return opened


def stored_as(committable: Committable, files: Iterable[StoredFile]) -> Committable:
    """The committable after its files have been stored under these names."""
    stored = [replace(file, content=InStorage(at)) for file, at in zip(committable.files, files, strict=True)]
    return replace(committable, files=tuple(stored))


def openable(committables: Iterable[Committable], opens: Open) -> tuple[Committable, ...]:
    """The committables with files that can be opened, for the commit."""
    return tuple(
        replace(each, files=tuple(_openable(file, opens) for file in each.files)) if each.files else each
        for each in committables
    )


def stored_files(committables: Iterable[Committable]) -> list[StoredFile]:
    """The files of committables that are in the storage."""
    contents = (file.content for each in committables for file in each.files)
    return [content.file for content in contents if isinstance(content, InStorage)]


def remove_local_files(committables: Sequence[Committable]) -> None:
    """Remove the files that attempts have written to local paths, after they are committed or discarded."""
    for file in (file for each in committables for file in each.files):
        match file.content:
            case InLocalFile(path=path):
                with suppress(OSError):  # a leftover file does no harm
                    os.unlink(path)
            case _:
                pass


def _openable(file: StagedFile, opens: Open) -> StagedFile:
    content = file.content
    return replace(file, content=replace(content, opens=opens)) if isinstance(content, InStorage) else file


def _measured(file: BinaryIO) -> tuple[int, int]:
    """The size and checksum of what an open file has."""
    size = check = 0
    while data := file.read(_PIECE):
        size += len(data)
        check = crc32(data, check)
    return size, check


_PIECE: Final = 1 << 20
