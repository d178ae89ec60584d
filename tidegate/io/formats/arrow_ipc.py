"""Reading Arrow IPC files (also known as Feather 2) and streams. Files are divided between record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tidegate.io.file_source.format import Chunk, FileFormat, Reading, Start
from tidegate.io.file_source.opened import OpenedFile
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.records.decoder import BatchDecoder
from tidegate.io.records.problems import BadRecord, bad_file
from tidegate.io.records.projection import Selection
from tidegate.io.records.schema import RecordSchema, of_arrow
from tidegate.sdk.connectors.outage import is_outage
from tidegate.sdk.errors import ReadError

_MAGIC: Final = b"ARROW1"
_ROWS: Final = 8192
_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class ArrowFormat(FileFormat):
    """Arrow IPC. A chunk starts at `[record batch, row]`."""

    name: ClassVar[str] = "arrow"
    divided_by: ClassVar = "parts"
    states_columns: ClassVar[bool] = True

    def check(self, of: str) -> None:
        need_pyarrow(of)

    def inspect(self, file: OpenedFile, selection: Selection) -> RecordSchema | None:
        return of_arrow(_Batches(file).schema)

    def parts(self, file: OpenedFile, selection: Selection) -> Sequence[int]:
        batches = _Batches(file)
        size = file.part.size or 0
        return [size // batches.count] * batches.count if batches.count else []

    def read(self, file: OpenedFile, start: Start, reading: Reading) -> Iterator[Chunk]:
        fails = reading.selection.bad_records == "fail"
        first, row = start or (file.part.start, 0)
        at = first
        try:
            batches = _Batches(file)
            decoder = BatchDecoder(
                reading.selection, reading.project(file, of_arrow(batches.schema)), reading.conditions
            )
        except ReadError as error:
            if reading.refuses(error):
                raise
            yield [at, 0], [bad_file(file.url, error)]
            return
        while True:
            try:
                batch = batches.get(at)
            except (EOFError, OSError, ValueError) as error:
                if is_outage(error):
                    raise  # the batch is not bad
                file.check_unchanged()
                words = f"record batch {at} can't be read{'' if batches.is_file else ', nor what follows'}: {error}"
                if fails:
                    raise ReadError(f"{file.url}, {words}") from error
                yield [at, 0], [BadRecord(file.url, None, None, words, None)]
                if not batches.is_file:
                    return
                at += 1
                continue
            if batch is None:
                return
            rows = max(1, min(_ROWS, _BYTES * batch.num_rows // max(1, batch.nbytes)))
            for offset in range(row if at == first else 0, batch.num_rows, rows):
                elements = decoder.decode(batch.slice(offset, rows))
                yield [at, offset], reading.report(file, "row", elements, _number(batches, at, offset))
            at += 1


class _Batches:
    """The record batches of a file or a stream, by number; those of a stream can only be read in ascending order."""

    def __init__(self, file: OpenedFile) -> None:
        import pyarrow as pa

        self._end = file.part.end
        self._rows: list[int] = []
        plain = file.plain()
        try:
            if file.compression == "none" and plain.seekable():
                is_file = plain.read(len(_MAGIC)) == _MAGIC
                plain.seek(0)
            else:
                is_file = False
            opened = pa.OSFile(file.local_path) if is_file and file.local_path is not None else plain
            self._reader = pa.ipc.open_file(opened) if is_file else pa.ipc.open_stream(opened)
        except pa.ArrowInvalid as error:
            raise ReadError(f"{file.url}: not a valid Arrow file: {str(error).splitlines()[0]}") from error
        self.schema = self._reader.schema
        self.count: int = self._reader.num_record_batches if is_file else 0
        self.is_file = is_file

    def get(self, at: int) -> Any:
        """The batch of this number; None after the last one of the part."""
        if self.is_file:
            stop = self.count if self._end is None else self._end
            return self._reader.get_batch(at) if at < stop else None
        while True:
            try:
                batch = self._reader.read_next_batch()
            except StopIteration:
                return None
            self._rows.append(batch.num_rows)
            if len(self._rows) > at:
                return batch

    def rows_before(self, at: int) -> int:
        """How many rows the batches before this number have."""
        while self.is_file and len(self._rows) < at:
            self._rows.append(self._reader.get_batch(len(self._rows)).num_rows)
        return sum(self._rows[:at])


def _number(batches: _Batches, at: int, offset: int) -> Callable[[int], int]:
    return lambda row: batches.rows_before(at) + offset + row + 1
