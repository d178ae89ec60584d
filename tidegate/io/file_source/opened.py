"""One file, or one member of a zip archive, opened for reading, and whether it is still what it was."""

from __future__ import annotations

import io
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Final, cast

from tidegate.io import compression as _compression
from tidegate.io import files
from tidegate.io.byte_streams import Recoded, needs_recoding, skip_to
from tidegate.io.compression import Compression
from tidegate.sdk.errors import ReadError

_ONE_REQUEST: Final = 4 << 20
"""Remote files up to this size are read by one request, in which they can't change."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """What of a file a reader reads: `[start, end)`, in what its format counts (bytes, row groups); `end` None: to the
    end of the file. `size` and `tag` are those that the file had when it was found."""

    pattern: str
    path: str
    size: int | None = None
    tag: str | None = None
    member: str | None = None
    start: int = 0
    end: int | None = None

    @property
    def url(self) -> str:
        """The file as authors write it, for messages; members of archives as `archive.zip!member`."""
        url = files.store_of(self.pattern)[0].url(self.path)
        return url if self.member is None else f"{url}!{self.member}"


class OpenedFile:
    """A file that is open while the context lasts."""

    def __init__(self, part: FilePart, compression: Compression) -> None:
        self.part = part
        self.url = part.url
        self.compression: Compression = (
            "zip" if part.member is not None else _compression.of_path(part.path, compression)
        )
        self._store = files.store_of(part.pattern)[0]
        self._open: list[BinaryIO] = []

    def __enter__(self) -> OpenedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def local_path(self) -> str | None:
        """The path in this machine's file system; None for a remote file."""
        return self.part.path if isinstance(self._store, files.Local) else None

    def raw(self) -> BinaryIO:
        """The bytes of the file as they are. Raises ReadError if it is another file than the one that was found."""
        try:
            file = self._store.open(self.part.path)
        except FileNotFoundError as error:
            raise ReadError(f"{self.url}: the file is gone; it was there when the run started") from error
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
                # Remote files read lines of any length; a limit is what the readers of text need.
                stream = io.BufferedReader(cast(Any, file), 1 << 16)
        if stream is not file:
            self._open.append(stream)
        return stream

    def utf8(self, encoding: str) -> BinaryIO:
        """The text of the file, decompressed, in UTF-8 where it is in another encoding whose lines end otherwise."""
        stream = self.plain()
        if not needs_recoding(encoding):
            return stream
        recoded = cast(BinaryIO, io.BufferedReader(Recoded(stream, encoding, "strict", self._undecodable), 1 << 16))
        self._open.append(recoded)
        return recoded

    def lines_before(self, offset: int, encoding: str, known: tuple[int, int] = (0, 0)) -> int:
        """How many lines end before the byte at `offset` of the text, `known` being such an answer for an earlier
        offset. Reads the file again, for an error's sake."""
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
        """Raise ReadError if the file has been written while it was read."""
        size = self.part.size
        if not self._known or size is None or (self.local_path is None and size <= _ONE_REQUEST):
            return
        now = self._store.find(self.part.path)
        if now is not None:  # what was opened has been read whole, even if it was removed meanwhile
            self._compare(now)

    def close(self) -> None:
        """Close all that has been opened."""
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
            raise ReadError(
                f"{self.url}: the file has changed since the run started: {size}. Write new data to new files, or "
                "start anew to read the file as it is now"
            )

    def _undecodable(self, offset: int, line: int, error: UnicodeDecodeError) -> ReadError:
        bad = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end][:4])
        return ReadError(f"{self.url}, line {line} (byte {offset}): {bad} is not {error.encoding}")


def broken_file(opened: OpenedFile, error: Exception) -> ReadError:
    """The error for a file that its file system, or its decompressor, can't read."""
    words = files.describe(error)
    compression = opened.compression
    if compression == "none" or (isinstance(error, OSError) and error.errno is not None):
        return ReadError(f"{opened.url}: can't be read: {words}")
    return ReadError(
        f"{opened.url}: not a whole {compression} file: {words}. If it is not {compression} at all, say "
        "compression='none'"
    )
