"""One task's attempt to append to a table: records become Parquet files in the run's work folder.

The rows of each partition are in files of their own, without the columns that name it. A file is finished when it has
about the size that the author allows, when too many files are open, and when the attempt is prepared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

from tidegate.io import files
from tidegate.io.delta.statistics import UnfitPartition, partition_text, statistics_of
from tidegate.io.files import Store
from tidegate.io.formats.writing.record_format import RecordBuffer
from tidegate.io.records.row_converter import RowConverter
from tidegate.sdk.connectors.sinks import Attempt, Committable
from tidegate.sdk.errors import WriteError, shorten

OPEN_AT_ONCE: Final = 64
"""The number of files that one attempt has open."""

Partition: TypeAlias = tuple[str | None, ...]
"""The values of the partition's columns, as the log has them."""

_UNSAFE: Final = re.compile("[^A-Za-z0-9_.-]")


class WrittenFile(NamedTuple):
    """The payload of a committable: a data file's path in the run's work folder, its final path below the table, its
    size in bytes, the values of its partition, and its statistics."""

    path: str
    final: str
    size: int
    partition: Sequence[str | None]
    statistics: str


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How an attempt divides rows into files. `schema` has all columns of the table, in order; `partition_by` names
    those of partitions. Sizes are in bytes."""

    sink: str
    schema: Any
    partition_by: tuple[str, ...]
    codec: str
    timezone: str | None
    row_group_bytes: int
    max_file_bytes: int

    @property
    def file_schema(self) -> Any:
        """The columns of the data files."""
        import pyarrow as pa

        return pa.schema([field for field in self.schema if field.name not in self.partition_by])


class DeltaAttempt(Attempt[Any]):
    """Writes data files. `work` is the run's work folder in the table's store, which `open_store` opens with the
    credentials of the moment: at first, and again for the first file after each `prepare`."""

    def __init__(self, layout: FileLayout, open_store: Callable[[], Store], work: str, task: int) -> None:
        self._layout = layout
        self._open_store = open_store
        self._store = open_store()
        self._has_prepared = False
        """Whether the store was opened before the last `prepare`."""
        self._work = work
        self._task = task
        self._id = f"{task:05d}-{os.urandom(8).hex()}"
        self._records = RecordBuffer(RowConverter(layout.sink, layout.schema, (), layout.timezone))
        self._file_schema = layout.file_schema
        self._floats = [field.name for field in self._file_schema if _is_float(field.type)]
        self._open: dict[Partition, _DataFile] = {}  # by last use
        self._finished: list[WrittenFile] = []
        self._begun = 0
        self._sequence = 0

    def write(self, values: Sequence[Any]) -> None:
        with _named(self._layout.sink):
            self._records.add(values)
            if self._records.size >= self._layout.row_group_bytes:
                self._flush()

    def prepare(self) -> list[Committable]:
        with _named(self._layout.sink):
            self._flush()
            while self._open:
                self._finish(next(iter(self._open)))
        self._has_prepared = True
        written, self._finished = self._finished, []
        prepared = [Committable((self._task, self._sequence + at), list(each)) for at, each in enumerate(written)]
        self._sequence += len(prepared)
        return prepared

    def close(self) -> None:
        for file in self._open.values():
            with suppress(Exception):  # what is left is removed with the work folder
                file.discard()
        unprepared = [file.path for file in self._open.values()] + [each.path for each in self._finished]
        for path in unprepared:
            with suppress(Exception):
                self._store.remove(files.join(self._work, path))
        self._open, self._finished = {}, []
        with suppress(Exception):
            self._store.remove_empty_folder(files.join(self._work, self._id))

    def _flush(self) -> None:
        """Write what is in memory to the files of its partitions."""
        import pyarrow as pa

        batches = self._records.drain()
        if not batches:
            return
        for partition, rows in self._divided(pa.Table.from_batches(batches)):
            file = self._file(partition)
            file.write(rows, self._floats)
            if file.size >= self._layout.max_file_bytes:
                self._finish(partition)

    def _divided(self, table: Any) -> Iterator[tuple[Partition, Any]]:
        """The rows of each partition, without the columns that name it."""
        columns = self._layout.partition_by
        rows = table.select(self._file_schema.names)
        if not columns:
            yield (), rows
            return
        indices: dict[tuple[Any, ...], list[int]] = {}
        for row, key in enumerate(zip(*[table.column(name).to_pylist() for name in columns])):
            indices.setdefault(key, []).append(row)
        for key, at in indices.items():
            try:
                partition = tuple(map(partition_text, key))
            except UnfitPartition as error:
                record = table.slice(at[0], 1).to_pylist()[0]
                raise WriteError(f"{self._layout.sink}: {shorten(record)} can't be written: {error}") from None
            yield partition, rows if len(at) == table.num_rows else rows.take(at)

    def _file(self, partition: Partition) -> _DataFile:
        file = self._open.pop(partition, None)
        if file is None:
            if len(self._open) >= OPEN_AT_ONCE:
                self._finish(next(iter(self._open)))
            path = f"{self._id}/{self._begun:05d}.parquet"
            folders = "".join(f"{_folder(name, text)}/" for name, text in zip(self._layout.partition_by, partition))
            final = f"{folders}part-{self._id}-{self._begun:05d}.{self._layout.codec}.parquet"
            self._begun += 1
            if self._has_prepared:
                self._store, self._has_prepared = self._open_store(), False
            stream = self._store.create(files.join(self._work, path))
            file = _DataFile(path, final, partition, stream, self._file_schema, self._layout.codec)
        self._open[partition] = file
        return file

    def _finish(self, partition: Partition) -> None:
        self._finished.append(self._open.pop(partition).finish(self._store.finish))


class _DataFile:
    """A data file that is being written."""

    def __init__(self, path: str, final: str, partition: Partition, stream: BinaryIO, schema: Any, codec: str) -> None:
        import pyarrow.parquet as pq

        self.path = path
        self._final = final
        self._partition = partition
        self._stream = stream
        self._schema = schema
        self._metadata: list[Any] = []
        self._with_nan: set[str] = set()
        self._writer = pq.ParquetWriter(stream, schema, compression=codec, metadata_collector=self._metadata)

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._stream.tell()

    def write(self, rows: Any, floats: Sequence[str]) -> None:
        """Append a table of rows. `floats` are the columns that may have a NaN."""
        import pyarrow.compute as pc

        for name in floats:
            if name not in self._with_nan and pc.any(pc.is_nan(rows.column(name))).as_py():
                self._with_nan.add(name)
        self._writer.write_table(rows)

    def finish(self, durable: Callable[[BinaryIO], None]) -> WrittenFile:
        """Write the footer, and make the file durable."""
        self._writer.close()
        size = self._stream.tell()
        durable(self._stream)
        statistics = statistics_of(self._metadata[0], self._schema, self._with_nan)
        return WrittenFile(self.path, self._final, size, self._partition, statistics)

    def discard(self) -> None:
        """Close the file, which will be removed."""
        try:
            self._writer.close()
        finally:
            self._stream.close()


def _folder(name: str, text: str | None) -> str:
    """A folder for the files of a partition, for people who look: readers take the values from the log."""
    value = "__HIVE_DEFAULT_PARTITION__" if text is None else _UNSAFE.sub("_", text)[:80]
    return f"{_UNSAFE.sub('_', name)}={value}"


def _is_float(type: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(type))


@contextmanager
def _named(sink: str) -> Iterator[None]:
    """A context in which an error of a store becomes a WriteError that names the table."""
    try:
        yield
    except WriteError:
        raise
    except Exception as error:  # stores raise what they like
        raise WriteError(f"{sink}: can't be written: {files.describe(error)}") from error
