"""How the files of a source are inspected, and divided into parts that can be read independently."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tidegate.io import compression as _compression
from tidegate.io import files
from tidegate.io.compression import Compression
from tidegate.io.file_source.format import FileFormat, Reading
from tidegate.io.file_source.listing import Found
from tidegate.io.file_source.opened import FilePart, OpenedFile, broken_file, url_of, zip_members
from tidegate.io.records.projection import Selection
from tidegate.io.records.schema import RecordSchema
from tidegate.io.storage_options import StorageOptions
from tidegate.sdk.errors import ReadError, TidegateError

OPENING: Final = 64 << 10
"""The cost of opening a file, as the number of bytes that could be read in the same time."""
FILES_OF_A_SPLIT: Final = 1000
"""The greatest number of small files that are read as one split."""


@dataclass(frozen=True, slots=True)
class RecordFiles:
    """Inspects and divides files of one format."""

    format: FileFormat
    selection: Selection
    compression: Compression
    min_split_size: int
    options: StorageOptions | None

    def open(self, part: FilePart) -> OpenedFile:
        """A file to read from."""
        return OpenedFile(part, self.compression, self.options)

    def url(self, part: FilePart) -> str:
        """The file in the form that authors write."""
        return url_of(part, self.options)

    def members(self, file: Found) -> list[FilePart]:
        """The file; if it is a zip archive, the files in it."""
        part = FilePart(file.pattern, file.info.path, file.info.size, file.info.tag)
        if _compression.of_path(part.path, self.compression) != "zip":
            return [part]
        return [member for member, _ in zip_members(part, self.options)]

    def inspect(self, part: FilePart) -> RecordSchema | None:
        """The columns of a file; None if it has nothing to infer them from. Raises ReadError for a broken file."""
        if part.size is None and isinstance(files.store_of(part.pattern, self.options)[0], files.Local):
            return None  # a pipe, which can be read only once
        with self.open(part) as file:
            try:
                return self.format.inspect(file, self.selection)
            except TidegateError:
                raise
            except _compression.broken() as error:
                raise broken_file(file.url, file.compression, error) from error

    def inspect_or_skip(self, part: FilePart) -> RecordSchema | None:
        """Like `inspect`, but None for a broken file that its reader will turn into a dead letter."""
        try:
            return self.inspect(part)
        except ReadError as error:
            if Reading(self.selection, None, "").refuses(error):
                raise
            return None

    def divide(self, part: FilePart, target: int) -> Iterator[tuple[FilePart, int]]:
        """The parts of a file with their sizes: about `target` bytes each, if the file can be divided."""
        size = part.size or 0
        count = min(-(-size // target), size // self.min_split_size)
        compressed = part.member is not None or _compression.of_path(part.path, self.compression) != "none"
        if count < 2 or not self.format.divisible or compressed:
            yield part, size
        elif self.format.divided_by == "bytes":
            bounds = [size * at // count for at in range(count + 1)]
            for start, end in itertools.pairwise(bounds):
                yield _between(part, start, end), end - start
        else:
            yield from self._divide_by_parts(part, target)

    def _divide_by_parts(self, part: FilePart, target: int) -> Iterator[tuple[FilePart, int]]:
        try:
            with self.open(part) as file:
                sizes = self.format.parts(file, self.selection)
        except ReadError as error:
            if Reading(self.selection, None, "").refuses(error):
                raise
            sizes = []
        if not sizes:
            yield part, part.size or 0
        start = taken = 0
        for at, size in enumerate(sizes):
            taken += size
            if taken >= target or at == len(sizes) - 1:
                yield _between(part, start, at + 1), taken
                start, taken = at + 1, 0


def packed(parts: Iterable[tuple[FilePart, int]], target: int) -> Iterator[list[tuple[FilePart, int]]]:
    """Consecutive small parts in packs of about `target` bytes."""
    pack: list[tuple[FilePart, int]] = []
    cost = 0
    for part, size in parts:
        if pack and (cost + size + OPENING > target or len(pack) >= FILES_OF_A_SPLIT):
            yield pack
            pack, cost = [], 0
        pack.append((part, size))
        cost += size + OPENING
    if pack:
        yield pack


def total_cost(parts: Sequence[FilePart]) -> int:
    """The bytes of some files, and the cost of opening them."""
    return sum((part.size or 0) + OPENING for part in parts)


def _between(part: FilePart, start: int, end: int) -> FilePart:
    return FilePart(part.pattern, part.path, part.size, part.tag, part.member, start, end)
