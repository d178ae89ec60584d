"""Reads the parts of files of one split, one after another.

A position is `[file, start, given]`: which of the split's files, where in it the current chunk starts, as its format
says it, and how many of the elements from there on have been returned. A reader that resumes need not cut its chunks
where an earlier one did.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tidegate.io.compression import Compression, broken
from tidegate.io.file_source.format import Chunk, FileFormat, Reading
from tidegate.io.file_source.opened import FilePart, OpenedFile, broken_file
from tidegate.sdk.connectors.sources import Batch, Position, Reader
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import ReadError, TidegateError


@contextmanager
def _no_collection() -> Iterator[None]:
    """A context without garbage collection: while thousands of rows are created, collections find nothing to free, and
    take several times as long as the creation."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class FileReader(Reader[Any]):
    """Reads the parts of one split; opens a file when it is its turn."""

    def __init__(
        self,
        format: FileFormat,
        parts: tuple[FilePart, ...],
        reading: Reading,
        compression: Compression,
        position: Position,
    ) -> None:
        self._format = format
        self._parts = parts
        self._reading = reading
        self._compression = compression
        self._file: OpenedFile | None = None
        self._chunks: Iterator[Chunk] | None = None
        self._elements: list[Any] = []
        self._at: int
        self._start: Any
        self._given: int
        self._at, self._start, self._given = position if position is not None else (0, None, 0)
        self._skip = self._given
        """How many elements still to pass over when resuming: chunks need not be those of the earlier reader."""

    def read(self, limit: int) -> Batch:
        while self._given >= len(self._elements):
            if not self._fill():
                return Batch(Block.of([]), end=True)
        first, self._given = self._given, min(self._given + limit, len(self._elements))
        if first == 0 and self._given == len(self._elements):
            return Batch(Block.of(self._elements))
        return Batch(Block.of(self._elements[first : self._given]))

    def position(self) -> Position:
        return [self._at, self._start, self._given]

    def close(self) -> None:
        self._chunks = None
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def opened(self, part: FilePart) -> OpenedFile:
        """Open a file."""
        return OpenedFile(part, self._compression)

    def _fill(self) -> bool:
        """Read the next chunk, of the next file if need be; False after the last one."""
        if self._at >= len(self._parts):
            return False
        chunk = self._next_chunk(self._parts[self._at])
        if chunk is None:
            self.close()
            self._at, self._start, self._given, self._skip, self._elements = self._at + 1, None, 0, 0, []
            return self._at < len(self._parts)
        if self._skip >= len(chunk[1]) and self._skip:
            self._skip -= len(chunk[1])
            self._start, self._elements, self._given = chunk[0], [], 0
            return True
        self._start, self._elements = chunk
        self._given, self._skip = self._skip, 0
        return True

    def _next_chunk(self, part: FilePart) -> Chunk | None:
        if self._file is None:
            self._file = self.opened(part)
        file = self._file
        try:
            if self._chunks is None:
                self._chunks = iter(self._format.read(file, self._start, self._reading))
            with _no_collection():
                chunk = next(self._chunks, None)
            if chunk is None:
                file.check_unchanged()
            return chunk
        except TidegateError:
            raise
        except broken() as error:
            raise self._explained(file, error) from error

    def _explained(self, file: OpenedFile, error: Exception) -> ReadError:
        """A file that was written while it was read looks broken: that is the better thing to say."""
        try:
            file.check_unchanged()
        except ReadError as changed:
            return changed
        except OSError:
            pass
        return broken_file(file, error)
