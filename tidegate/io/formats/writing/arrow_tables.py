"""What the formats that hold Arrow tables have in common: a writer of their files, and the joining of files to one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, TypeAlias

from tidegate.io.file_sink.format import FileWriter
from tidegate.io.formats.writing.record_format import RecordBuffer
from tidegate.io.records.row_converter import RowConverter
from tidegate.sdk.errors import WriteError

OpenWriter: TypeAlias = Callable[[Any, Any], Any]
"""From a file and the columns, a `pyarrow.Schema`, to pyarrow's writer of such files."""

ReadTables: TypeAlias = Callable[[BinaryIO], tuple[Any, Iterator[Any]]]
"""From a file to its columns and its tables or record batches, which are read one by one."""


class TableWriter(FileWriter):
    """Records in a file of pyarrow's: each flush writes one table.

    The file gets its columns at the first flush, so that the first elements can tell them. With `combine`, the table is
    a single record batch.
    """

    def __init__(self, converter: RowConverter, open_writer: OpenWriter, *, combine: bool = False) -> None:
        self._converter = converter
        self._open_writer = open_writer
        self._combine = combine
        self._records = RecordBuffer(converter)
        self._file: BinaryIO | None = None
        self._writer: Any = None
        self._schema: Any = None

    def add(self, values: Sequence[Any]) -> None:
        self._records.add(values)
        self.buffered = self._records.size

    def begin(self, file: BinaryIO) -> None:
        self._file = file

    def flush(self) -> None:
        batches = self._records.drain()
        self.buffered = 0
        if self._writer is None and (batches or self._converter.schema is not None):
            self._schema = self._converter.schema
            self._writer = self._open_writer(self._file, self._schema)
        if batches:
            table = _table_of(batches, self._schema, self._converter.sink)
            self._writer.write_table(table.combine_chunks() if self._combine else table)

    def finish(self) -> None:
        self.flush()
        if self._writer is None:
            self._writer = self._open_writer(self._file, None)
        self._writer.close()
        self._writer = self._file = None

    def discard(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def join_tables(
    parts: Sequence[Callable[[], BinaryIO]], read: ReadTables, target: BinaryIO, open_writer: OpenWriter, sink: str
) -> None:
    """Copy the tables of several files into one, so that no more than one table is in memory. WriteError if the types
    of a column have nothing in common."""
    schemas = []
    for part in parts:
        with part() as file:
            schemas.append(read(file)[0])
    schema = _joined_schema(schemas, sink)
    writer = open_writer(target, schema)
    for part in parts:
        with part() as file:
            _, tables = read(file)
            for table in tables:
                writer.write(_conformed(table, schema))
    writer.close()


def _joined_schema(schemas: Sequence[Any], sink: str) -> Any:
    import pyarrow as pa

    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise WriteError(
            f"{sink}: tasks inferred types from their first elements that don't fit one file: {error}. "
            "Give the types with schema="
        ) from None


def _table_of(batches: Sequence[Any], schema: Any, sink: str) -> Any:
    """The table of record batches for a file with these columns. Batches that were made before the type of a column was
    known have nulls in it. WriteError if it was not known when the file was begun."""
    import pyarrow as pa

    try:
        return pa.Table.from_batches([_conformed(batch, schema) for batch in batches])
    except pa.ArrowException as error:
        raise WriteError(
            f"{sink}: a column of a file had no value in the first elements, so its type was not known: {error}. "
            "Give the types with schema="
        ) from None


def _conformed(table: Any, schema: Any) -> Any:
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
