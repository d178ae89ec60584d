"""Streams of bytes: reading complete lines, and recoding text to UTF-8."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, Literal, TypeAlias

from tidegate.sdk.errors import BuildError, ReadError

PIECE: Final = 1 << 17
"""The bytes of one read. The lines of a block are from one piece, which therefore limits the size of a block, too."""

DecodeErrors: TypeAlias = Literal["strict", "replace", "ignore", "backslashreplace"]


class Recoded(io.RawIOBase):
    """Recodes a stream of bytes to UTF-8."""

    def __init__(
        self,
        stream: BinaryIO,
        encoding: str,
        errors: str,
        undecodable: Callable[[int, int, UnicodeDecodeError], ReadError],
    ) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)(errors)
        self._undecodable = undecodable
        self._read = 0
        self._lines = 1
        self._utf8 = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._utf8:
            piece = self._stream.read(PIECE)
            self._read += len(piece)
            try:
                text = self._decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                # The error's bytes start with those that the decoder had buffered from earlier pieces.
                offset = self._read - len(error.object) + error.start
                before = error.object[: error.start].decode(error.encoding, "replace")
                raise self._undecodable(offset, self._lines + before.count("\n"), error) from error
            if not piece and not text:
                return 0
            self._lines += text.count("\n")
            self._utf8 = memoryview(text.encode("utf-8", "surrogatepass"))
        size = min(len(self._utf8), len(buffer))
        buffer[:size] = self._utf8[:size]
        self._utf8 = self._utf8[size:]
        return size


def check_encoding(encoding: str, of: str) -> None:
    """Raise BuildError, naming the transform `of`, if Python has no such text encoding."""
    try:
        "".encode(encoding)
    except (LookupError, TypeError):
        raise BuildError(f"{of}: Python has no text encoding {encoding!r}; most files are in 'utf-8'") from None


def complete_lines(
    stream: BinaryIO, at: int, end: int | None, size: int | None, name: str
) -> Iterator[tuple[int, bytes]]:
    """Pieces that consist of complete lines, each with its offset: all lines that start in `[at, end)`.

    The stream is at the offset `at`, and is not read beyond `size`. The last line of the file needs no line end.

    >>> list(complete_lines(io.BytesIO(b"one\\ntwo\\nthree"), 0, 5, 13, "numbers.txt"))
    [(0, b'one\\n'), (4, b'two\\n')]
    """
    if end is not None and at >= end:
        return
    read = at
    unfinished: list[bytes] = []
    while True:
        finishing = end is not None and read >= end
        stop = size if finishing else end
        data = stream.read(PIECE if stop is None else min(PIECE, stop - read))
        if not data:
            if stop is not None and read < stop:
                raise ReadError(
                    f"{name}: it ends at byte {read} and had {size} bytes when the run found it: "
                    "it was changed while it was read"
                )
            if unfinished:
                yield at, b"".join(unfinished)
            return
        read += len(data)
        # The last line of the split is the one that contains the byte before `end`.
        cut = (data.find(b"\n") if finishing else data.rfind(b"\n")) + 1
        if not cut:
            unfinished.append(data)
            continue
        piece = b"".join((*unfinished, data[:cut])) if unfinished or cut < len(data) else data
        yield at, piece
        at += len(piece)
        unfinished = [data[cut:]] if cut < len(data) else []
        if finishing or (end is not None and at >= end):
            return


def skip_to(stream: BinaryIO, offset: int) -> None:
    """Move from the start of the stream to an offset, by reading if the stream can't seek."""
    if stream.seekable():
        stream.seek(offset)
        return
    while offset > 0:
        data = stream.read(min(PIECE, offset))
        if not data:
            return
        offset -= len(data)


def needs_recoding(encoding: str) -> bool:
    """Whether the byte 0x0a may occur elsewhere than at the end of a line, or a line may end otherwise."""
    name = codecs.lookup(encoding).name
    return name.startswith(("utf-16", "utf-32", "utf-7", "iso2022", "hz")) or "\n".encode(encoding)[-1:] != b"\n"


def without_bom(encoding: str) -> str:
    name = codecs.lookup(encoding).name
    return "utf-8" if name in ("utf-8", "utf-8-sig") else name
