"""Formats: reads files of records into Python rows, beside the same work by hand in the same run.

The reader of each format is driven as a runner drives it, block by block, without a pipeline around it; by hand,
pyarrow, `json` or fastavro read the same file, and the rows are NamedTuples or dicts. Both are measured in turns, in
processor time, and the best of several turns counts. A ratio of 1.0 means equal speed, more means that the reader is
faster. `--directory` measures the peak memory of reading directories of more and more files instead.

    python benchmarks/formats.py --rows 200000
    python benchmarks/formats.py --directory 10 100 1000 10000
"""

from __future__ import annotations

import argparse
import collections
import csv
import datetime
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

import tidegate as tg

BLOCK = 4096
SCHEMA = {"id": int, "url": str, "amount": float, "user": str | None, "items": int}
AVRO = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "url", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "user", "type": ["null", "string"]},
        {"name": "items", "type": "long"},
    ],
}


def records(rows: int) -> list[dict[str, Any]]:
    """Visits of a web site."""
    return [
        {
            "id": at,
            "url": f"https://example.com/page/{at % 1000}",
            "amount": at / 7,
            "user": None if at % 10 == 0 else f"user {at % 5000}",
            "items": at % 13,
        }
        for at in range(rows)
    ]


def write(folder: Path, rows: int) -> None:
    """The same records in each format, and Parquet with times as well."""
    found = records(rows)
    table = pa.Table.from_pylist(found)
    pq.write_table(table, folder / "visits.parquet", row_group_size=100_000)
    start = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
    times = [start + datetime.timedelta(seconds=at) for at in range(rows)]
    pq.write_table(table.append_column("at", pa.array(times)), folder / "times.parquet", row_group_size=100_000)
    with pa.ipc.new_file(str(folder / "visits.arrow"), table.schema) as out:
        out.write_table(table, max_chunksize=65_536)
    with open(folder / "visits.avro", "wb") as file:
        fastavro.writer(file, AVRO, found)
    with open(folder / "visits.csv", "w", newline="") as text:
        writer = csv.DictWriter(text, list(SCHEMA))
        writer.writeheader()
        writer.writerows(found)
    with open(folder / "visits.jsonl", "w") as text:
        text.writelines(json.dumps(each) + "\n" for each in found)


def rows_of(batches: Iterator[Any]) -> int:
    """The rows of record batches, by hand: NamedTuples, made column by column. Returns their number."""
    number = 0
    for batch in batches:
        make = named_row(tuple(batch.schema.names))._make
        number += len(list(map(make, zip(*(column.to_pylist() for column in batch.columns), strict=True))))
    return number


@functools.cache
def named_row(names: tuple[str, ...]) -> Any:
    """The class of rows with these columns."""
    return collections.namedtuple("Visit", names)


def parquet_by_hand(path: Path) -> int:
    """Rows of Parquet."""
    return rows_of(pq.ParquetFile(path).iter_batches(8192, use_threads=False))


def arrow_by_hand(path: Path) -> int:
    """Rows of Arrow IPC."""
    with pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_file(file)
        return rows_of(reader.get_batch(at) for at in range(reader.num_record_batches))


def csv_by_hand(path: Path) -> int:
    """Rows of CSV."""
    options = pyarrow.csv.ReadOptions(use_threads=False)
    types = {"id": pa.int64(), "url": pa.string(), "amount": pa.float64(), "user": pa.string(), "items": pa.int64()}
    convert = pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True)
    return rows_of(iter(pyarrow.csv.open_csv(path, options, convert_options=convert)))


def json_by_hand(path: Path) -> int:
    """Rows of JSON lines."""
    types = pa.schema(
        {"id": pa.int64(), "url": pa.string(), "amount": pa.float64(), "user": pa.string(), "items": pa.int64()}
    )
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 19)
    found = pyarrow.json.open_json(path, options, pyarrow.json.ParseOptions(explicit_schema=types))
    return rows_of(iter(found))


def objects_by_hand(path: Path) -> int:
    """Dicts of JSON lines: many lines in one call, which is what `json` does fastest."""
    number, size = 0, 1 << 19
    with open(path, "rb") as file:
        while lines := file.readlines(size):
            number += len(json.loads(b"[" + b",".join(lines) + b"]"))
    return number


