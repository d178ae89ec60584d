"""Shared by the formats of lines: text in UTF-8, line numbers, and the search for bad records."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, BinaryIO, Final

from tidegate.io import files
from tidegate.io.byte_streams import needs_recoding, skip_to, without_bom
from tidegate.io.compression import is_damage
from tidegate.io.file_source.format import Chunk, Reading
from tidegate.io.file_source.opened import OpenedFile
from tidegate.io.file_source.pieces import Piece
from tidegate.io.records.problems import BadRecord, Problem, WithProblems, excerpt, read_error
from tidegate.sdk.connectors.outage import is_outage
from tidegate.sdk.errors import ReadError

Parse = Callable[[bytes], Any]
"""Makes a record batch, or any sequence, of the bytes of some records; it raises errors that `explain` understands."""


class TextFile:
    """A file of text: its bytes as lines that end with 0x0a, and the numbers of its lines."""

    def __init__(self, file: OpenedFile, encoding: str) -> None:
        self.file = file
        self._encoding = encoding
        self._recoded = needs_recoding(encoding)
        self._bytes_encoding = without_bom(encoding)
        self._known = 0, 0

    def stream(self) -> BinaryIO:
        """The text, from its start."""
        return self.file.utf8(self._encoding)

    def jump(self, stream: BinaryIO, offset: int) -> None:
        """Move to an offset in the text; a stream that can't seek is read up to it."""
        skip_to(stream, offset)

    def in_utf8(self, data: bytes, offset: int = -1) -> bytes:
        """Records as UTF-8, without a byte order mark. Raises UnicodeDecodeError for bytes that can't be decoded."""
        if offset == 0 and data.startswith(codecs.BOM_UTF8):
            data = data[len(codecs.BOM_UTF8) :]
        if self._recoded or data.isascii():
            return data
        text = data.decode(self._bytes_encoding)
        return data if self._bytes_encoding == "utf-8" else text.encode()

    def line_at(self, offset: int) -> int:
        """The number, from 1, of the line with the byte at `offset`. Reads the file again, so only for messages."""
        known = self._known if self._known[0] <= offset else (0, 0)
        lines = self.file.lines_before(offset, self._encoding, known)
        self._known = offset, lines
        return lines + 1

    def refuse(self, offset: int, reason: str) -> ReadError:
        """The error for a problem at a byte."""
        return ReadError(f"{self.file.url}, line {self.line_at(offset)}: {reason}")

    def numbers(self, piece: Piece, quote: bytes | None) -> Callable[[int], int]:
        """A function that turns the index of a record of a piece into the number of its line."""
        lines: list[int] = []

        def number(at: int) -> int:
            if not lines:
                before = self.line_at(piece.offset)
                records = split_records(piece.data, quote)
                starts = accumulate((record.count(b"\n") for record in records), initial=before)
                lines.extend(line for line, record in zip(starts, records) if record.strip())
            return lines[min(at, len(lines) - 1)] if lines else 1

        return number


def chunks_of(
    text: TextFile,
    pieces: Iterator[Piece],
    start: int,
    quote: bytes | None,
    reading: Reading,
    decode: Callable[[Piece], list[Any]],
) -> Iterator[Chunk]:
    """The elements of the pieces of a file from the byte at `start` on. If compressed data is damaged, the rest of the
    file is one bad record."""
    at = start
    while True:
        try:
            piece = next(pieces, None)
        except Exception as error:
            if not is_damaged(text.file, error):
                raise
            yield at, [damage(text.file, error, reading, text.line_at(at))]
            return
        if piece is None:
            return
        if not piece.data.endswith(b"\n"):
            text.file.check_unchanged()  # the record may be one of which the file had more when the run found it
        if piece.problem is None:
            elements = decode(piece)
        else:
            elements = WithProblems([Problem(0, None, piece.problem, excerpt(piece.data))])
        yield piece.offset, reading.report(text.file, "line", elements, text.numbers(piece, quote))
        at = piece.offset + len(piece.data)


def is_damaged(file: OpenedFile, error: Exception) -> bool:
    """Whether an error shows that the compressed data of a file is damaged."""
    return file.compression not in ("none", "zip") and is_damage(error) and not is_outage(error)


def damage(file: OpenedFile, error: Exception, reading: Reading, line: int | None = None) -> BadRecord:
    """The dead letter for a file whose compressed data is damaged from some line on. Raises ReadError if bad records
    fail the run."""
    file.check_unchanged()
    reason = f"not a valid {file.compression} file: {files.describe(error)}"
    if reading.selection.bad_records == "fail":
        raise read_error(file.url, "line", line, Problem(0, None, reason)) from error
    return BadRecord(file.url, line, None, reason, None)


_BEGINNINGS: Final = {
    b"\x1f\x8b": "is compressed by gzip: say compression='gzip'",
    b"BZh": "is compressed by bzip2: say compression='bz2'",
    b"\xfd7zXZ": "is compressed by xz: say compression='xz'",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd: say compression='zstd'",
    b"PK\x03\x04": "is a zip archive: say compression='zip'",
    b"PAR1": "is a Parquet file: read it by tg.ReadFromParquet",
    b"Obj\x01": "is an Avro file: read it by tg.ReadFromAvro",
    b"ARROW1": "is an Arrow file: read it by tg.ReadFromArrow",
}
"""The first bytes of files that have no lines, and what to do with them."""


def resemblance(data: bytes) -> str:
    """The end of a message about the first bytes of a file that are no text: what they look like."""
    found = next((what for beginning, what in _BEGINNINGS.items() if data.startswith(beginning)), None)
    return "" if found is None else f". It looks as if it {found}"


def split_records(data: bytes, quote: bytes | None) -> list[bytes]:
    """The records of a piece, with their line ends."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    if last:
        lines.append(last)
    if quote is None or quote not in data:
        return lines
    records: list[bytes] = []
    open_record: list[bytes] = []
    inside = False
    for line in lines:
        open_record.append(line)
        inside = inside != (line.count(quote) % 2 == 1)
        if not inside:
            records.append(b"".join(open_record))
            open_record = []
    return [*records, b"".join(open_record)] if open_record else records


def good_and_bad(
    records: Sequence[bytes],
    parse: Parse,
    explain: Callable[[bytes, Exception], Problem],
    errors: tuple[type[Exception], ...],
) -> Iterator[tuple[int, Any]]:
    """The records in runs: the results of `parse` for consecutive good ones, and a Problem for each bad one, with the
    index of the run's first record."""
    pending = [(0, len(records))]
    while pending:
        start, stop = pending.pop()
        if start == stop:
            continue
        data = b"".join(records[start:stop])
        try:
            yield start, parse(data)
        except errors as error:
            if stop - start == 1:
                problem = explain(records[start], error)
                yield start, Problem(start, problem.column, problem.reason, problem.text)
                continue
            middle = (start + stop) // 2
            pending += [(middle, stop), (start, middle)]


def moved(elements: list[Any], by: int) -> list[Any]:
    """The elements of a run of records, with the indexes of problems counted from the start of the piece."""
    if not isinstance(elements, WithProblems):
        return elements
    return [
        Problem(each.at + by, each.column, each.reason, each.text) if type(each) is Problem else each
        for each in elements
    ]
