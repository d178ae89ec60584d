"""Files of lines in pieces of whole records. A line break ends a record unless it is between quotes.

A record belongs to the part of a file that contains its first byte, so any division of a file gives the same records.
Only the quotes before a byte tell whether it is between quotes. A part of a file is read as if it began outside of
quotes; the reader of the part before it checks this, and fails if it is not so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple, cast

from tidegate.io.compression import is_damage
from tidegate.sdk.errors import ReadError

PIECE: Final = 1 << 18
"""Bytes read at a time."""
_SHOWN: Final = 200


class Piece(NamedTuple):
    """Whole records, and the offset of their first byte; or a single bad record with its `problem`, and its beginning
    as `data`."""

    offset: int
    data: bytes
    problem: str | None = None


def first_record(stream: BinaryIO, body: int, start: int) -> int:
    """The offset of the first record of a part that begins at `start`. The records of the file begin at `body`, which
    is where the stream stands; afterwards it stands at the record that was found."""
    if start <= body:
        return body
    # Line breaks belong to the line before them: from one byte ahead, the next line begins at `start` or later.
    stream.seek(start - 1)
    at = start - 1
    while line := stream.readline(PIECE):
        at += len(line)
        if line.endswith(b"\n"):
            break
    return at


def whole_records(
    stream: BinaryIO,
    at: int,
    end: int | None,
    longest: int,
    quote: bytes | None,
    refuse: Callable[[int, str], ReadError],
) -> Iterator[Piece]:
    """The records that begin in `[at, end)`, in pieces. The stream stands at `at`, where a record begins.

    A record of more than `longest` bytes is skipped. `refuse` returns the error for a place in the file.
    """
    if end is not None and at >= end:
        return
    read = at
    carried: list[bytes] = []
    size = 0
    inside = False
    """Whether the end of `carried`, which has `size` bytes, is between quotes."""
    while True:
        finishing = end is not None and read >= end
        data = _read(stream, PIECE if end is None or finishing else min(PIECE, end - read))
        if not data:
            if inside and quote is not None:
                yield Piece(at, b"".join(carried)[:_SHOWN], _OPEN)
            elif carried:
                yield Piece(at, b"".join(carried))
            return
        read += len(data)
        if finishing:
            cut = data.find(b"\n") + 1
            if quote is not None:
                inside = inside != (data.count(quote, 0, cut or len(data)) % 2 == 1)
                if (carried and carried[-1].endswith(b"\n")) or (cut and inside):
                    raise refuse(at, _DIVIDED)
        else:
            cut, inside = _last_end(data, inside, quote)
        if cut:
            yield Piece(at, b"".join((*carried, memoryview(data)[:cut])))
            at += size + cut
            if finishing or (end is not None and at >= end):
                return
            carried = [data[cut:]] if cut < len(data) else []
        else:
            carried.append(data)
        size = sum(map(len, carried)) if cut else size + len(data)
        if size > longest:
            shown = b"".join(carried)[:_SHOWN]
            carried, inside = [], False
            rest = _passed_over(stream)
            yield Piece(at, shown, f"it has more than {longest:,} bytes (max_record_bytes)")
            at += size + rest
            read, size = at, 0
            if end is not None and at >= end:
                return


def _read(stream: BinaryIO, size: int) -> bytes:
    """Up to `size` bytes, fewer only at the end. Raises an error of the stream only when there are none before it, so
    that a damaged file is read up to the damage."""
    pieces: list[bytes] = []
    while size:
        try:
            data: bytes = cast(Any, stream).read1(size)
        except Exception as error:
            if not pieces or not is_damage(error):
                raise
            break  # the next read raises it again
        if not data:
            break
        pieces.append(data)
        size -= len(data)
    return b"".join(pieces)


def _last_end(data: bytes, inside: bool, quote: bytes | None) -> tuple[int, bool]:
    """The end of the last record that ends in `data` (0 if none does), and whether `data` ends between quotes.

    `inside`: whether `data` begins between quotes.
    """
    if quote is None:
        return data.rfind(b"\n") + 1, False
    at_end = inside != (data.count(quote) % 2 == 1)
    state, stop = at_end, len(data)
    while (found := data.rfind(b"\n", 0, stop)) >= 0:
        if data.count(quote, found, stop) % 2:
            state = not state
        if not state:
            return found + 1, at_end
        stop = found
    return 0, at_end


def _passed_over(stream: BinaryIO) -> int:
    """Reads to the end of the line; how many bytes that is."""
    size = 0
    while line := stream.readline(PIECE):
        size += len(line)
        if line.endswith(b"\n"):
            break
    return size


_OPEN: Final = (
    "a quote that opens here or later is never closed. If quotes are ordinary characters in this file, say "
    "quote_char=None"
)
_DIVIDED: Final = (
    "a quoted value contains a line break where the file is divided to be read in parallel: say splittable=False"
)
