"""Reading files of records into Python rows, beside the same work by hand. `formats.py` is the command.

The reader of each format is driven as a runner drives it, block by block, without a pipeline around it; by hand,
pyarrow, `json` or fastavro read the same file, a batch at a time. The rows by hand are NamedTuples, which are to Python
what `tg.Row` is: tuples of a class with named fields. The cases "… → tuples" compare the same rows of ours with bare
tuples, `zip(*columns)`, the cheapest rows there are; "… → dicts" compares with pyarrow's own `to_pylist()`.
"""

from __future__ import annotations

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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from turns import best_of, print_ratio
from visits import AVRO, BLOCK, SCHEMA, records

import tidegate as tg

Rows = Callable[[Iterable[Any]], int]
"""Makes rows of record batches, and returns their number."""
ARROW_TYPES = {"id": pa.int64(), "url": pa.string(), "amount": pa.float64(), "user": pa.string(), "items": pa.int64()}


def write_files(folder: Path, rows: int) -> None:
    """Write the same records in each format, and to Parquet with times as well."""
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


def named(batches: Iterable[Any]) -> int:
    """NamedTuples, made column by column."""
    number = 0
    for batch in batches:
        make = named_row(tuple(batch.schema.names))._make
        number += len(list(map(make, zip(*(column.to_pylist() for column in batch.columns), strict=True))))
    return number


def tuples(batches: Iterable[Any]) -> int:
    """Bare tuples, made column by column."""
    return sum(len(list(zip(*(column.to_pylist() for column in batch.columns), strict=True))) for batch in batches)


def dicts(batches: Iterable[Any]) -> int:
    """Dicts, as pyarrow makes them."""
    return sum(len(batch.to_pylist()) for batch in batches)


@functools.cache
def named_row(names: tuple[str, ...]) -> Any:
    """The class of rows with these columns."""
    return collections.namedtuple("Visit", names)


def parquet_by_hand(path: Path, rows: Rows) -> int:
    """Rows of Parquet."""
    return rows(pq.ParquetFile(path).iter_batches(8192, use_threads=False))


def arrow_by_hand(path: Path, rows: Rows) -> int:
    """Rows of Arrow IPC."""
    with pa.OSFile(str(path)) as file:
        reader = pa.ipc.open_file(file)
        return rows(reader.get_batch(at) for at in range(reader.num_record_batches))


def csv_by_hand(path: Path, rows: Rows) -> int:
    """Rows of CSV."""
    options = pyarrow.csv.ReadOptions(use_threads=False)
    convert = pyarrow.csv.ConvertOptions(column_types=ARROW_TYPES, strings_can_be_null=True)
    return rows(pyarrow.csv.open_csv(path, options, convert_options=convert))


def json_by_hand(path: Path, rows: Rows) -> int:
    """Rows of JSON lines."""
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=1 << 19)
    types = pyarrow.json.ParseOptions(explicit_schema=pa.schema(ARROW_TYPES))
    return rows(pyarrow.json.open_json(path, options, types))


def objects_by_hand(path: Path, rows: Rows) -> int:
    """Dicts of JSON lines: many lines in one call, which is what `json` does fastest."""
    number, size = 0, 1 << 19
    with open(path, "rb") as file:
        while lines := file.readlines(size):
            number += len(json.loads(b"[" + b",".join(lines) + b"]"))
    return number


def avro_by_hand(path: Path, rows: Rows) -> int:
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


def read_csv(path: Path, as_: Any = tg.Row) -> Any:
    """Our reader of CSV, which takes the same texts for nulls as the one by hand."""
    return tg.ReadFromCsv(path, schema=SCHEMA, strings_can_be_null=True, as_=as_)


CASES: dict[str, tuple[str, Callable[[Path, Rows], int], Rows, Callable[[Path], Any]]] = {
    "Parquet → rows": ("visits.parquet", parquet_by_hand, named, tg.ReadFromParquet),
    "Parquet → tuples": ("visits.parquet", parquet_by_hand, tuples, tg.ReadFromParquet),
    "Parquet → dicts": ("visits.parquet", parquet_by_hand, dicts, lambda path: tg.ReadFromParquet(path, as_=dict)),
    "Parquet with times → rows": ("times.parquet", parquet_by_hand, named, tg.ReadFromParquet),
    "CSV → rows": ("visits.csv", csv_by_hand, named, read_csv),
    "CSV → tuples": ("visits.csv", csv_by_hand, tuples, read_csv),
    "CSV → dicts": ("visits.csv", csv_by_hand, dicts, lambda path: read_csv(path, dict)),
    "JSON lines → rows": ("visits.jsonl", json_by_hand, named, lambda path: tg.ReadFromJson(path, schema=SCHEMA)),
    "JSON lines → dicts": ("visits.jsonl", objects_by_hand, dicts, lambda path: tg.ReadFromJson(path, as_=dict)),
    "Arrow → rows": ("visits.arrow", arrow_by_hand, named, tg.ReadFromArrow),
    "Arrow → tuples": ("visits.arrow", arrow_by_hand, tuples, tg.ReadFromArrow),
    "Avro → rows": ("visits.avro", avro_by_hand, named, tg.ReadFromAvro),
}
"""By title: the file, how it is read and how rows are made by hand, and our transform."""


def compare(rows: int, turns: int, chosen: str) -> None:
    """Measure the cases whose title contains `chosen`, and print a line for each."""
    cases = {title: case for title, case in CASES.items() if chosen.lower() in title.lower()}
    if not cases:
        return
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), rows)
        for title, (name, by_hand, rows_by_hand, transform) in cases.items():
            path = Path(folder) / name
            assert by_hand(path, rows_by_hand) == read(transform(path)) == rows, f"{title}: not all rows were read"
            ways = {
                "by hand": functools.partial(by_hand, path, rows_by_hand),
                "reader": lambda: read(transform(path)),  # noqa: B023
            }
            print_ratio(title, rows, best_of(turns, ways))


def peaks(counts: list[int], rows: int, command: str) -> None:
    """Print the peak memory of reading directories of so many files, each in a process of its own: the script
    `command`, which calls `read_directory`."""
    for count in counts:
        with tempfile.TemporaryDirectory() as folder:
            table = pa.Table.from_pylist(records(rows))
            pq.write_table(table, Path(folder) / "0.parquet")
            for at in range(1, count):
                (Path(folder) / f"{at}.parquet").hardlink_to(Path(folder) / "0.parquet")
            subprocess.run([sys.executable, command, "--read", f"{folder}/*.parquet"], check=True)


def read_directory(pattern: str) -> None:
    """Read a directory, and print the files' number, the rows and the peak memory."""
    start = time.perf_counter()
    number = read(tg.ReadFromParquet(pattern))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    files = len(os.listdir(Path(pattern).parent))
    print(f"{files:6,} files, {number:12,} rows: peak {peak:.0f} MB, {time.perf_counter() - start:.1f} s")
