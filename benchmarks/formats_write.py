"""Writing Python rows to files of records, beside the same work by hand. `formats.py` is the command.

The sink of each format is driven as a runner drives it, block by block and then by a commit, without a pipeline around
it; by hand, pyarrow, `json` or fastavro write the same rows to one file.
"""

from __future__ import annotations

import datetime
import functools
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from turns import best_of, print_ratio
from visits import AVRO, BLOCK, records

import tidegate as tg

ROW_GROUP = 100_000
UTC = datetime.UTC
FIELDS = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("url", pa.string(), nullable=False),
    pa.field("amount", pa.float64(), nullable=False),
    pa.field("user", pa.string()),
    pa.field("items", pa.int64(), nullable=False),
]
SCHEMA = pa.schema(FIELDS)
TIMES = pa.schema([*FIELDS, pa.field("at", pa.timestamp("us", "UTC"), nullable=False)])


def tables_of(rows: Sequence[Any], schema: Any) -> Iterator[Any]:
    """The rows as tables of a row group's size: dicts as pyarrow does it, other rows column by column."""
    for start in range(0, len(rows), ROW_GROUP):
        chunk = rows[start : start + ROW_GROUP]
        if isinstance(chunk[0], dict):
            yield pa.Table.from_pylist(chunk, schema)
        else:
            arrays = [pa.array([row[at] for row in chunk], field.type) for at, field in enumerate(schema)]
            yield pa.Table.from_arrays(arrays, schema=schema)


def parquet_by_hand(rows: Sequence[Any], path: Path, schema: Any) -> None:
    """Row groups of pyarrow's."""
    with pq.ParquetWriter(path, schema) as writer:
        for table in tables_of(rows, schema):
            writer.write_table(table)


def arrow_by_hand(rows: Sequence[Any], path: Path, schema: Any) -> None:
    """Batches of pyarrow's."""
    with pa.ipc.new_file(str(path), schema) as writer:
        for table in tables_of(rows, schema):
            writer.write_table(table)


def csv_by_hand(rows: Sequence[Any], path: Path, schema: Any) -> None:
    """Lines of pyarrow's, which is faster than the module csv."""
    with pa.csv.CSVWriter(str(path), schema) as writer:
        for table in tables_of(rows, schema):
            writer.write(table)


def json_by_hand(rows: Sequence[Any], path: Path, schema: Any) -> None:
    """Lines of the module json."""
    encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode
    with open(path, "w") as file:
        for start in range(0, len(rows), BLOCK):
            chunk = rows[start : start + BLOCK]
            if not isinstance(chunk[0], dict):
                names = schema.names
                chunk = [dict(zip(names, row)) for row in chunk]
            file.write("\n".join(map(encode, chunk)))
            file.write("\n")


def avro_by_hand(rows: Sequence[Any], path: Path, schema: Any) -> None:
    """Records of fastavro's."""
    names = schema.names
    with open(path, "wb") as file:
        fastavro.writer(
            file, AVRO, rows if isinstance(rows[0], dict) else (dict(zip(names, row)) for row in rows), codec="deflate"
        )


def write(transform: Any, rows: Sequence[Any]) -> None:
    """The rows through a sink, block by block."""
    sink = transform.sink
    attempt = sink.attempt("run", 0)
    for start in range(0, len(rows), BLOCK):
        attempt.write(rows[start : start + BLOCK])
    prepared = attempt.prepare()
    attempt.close()
    sink.commit("run", prepared)


ByHand = Callable[[Sequence[Any], Path, Any], None]
CASES: dict[str, tuple[ByHand, Callable[[str, Any], Any]]] = {
    "Parquet": (parquet_by_hand, lambda path, schema: tg.WriteToParquet(path, schema)),
    "CSV": (csv_by_hand, lambda path, schema: tg.WriteToCsv(path, schema)),
    "JSON lines": (json_by_hand, lambda path, schema: tg.WriteToJson(path)),
    "Arrow": (arrow_by_hand, lambda path, schema: tg.WriteToArrow(path, schema)),
    "Avro": (avro_by_hand, lambda path, schema: tg.WriteToAvro(path, schema)),
}


def compare(rows: int, turns: int, chosen: str) -> None:
    """Measure the cases whose title contains `chosen`, and print a line for each."""
    dicts = records(rows)
    values = itemgetter(*SCHEMA.names)
    start = datetime.datetime(2013, 1, 1, tzinfo=UTC)
    kinds = {
        "dicts": (dicts, SCHEMA),
        "rows": ([tg.Row(**each) for each in dicts], SCHEMA),
        "rows with times": (
            [tg.Row(**each, at=start + datetime.timedelta(seconds=at)) for at, each in enumerate(dicts)],
            TIMES,
        ),
    }
    assert all(values(row) == tuple(each) for row, each in zip(dicts[:10], kinds["rows"][0]))
    for title, (by_hand, transform) in CASES.items():
        for kind, (elements, schema) in kinds.items():
            name = f"{kind} → {title}"
            if (schema is TIMES and title not in ("Parquet", "CSV")) or chosen.lower() not in name.lower():
                continue
            with tempfile.TemporaryDirectory() as folder:
                ways = {
                    "by hand": functools.partial(by_hand, elements, Path(folder) / "hand", schema),
                    "sink": lambda: write(transform(f"{folder}/sink", schema), elements),  # noqa: B023
                }
                print_ratio(name, rows, best_of(turns, ways))


def write_partitions(partitions: int, rows: int, format: str) -> None:
    """Write rows to so many partitions in turn, and print the peak memory."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        transform = getattr(tg, f"WriteTo{format}")(f"{folder}/x", partition_by="part")
        attempt = transform.sink.attempt("run", 0)
        for start in range(0, rows, BLOCK):
            block = records(min(BLOCK, rows - start), start)
            for at, row in enumerate(block, start):
                row["part"] = at % partitions
            attempt.write([((f"part={row['part']}",), row) for row in block])
        prepared = attempt.prepare()
        attempt.close()
        transform.sink.commit("run", prepared)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{format:8} {partitions:6,} partitions, {rows:,} rows, {len(prepared):,} files: "
        f"peak {peak:.0f} MB, {time.perf_counter() - began:.1f} s"
    )


def peaks(counts: list[int], rows: int, format: str, command: str) -> None:
    """Print the peak memory of writing to so many partitions, each in a process of its own: the script `command`,
    which calls `write_partitions`."""
    for count in counts:
        arguments = ["--write", str(count), "--rows", str(rows), "--format", format]
        subprocess.run([sys.executable, command, *arguments], check=True)
