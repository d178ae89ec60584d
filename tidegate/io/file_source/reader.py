"""Reads the files of one split, or parts of them, one after another. Each file may begin at any event time, so only the
last one advances the watermark.

A position is `[file, start, given]`: the index of the file in the split, the place in the file at which the current
chunk starts, and the number of elements from there on that have been returned. A reader that resumes may divide the
file into other chunks than the earlier reader did. Elements that were left out by conditions of the planner's count, so
that a changed query resumes at the same place.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tidegate.io.compression import Compression
from tidegate.io.file_source.format import Chunk, FileFormat, Reading
from tidegate.io.file_source.opened import FilePart, OpenedFile, failures, read_failure, url_of
from tidegate.io.records.pushed import Kept
from tidegate.io.records.schema import RecordSchema
from tidegate.io.storage_options import StorageOptions
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Split
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.garbage_collection import no_garbage_collection

_LONGEST_SEARCH: Final = 0.05
"""Seconds after which a reader that has found no element that meets the conditions lets its task do other work."""


@dataclass(frozen=True, slots=True)
class FileParts:
    """The payload of a split: the parts of files that it reads, and the columns that the files should have."""

    parts: tuple[FilePart, ...]
    reference: RecordSchema | None
    of_reference: str

    def split(self, size: int, options: StorageOptions | None) -> Split:
        """The split with this payload, of `size` bytes."""
        first = self.parts[0]
        id = url_of(first, options) if first.end is None else f"{url_of(first, options)}:{first.start}-{first.end}"
        return Split(id if len(self.parts) == 1 else f"{id} and {len(self.parts) - 1} more", size, self)


class FileReader(Reader[Any]):
    """Reads the parts of one split, one after another."""

    def __init__(
        self,
        format: FileFormat,
        parts: tuple[FilePart, ...],
        reading: Reading,
        compression: Compression,
        position: Position,
        options: StorageOptions | None = None,
    ) -> None:
        self._format = format
        self._parts = parts
        self._reading = reading
        self._compression = compression
        self._options = options
        self._resumes = position is not None
        """Whether elements of the file that is read next have been read already, by an earlier reader."""
        self._file: OpenedFile | None = None
        self._chunks: Iterator[Chunk] | None = None
        self._elements: list[Any] = []
        self._kept: Kept | None = None
        """The elements, if some of the chunk were left out."""
        self._at: int
        self._start: Any
        self._given: int
        self._at, self._start, self._given = position if position is not None else (0, None, 0)
        self._skip = self._given
        """When resuming: how many elements to skip. They may extend over several chunks, which may end elsewhere than
        those of the earlier reader."""

    def read(self, limit: int) -> Batch:
        began = time.monotonic() if self._reading.conditions else 0.0
        while self._given >= len(self._elements):
            if not self._fill():
                return Batch(Block.of([]), end=True)
            if self._kept is not None and not self._kept and time.monotonic() - began > _LONGEST_SEARCH:
                return Batch(Block.of([]))
        first, self._given = self._given, min(self._given + limit, len(self._elements))
        others_follow = self._at < len(self._parts) - 1
        if first == 0 and self._given == len(self._elements):
            return Batch(Block.of(self._elements), holds_watermark=others_follow)
        return Batch(Block.of(self._elements[first : self._given]), holds_watermark=others_follow)

    def position(self) -> Position:
        kept, given = self._kept, self._given
        if kept is not None:
            given = kept.rows[given] if given < len(kept) else kept.of
        return [self._at, self._start, given]

    def close(self) -> None:
        self._chunks = None
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def opened(self, part: FilePart) -> OpenedFile:
        """Open a file."""
        return OpenedFile(part, self._compression, self._options)

    def _fill(self) -> bool:
        """Read the next chunk, or move on to the next part. Returns False at the end of the split."""
        if self._at >= len(self._parts):
            return False
        chunk = self._next_chunk(self._parts[self._at])
        if chunk is None:
            self.close()
            self._at, self._start, self._given, self._skip, self._elements = self._at + 1, None, 0, 0, []
            self._kept = None
            return self._at < len(self._parts)
        kept = chunk[1] if isinstance(chunk[1], Kept) else None
        count = len(chunk[1]) if kept is None else kept.of
        if self._skip >= count and self._skip:
            self._skip -= count
            self._start, self._elements, self._given, self._kept = chunk[0], [], 0, None
            return True
        self._start, self._elements = chunk
        self._given, self._kept = self._skip if kept is None else bisect_left(kept.rows, self._skip), kept
        self._skip = 0
        return True

    def _next_chunk(self, part: FilePart) -> Chunk | None:
        if self._file is None:
            self._file = self.opened(part)
        file = self._file
        try:
            if self._chunks is None:
                self._chunks = iter(self._format.read(file, self._start, self._reading))
            with no_garbage_collection():
                chunk = next(self._chunks, None)
            if chunk is None:
                file.check_unchanged()
            self._resumes = False
            return chunk
        except failures() as error:
            found = read_failure(file, error, resumes=self._resumes)
            if found is error:
                raise
            raise found from error
