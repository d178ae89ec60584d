"""Directories of files: the memory it takes to read large ones, and the time that each of many small files takes.

For each format and runner, a pipeline counts the records of a directory, in a process of its own, which has read a
small file before. `--gigabytes` are the sizes of the large directories, in files of 128 MB: memory is flat if the peak
is the same for all sizes. `--files` are the numbers of small files, of ten records each: a listing or a plan that takes
quadratic time would show as more time per file. With `follow`, a stream finds the same files and counts them; the last
column is the size of its last checkpoint, which names each file that has been read.

The files of a directory are links to one file; everything is under a temporary folder, which is removed.

    python benchmarks/directories.py
    python benchmarks/directories.py --gigabytes 1 5 --files --formats csv --runners streaming
    python benchmarks/directories.py --gigabytes --files 1000 10000 --runners direct streaming spark
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from visits import SCHEMA, records

import tidegate as tg

BASE_ROWS = 50_000
FILE_BYTES = 128 << 20
SMALL_ROWS = 10
LOOK = 0.02
"""Seconds between two looks at the counter of a stream."""
FLAGS = {"direct": (), "streaming": ("--workers", "2"), "spark": ("--spark_partitions", "2")}
READERS: dict[str, Callable[..., Any]] = {
    "csv": lambda pattern, **options: tg.ReadFromCsv(pattern, schema=SCHEMA, **options),
    "json": lambda pattern, **options: tg.ReadFromJson(pattern, schema=SCHEMA, **options),
    "parquet": tg.ReadFromParquet,
}


def write_csv(path: Path, rows: int, size: int) -> int:
    """Write records over and over until the file has `size` bytes. Returns their number."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(SCHEMA))
    writer.writeheader()
    header = text.tell()
    writer.writerows(records(rows))
    return repeated(path, text.getvalue()[:header], text.getvalue()[header:], rows, size)


def write_json(path: Path, rows: int, size: int) -> int:
    """The same as JSON lines."""
    return repeated(path, "", "".join(json.dumps(each) + "\n" for each in records(rows)), rows, size)


def write_parquet(path: Path, rows: int, size: int) -> int:
    """The same as Parquet: each repetition is a row group."""
    table = pa.Table.from_pylist(records(rows))
    written = 0
    with open(path, "wb") as file, pq.ParquetWriter(file, table.schema) as writer:
        while not written or file.tell() < size:
            writer.write_table(table)
            written += rows
    return written


