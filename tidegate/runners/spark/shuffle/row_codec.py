"""Rows that are runs of blocks: how elements cross a Spark shuffle.

A row says to which partition it goes (`target`), along which edge, and where it stands among all rows of that edge
(`src`, the task that made it, and `seq`): a pure function of the input, so that a recomputed task makes the same rows.
Data that is too long for one row goes as several, of which `left` counts those still to come.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from functools import cache
from typing import Any, Final
from zlib import crc32

from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.exchange.block_codec import block_columns, blocks_of
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.coders import decode_columns, encode_columns
from tidegate.sdk.user_code.redefined_classes import dumps

COLUMNS: Final = ("target", "edge", "src", "seq", "left", "data")
ORDER: Final = ("edge", "src", "seq")

RESULT: Final = -1
"""The edge of what goes to the driver: metrics, committables."""

BATCH_BYTES: Final = 16 << 20
"""About how much a task collects before it hands rows to Spark."""
MOST_BYTES: Final = 32 << 20
"""No row is longer."""


class OutgoingRows:
    """The rows a task has made and not yet handed to Spark."""

    def __init__(self, summed: Container[int] = ()) -> None:
        self._rows: list[tuple[int, int, int, int, int, Any]] = []
        self._bytes = 0
        self._summed = summed
        self.sums: Counter[int] = Counter()
        """What all rows of each edge in `summed` come to: see `row_sum`."""

    @property
    def full(self) -> bool:
        """Whether there is enough for a batch."""
        return self._bytes >= BATCH_BYTES

    def send(self, target: int, edge: int, src: int, seq: int, data: bytes) -> int:
        """Data for a partition, in as many rows as it needs; returns the next number for `seq`."""
        if len(data) <= MOST_BYTES:
            self.forward(target, edge, src, seq, 0, data)
            return seq + 1
        pieces = [data[at : at + MOST_BYTES] for at in range(0, len(data), MOST_BYTES)]
        for number, piece in enumerate(pieces):
            self.forward(target, edge, src, seq + number, len(pieces) - 1 - number, piece)
        return seq + len(pieces)

    def forward(self, target: int, edge: int, src: int, seq: int, left: int, data: bytes) -> None:
        """One row as it is."""
        self._rows.append((target, edge, src, seq, left, data))
        self._bytes += len(data)
        if edge in self._summed:
            self.sums[edge] += row_sum(src, seq, data)

    def batches(self) -> Iterator[Any]:
        """All of them as Arrow record batches, none of them much longer than Spark can take at once."""
        rows, self._rows, self._bytes = self._rows, [], 0
        start = length = 0
        for at, row in enumerate(rows):
            length += len(row[-1])
            if length >= BATCH_BYTES:
                yield record_batch(rows[start : at + 1])
                start, length = at + 1, 0
        if start < len(rows):
            yield record_batch(rows[start:])


@cache
def schema() -> Any:
    """What Spark calls the columns' types."""
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    numbers = [StructField(name, IntegerType()) for name in COLUMNS[:-1]]
    return StructType([*numbers, StructField(COLUMNS[-1], BinaryType())])


def record_batch(rows: list[tuple[int, int, int, int, int, Any]]) -> Any:
    """Rows as an Arrow record batch."""
    import pyarrow as pa  # type: ignore[import-untyped]

    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    kinds = [pa.int32()] * (len(COLUMNS) - 1) + [pa.binary()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def row_sum(src: int, seq: int, data: Any) -> int:
    """A number that tells a row from others. Those of many rows add up to the same in any order."""
    return crc32(data, (src * 0x9E37_79B1 + seq) & 0xFFFF_FFFF) + (len(data) << 32)


def read_rows(batches: Iterable[Any]) -> Iterator[tuple[int, int, int, int, int, Any]]:
    """`(target, edge, src, seq, left, data)` of every row; `data` is a buffer that copies nothing."""
    for batch in batches:
        if batch.schema.get_field_index("edge") < 0:
            continue  # the first level is started by rows that say nothing
        columns = [batch.column(name).to_pylist() for name in ("target", "edge", "src", "seq", "left")]
        data = batch.column("data")
        for at, (target, edge, src, seq, left) in enumerate(zip(*columns, strict=True)):
            yield target, edge, src, seq, left, data[at].as_buffer()


def encode_blocks(blocks: Iterable[Block]) -> bytes:
    """Blocks as one pickle, column by column."""
    columns: list[Any] = []
    for block in blocks:
        columns += block_columns(block)
    return encode_columns(tuple(columns))


def encode_keyed(keyed: KeyedBatch) -> bytes:
    """Elements that stand by key as one pickle: each key once."""
    return encode_columns((keyed.keys, keyed.counts, keyed.values, keyed.timestamps, keyed.windows, keyed.pane))


_KEYED: Final = 6
"""How many columns `encode_keyed` gives; those of blocks are a multiple of five."""


def decode_blocks(data: Any) -> Iterator[Block]:
    """The blocks back."""
    return blocks_of(decode_columns(data))


def decode(data: Any) -> Iterator[Block | KeyedBatch]:
    """What `encode_blocks` or `encode_keyed` was given."""
    columns = decode_columns(data)
    if len(columns) == _KEYED:
        yield KeyedBatch(*columns)
        return
    yield from blocks_of(columns)


def joined(rows: Iterable[tuple[int, int, int, bytes]]) -> Iterator[bytes]:
    """The data of rows `(src, seq, left, data)` in whatever order, those that go together as one, by `(src, seq)`."""
    pieces: list[bytes] = []
    for _, _, left, data in sorted(rows, key=lambda row: row[:2]):
        pieces.append(data)
        if not left:
            yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces = []


def encode_result(kind: str, value: Any) -> bytes:
    """Something for the driver."""
    return dumps((kind, value))


def decode_result(data: bytes) -> tuple[str, Any]:
    """What a task sent to the driver."""
    found: tuple[str, Any] = pickle.loads(data)
    return found
