"""The source that reads lines of text files, in pieces of 128 KiB.

An uncompressed file is divided into splits by byte offsets. A line belongs to the split that contains its first byte,
so the lines are the same wherever a file is divided. A reader reads a piece of complete lines, decodes it at once and
splits it at `\\n`. Its position is `[offset, lines]`: the start of the piece, and how many of its lines have been read.

Compressed files, members of zip archives, and files in encodings in which a line does not end with the byte 0x0a
(UTF-16) are one split each. Their offsets refer to the decompressed bytes (in UTF-8, if the file has to be recoded); a
reader that resumes reads the file from the start and discards the data before its position.

Text is no format of `FileSource`: lines have no columns to select, and jobs have stored splits and positions of this
source. Files are opened, checked for changes and followed by the same code.
"""

from __future__ import annotations

import codecs
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from tidegate.io import compression as _compression
from tidegate.io import files
from tidegate.io.byte_streams import (
    PIECE,
    DecodeErrors,
    Recoded,
    check_encoding,
    complete_lines,
    needs_recoding,
    skip_to,
    without_bom,
)
from tidegate.io.compression import Compression
from tidegate.io.file_source import opened as opened_file
from tidegate.io.file_source.following import FOLLOWED_SPLIT, Follow, FollowedFiles, check_followed
from tidegate.io.file_source.listing import Found, matching
from tidegate.io.first_contact import check_readable
from tidegate.io.storage_options import StorageOptions
from tidegate.sdk import moved
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split, SplitEnumerator
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import BuildError, ReadError

_DECODE_ERRORS: Final = ("strict", "replace", "ignore", "backslashreplace")


@dataclass(frozen=True, slots=True)
class FilePart:
    """The payload of a split: the bytes `[start, end)` of a file or of a member of a zip archive; without `end`, all of
    them. `size` and `tag` identify the version of the file that was split."""

    pattern: str
    path: str
    member: str | None = None
    start: int = 0
    end: int | None = None
    size: int | None = None
    tag: str | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore a part that a checkpoint has stored, also one from before parts had all of today's fields."""
        moved.set_fields(self, state)


