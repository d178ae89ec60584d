"""Writing CSV: a line for each record, and the names of the columns as the first line.

pyarrow writes the lines. Text is always quoted and null never, so that an empty text is not mistaken for null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tidegate.io import compression as _compression
from tidegate.io.compression import Compression
from tidegate.io.file_sink.byte_stream import ByteStreamWriter, compressed, empty_stream
from tidegate.io.file_sink.format import FileWriter
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.formats.writing.record_format import RecordBuffer, RecordFormat
from tidegate.io.records.row_converter import RowConverter
from tidegate.io.records.types import kind_of
from tidegate.sdk.errors import BuildError, WriteError


@dataclass(frozen=True, slots=True)
class CsvFormat(RecordFormat):
    """Records as lines; see `WriteToCsv`. The compression is never `auto`."""

    header: bool = True
    delimiter: str = ","
    compression: Compression = "none"

    name: ClassVar[str] = "csv"
    transform: ClassVar[str] = "WriteToCsv"
    appends: ClassVar[bool] = True

    def check(self, path: str) -> None:
        need_pyarrow(self.transform)
        if not isinstance(self.delimiter, str) or len(self.delimiter.encode()) != 1 or self.delimiter in '"\r\n':
            raise BuildError(f"{self.transform}: delimiter is one ASCII character, such as ',', not {self.delimiter!r}")
        if self.compression == "zip":
            raise BuildError(f"{self.transform}: zip files are only read; write gzip, bz2, xz or zstd")
        _compression.check(self.compression, self.transform)
        if self.schema is not None and (bad := _unwritable(self.schema)):
            raise BuildError(f"{self.transform}: {bad}")

    def writers(self, sink: str) -> Callable[[], FileWriter]:
        converter = self.converter(sink)
        return lambda: _CsvWriter(self, converter, sink)

    def empty(self) -> bytes:
        return empty_stream(self.head(self.schema), b"", self.compression)

    def head(self, schema: Any) -> bytes:
        """The compressed first line of a file with these columns; empty until they are known."""
        if schema is None or not self.header:
            return b""
        quoted = ('"' + name.replace('"', '""') + '"' for name in schema.names)
        return compressed((self.delimiter.join(quoted) + "\n").encode(), self.compression)


class _CsvWriter(ByteStreamWriter):
    def __init__(self, format: CsvFormat, converter: RowConverter, sink: str) -> None:
        from pyarrow.csv import WriteOptions

        super().__init__(format.head(converter.schema), b"", format.compression)
        self._format = format
        self._converter = converter
        self._sink = sink
        self._records = RecordBuffer(converter)
        self._options = WriteOptions(include_header=False, delimiter=format.delimiter, quoting_style="needed")

    def encode(self, values: Sequence[Any]) -> bytes:
        self._records.add(values)
        return self._lines()

    def add(self, values: Sequence[Any]) -> None:
        self._records.add(values)
        self.buffered = self._records.size

    def _drain(self) -> bytes:
        lines = self._lines()
        if not self._has_head:
            self._head = self._format.head(self._converter.schema)
        return lines

    def _lines(self) -> bytes:
        from pyarrow import BufferOutputStream
        from pyarrow.csv import write_csv

        batches = self._records.drain()
        if batches and (bad := _unwritable(batches[0].schema)):
            raise WriteError(f"{self._sink}: {bad}")
        target = BufferOutputStream()
        for batch in batches:
            write_csv(_without_empty_lines(batch), target, self._options)
        return target.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _without_empty_lines(batch: Any) -> Any:
    """The batch, with nulls in an only column as empty texts: readers would skip their empty lines."""
    import pyarrow as pa

    if batch.num_columns != 1 or not batch.column(0).null_count:
        return batch
    return pa.RecordBatch.from_arrays([batch.column(0).cast(pa.string()).fill_null("")], names=batch.schema.names)


def _unwritable(schema: Any) -> str:
    """Why columns of these types can't be written to CSV; "" if they can."""
    for field in schema:
        if kind_of(field.type) in ("list", "struct", "map", "duration", "binary"):
            return f"column {field.name!r} is {field.type}, which CSV can't represent: make it text"
    return ""
