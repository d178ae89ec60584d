"""`DeltaSource`: the rows of a Delta table, of one version or of all from one version on.

A split is a part of a large data file, or several small files. The client library reads the table's log when splits are
listed, in one process; readers open Parquet files and nothing else.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tidegate.io import files
from tidegate.io.delta.client import QUICK, check_readable, client_errors, is_slow, need_deltalake, open_table
from tidegate.io.delta.data_files import DataFileFormat, TableFile, TablePart, may_hold
from tidegate.io.delta.following import FollowedTable, FollowTable
from tidegate.io.delta.location import PATIENCE, Location
from tidegate.io.delta.log import DataFile, Log
from tidegate.io.delta.snapshot import Snapshot, TableColumns, columns_of, snapshot_of
from tidegate.io.delta.store import store_of
from tidegate.io.file_source.format import Reading
from tidegate.io.file_source.opened import FilePart, OpenedFile
from tidegate.io.file_source.reader import FileParts, FileReader
from tidegate.io.file_source.record_files import packed
from tidegate.io.first_contact import report_slow
from tidegate.io.records.predicate import mask_of
from tidegate.io.records.problems import SchemaMismatch
from tidegate.io.records.projection import Selection, project
from tidegate.io.records.schema import RecordSchema, of_arrow
from tidegate.sdk.connectors.sources import Position, Reader, Source, Split, SplitEnumerator
from tidegate.sdk.errors import BuildError, ReadError

_FORMAT: Final = DataFileFormat()
_FOLLOWED_SPLIT: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class DeltaSource(Source[Any]):
    """Rows of the table at `location`; `version` and `as_of` say at which version, None for the latest when the run
    starts. `of` is the transform, for messages."""

    location: Location
    selection: Selection
    of: str
    version: int | None = None
    as_of: datetime.datetime | None = None
    follow: FollowTable | None = None
    min_split_size: int = 16 << 20

    forks_safely = False

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        return self.follow is None

    @property
    def name(self) -> str:
        version = f" version {self.version}" if self.version is not None else ""
        return f"delta {self.location.shown}{version}"

    @property
    def element_type(self) -> Any:
        if self.selection.bad_records == "dead_letter":
            return Any
        return self.selection.shape.element_type

    def check(self) -> None:
        need_deltalake(self.of)
        if type(self.min_split_size) is not int or self.min_split_size < 1:
            raise BuildError(f"{self.of}: min_split_size is a whole number from 1 on, not {self.min_split_size!r}")
        if not self.location.resolves_here():
            return  # workers know the secrets
        try:
            table = self._open(QUICK)
            self._check_columns(table)
        except ReadError as error:
            if is_slow(error):
                report_slow(str(error))
                return
            raise BuildError(f"{self.of}: {error}") from error

    def local_files(self) -> Sequence[str]:
        return [self.location.client_url] if self.location.is_local else []

    def splits(self, desired: int) -> list[Split]:
        snapshot = self.snapshot()
        columns = snapshot.columns
        chosen = self.chosen(snapshot.files, columns.partition)
        total = sum(file.size for file in chosen)
        target = max(self.min_split_size, -(-total // max(1, desired)))
        return self.divided(chosen, of_arrow(columns.schema), snapshot.version, target)

    def enumerator(self, state: Position = None) -> SplitEnumerator | None:
        if self.follow is None:
            return None
        return FollowedTable(self.location, self.selection, self.follow, self.snapshot, self.followed, state)

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _TableReader(self.location, self.selection, split.payload, position)

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The table at a version, None for the one that the author asked for. Raises ReadError."""
        table = self._open() if version is None else open_table(self.location, version)
        return snapshot_of(self.location, table)

    def followed(self, file: DataFile, columns: TableColumns, version: int) -> list[Split]:
        """The splits of a file that a version has added."""
        chosen = self.chosen([file], columns.partition)
        target = max(self.min_split_size, _FOLLOWED_SPLIT)
        return self.divided(chosen, of_arrow(columns.schema), version, target)

    def chosen(self, found: Iterable[DataFile], partition_columns: Sequence[str]) -> list[DataFile]:
        """The files that may have rows to read."""
        return [file for file in found if may_hold(file, self.selection.where, partition_columns)]

    def divided(self, found: Sequence[DataFile], schema: RecordSchema, version: int, target: int) -> list[Split]:
        """The splits of some files of a version, of about `target` bytes each."""
        if not found:
            return []
        parts = (each for file in found for each in self._parts(file, schema, target))
        splits = []
        for pack in packed(parts, target):
            first = pack[0][0]
            id = first.path if first.end is None else f"{first.path}:{first.start}-{first.end}"
            more = f" and {len(pack) - 1} more" if len(pack) > 1 else ""
            payload = FileParts(tuple(part for part, _ in pack), schema, self.location.shown)
            splits.append(Split(f"{id}{more} @{version}", sum(size for _, size in pack), payload, True))
        return splits

    def _parts(self, file: DataFile, schema: RecordSchema, target: int) -> Iterator[tuple[FilePart, int]]:
        """The parts of a file with their sizes: row groups together of about `target` bytes."""
        whole = TablePart(
            self.location.shown,
            file.path,
            file.size,
            partition=tuple((file.partition or {}).items()),
            deletion_vector=file.deletion_vector,
        )
        if file.size < 2 * self.min_split_size or file.size <= target:
            yield whole, file.size
            return
        store, root = store_of(self.location)
        with TableFile(whole, store, root) as opened:
            sizes = _FORMAT.parts(opened, self.selection)
        start = taken = 0
        for at, size in enumerate(sizes):
            taken += size
            if taken >= target or at == len(sizes) - 1:
                yield replace(whole, start=start, end=at + 1), taken
                start, taken = at + 1, 0
        if not sizes:
            yield whole, file.size

    def _open(self, defaults: Mapping[str, str] = PATIENCE) -> Any:
        """The `DeltaTable` at the version that the author asked for."""
        if self.as_of is None:
            return open_table(self.location, self.version, defaults)
        table = open_table(self.location, None, defaults)
        with client_errors(self.location, f"has no version of {self.as_of.isoformat()}"):
            table.load_as_version(self.as_of)
        first = Log(self.location).version(table.version())
        if first is not None and first.timestamp is not None and first.timestamp / 1000 > self.as_of.timestamp():
            committed = datetime.datetime.fromtimestamp(first.timestamp / 1000, datetime.UTC)
            raise ReadError(
                f"{self.location.shown} has no version of {self.as_of.isoformat()}: the first one that can be read, "
                f"version {first.number}, was committed at {committed.isoformat()}"
            )
        return table

    def _check_columns(self, table: Any) -> None:
        """Raise BuildError or ReadError for columns and conditions that don't fit the table."""
        check_readable(self.location, table)
        columns = of_arrow(columns_of(self.location, table).schema)
        if self.selection.names is None:
            self.selection.shape.check_names(columns.names, f"{self.of}: {self.location.shown}")
        check_fit(self.location, self.selection, columns)


def check_fit(location: Location, selection: Selection, columns: RecordSchema) -> None:
    """Raise ReadError if what is selected doesn't fit the columns of a table."""
    import pyarrow as pa

    try:
        projection = project(columns, selection, columns, location.shown)
    except SchemaMismatch as error:
        raise ReadError(f"{location.shown}, {error}") from error
    types = {column.name: column.type for column in (*projection.columns, *projection.for_conditions)}
    for condition in selection.where:
        mask_of(condition, pa.nulls(0, types[condition.column]))


class _TableReader(FileReader):
    """Reads the parts of one split."""

    def __init__(self, location: Location, selection: Selection, payload: FileParts, position: Position) -> None:
        reading = Reading(selection, payload.reference, payload.of_reference)
        super().__init__(_FORMAT, payload.parts, reading, "none", position)
        self._location = location
        self._place: tuple[files.Store, str] | None = None

    def opened(self, part: FilePart) -> OpenedFile:
        assert isinstance(part, TablePart)
        if self._place is None:
            with client_errors(self._location, "can't be read"):
                self._place = store_of(self._location)
        return TableFile(part, *self._place)