@dataclass(frozen=True, slots=True)
class TextSource(Source[Any]):
    """The lines of all files that match the patterns; the fields are explained at `ReadFromText`."""

    patterns: tuple[str, ...]
    compression: Compression = "auto"
    skip_header_lines: int = 0
    strip_trailing_newlines: bool = True
    encoding: str = "utf-8"
    errors: DecodeErrors = "strict"
    allow_empty: bool = False
    min_split_size: int = 1 << 20
    with_filename: bool = False
    follow: Follow | None = None
    storage_options: StorageOptions | None = None

    def __getstate__(self) -> list[Any]:
        """The fields to pickle."""
        return moved.get_fields(self, 9)

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore a pickled source, also one that was stored before sources had all of today's fields."""
        moved.set_fields(self, state)

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        return self.follow is None

    @property
    def name(self) -> str:
        return f"text {', '.join(self.patterns)}"

    @property
    def element_type(self) -> Any:
        return tuple[str, str] if self.with_filename else str

    @property
    def forks_safely(self) -> bool:  # type: ignore[override]
        return all(files.store_of(pattern, self.storage_options)[0].forks_safely for pattern in self.patterns)

    def check(self) -> None:
        self.check_options("ReadFromText")
        if not check_readable(self.patterns, self.storage_options):
            return
        if self.follow is not None:
            check_followed(self.patterns, "ReadFromText", self.allow_empty, self.storage_options)
            return
        found = matching(self.patterns, self.allow_empty, BuildError, self.storage_options)
        for used in sorted({_compression.of_path(file.info.path, self.compression) for file in found}):
            _compression.check(used, "ReadFromText")

    def check_options(self, of: str) -> None:
        """Raise BuildError, naming the transform `of`, for options by which no file can be read."""
        for argument, value, minimum in (
            ("skip_header_lines", self.skip_header_lines, 0),
            ("min_split_size", self.min_split_size, 1),
        ):
            if type(value) is not int or value < minimum:
                raise BuildError(f"{of}: {argument} must be a whole number of at least {minimum}, not {value!r}")
        check_encoding(self.encoding, of)
        if self.errors not in _DECODE_ERRORS:
            raise BuildError(f"{of}: errors is one of {', '.join(map(repr, _DECODE_ERRORS))}, not {self.errors!r}")
        _compression.check(self.compression, of)

    def local_files(self) -> Sequence[str]:
        if self.follow is not None:
            return ()
        found = matching(self.patterns, self.allow_empty, ReadError, self.storage_options)
        return [
            file.info.path
            for file in found
            if isinstance(files.store_of(file.pattern, self.storage_options)[0], files.Local)
        ]

    def splits(self, desired: int) -> list[Split]:
        found = matching(self.patterns, self.allow_empty, ReadError, self.storage_options)
        total = sum(file.info.size or 0 for file in found)
        size = max(self.min_split_size, -(-total // max(1, desired)))
        return [split for file in found for split in self.cut(file, size)]

    def enumerator(self, state: Position = None) -> SplitEnumerator | None:
        if self.follow is None:
            return None
        size = max(self.min_split_size, FOLLOWED_SPLIT)
        return FollowedFiles(
            self.patterns, self.follow, lambda file: self.cut(file, size), state, options=self.storage_options
        )

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _LineReader(self, split.payload, position)

    def cut(self, found: Found, size: int) -> Iterator[Split]:
        """The splits of a file, of about `size` bytes each if it can be cut."""
        pattern, url, file = found
        compression = _compression.of_path(file.path, self.compression)
        # A size of 0 doesn't mean that the file is empty: files in /proc have it, too, and are new at every look.
        known = (file.size, file.tag) if self.follow is not None or file.size else (file.size, None)
        if compression == "zip":
            archive = opened_file.FilePart(pattern, file.path, *known)
            for each, unpacked in opened_file.zip_members(archive, self.storage_options):
                part = FilePart(pattern, file.path, each.member, 0, None, *known)
                yield Split(f"{url}!{each.member}", unpacked, part)
        elif compression != "none" or needs_recoding(self.encoding) or not file.size:
            yield Split(url, file.size, FilePart(pattern, file.path, None, 0, None, *known))
        else:
            count = max(1, file.size // size)
            bounds = [file.size * i // count for i in range(count + 1)]
            for start, end in itertools.pairwise(bounds):
                part = FilePart(pattern, file.path, None, start, end, file.size, known[1])
                yield Split(url if count == 1 else f"{url}:{start}-{end}", end - start, part)


class _LineReader(Reader[Any]):
    """Reads the lines of one split. The first `read` opens the file."""

    def __init__(self, source: TextSource, part: FilePart, position: Position) -> None:
        self._source = source
        self._part = part
        self._pieces: Iterator[tuple[int, bytes]] | None = None
        self._values: list[Any] = []
        self._offset: int | None = None
        self._next = 0
        if position is not None:
            self._offset, self._next = position
        self._resumes = position is not None
        self._skip = self._next
        """When resuming: how many lines remain to be skipped. They may extend over several pieces, because pieces may
        end elsewhere than they did before."""
        self._encoding = "utf-8" if needs_recoding(source.encoding) else without_bom(source.encoding)
        opened = opened_file.FilePart(part.pattern, part.path, part.size, part.tag, part.member)
        self._file = opened_file.OpenedFile(opened, source.compression, source.storage_options)

    def read(self, limit: int) -> Batch:
        while self._next >= len(self._values):
            if not self._fill():
                return Batch(Block.of([]), end=True)
        start, self._next = self._next, min(self._next + limit, len(self._values))
        if start == 0 and self._next == len(self._values):
            return Batch(Block.of(self._values))
        return Batch(Block.of(self._values[start : self._next]))

    def position(self) -> Position:
        return None if self._offset is None else [self._offset, self._next]

    def close(self) -> None:
        self._pieces = None
        self._file.close()

    def _fill(self) -> bool:
        """Read the next piece's lines into `_values`. Returns False at the end of the split."""
        try:
            if self._pieces is None:
                self._pieces = self._start()
            offset, piece = next(self._pieces, (None, b""))
            if offset is None:
                self._file.check_unchanged()
                return False
            self._values = self._lines(offset, piece)
        except opened_file.failures() as error:
            found = opened_file.read_failure(self._file, error, resumes=self._resumes)
            if found is error:
                raise
            raise found from error
        self._offset, self._next = offset, min(self._skip, len(self._values))
        self._skip -= self._next
        self._resumes = False
        return True

    def _start(self) -> Iterator[tuple[int, bytes]]:
        part, resume = self._part, self._offset
        stream = self._stream()
        if resume is not None:
            skip_to(stream, resume)
            return complete_lines(stream, resume, part.end, part.size, self._file.url)
        body = sum(len(stream.readline()) for _ in range(self._source.skip_header_lines))
        first = body
        if part.start > body:
            # Start one byte early, because that byte may be the end of a line: then a line starts exactly here.
            stream.seek(part.start - 1)
            first = part.start - 1 + len(stream.readline())
        self._offset = first
        return complete_lines(stream, first, part.end, part.size, self._file.url)

    def _stream(self) -> BinaryIO:
        """The file's decompressed bytes, recoded if necessary, so that lines end with the byte 0x0a."""
        stream, source = self._file.plain(), self._source
        if not needs_recoding(source.encoding):
            return stream
        recoded = Recoded(stream, source.encoding, source.errors, self._undecodable)
        return cast(BinaryIO, io.BufferedReader(recoded, 1 << 16))

    def _lines(self, offset: int, piece: bytes) -> list[Any]:
        if offset == 0 and self._encoding == "utf-8" and piece.startswith(codecs.BOM_UTF8):
            piece = piece[len(codecs.BOM_UTF8) :]
            offset = len(codecs.BOM_UTF8)
        if not piece:
            return []
        try:
            text = piece.decode(self._encoding, self._source.errors)
        except UnicodeDecodeError as error:
            at = offset + error.start
            raise self._undecodable(at, self._line_number(at), error) from error
        lines: list[Any]
        if self._source.strip_trailing_newlines:
            if "\r" in text:
                text = text.replace("\r\n", "\n")
            lines = text.split("\n")
            if not lines[-1]:
                lines.pop()
        else:
            lines = [line + "\n" for line in text.split("\n")]
            lines[-1] = lines[-1][:-1]
            if not lines[-1]:
                lines.pop()
        if self._source.with_filename:
            url = self._file.url
            lines = [(url, line) for line in lines]
        return lines

    def _line_number(self, offset: int) -> int | None:
        """The number, from 1, of the line that contains the byte at `offset`, for an error's message. Reads the file
        again up to there; None if that fails."""
        try:
            stream, number = self._stream(), 1
            while offset > 0:
                piece = stream.read(min(PIECE, offset))
                if not piece:
                    return None
                number += piece.count(b"\n")
                offset -= len(piece)
            return number
        except _compression.broken():
            return None

    def _undecodable(self, offset: int, line: int | None, error: UnicodeDecodeError) -> ReadError:
        invalid = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end][:4])
        where = f"line {line} (byte {offset})" if line is not None else f"byte {offset}"
        return ReadError(
            f"{self._file.url}, {where}: {invalid} is not valid {self._source.encoding}. "
            "If the file is in another encoding, pass encoding=…; "
            "errors='replace' replaces bytes that can't be decoded by U+FFFD"
        )
