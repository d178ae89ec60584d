"""One file, or one member of a zip archive, opened for reading, and the check that it has not changed.

A run reads a file as it was when the run found it. A file that has been written again, or deleted, since then is an
error: part of its records may have been read already.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Final, cast

from tidegate.io import compression as _compression
from tidegate.io import files
from tidegate.io.byte_streams import Recoded, needs_recoding, skip_to
from tidegate.io.compression import Compression
from tidegate.io.storage_options import StorageOptions
from tidegate.sdk import moved
from tidegate.sdk.errors import PositionLost, ReadError, TidegateError

_ONE_REQUEST: Final = 4 << 20
"""Remote files up to this size are read by one request, during which they can't change."""


class FileChanged(ReadError):
    """A file has been written again or deleted since the run found it."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """The part of a file that a reader reads: `[start, end)`, in the units of its format (bytes, row groups); `end`
    None: to the end of the file.

    `size` and `tag` are those that the file had when it was found. `size` None: it is unknown, and the file is not
    checked for changes. `member` is the name of a file in a zip archive.
    """

    pattern: str
    path: str
    size: int | None = None
    tag: str | None = None
    member: str | None = None
    start: int = 0
    end: int | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore a part that a checkpoint has stored, also one from before parts had all of today's fields."""
        moved.set_fields(self, state)


def url_of(part: FilePart, options: StorageOptions | None = None) -> str:
    """The file in the form that authors write, for messages; a member of an archive is `archive.zip!member`."""
    url = files.store_of(part.pattern, options)[0].url(part.path)
    return url if part.member is None else f"{url}!{part.member}"


class OpenedFile:
    """A file that is open while the context lasts."""

    def __init__(self, part: FilePart, compression: Compression, options: StorageOptions | None = None) -> None:
        self.part = part
        self.url = url_of(part, options)
        self.compression: Compression = (
            "zip" if part.member is not None else _compression.of_path(part.path, compression)
        )
        self._store = files.store_of(part.pattern, options)[0]
        self._open: list[BinaryIO] = []

    def __enter__(self) -> OpenedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def local_path(self) -> str | None:
        """The path in the file system of this machine; None for a remote file."""
        return self.part.path if isinstance(self._store, files.Local) else None

    def raw(self) -> BinaryIO:
        """The bytes of the file as they are stored. Raises FileChanged if it is not the file that was found."""
        try:
            file = self._store.open(self.part.path)
        except FileNotFoundError as error:
            raise FileChanged(f"{self.url}: the file has been deleted since the run found it") from error
        self._open.append(file)
        if self._known:
            self._compare(self._store.info_of(file, self.part.path))
        return file

    def plain(self) -> BinaryIO:
        """The bytes of the file, decompressed."""
        file = self.raw()
        if self.part.member is not None:
            stream = _compression.zip_member(file, self.part.member)
        else:
            stream = _compression.decompressing(file, self.compression)
            if stream is file and not isinstance(file, io.BufferedReader | io.BytesIO):
                # Remote files read lines of any length; the readers of text need a limit.
                stream = io.BufferedReader(cast(Any, file), 1 << 16)
        if stream is not file:
            self._open.append(stream)
        return stream

    def utf8(self, encoding: str) -> BinaryIO:
        """The text of the file, decompressed; recoded to UTF-8 if its encoding ends lines otherwise."""
        stream = self.plain()
        if not needs_recoding(encoding):
            return stream
        recoded = cast(BinaryIO, io.BufferedReader(Recoded(stream, encoding, "strict", self._undecodable), 1 << 16))
        self._open.append(recoded)
        return recoded

    def lines_before(self, offset: int, encoding: str, known: tuple[int, int] = (0, 0)) -> int:
        """How many lines end before the byte at `offset` of the text; for error messages, since it reads the file
        again. `known` is an earlier offset with the number of lines before it."""
        at, lines = known
        stream = self.utf8(encoding)
        skip_to(stream, at)
        while at < offset:
            piece = stream.read(min(1 << 20, offset - at))
            if not piece:
                break
            lines += piece.count(b"\n")
            at += len(piece)
        return lines

    def check_unchanged(self) -> None:
        """Raise FileChanged if the file has been written again while it was read."""
        size = self.part.size
        if not self._known or size is None or (self.local_path is None and size <= _ONE_REQUEST):
            return
        now = self._store.find(self.part.path)
        if now is not None:  # a file that is open is read to its end, even if it has been deleted meanwhile
            self._compare(now)

    def close(self) -> None:
        """Close everything that has been opened."""
        while self._open:
            self._open.pop().close()

    @property
    def _known(self) -> bool:
        return self.part.size is not None

    def _compare(self, now: files.FileInfo | None) -> None:
        before = files.FileInfo(self.part.path, self.part.size, self.part.tag)
        if now is not None and now.changed_since(before):
            size = (
                f"it had {before.size} bytes and has {now.size}"
                if now.size != before.size
                else "it has been written again"
            )
            raise FileChanged(
                f"{self.url}: the file has changed since the run found it: {size}. Write new data to new files; to "
                "read the file as it is now, start a new run"
            )

    def _undecodable(self, offset: int, line: int, error: UnicodeDecodeError) -> ReadError:
        bad = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end][:4])
        return ReadError(f"{self.url}, line {line} (byte {offset}): {bad} is not {error.encoding}")


def zip_members(part: FilePart, options: StorageOptions | None) -> list[tuple[FilePart, int]]:
    """The files in a zip archive, in its order, each with its decompressed size. Raises ReadError, naming the archive,
    if it is none."""
    with OpenedFile(part, "none", options) as file:
        archive = file.raw()
        try:
            members = _compression.zip_members(archive)
        except _compression.broken() as error:
            raise broken_file(file.url, "zip", error) from error
    return [(FilePart(part.pattern, part.path, part.size, part.tag, name), size) for name, size in members]


def failures() -> tuple[type[Exception], ...]:
    """The exceptions by which a file turns out to be unreadable."""
    return ReadError, *_compression.broken()


def read_failure(file: OpenedFile, error: Exception, *, resumes: bool) -> Exception:
    """The error to raise for one that occurred while a file was read: that the file has changed, if it has, because a
    file that is written while it is read looks broken.

    `resumes`: an earlier reader has read elements of the file, and this one none yet. Then PositionLost is returned for
    a file that has changed.
    """
    found = error
    if not isinstance(error, FileChanged | PositionLost):
        try:
            file.check_unchanged()
        except FileChanged as changed:
            found = changed
        except Exception:
            pass  # the file can't be examined now: `error` says why it can't be read
    if isinstance(found, FileChanged) and resumes:
        return PositionLost(str(found))
    if isinstance(found, TidegateError):
        return found
    if isinstance(found, FileNotFoundError):
        return FileChanged(f"{file.url}: the file has been deleted since the run found it")
    return broken_file(file.url, file.compression, found)


def broken_file(url: str, compression: Compression, error: Exception) -> ReadError:
    """The error for a file that its file system, or its decompressor, can't read."""
    reason = files.describe(error)
    if compression == "none" or (isinstance(error, OSError) and error.errno is not None):
        return ReadError(f"{url}: can't be read: {reason}")
    return ReadError(
        f"{url}: not a valid {compression} file: {reason}. If it is not {compression}, pass compression='none'"
    )
