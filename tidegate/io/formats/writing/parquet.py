"""Writing Parquet: record batches are gathered to row groups."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Final

from tidegate.io.file_sink.format import FileWriter
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.formats.writing.arrow_tables import TableWriter, join_tables
from tidegate.io.formats.writing.record_format import RecordFormat, check_codec
from tidegate.io.records.types import kind_of
from tidegate.sdk.errors import BuildError

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
        return lambda: TableWriter(converter, self._open)

    def empty(self) -> bytes:
        target = io.BytesIO()
        self._open(target, self.schema).close()
        return target.getvalue()

    def join(self, parts: Sequence[Callable[[], BinaryIO]], target: BinaryIO, sink: str) -> None:
        join_tables(parts, _row_groups, target, self._open, sink)

    def _open(self, target: Any, schema: Any) -> Any:
        """A writer of a file with these columns; without any, if they aren't known."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pq.ParquetWriter(target, pa.schema([]) if schema is None else schema, compression=self.codec)


def _row_groups(file: BinaryIO) -> tuple[Any, Iterator[Any]]:
    import pyarrow.parquet as pq

    source = pq.ParquetFile(file)
    return source.schema_arrow, map(source.read_row_group, range(source.num_row_groups))
