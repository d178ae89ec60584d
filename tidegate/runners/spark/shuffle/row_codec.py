"""Encodes blocks as rows, in which elements cross a Spark shuffle.

A row has a target partition (`target`), an edge (`edge`), and a position among the rows of that edge: the task that
emitted it (`src`) and a sequence number (`seq`). These are a pure function of the input, so that a recomputed task
emits the same rows. Data too long for one row is split; `left` counts the pieces that follow.

>>> rows = [(0, 2, 0, b"next"), (0, 1, 0, b" row"), (0, 0, 1, b"long")]  # (src, seq, left, data)
>>> list(reassembled(rows))
[b'long row', b'next']
"""

from __future__ import annotations

import pickle
from array import array
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeAlias
from zlib import crc32

from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.exchange.block_codec import block_columns, blocks_of
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.coders import decode_columns, encode_columns
from tidegate.sdk.user_code.redefined_classes import dumps

COLUMNS: Final = ("target", "edge", "src", "seq", "left", "data")
ORDER: Final = ("edge", "src", "seq")

Row: TypeAlias = tuple[int, int, int, int, int, Any]
"""The values of a row's columns."""

RESULT: Final = -1
"""The edge of rows with results for the driver: metrics, committables, side inputs."""

BATCH_BYTES: Final = 16 << 20
"""The size of the batches in which a task hands rows to Spark, approximately."""
MAX_ROW_BYTES: Final = 32 << 20
"""The longest row."""


class OutgoingRows:
    """The rows that a task has emitted but not yet handed to Spark. Rows on the edges `checksummed` are checksummed.
    `places`: the number to which rows for each partition are addressed, if it is another."""

    def __init__(self, checksummed: Container[int] = (), places: Sequence[int] = ()) -> None:
        self._rows: list[Row] = []
        self._bytes = 0
        self._checksummed = checksummed
        self._places = places
        self.checksums: Counter[int] = Counter()
        """The sum of the rows' checksums, by edge."""

    @property
    def full(self) -> bool:
        """Whether there are enough rows for a batch."""
        return self._bytes >= BATCH_BYTES

    def send(self, target: int, edge: int, src: int, seq: int, data: bytes) -> int:
        """Send data to a partition, in as many rows as it needs. Returns the next `seq`."""
        if self._places:
            target = self._places[target]
        if len(data) <= MAX_ROW_BYTES:
            self.forward(target, edge, src, seq, 0, data)
            return seq + 1
        pieces = [data[at : at + MAX_ROW_BYTES] for at in range(0, len(data), MAX_ROW_BYTES)]
        for number, piece in enumerate(pieces):
            self.forward(target, edge, src, seq + number, len(pieces) - 1 - number, piece)
        return seq + len(pieces)

    def forward(self, target: int, edge: int, src: int, seq: int, left: int, data: bytes) -> None:
        """Add a single row unchanged."""
        self._rows.append((target, edge, src, seq, left, data))
        self._bytes += len(data)
        if edge in self._checksummed:
            self.checksums[edge] += row_checksum(src, seq, data)

    def batches(self) -> Iterator[Any]:
        """Hand over all rows, as Arrow record batches of about `BATCH_BYTES`."""
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
    """Spark's schema of rows."""
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    numbers = [StructField(name, IntegerType()) for name in COLUMNS[:-1]]
    return StructType([*numbers, StructField(COLUMNS[-1], BinaryType())])


def record_batch(rows: list[Row]) -> Any:
    """Rows as an Arrow record batch."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    kinds = [pa.int32()] * (len(COLUMNS) - 1) + [pa.binary()]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def row_checksum(src: int, seq: int, data: Any) -> int:
    """A checksum of a row. Checksums of several rows are summed, which gives the same total in any order."""
    return crc32(data, (src * 0x9E37_79B1 + seq) & 0xFFFF_FFFF) + (len(data) << 32)


def read_rows(batches: Iterable[Any]) -> Iterator[Row]:
    """`(target, edge, src, seq, left, data)` of every row; `data` is a zero-copy buffer."""
    for batch in batches:
        if batch.schema.get_field_index("edge") < 0:
            continue  # the input of tasks that read sources is a range, whose rows only start the tasks
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
    """A keyed batch as one pickle, column by column."""
    # Pickle writes 64-bit ints at half the speed of an array.
    times = keyed.timestamps if isinstance(keyed.timestamps, int) else array("q", keyed.timestamps)
    return encode_columns((keyed.keys, keyed.counts, keyed.values, times, keyed.windows, keyed.pane))


_KEYED: Final = 6
"""The number of columns that `encode_keyed` writes. `encode_blocks` writes a multiple of five."""


def decode_blocks(data: Any) -> Iterator[Block]:
    """The blocks that `encode_blocks` encoded."""
    return blocks_of(decode_columns(data))


def decode(data: Any) -> Iterator[Block | KeyedBatch]:
    """The blocks or the keyed batch that `encode_blocks` or `encode_keyed` encoded."""
    columns = decode_columns(data)
    if len(columns) == _KEYED:
        keys, counts, values, times, windows, pane = columns
        yield KeyedBatch(keys, counts, values, times.tolist() if type(times) is array else times, windows, pane)
        return
    yield from blocks_of(columns)


def reassembled(rows: Iterable[tuple[int, int, int, bytes]]) -> Iterator[bytes]:
    """The data of rows `(src, seq, left, data)`, sorted by `(src, seq)`, with the pieces of split data joined."""
    pieces: list[bytes] = []
    for _, _, left, data in sorted(rows, key=lambda row: row[:2]):
        pieces.append(data)
        if not left:
            yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces = []


def encode_result(kind: str, value: Any) -> bytes:
    """A result for the driver; see `LevelTask` for the kinds."""
    return dumps((kind, value))


def decode_result(data: bytes) -> tuple[str, Any]:
    """A result's kind and value."""
    result: tuple[str, Any] = pickle.loads(data)
    return result
