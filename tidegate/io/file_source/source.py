"""`FileSource`: the files that match some patterns, in one format.

A split is a part of a large file, if the format allows it, or several small files, so that ten thousand small files
make few splits. Only the first file is opened before the run, or all files if the schemas are to be united.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.io import compression as _compression
from tidegate.io import files
from tidegate.io.compression import Compression
from tidegate.io.file_source.format import FileFormat, Reading, mismatch_error
from tidegate.io.file_source.opened import FilePart, OpenedFile, broken_file
from tidegate.io.file_source.reader import FileReader
from tidegate.io.records.problems import SchemaMismatch
from tidegate.io.records.projection import Selection
from tidegate.io.records.schema import RecordSchema
from tidegate.io.records.types import unify
from tidegate.sdk.connectors.sources import Position, Reader, Source, Split
from tidegate.sdk.errors import BuildError, ReadError, TidegateError

OPENING: Final = 64 << 10
"""What it costs to open a file, as bytes that could be read instead."""
FILES_OF_A_SPLIT: Final = 1000
"""At most so many small files are read as one split."""
_LOOKS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class FileParts:
    """A split's payload: what it reads, and the columns that files should have."""

    parts: tuple[FilePart, ...]
    reference: RecordSchema | None
    of_reference: str


@dataclass(frozen=True, slots=True)
class FileSource(Source[Any]):
    """Elements of the files that match some patterns. `of` is the transform, for messages."""

    patterns: tuple[str, ...]
    format: FileFormat
    selection: Selection
    of: str
    compression: Compression = "none"
    allow_empty: bool = False
    min_split_size: int = 16 << 20

    @property
    def name(self) -> str:
        return f"{self.format.name} {', '.join(self.patterns)}"

    @property
    def element_type(self) -> Any:
        if self.selection.bad_records == "dead_letter":
            return Any
        return self.selection.shape.element_type

    @property
    def forks_safely(self) -> bool:  # type: ignore[override]
        return all(files.store_of(pattern)[0].forks_safely for pattern in self.patterns)

    def check(self) -> None:
        if type(self.min_split_size) is not int or self.min_split_size < 1:
            raise BuildError(f"{self.of}: min_split_size is a whole number from 1 on, not {self.min_split_size!r}")
        _compression.check(self.compression, self.of)
        self.format.check(self.of)
        if not self.patterns or not all(self.patterns):
            raise BuildError(f"{self.of}: there is no path to read from")
        found = self._find(BuildError)
        for used in sorted({_compression.of_path(file.path, self.compression) for file in found}):
            _compression.check(used, self.of)
        if found:
            self._check_first(found[0])

    def local_files(self) -> Sequence[str]:
        return [file.path for file in self._find(ReadError) if isinstance(files.store_of(file.pattern)[0], files.Local)]

    def splits(self, desired: int) -> list[Split]:
        found = [part for file in self._find(ReadError) for part in self._members(file)]
        reference, of_reference = self._reference(found)
        total = sum(part.size or 0 for part in found)
        target = max(self.min_split_size, -(-total // max(1, desired)))
        divided = (each for part in found for each in self._divided(part, target))
        packs = list(packed(divided, max(target, -(-(total + OPENING * len(found)) // max(1, desired)))))
        return [_split(pack, reference, of_reference) for pack in packs]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        payload = split.payload
        reading = Reading(self.selection, payload.reference, payload.of_reference)
        return FileReader(self.format, payload.parts, reading, self.compression, position)

    def _find(self, error: type[Exception]) -> list[FilePart]:
        """The files of each pattern in order; one that several match only once."""
        found: dict[str, FilePart] = {}
        for pattern in self.patterns:
            try:
                matched = files.match(pattern)
            except OSError as problem:
                raise error(f"{pattern}: {files.describe(problem)}") from problem
            if not matched and not self.allow_empty:
                raise error(
                    f"no file matches {pattern!r}: {files.explain_no_match(pattern)}. "
                    "If it may be that there is none, say allow_empty=True"
                )
            for file in matched:
                part = FilePart(pattern, file.path, file.size, file.tag)
                found.setdefault(part.url, part)
        return list(found.values())

    def _members(self, part: FilePart) -> Iterator[FilePart]:
        """The file, or those in it if it is a zip archive."""
        if _compression.of_path(part.path, self.compression) != "zip":
            yield part
            return
        try:
            with OpenedFile(part, "none") as file:
                members = _compression.zip_members(file.raw())
        except _compression.broken() as error:
            raise ReadError(f"{part.url}: not a whole zip file: {files.describe(error)}") from error
        for member, _ in members:
            yield FilePart(part.pattern, part.path, part.size, part.tag, member)

    def _check_first(self, first: FilePart) -> None:
        """Raise BuildError if the columns of the first file don't fit, rather than fail when the run has started."""
        try:
            part = next(self._members(first), None)
            found = self._inspect(part) if part is not None else None
            if part is None or found is None or self.selection.evolution == "union":
                return
            if self.selection.names is None:
                self.selection.shape.check_names(found.names, part.url)
            with OpenedFile(part, self.compression) as file:
                Reading(self.selection, found, part.url).project(file, found, may_lack=self.format.may_lack)
        except ReadError as error:
            if self.selection.bad_records == "fail":
                raise BuildError(f"{self.of}: {error}") from error

    def _reference(self, found: Sequence[FilePart]) -> tuple[RecordSchema | None, str]:
        """The columns that files should have: those of the first one, or of all together."""
        if not found:
            return None, ""
        if self.selection.evolution == "refuse" or self.selection.schema is not None:
            first = next(((part, schema) for part in found if (schema := self._inspect_or_skip(part))), None)
            return (None, found[0].url) if first is None else (first[1], first[0].url)
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
            looked = list(zip(found, pool.map(self._inspect_or_skip, found)))
        readable = [(part.url, schema) for part, schema in looked if schema is not None]
        if not readable:
            return None, found[0].url
        try:
            return unify([schema for _, schema in readable], [url for url, _ in readable]), "the files together"
        except SchemaMismatch as error:
            raise mismatch_error(", ".join(self.patterns), error) from error

    def _inspect_or_skip(self, part: FilePart) -> RecordSchema | None:
        """The columns of a file; None for a broken one if it becomes a dead letter later."""
        try:
            return self._inspect(part)
        except ReadError:
            if self.selection.bad_records == "fail":
                raise
            return None

    def _inspect(self, part: FilePart) -> RecordSchema | None:
        if part.size is None and isinstance(files.store_of(part.pattern)[0], files.Local):
            return None  # a pipe, which can be read only once
        with OpenedFile(part, self.compression) as file:
            try:
                return self.format.inspect(file, self.selection)
            except TidegateError:
                raise
            except _compression.broken() as error:
                raise broken_file(file, error) from error

    def _divided(self, part: FilePart, target: int) -> Iterator[tuple[FilePart, int]]:
        """The parts of a file with their sizes: about `target` bytes each, if it can be divided."""
        size = part.size or 0
        whole = part, size
        count = min(-(-size // target), size // self.min_split_size)
        compressed = part.member is not None or _compression.of_path(part.path, self.compression) != "none"
        if count < 2 or not self.format.divisible or compressed:
            yield whole
        elif self.format.divided_by == "bytes":
            bounds = [size * at // count for at in range(count + 1)]
            for start, end in itertools.pairwise(bounds):
                yield _of(part, start, end), end - start
        else:
            try:
                with OpenedFile(part, self.compression) as file:
                    sizes = self.format.parts(file, self.selection)
            except ReadError:
                if self.selection.bad_records == "fail":
                    raise
                yield whole
                return
            start = taken = 0
            for at, each in enumerate(sizes):
                taken += each
                if taken >= target or at == len(sizes) - 1:
                    yield _of(part, start, at + 1), taken
                    start, taken = at + 1, 0
            if not sizes:
                yield whole


def _of(part: FilePart, start: int, end: int) -> FilePart:
    return FilePart(part.pattern, part.path, part.size, part.tag, part.member, start, end)


def packed(parts: Iterable[tuple[FilePart, int]], target: int) -> Iterator[list[tuple[FilePart, int]]]:
    """Parts with their sizes in lists, each of which is read as one split: consecutive ones together as long as they
    are small."""
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


def _split(pack: list[tuple[FilePart, int]], reference: RecordSchema | None, of_reference: str) -> Split:
    first = pack[0][0]
    id = first.url if first.end is None else f"{first.url}:{first.start}-{first.end}"
    if len(pack) > 1:
        id = f"{id} and {len(pack) - 1} more"
    payload = FileParts(tuple(part for part, _ in pack), reference, of_reference)
    return Split(id, sum(size for _, size in pack), payload)
