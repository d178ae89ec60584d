"""What the formats of records have in common: their columns, and the buffer of elements for record batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.io.file_sink.element_sizes import estimated_size
from tidegate.io.file_sink.format import FileFormat
from tidegate.io.records.row_converter import RowConverter
from tidegate.sdk.errors import BuildError

BATCH_ROWS: Final = 1 << 10
"""The number of records in a record batch; a batch of a few would take more room than the records."""

_BATCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RecordFormat(FileFormat):
    """A format of records with named columns.

    `schema` is a `pyarrow.Schema`, or None to infer it from the first elements of each task. `without` names the
    fields that are left out of the files because the files' names have them. Naive datetimes are in `timezone`.
    """

    schema: Any = None
    without: tuple[str, ...] = ()
    timezone: str | None = None

    def converter(self, sink: str) -> RowConverter:
        """A converter of records to record batches, for one attempt."""
        return RowConverter(sink, self.schema, self.without, self.timezone)


class RecordBuffer:
    """Records to be written: unchanged at first, as record batches once there are enough of them."""

    def __init__(self, converter: RowConverter) -> None:
        self._converter = converter
        self._rows: list[Any] = []
        self._row_bytes = 0
        self._batches: list[Any] = []
        self._batch_bytes = 0

    @property
    def size(self) -> int:
        """About how many bytes are buffered."""
        return self._row_bytes + self._batch_bytes

    def add(self, records: Sequence[Any]) -> None:
        """Buffer some records. Raises WriteError, here or in `drain`, for one that doesn't fit."""
        if not self._rows and len(records) >= BATCH_ROWS:
            self._add_batch(records)
            return
        self._rows += records
        self._row_bytes += estimated_size(records)
        if len(self._rows) >= BATCH_ROWS or self._row_bytes >= _BATCH_BYTES:
            self._convert()

    def drain(self) -> list[Any]:
        """Return all records as record batches, and empty the buffer."""
        self._convert()
        batches, self._batches, self._batch_bytes = self._batches, [], 0
        return batches

    def _convert(self) -> None:
        if self._rows:
            self._add_batch(self._rows)
            self._rows, self._row_bytes = [], 0

    def _add_batch(self, records: Sequence[Any]) -> None:
        batch = self._converter.batch(records)
        self._batches.append(batch)
        self._batch_bytes += batch.nbytes


def check_codec(codec: str, codecs: Sequence[str], transform: str) -> None:
    """Raise BuildError for a codec that the format doesn't have."""
    if codec not in codecs:
        raise BuildError(f"{transform}: codec is one of {', '.join(map(repr, codecs))}, not {codec!r}")
