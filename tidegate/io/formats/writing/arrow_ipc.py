"""Writing Arrow IPC files (Feather version 2): record batches and, at the end, where each of them is."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Final

from tidegate.io.file_sink.format import FileWriter
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.formats.writing.parquet import conformed, joined_schema, table_of
from tidegate.io.formats.writing.record_format import RecordBuffer, RecordFormat, check_codec
from tidegate.io.records.row_converter import RowConverter

_CODECS: Final = ("none", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class ArrowFormat(RecordFormat):
    """Records in record batches; see `WriteToArrow`."""

    codec: str = "none"

    name: ClassVar[str] = "arrow"
    transform: ClassVar[str] = "WriteToArrow"

    @property
    def buffer_bytes(self) -> int:
        return 1 << 22

    def check(self, path: str) -> None:
        need_pyarrow(self.transform)
        check_codec(self.codec, _CODECS, self.transform)

    def writers(self, sink: str) -> Callable[[], FileWriter]:
        converter = self.converter(sink)
        return lambda: _ArrowWriter(self.codec, converter)

    def empty(self) -> bytes:
        target = io.BytesIO()
        _open_arrow(target, self.schema, self.codec).close()
        return target.getvalue()

    def join(self, parts: Sequence[Callable[[], BinaryIO]], target: BinaryIO, sink: str) -> None:
        """Copy batch after batch, so that no more than one is in memory."""
        import pyarrow.ipc as ipc

        schemas = []
        for part in parts:
            with part() as file:
                schemas.append(ipc.open_file(file).schema)
        schema = joined_schema(schemas, sink)
        writer = _open_arrow(target, schema, self.codec)
        for part in parts:
            with part() as file:
                source = ipc.open_file(file)
                for at in range(source.num_record_batches):
                    writer.write_batch(conformed(source.get_batch(at), schema))
        writer.close()


class _ArrowWriter(FileWriter):
    def __init__(self, codec: str, converter: RowConverter) -> None:
        self._codec = codec
        self._converter = converter
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
            self._writer = _open_arrow(self._file, self._schema, self._codec)
        if batches:
            # One batch of the many small ones, each of which would have its own buffers and metadata.
            self._writer.write_table(table_of(batches, self._schema, self._converter.sink).combine_chunks())

    def finish(self) -> None:
        self.flush()
        if self._writer is None:
            self._writer = _open_arrow(self._file, None, self._codec)
        self._writer.close()
        self._writer = self._file = None

    def discard(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def _open_arrow(target: Any, schema: Any, codec: str) -> Any:
    import pyarrow as pa
    import pyarrow.ipc as ipc

    options = ipc.IpcWriteOptions(compression=None if codec == "none" else codec)
    return ipc.new_file(target, pa.schema([]) if schema is None else schema, options=options)