def repeated(path: Path, header: str, body: str, rows: int, size: int) -> int:
    """Write a header and as many bodies as fit into `size` bytes, at least one. Returns the number of rows."""
    times = max(1, (size - len(header)) // len(body))
    with open(path, "w", newline="") as file:
        file.write(header)
        for _ in range(times):
            file.write(body)
    return rows * times


WRITERS = {"csv": write_csv, "json": write_json, "parquet": write_parquet}


def report(rows: int) -> None:
    """Add to the number of records that have been read."""
    tg.Metrics.counter("benchmark", "rows").inc(rows)


def counted(result: Any) -> int:
    """How many records have been read."""
    return int(result.metrics().counter("rows", namespace="benchmark"))


def read(runner: str, format: str, pattern: str, rows: int) -> None:
    """Read the files in a pipeline, and check how many records there are."""
    pipeline = tg.Pipeline(runner, [*FLAGS[runner]])
    _ = pipeline | READERS[format](pattern) | tg.combiners.Count.Globally() | tg.Map(report)
    result = pipeline.run()
    result.wait_until_finish()
    assert counted(result) == rows, f"{counted(result):,} of {rows:,} records were read"


def follow(runner: str, format: str, pattern: str, rows: int) -> int:
    """Follow the files until all their records have been counted. Returns the size of the last checkpoint."""
    with tempfile.TemporaryDirectory() as checkpoints:
        flags = [*FLAGS[runner]]
        if runner == "streaming":
            flags += ["--checkpoint_dir", checkpoints, "--checkpoint_interval", "1"]
        pipeline = tg.Pipeline(runner, flags)
        _ = pipeline | READERS[format](pattern, follow=True, min_age=0) | tg.Map(lambda row: report(1))
        result: Any = pipeline.run()
        while counted(result) < rows:
            if result.state.ended:
                result.wait_until_finish()
            time.sleep(LOOK)
        result.stop()
        result.wait_until_finish()
        return max((path.stat().st_size for path in Path(checkpoints).rglob("manifest.json")), default=0)


def measure(how: str, runner: str, format: str, folder: str, rows: int) -> dict[str, Any]:
    """Read a directory in this process, after a first run has read one small file and so loaded the code."""
    read(runner, format, f"{folder}/one/*", SMALL_ROWS)
    start = time.perf_counter()
    size = follow(runner, format, f"{folder}/all/*", rows) if how == "follow" else 0
    if how == "read":
        read(runner, format, f"{folder}/all/*", rows)
    seconds = time.perf_counter() - start
    # `ru_maxrss` of this process would include the peak of the one that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = max(int(status["VmHWM"].split()[0]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    return {"seconds": seconds, "peak": peak // 1024, "checkpoint": size}


def measured(how: str, runner: str, format: str, rows: int, size: int, count: int) -> dict[str, Any]:
    """What `measure` returns in a new process, for a directory of `count` links to a file of `size` bytes."""
    with tempfile.TemporaryDirectory(prefix="tidegate-directories-") as folder:
        for name in ("one", "all"):
            (Path(folder) / name).mkdir()
        WRITERS[format](Path(folder) / "one" / f"0.{format}", SMALL_ROWS, 0)
        file = Path(folder) / f"file.{format}"
        total = WRITERS[format](file, rows, size) * count
        for at in range(count):
            (Path(folder) / "all" / f"{at:06}.{format}").hardlink_to(file)
        command = [sys.executable, __file__, "--inside", how, runner, format, folder, str(total)]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        return {**json.loads(printed.splitlines()[-1]), "rows": total, "bytes": file.stat().st_size * count}


def measure_large(gigabytes: list[float], formats: list[str], runners: list[str]) -> None:
    """Print a line for each large directory."""
    print("| format | runner | GB | records | seconds | MB/s | largest process, MB |")
    print("|---|---|---|---|---|---|---|")
    for format in formats:
        for runner in runners:
            for each in gigabytes:
                count = max(1, round(each * 1e9 / FILE_BYTES))
                found = measured("read", runner, format, BASE_ROWS, min(FILE_BYTES, int(each * 1e9)), count)
                speed = found["bytes"] / 1e6 / found["seconds"]
                print(
                    f"| {format} | {runner} | {found['bytes'] / 1e9:.2f} | {found['rows']:,} | {found['seconds']:.1f} "
                    f"| {speed:.0f} | {found['peak']} |",
                    flush=True,
                )


def measure_small(counts: list[int], formats: list[str], runners: list[str]) -> None:
    """Print a line for each directory of small files."""
    print("| format | runner | | files | seconds | ms per file | largest process, MB | checkpoint, kB |")
    print("|---|---|---|---|---|---|---|---|")
    for format in formats:
        for runner in runners:
            for how in ("read", "follow") if runner != "spark" else ("read",):
                for count in counts:
                    found = measured(how, runner, format, SMALL_ROWS, 0, count)
                    size = f"{found['checkpoint'] / 1e3:,.0f}" if found["checkpoint"] else ""
                    print(
                        f"| {format} | {runner} | {how} | {count:,} | {found['seconds']:.1f} "
                        f"| {found['seconds'] / count * 1e3:.2f} | {found['peak']} | {size} |",
                        flush=True,
                    )


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, nargs="*", default=[0.25, 1])
    parser.add_argument("--files", type=int, nargs="*", default=[1000, 10_000])
    parser.add_argument("--formats", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--runners", nargs="+", choices=FLAGS, default=["direct", "streaming"])
    parser.add_argument("--inside", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        how, runner, format, folder, rows = given.inside
        print(json.dumps(measure(how, runner, format, folder, int(rows))))
        return
    if given.gigabytes:
        measure_large(given.gigabytes, given.formats, given.runners)
    if given.files:
        measure_small(given.files, given.formats, given.runners)


if __name__ == "__main__":
    main()
