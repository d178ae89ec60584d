"""Writers of formats whose files are a sequence of records in bytes, possibly compressed: lines of text, CSV, JSON."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, BinaryIO

from tidegate.io import compression as _compression
from tidegate.io.compression import Compression
from tidegate.io.file_sink.format import FileWriter


def compressed(data: bytes, compression: Compression) -> bytes:
    """`data` as a separate compressed stream; empty if `data` is."""
    if not data:
        return b""
    stream = _compression.compressor(compression)
    return bytes(stream.compress(data) + stream.flush())


def empty_stream(head: bytes, foot: bytes, compression: Compression) -> bytes:
    """The contents of a file without records; a compressed file is valid all the same."""
    return head + foot or bytes(_compression.compressor(compression).flush())


class ByteStreamWriter(FileWriter):
    """A head, encoded records, and a foot. The head, the foot, and the records between two closings of the file are
    separate compressed streams, so that files can be joined byte by byte."""

    def __init__(self, head: bytes, foot: bytes, compression: Compression) -> None:
        self._head = head
        self._foot = foot
        self._compression = compression
        self._has_head = False
        self._chunks: list[bytes] = []
        self._file: BinaryIO | None = None
        self._compressor: Any = None

    @abstractmethod
    def encode(self, values: Sequence[Any]) -> bytes:
        """The bytes of some elements. Raises WriteError, naming the element, for one that can't be encoded."""

    @property
    def head(self) -> int:
        return len(self._head)

    @property
    def foot(self) -> int:
        return len(self._foot)

    def add(self, values: Sequence[Any]) -> None:
        data = self.encode(values)
        self._chunks.append(data)
        self.buffered += len(data)

    def begin(self, file: BinaryIO) -> None:
        self.resume(file)

    def resume(self, file: BinaryIO) -> None:
        self._file = file
        self._compressor = _compression.compressor(self._compression)

    def flush(self) -> None:
        assert self._file is not None
        data = self._drain()
        self.buffered = 0
        if not self._has_head:
            self._has_head = True
            self._file.write(self._head)
        self._file.write(self._compressor.compress(data))

    def _drain(self) -> bytes:
        """Return the encoded elements in the buffer, and empty it."""
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data

    def suspend(self) -> None:
        assert self._file is not None
        self._file.write(self._compressor.flush())
        self._file = None

    def finish(self) -> None:
        self.flush()
        assert self._file is not None
        self._file.write(self._compressor.flush() + self._foot)
        self._file = None

    def discard(self) -> None:
        self._chunks.clear()
        self._file = self._compressor = None
