"""Writing Parquet: record batches are gathered to row groups."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Final

from tidegate.io.file_sink.format import FileWriter
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.formats.writing.record_format import RecordBuffer, RecordFormat, check_codec
from tidegate.io.records.row_converter import RowConverter
from tidegate.io.records.types import kind_of
from tidegate.sdk.errors import BuildError, WriteError

_CODECS: Final = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class ParquetFormat(RecordFormat):
    """Records in row groups; see `WriteToParquet`."""

    codec: str = "snappy"
    row_group_buffer_size: int = 1 << 26

    name: ClassVar[str] = "parquet"
    transform: ClassVar[str] = "WriteToParquet"

    @property
    def buffer_bytes(self) -> int:
        return self.row_group_buffer_size

    def check(self, path: str) -> None:
        need_pyarrow(self.transform)
        check_codec(self.codec, _CODECS, self.transform)
        size = self.row_group_buffer_size
        if type(size) is not int or size < 1:
            raise BuildError(f"{self.transform}: row_group_buffer_size is a number of bytes from 1 on, not {size!r}")
        for field in self.schema or ():
            if kind_of(field.type) == "duration":
                raise BuildError(f"{self.transform}: column {field.name!r} is {field.type}, which Parquet doesn't have")

    def writers(self, sink: str) -> Callable[[], FileWriter]:
        converter = self.converter(sink)
        return lambda: _ParquetWriter(self.codec, converter)

    def empty(self) -> bytes:
        target = io.BytesIO()
        open_parquet(target, self.schema, self.codec).close()
        return target.getvalue()

    def join(self, parts: Sequence[Callable[[], BinaryIO]], target: BinaryIO, sink: str) -> None:
        """Copy row group after row group, so that no more than one is in memory."""
        import pyarrow.parquet as pq

        schema = joined_schema([_schema_of(part) for part in parts], sink)
        writer = open_parquet(target, schema, self.codec)
        for part in parts:
            with part() as file:
                source = pq.ParquetFile(file)
                for group in range(source.num_row_groups):
                    writer.write_table(conformed(source.read_row_group(group), schema))
        writer.close()


class _ParquetWriter(FileWriter):
    def __init__(self, codec: str, converter: RowConverter) -> None:
        self._codec = codec
        self._converter = converter
        self._records = RecordBuffer(converter)
        self._file: BinaryIO | None = None
        self._writer: Any = None

    def add(self, values: Sequence[Any]) -> None:
        self._records.add(values)
        self.buffered = self._records.size

    def begin(self, file: BinaryIO) -> None:
        self._file = file

    def flush(self) -> None:
        batches = self._records.drain()
        self.buffered = 0
        if self._writer is None and (batches or self._converter.schema is not None):
            self._writer = open_parquet(self._file, self._converter.schema, self._codec)
        if batches:
            self._writer.write_table(table_of(batches, self._writer.schema, self._converter.sink))

    def finish(self) -> None:
        self.flush()
        if self._writer is None:
            self._writer = open_parquet(self._file, None, self._codec)
        self._writer.close()
        self._writer = self._file = None

    def discard(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def open_parquet(target: Any, schema: Any, codec: str) -> Any:
    """A `ParquetWriter` with these columns; without any, if they aren't known."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetWriter(target, pa.schema([]) if schema is None else schema, compression=codec)


def joined_schema(schemas: Sequence[Any], sink: str) -> Any:
    """The columns of several files together. WriteError if the types of a column have nothing in common."""
    import pyarrow as pa

    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise WriteError(
            f"{sink}: tasks inferred types from their first elements that don't fit one file: {error}. "
            "Give the types with schema="
        ) from None


def table_of(batches: Sequence[Any], schema: Any, sink: str) -> Any:
    """The table of record batches for a file with these columns. Batches of before the type of a column was known have
    nulls in it. WriteError if it was not known when the file was begun."""
    import pyarrow as pa

    try:
        return pa.Table.from_batches([conformed(batch, schema) for batch in batches])
    except pa.ArrowException as error:
        raise WriteError(
            f"{sink}: a column of a file had no value in the first elements, so its type was not known: {error}. "
            "Give the types with schema="
        ) from None


def conformed(table: Any, schema: Any) -> Any:
    """A table (or record batch) with the columns of a schema that was unified from its own."""
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.schema.names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return type(table).from_arrays(columns, schema=schema)


def _schema_of(part: Callable[[], BinaryIO]) -> Any:
    import pyarrow.parquet as pq

    with part() as file:
        return pq.read_schema(file)
