"""Streams of bytes: whole lines of them, and text in other encodings as UTF-8."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final, Literal, TypeAlias

from tidegate.sdk.errors import BuildError, ReadError

PIECE: Final = 1 << 17
"""Bytes read at a time; a block's lines come from one piece, so it is also about what a block weighs at the most."""

DecodeErrors: TypeAlias = Literal["strict", "replace", "ignore", "backslashreplace"]


class Recoded(io.RawIOBase):
    """A stream of bytes in some encoding, as UTF-8."""

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
                # The decoder's object starts with what it had kept of earlier pieces.
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
    """BuildError for what is not a text encoding."""
    try:
        "".encode(encoding)
    except (LookupError, TypeError):
        raise BuildError(f"{of}: {encoding!r} is not an encoding that Python knows; 'utf-8' is the usual one") from None


def whole_lines(stream: BinaryIO, at: int, end: int | None, size: int | None, name: str) -> Iterator[tuple[int, bytes]]:
    """Runs of whole lines that start in `[at, end)`, each with the offset of its first byte. The stream is at `at`.

    The last one may lack its line end. Reads nothing behind `size`.
    """
    if end is not None and at >= end:
        return
    read = at
    carried: list[bytes] = []
    while True:
        finishing = end is not None and read >= end
        stop = size if finishing else end
        data = stream.read(PIECE if stop is None else min(PIECE, stop - read))
        if not data:
            if stop is not None and read < stop:
                raise ReadError(
                    f"{name}: it ends at byte {read} and had {size} bytes when the run started: "
                    "it was changed while it was read"
                )
            if carried:
                yield at, b"".join(carried)
            return
        read += len(data)
        # Until `end` all lines are ours; the one that reaches over it is the last.
        cut = (data.find(b"\n") if finishing else data.rfind(b"\n")) + 1
        if not cut:
            carried.append(data)
            continue
        whole = b"".join((*carried, data[:cut])) if carried or cut < len(data) else data
        yield at, whole
        at += len(whole)
        carried = [data[cut:]] if cut < len(data) else []
        if finishing or (end is not None and at >= end):
            return


def forward(stream: BinaryIO, to: int) -> None:
    """To the byte at `to`: by a jump, or by reading up to it."""
    if stream.seekable():
        stream.seek(to)
        return
    while to > 0:
        data = stream.read(min(PIECE, to))
        if not data:
            return
        to -= len(data)


def needs_recoding(encoding: str) -> bool:
    """Whether the byte 0x0a does not always end a line."""
    name = codecs.lookup(encoding).name
    return name.startswith(("utf-16", "utf-32", "utf-7", "iso2022", "hz")) or "\n".encode(encoding)[-1:] != b"\n"


def without_bom(encoding: str) -> str:
    name = codecs.lookup(encoding).name
    return "utf-8" if name in ("utf-8", "utf-8-sig") else name
