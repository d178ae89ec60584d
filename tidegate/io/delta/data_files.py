"""The data files of a table as parts that readers read: what is in them, and which of them a predicate rules out."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tidegate.io import files
from tidegate.io.delta.log import DataFile
from tidegate.io.file_source.format import Reading
from tidegate.io.file_source.opened import FilePart, OpenedFile
from tidegate.io.formats.parquet import FileColumns, ParquetFormat
from tidegate.io.records.predicate import Condition, matches, may_match
from tidegate.io.records.schema import RecordSchema
from tidegate.sdk.errors import PositionLost, ReadError

_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TablePart(FilePart):
    """The part of a data file that a reader reads. `pattern` is the table, `path` the file below it; `partition` has
    the values that the log gives all rows of the file; `deletion_vector` as in `DataFile`."""

    partition: tuple[tuple[str, Any], ...] = ()
    deletion_vector: tuple[int, bytes] | None = None

    @property
    def url(self) -> str:
        return files.join(self.pattern, self.path)


class TableFile(OpenedFile):
    """A data file that is open. `root` is the table's folder in the store."""

    def __init__(self, part: TablePart, store: files.Store, root: str) -> None:
        self.part = part
        self.url = part.url
        self.compression = "none"
        self._store = store
        self._path = files.join(root, part.path)
        self._open = []

    @property
    def local_path(self) -> str | None:
        return self._path if isinstance(self._store, files.Local) else None

    def raw(self) -> Any:
        """The bytes of the file. Raises PositionLost if it was removed, ReadError if it isn't the one that the log
        describes."""
        try:
            file = self._store.open(self._path)
        except FileNotFoundError as error:
            raise PositionLost(
                f"{self.url}: the data file is gone; a VACUUM has probably removed it, with the versions that it "
                "belonged to. Read a newer version, and keep old files for longer than a run may be stopped "
                "(delta.deletedFileRetentionDuration)"
            ) from error
        self._open.append(file)
        found = self._store.info_of(file, self._path)
        if found is not None and found.size != self.part.size:
            raise ReadError(
                f"{self.url}: the data file has {found.size} bytes, and {self.part.size} in the table's log: something "
                "other than a writer of Delta tables has written it"
            )
        return file

    def check_unchanged(self) -> None:
        """Nothing to check: writers of Delta tables never change a data file."""


@dataclass(frozen=True, slots=True)
class DataFileFormat(ParquetFormat):
    """Parquet files with the columns of a table: those that a file lacks are the table's partition columns, or were
    added to the table later, and are null."""

    name: ClassVar[str] = "delta"

    def columns(self, file: OpenedFile, parquet: Any, reading: Reading) -> FileColumns:
        assert reading.reference is not None
        projection = reading.project(file, reading.reference)
        own = set(parquet.schema_arrow.names)
        assert isinstance(file.part, TablePart)
        partition = dict(file.part.partition)
        to_read = tuple(name for name in projection.to_read if name in own and name not in partition)
        complete = _completion(projection.to_read, reading.reference, partition, file.part.deletion_vector)
        return FileColumns(projection, to_read, complete)


def _completion(
    names: Sequence[str], table: RecordSchema, partition: Mapping[str, Any], vector: tuple[int, bytes] | None
) -> Callable[[Any, int], Any]:
    """A function that gives a batch all columns of these names, with the types that the table says, and drops the rows
    that the deletion vector says are deleted."""
    import pyarrow as pa

    fields = {field.name: field for field in table.select(names).fields}
    kept = None if vector is None else _kept(*vector)

    def column(batch: Any, name: str) -> Any:
        type = fields[name].type
        if name in partition:
            return pa.repeat(pa.scalar(partition[name], type), batch.num_rows)
        if name not in batch.schema.names:
            return pa.nulls(batch.num_rows, type)
        found = batch.column(name)
        return found if found.type.equals(type) else found.cast(type)

    def complete(batch: Any, rows_before: int) -> Any:
        whole = pa.record_batch([column(batch, name) for name in names], names=list(names)) if names else batch
        if kept is None:
            return whole
        mask = kept.slice(rows_before, whole.num_rows)
        beyond = pa.repeat(pa.scalar(True), whole.num_rows - len(mask))
        return whole.filter(pa.concat_arrays([mask, beyond]))

    return complete


def _kept(rows: int, bits: bytes) -> Any:
    """An Arrow array that says which of a file's first rows exist."""
    import zlib

    import pyarrow as pa

    return pa.BooleanArray.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(zlib.decompress(bits))])


def may_hold(file: DataFile, where: Sequence[Condition], partition_columns: Sequence[str]) -> bool:
    """Whether a file may have a row that meets all conditions, by its partition and its statistics."""
    return all(_may_meet(file, condition, condition.column in partition_columns) for condition in where)


def _may_meet(file: DataFile, condition: Condition, is_partition: bool) -> bool:
    name = condition.column
    if is_partition:
        try:
            return matches((condition,), file.partition)
        except ReadError:
            return True  # the rows tell
    least, greatest = file.least.get(name), file.greatest.get(name)
    if isinstance(least, str) and isinstance(greatest, str) and max(least + greatest, default="") > "\uffff":
        least = greatest = None  # deltalake 1.6 decodes "\\ud840\\udc00" in logs as another character
    if isinstance(greatest, datetime.datetime):
        greatest += _MILLISECOND  # writers cut off the microseconds
    nulls = file.nulls.get(name)
    rows = file.rows
    if rows is None or not isinstance(nulls, int):
        return may_match(condition, least, greatest, None, 0)
    return may_match(condition, least, greatest, nulls, rows)
