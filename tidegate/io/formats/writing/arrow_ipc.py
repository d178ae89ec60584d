"""Writing Arrow IPC files (Feather version 2): record batches and, at the end, where each of them is."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, Final

from tidegate.io.file_sink.format import FileWriter
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.formats.writing.arrow_tables import TableWriter, join_tables
from tidegate.io.formats.writing.record_format import RecordFormat, check_codec

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
        # A flush writes one record batch: each of the small ones would have its own buffers and metadata.
        return lambda: TableWriter(converter, self._open, combine=True)

    def empty(self) -> bytes:
        target = io.BytesIO()
        self._open(target, self.schema).close()
        return target.getvalue()

    def join(self, parts: Sequence[Callable[[], BinaryIO]], target: BinaryIO, sink: str) -> None:
        join_tables(parts, _batches, target, self._open, sink)

    def _open(self, target: Any, schema: Any) -> Any:
        """A writer of a file with these columns; without any, if they aren't known."""
        import pyarrow as pa
        import pyarrow.ipc as ipc

        options = ipc.IpcWriteOptions(compression=None if self.codec == "none" else self.codec)
        return ipc.new_file(target, pa.schema([]) if schema is None else schema, options=options)


def _batches(file: BinaryIO) -> tuple[Any, Iterator[Any]]:
    import pyarrow.ipc as ipc

    source = ipc.open_file(file)
    return source.schema, map(source.get_batch, range(source.num_record_batches))
