"""Files of records in each format, and the elements that a source reads from them."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

import tidegate as tg
from tidegate.sdk.connectors.sources import Source, Split

AVRO = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "url", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "user", "type": ["null", "string"], "default": None},
    ],
}


def visits(number: int, first: int = 0) -> list[dict[str, Any]]:
    """Records of some types, some of which are null."""
    start = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
    return [
        {
            "id": at,
            "url": f"https://example.com/{at % 7}",
            "amount": at / 4,
            "at": start + datetime.timedelta(seconds=at, microseconds=1),
            "user": None if at % 3 == 0 else f"user {at % 5}",
        }
        for at in range(first, first + number)
    ]


def parquet(records: Sequence[dict[str, Any]], rows: int = 100) -> bytes:
    """A Parquet file of row groups of so many rows."""
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(records)), buffer, row_group_size=rows)
    return buffer.getvalue()


def arrow(records: Sequence[dict[str, Any]], rows: int = 100) -> bytes:
    """An Arrow file of record batches of so many rows."""
    return _ipc(pa.ipc.new_file, records, rows)


def arrow_stream(records: Sequence[dict[str, Any]], rows: int = 100) -> bytes:
    """An Arrow stream of record batches of so many rows."""
    return _ipc(pa.ipc.new_stream, records, rows)


def _ipc(writer: Any, records: Sequence[dict[str, Any]], rows: int) -> bytes:
    table = pa.Table.from_pylist(list(records))
    buffer = io.BytesIO()
    with writer(buffer, table.schema) as out:
        for batch in table.to_batches(rows):
            out.write_batch(batch)
    return buffer.getvalue()


def avro(records: Sequence[dict[str, Any]], block: int = 2000, schema: Any = AVRO, codec: str = "deflate") -> bytes:
    """An Avro file of blocks of about so many bytes."""
    buffer = io.BytesIO()
    fastavro.writer(buffer, schema, records, codec=codec, sync_interval=block)
    return buffer.getvalue()


def csv_file(records: Sequence[dict[str, Any]]) -> bytes:
    """A CSV file with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({name: _text(value) for name, value in record.items()})
    return text.getvalue().encode()


def json_lines(records: Sequence[dict[str, Any]]) -> bytes:
    """A file of JSON lines."""
    return "".join(
        json.dumps({name: _plain(value) for name, value in record.items()}) + "\n" for record in records
    ).encode()


def _text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.datetime) else value


_plain = _text

VISIT = {"id": int, "url": str, "amount": float, "at": datetime.datetime, "user": str | None}

FORMATS: dict[str, tuple[Callable[..., Any], Callable[..., bytes], dict[str, Any]]] = {
    "visits.parquet": (tg.io.ReadFromParquet, parquet, {}),
    "visits.arrow": (tg.io.ReadFromArrow, arrow, {}),
    "visits.arrows": (tg.io.ReadFromArrow, arrow_stream, {}),
    "visits.avro": (tg.io.ReadFromAvro, avro, {}),
    "visits.csv": (tg.io.ReadFromCsv, csv_file, {"strings_can_be_null": True}),
    "visits.jsonl": (tg.io.ReadFromJson, json_lines, {"schema": VISIT}),
}
"""By file name: the transform that reads the file, the function that writes it, and the transform's arguments."""


def elements_of(read: Any, desired: int = 1, limit: int = 1000) -> list[Any]:
    """All elements of a reading transform, split by split."""
    source = read.source
    source.check()
    return [element for split in source.splits(desired) for element in drain(source, split, limit=limit)]


def drain(source: Source[Any], split: Split, position: Any = None, limit: int = 1000) -> list[Any]:
    """The elements of a split from a position on."""
    return [element for element, _ in drain_with_positions(source, split, position, limit)]


def drain_with_positions(
    source: Source[Any], split: Split, position: Any = None, limit: int = 1000
) -> list[tuple[Any, Any]]:
    """The elements of a split with the position after each block of `limit` elements, passed through JSON."""
    reader = source.reader(split, position)
    found: list[tuple[Any, Any]] = []
    try:
        while True:
            batch = reader.read(limit)
            after = json.loads(json.dumps(reader.position()))
            found += [(element, after) for element in batch.block.values]
            if batch.end:
                return found
    finally:
        reader.close()


def write(path: Path, data: bytes) -> Path:
    """Write a file, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
