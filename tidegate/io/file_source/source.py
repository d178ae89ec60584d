"""`FileSource`: the records of the files that match some patterns, in one format.

A split is a part of a large file, if the format can divide it, or several small files, so that ten thousand small files
make few splits. Before the run, only the first file is opened, or all files if their columns are to be united.

If the patterns are followed, each file that appears is divided into splits of its own, by `FollowedRecords`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.io import compression as _compression
from tidegate.io import files
from tidegate.io.compression import Compression
from tidegate.io.file_source.followed_records import FollowedRecords
from tidegate.io.file_source.following import MIN_AGE, Follow, check_followed
from tidegate.io.file_source.format import FileFormat, Reading, mismatch_error
from tidegate.io.file_source.listing import Found, matching
from tidegate.io.file_source.opened import FilePart
from tidegate.io.file_source.reader import FileParts, FileReader
from tidegate.io.file_source.record_files import RecordFiles, packed, total_cost
from tidegate.io.first_contact import check_readable
from tidegate.io.records.column_types import schema_of_records
from tidegate.io.records.problems import SchemaMismatch
from tidegate.io.records.projection import Selection, declared
from tidegate.io.records.schema import RecordSchema
from tidegate.io.records.types import unify
from tidegate.io.storage_options import StorageOptions
from tidegate.sdk import moved
from tidegate.sdk.connectors.sources import Position, Reader, Source, Split, SplitEnumerator
from tidegate.sdk.connectors.stored_tables import StoredTable
from tidegate.sdk.data.columns import Schema
from tidegate.sdk.data.schema import with_schema
from tidegate.sdk.errors import BuildError, ReadError, TidegateError
from tidegate.sdk.relational.expressions import Tree

MIN_SPLIT_SIZE: Final = 16 << 20
"""The default of `min_split_size`, in bytes."""
_INSPECTED_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class FileSource(Source[Any]):
    """The records of all files that match the patterns. `of` is the name of the transform, for messages."""

    patterns: tuple[str, ...]
    format: FileFormat
    selection: Selection
    of: str
    compression: Compression = "none"
    allow_empty: bool = False
    min_split_size: int = MIN_SPLIT_SIZE
    follow: Follow | None = None
    storage_options: StorageOptions | None = None
    _schema: Schema | None = field(default=None, init=False, repr=False, compare=False)
    """The columns of rows and dicts, once `check` has seen them. Not pickled: only the author's side asks for it."""

    conditions: tuple[Tree, ...] = ()
    """Rows that can't meet them may be left out. Only the source that `scan` returns has any."""

    def __getstate__(self) -> list[Any]:
        """The fields to pickle, without what `check` has seen."""
        return moved.get_fields(replace(self), 7)

    def __setstate__(self, state: Sequence[Any]) -> None:
        """Restore a pickled source, also one that was stored before sources had all of today's fields."""
        moved.set_fields(self, state)

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        return self.follow is None

    @property
    def name(self) -> str:
        return f"{self.format.name} {', '.join(self.patterns)}"

    @property
    def element_type(self) -> Any:
        return Any if self.selection.bad_records == "dead_letter" else self.good_type

    @property
    def good_type(self) -> Any:
        """The type of the elements that are no dead letters: with the columns of the files, if they are known."""
        hint = self.selection.shape.element_type
        return hint if self._schema is None else with_schema(hint, self._schema)

    @property
    def forks_safely(self) -> bool:  # type: ignore[override]
        return all(files.store_of(pattern, self.storage_options)[0].forks_safely for pattern in self.patterns)

    @property
    def takes_columns(self) -> bool:  # type: ignore[override]
        return self.selection.bad_records == "fail" and self.format.takes_columns(self.selection)

    @property
    def takes_conditions(self) -> bool:  # type: ignore[override]
        return self.selection.bad_records == "fail" and self.format.takes_conditions(self.selection)

    def scan(self, columns: tuple[str, ...] | None, conditions: tuple[Tree, ...]) -> FileSource:
        selection = self.selection if columns is None else replace(self.selection, columns=columns)
        return replace(self, selection=selection, conditions=conditions)

    def check(self) -> None:
        self.check_options()
        self._declare_columns()
        if not check_readable(self.patterns, self.storage_options):
            return
        if self.follow is not None:
            check_followed(self.patterns, self.of, self.allow_empty, self.storage_options)
        found = matching(self.patterns, self.allow_empty or not self.bounded, BuildError, self.storage_options)
        for used in sorted({_compression.of_path(file.info.path, self.compression) for file in found}):
            _compression.check(used, self.of)
        if self.follow is not None:
            self._check_columns_known(found)
            found.sort(key=lambda file: (file.info.modified or 0, file.url))
            complete = [file for file in found if _is_complete(file, self.follow)]
            if found and not complete and self.format.states_columns:
                with contextlib.suppress(BuildError, OSError):  # it may still be written: the run tells what is wrong
                    self._check_first(found[0])
            found = complete
        if found:
            self._check_first(found[0])

    def check_options(self) -> None:
        """Raise BuildError for options by which no file can be read."""
        if type(self.min_split_size) is not int or self.min_split_size < 1:
            raise BuildError(
                f"{self.of}: min_split_size must be a whole number of at least 1, not {self.min_split_size!r}"
            )
        _compression.check(self.compression, self.of)
        self.format.check(self.of)

    def local_files(self) -> Sequence[str]:
        if self.follow is not None:
            return ()
        return [
            file.info.path
            for file in self._matching()
            if isinstance(files.store_of(file.pattern, self.storage_options)[0], files.Local)
        ]

    def stored_table(self) -> StoredTable | str:
        """The files as a table that an engine may read itself; else the reason why only this source can read them."""
        if self.follow is not None or self.compression != "none":
            return "the files are followed, or compressed"
        try:
            found = self._matching()
        except TidegateError as error:
            return str(error)
        if not all(isinstance(files.store_of(file.pattern, self.storage_options)[0], files.Local) for file in found):
            return "the files are not local ones"
        return self.format.stored_table([file.info.path for file in found], self.selection)

    def splits(self, desired: int) -> list[Split]:
        record_files = self._files()
        found = [part for file in self._matching() for part in record_files.members(file)]
        reference, of_reference = self._reference(record_files, found)
        total = sum(part.size or 0 for part in found)
        target = max(self.min_split_size, -(-total // max(1, desired)))
        divided = (each for part in found for each in record_files.divide(part, target))
        packs = packed(divided, max(target, -(-total_cost(found) // max(1, desired))))
        return [
            FileParts(tuple(part for part, _ in pack), reference, of_reference).split(
                sum(size for _, size in pack), self.storage_options
            )
            for pack in packs
        ]

    def enumerator(self, state: Position = None) -> SplitEnumerator | None:
        if self.follow is None:
            return None
        return FollowedRecords(self._files(), self.patterns, self.follow, state)

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        payload = split.payload
        reading = Reading(self.selection, payload.reference, payload.of_reference, self.conditions)
        return FileReader(self.format, payload.parts, reading, self.compression, position, self.storage_options)

    def _files(self) -> RecordFiles:
        return RecordFiles(self.format, self.selection, self.compression, self.min_split_size, self.storage_options)

    def _matching(self) -> list[Found]:
        return matching(self.patterns, self.allow_empty, ReadError, self.storage_options)

    def _check_columns_known(self, found: Sequence[Found]) -> None:
        """Raise BuildError if there is neither a schema nor a file to infer the columns of followed files from."""
        if not found and not self.allow_empty and self.format.infers_columns(self.selection):
            raise BuildError(
                f"{self.of}: no file matches {', '.join(map(repr, self.patterns))} yet, so the columns of its records "
                "are not known. Give them, with schema= or a class as as_=, or set allow_empty=True to take them from "
                "the first file that appears"
            )

    def _declare_columns(self) -> None:
        """Take the columns from the author's schema, if it tells all of them, so that they don't depend on files."""
        columns = declared(self.selection) if self.format.casts else None
        if columns is not None and self.selection.shape.kind in ("row", "dict"):
            object.__setattr__(self, "_schema", schema_of_records(columns))

    def _check_first(self, first: Found) -> None:
        """Raise BuildError if the columns of the first file don't fit, rather than fail when the run has started."""
        record_files = self._files()
        try:
            part = next(iter(record_files.members(first)), None)
            found = record_files.inspect(part) if part is not None else None
            if part is None or found is None or self.selection.evolution == "union":
                return
            if self.selection.names is None:
                self.selection.shape.check_names(found.names, record_files.url(part))
            with record_files.open(part) as file:
                reading = Reading(self.selection, found, file.url)
                projection = reading.project(file, found, may_lack=self.format.may_lack)
            if self.selection.shape.kind in ("row", "dict"):
                object.__setattr__(self, "_schema", schema_of_records(projection.columns))
        except ReadError as error:
            if self.selection.bad_records == "fail":
                raise BuildError(f"{self.of}: {error}") from error

    def _reference(self, record_files: RecordFiles, found: Sequence[FilePart]) -> tuple[RecordSchema | None, str]:
        """The columns that all files should have, which are those of the first file or of all files together, and the
        name of that file."""
        if not found:
            return None, ""
        inspect = record_files.inspect_or_skip
        if self.selection.evolution == "refuse" or self.selection.schema is not None:
            first = next(((part, schema) for part in found if (schema := inspect(part))), None)
            return (None, record_files.url(found[0])) if first is None else (first[1], record_files.url(first[0]))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_INSPECTED_AT_ONCE) as pool:
            inspected = list(zip(found, pool.map(inspect, found)))
        readable = [(record_files.url(part), schema) for part, schema in inspected if schema is not None]
        if not readable:
            return None, record_files.url(found[0])
        try:
            return unify([schema for _, schema in readable], [url for url, _ in readable]), "the files together"
        except SchemaMismatch as error:
            raise mismatch_error(", ".join(self.patterns), error) from error


def _is_complete(file: Found, follow: Follow) -> bool:
    """Whether a file is old enough, when the pipeline is built, to be complete."""
    if file.info.content_tag is not None:
        return True
    age = MIN_AGE if follow.min_age is None else follow.min_age
    return file.info.modified is not None and time.time_ns() - file.info.modified >= age * 1e9
