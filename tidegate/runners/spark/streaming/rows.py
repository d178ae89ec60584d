"""Rows: what crosses levels in a micro-batch. Blocks, watermarks, new splits, the tick that starts a task, reports.

A row goes to one task (`target`). Those of one producer (`src`) are handled in the order in which it sent them (`seq`).
Data too long for one row is split; `left` counts the pieces that follow.

>>> sent = OutgoingRows(src=7)
>>> sent.send(target=0, kind=REPORT, edge=0, data=b"done")
>>> sent.rows
[Row(target=0, kind=3, edge=0, src=7, seq=0, left=0, data=b'done')]
>>> [data for _, data in messages(sent.rows)]
[b'done']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple
from zlib import crc32

TICK: Final = 0
BLOCKS: Final = 1
STATUS: Final = 2
REPORT: Final = 3
SPLITS: Final = 4

MAX_BYTES: Final = 4 << 20
"""The longest row."""


class Row(NamedTuple):
    """`edge` is the number of an edge of the plan, for blocks and watermarks; of a source step, for its splits."""

    target: int
    kind: int
    edge: int
    src: int
    seq: int
    left: int
    data: bytes


def schema() -> Any:
    """Spark's schema of rows. Not as text, which only a JVM parses."""
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    *numbers, data = Row._fields
    return StructType([*(StructField(name, IntegerType()) for name in numbers), StructField(data, BinaryType())])


def producer(level: int, index: int) -> int:
    """The number of a task as a producer: those of lower levels come first.

    >>> producer(2, 5), task_index(producer(2, 5))
    (131077, 5)
    """
    return (level << 16) + index


def task_index(src: int) -> int:
    """The index of a producer in its level."""
    return src & 0xFFFF


class OutgoingRows:
    """The rows that a task has sent in a batch, and the sum of the checksums of those that other tasks receive."""

    def __init__(self, src: int) -> None:
        self.rows: list[Row] = []
        self.checksum = 0
        self._src = src

    def send(self, target: int, kind: int, edge: int, data: bytes) -> None:
        """Send data to a task, in as many rows as it needs."""
        pieces = [data[at : at + MAX_BYTES] for at in range(0, len(data), MAX_BYTES)] or [data]
        for number, piece in enumerate(pieces):
            row = Row(target, kind, edge, self._src, len(self.rows), len(pieces) - 1 - number, piece)
            self.rows.append(row)
            if kind != REPORT:
                self.checksum += checksum(row)


def checksum(row: Row) -> int:
    """A checksum of a row. Checksums of several rows are summed, which gives the same total in any order."""
    return crc32(row.data, (row.src * 0x9E37_79B1 + row.seq) & 0xFFFF_FFFF) + (len(row.data) << 32)


def messages(rows: Iterable[Row]) -> Iterator[tuple[Row, bytes]]:
    """The data of rows, those of each producer in order, with the pieces of split data joined; each with its last
    row."""
    pieces: list[bytes] = []
    for row in sorted(rows, key=lambda row: (row.src, row.seq)):
        pieces.append(row.data)
        if not row.left:
            yield row, pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces = []
