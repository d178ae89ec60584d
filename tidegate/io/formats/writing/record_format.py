"""What the formats of records have in common: their columns, and elements that wait to become record batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.io.file_sink.format import FileFormat
from tidegate.io.records.row_converter import RowConverter
from tidegate.sdk.errors import BuildError

BATCH_ROWS: Final = 1 << 10
"""So many records become a record batch; a batch of a few records would take more room than the records."""

_BATCH_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class RecordFormat(FileFormat):
    """A format of records with named columns.

    `schema` is a `pyarrow.Schema`, or None to infer it from the first elements of each task. `without` names the
    fields that are left out of the files because their names say them. Naive datetimes are in `timezone`.
    """

    schema: Any = None
    without: tuple[str, ...] = ()
    timezone: str | None = None

    def converter(self, sink: str) -> RowConverter:
        """What makes the record batches of one attempt."""
        return RowConverter(sink, self.schema, self.without, self.timezone)


class RecordBuffer:
    """Records that wait to be written: as they are at first, as record batches once there are enough of them."""

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
        """Buffer some records. WriteError for one that doesn't fit, perhaps not before `drain`."""
        self._rows += records
        self._row_bytes += estimated_size(records)
        if len(self._rows) >= BATCH_ROWS or self._row_bytes >= _BATCH_BYTES:
            self._convert()

    def drain(self) -> list[Any]:
        """The record batches of all that is buffered, which isn't any more."""
        self._convert()
        batches, self._batches, self._batch_bytes = self._batches, [], 0
        return batches

    def _convert(self) -> None:
        if self._rows:
            batch = self._converter.batch(self._rows)
            self._rows, self._row_bytes = [], 0
            self._batches.append(batch)
            self._batch_bytes += batch.nbytes


def estimated_size(records: Sequence[Any]) -> int:
    """About how many bytes some records take in memory, by a few of them."""
    sample = records[:: max(1, len(records) // 4)]
    return sum(_size(record, 4) for record in sample) * len(records) // len(sample) if sample else 0


def _size(value: Any, depth: int) -> int:
    if isinstance(value, (str, bytes)):
        return len(value) + 50
    if not depth:
        return 64
    if isinstance(value, Mapping):
        return 64 + sum(_size(item, depth - 1) + 16 for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return 56 + sum(_size(item, depth - 1) + 8 for item in value)
    if (fields := getattr(value, "__dict__", None)) is not None:
        return 48 + _size(fields, depth - 1)
    return 32


def check_codec(codec: str, codecs: Sequence[str], transform: str) -> None:
    """BuildError for a codec that the format doesn't have."""
    if codec not in codecs:
        raise BuildError(f"{transform}: codec is one of {', '.join(map(repr, codecs))}, not {codec!r}")
