"""Runs file sinks without a runner, and reads the files back with other libraries."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.io.file_sink.sink import FileSink
from tidegate.sdk.connectors.sinks import Committable

FORMATS = ("csv", "json", "parquet", "avro", "arrow")


def write(sink: Any, run: str, *tasks: Sequence[Any], block: int = 2) -> list[Committable]:
    """Write each list by a separate task, and return the committables, which have passed through JSON."""
    prepared: list[Committable] = []
    for task, values in enumerate(tasks):
        attempt = pickle.loads(pickle.dumps(sink)).attempt(run, task)
        try:
            for start in range(0, len(values), block):
                attempt.write(values[start : start + block])
            prepared += attempt.prepare()
        finally:
            attempt.close()
    return [Committable(c.order, json.loads(json.dumps(c.payload))) for c in prepared]


def write_and_commit(sink: FileSink, *tasks: Sequence[Any], block: int = 2) -> None:
    """Write and commit the values of a bounded run."""
    sink.commit("run", write(sink, "run", *tasks, block=block))


def rows_of(data: bytes, format: str) -> list[dict[str, Any]]:
    """The rows of a file: of CSV with text values, of JSON lines with JSON values."""
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    match format:
        case "csv":
            return list(csv.DictReader(io.StringIO(data.decode(), newline="")))
        case "json":
            return [json.loads(line) for line in data.splitlines()]
        case "parquet":
            return pq.read_table(pa.BufferReader(data), partitioning=None).to_pylist()  # type: ignore[no-any-return]
        case "avro":
            return list(fastavro.reader(io.BytesIO(data)))  # type: ignore[arg-type]
        case "arrow":
            return pa.ipc.open_file(data).read_all().to_pylist()  # type: ignore[no-any-return]
    raise ValueError(format)


def files_of(folder: Path) -> dict[str, bytes]:
    """The files in a folder and below by name, except the sinks' internal ones."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if ".tidegate-" not in name}


def rows_in(folder: Path, format: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each file in a folder and below."""
    return {name: rows_of(data, format) for name, data in files_of(folder).items()}


def all_rows(folder: Path, format: str) -> list[dict[str, Any]]:
    """The rows of all files in a folder and below."""
    return [row for rows in rows_in(folder, format).values() for row in rows]


def exact(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows as text that distinguishes 1, 1.0 and True, but not the time zones of equal instants."""
    return [repr([(name, _text(value)) for name, value in sorted(row.items())]) for row in rows]


def _text(value: Any) -> str:
    return value.astimezone(datetime.UTC).isoformat() if isinstance(value, datetime.datetime) else repr(value)