def avro_by_hand(path: Path) -> int:
    """Rows of Avro."""
    make = named_row(tuple(SCHEMA))._make
    with open(path, "rb") as file:
        return len([make(record.values()) for record in fastavro.reader(file)])


def read(transform: Any) -> int:
    """The elements of a source, block by block."""
    number = 0
    for split in transform.source.splits(1):
        reader = transform.source.reader(split)
        while True:
            batch = reader.read(BLOCK)
            block = batch.block.block() if isinstance(batch.block, tg.io.Columns) else batch.block
            number += len(block)
            if batch.end:
                break
        reader.close()
    return number


CASES: dict[str, tuple[str, Callable[[Path], int], Callable[[Path], Any]]] = {
    "Parquet → rows": ("visits.parquet", parquet_by_hand, lambda path: tg.ReadFromParquet(path)),
    "Parquet with times → rows": ("times.parquet", parquet_by_hand, lambda path: tg.ReadFromParquet(path)),
    "CSV → rows": (
        "visits.csv",
        csv_by_hand,
        lambda path: tg.ReadFromCsv(path, schema=SCHEMA, strings_can_be_null=True),
    ),
    "JSON lines → rows": ("visits.jsonl", json_by_hand, lambda path: tg.ReadFromJson(path, schema=SCHEMA)),
    "JSON lines → dicts": ("visits.jsonl", objects_by_hand, lambda path: tg.ReadFromJson(path, as_=dict)),
    "Arrow → rows": ("visits.arrow", arrow_by_hand, lambda path: tg.ReadFromArrow(path)),
    "Avro → rows": ("visits.avro", avro_by_hand, lambda path: tg.ReadFromAvro(path)),
}


def compare(rows: int, turns: int, chosen: str) -> None:
    """Measure all cases, and print a line for each."""
    print(f"{rows:,} rows; load {os.getloadavg()[0]:.1f}; nanoseconds of processor time a row, best of {turns} turns")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), rows)
        for title, (name, by_hand, transform) in CASES.items():
            if chosen and chosen.lower() not in title.lower():
                continue
            path = Path(folder) / name
            best = {"by hand": float("inf"), "reader": float("inf")}
            for _ in range(turns):
                for who, run in (("by hand", lambda: by_hand(path)), ("reader", lambda: read(transform(path)))):  # noqa: B023
                    start = time.process_time()
                    if run() != rows:
                        raise SystemExit(f"{title}, {who}: not all rows were read")
                    best[who] = min(best[who], time.process_time() - start)
            nanos = {who: seconds / rows * 1e9 for who, seconds in best.items()}
            ratio = nanos["by hand"] / nanos["reader"]
            print(f"{title:28} by hand {nanos['by hand']:7.0f}   reader {nanos['reader']:7.0f}   ratio {ratio:.2f}")


def peaks(counts: list[int], rows: int) -> None:
    """Print the peak memory of reading directories of so many files, each in a process of its own."""
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            table = pa.Table.from_pylist(records(rows))
            pq.write_table(table, Path(folder) / "0.parquet")
            for at in range(1, count):
                (Path(folder) / f"{at}.parquet").hardlink_to(Path(folder) / "0.parquet")
            subprocess.run([sys.executable, __file__, "--read", f"{folder}/*.parquet"], check=True)


def read_directory(pattern: str) -> None:
    """Read a directory, and print the files' number, the rows and the peak memory."""
    start = time.perf_counter()
    number = read(tg.ReadFromParquet(pattern))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    files = len(os.listdir(Path(pattern).parent))
    print(f"{files:6,} files, {number:12,} rows: peak {peak:.0f} MB, {time.perf_counter() - start:.1f} s")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="", help="the cases whose title contains this")
    parser.add_argument("--directory", type=int, nargs="+", help="measure memory for so many files")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        read_directory(given.read)
    elif given.directory:
        peaks(given.directory, min(given.rows, 5000))
    else:
        compare(given.rows, given.turns, given.only)


if __name__ == "__main__":
    main()
