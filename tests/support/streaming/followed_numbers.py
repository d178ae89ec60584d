"""A script that follows numbers into windows and writes both, and a folder to which numbers are added while it runs.

Each number is written as a row, and so is the count of the numbers in each window.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

import tidegate as tg
from tests.support.streaming.commit_points import DELTA_POINTS, FILE_POINTS, SinkWithPoints
from tests.support.streaming.killed_script import KilledScript
from tidegate.io.delta.location import Location
from tidegate.io.delta.sink import DeltaSink

LINES: Final = 20
"""The numbers in a file, or in a version of a table."""
WINDOW: Final = 50
OUT_OF_ORDERNESS: Final = 200
AT_FIRST: Final = 5
"""The files that there are when the script starts."""

POINTS: Final = {"text": FILE_POINTS, "parquet": FILE_POINTS, "delta": DELTA_POINTS}

SCRIPT: Final = """
import sys
from tests.support.streaming.followed_numbers import main

if __name__ == "__main__":
    main("{source}", "{sink}", *sys.argv[1:])
"""


def main(source: str, sink: str, folder: str, output: str, *flags: str) -> None:
    """Follow a folder until Ctrl-C; then note the metrics that should be 0."""
    p = tg.Pipeline(name="followed", options=flags)
    numbers = p | "read" >> reader_of(source, folder) | "number" >> tg.Map(number_of)
    counts = (
        numbers
        | tg.Map(lambda n: (n // WINDOW, 1))
        | tg.WindowInto(tg.FixedWindows(WINDOW))
        | tg.CombinePerKey(sum)
        | "count rows" >> tg.MapTuple(lambda window, count: {"window": window, "count": count})
    )
    write(sink, f"{output}/counts", counts, ["window", "count"])
    write(sink, f"{output}/copies", numbers | "rows" >> tg.Map(lambda n: {"n": n, "half": n % 2}), ["n", "half"])
    result = p.run()
    result.wait_until_finish()
    dropped = {name: result.metrics().counter(name) for name in ("dropped_late", "files_changed", "files_deleted")}
    Path(output, "dropped").write_text(json.dumps(dropped))


def reader_of(source: str, folder: str) -> Any:
    """The transform that follows a source."""
    match source:
        case "text":
            return tg.io.ReadFromText(
                f"{folder}/*.txt",
                follow=True,
                poll_interval=0.05,
                min_age=0,
                timestamp=int,
                out_of_orderness=OUT_OF_ORDERNESS,
            )
        case "csv":
            return tg.ReadFromCsv(
                f"{folder}/*.csv",
                follow=True,
                poll_interval=0.05,
                min_age=0,
                timestamp=number_of,
                out_of_orderness=OUT_OF_ORDERNESS,
            )
        case "delta":
            return tg.ReadFromDelta(
                f"{folder}/table",
                follow=True,
                poll_interval=0.05,
                timestamp=number_of,
                out_of_orderness=OUT_OF_ORDERNESS,
            )
    raise ValueError(source)


def number_of(element: Any) -> int:
    """The number of a line or record."""
    return int(getattr(element, "n", element))


def write(sink: str, path: str, rows: Any, columns: Sequence[str]) -> None:
    """Write rows of whole numbers; those with a column `half` in partitions, where the sink has any."""
    name = path.rpartition("/")[2]
    folder = path.rpartition("/")[0]
    partition = tuple(column for column in columns if column == "half")
    match sink:
        case "text":
            lines = tg.io.WriteToText(f"{path}/part", ".txt")
            _ = rows | f"{name} lines" >> tg.Map(json.dumps) | name >> tg.Write(with_points(lines.sink, folder, sink))
        case "parquet":
            table = tg.WriteToParquet(f"{path}/part", dict.fromkeys(columns, int), partition_by=partition or None)
            if partition:
                rows = rows | f"{name} partitions" >> table.address
            _ = rows | name >> tg.Write(with_points(table.sink, folder, sink))
        case "delta":
            schema = pa.schema([(column, pa.int64()) for column in columns])
            _ = rows | name >> tg.Write(with_points(DeltaSink(Location(path), schema, partition), folder, sink))


def with_points(inner: Any, folder: str, sink: str) -> SinkWithPoints:
    return SinkWithPoints(inner, folder, POINTS[sink])


@dataclass
class Output:
    """The rows that a sink has made visible. A file that is visible does not change, so each is read once."""

    sink: str
    folder: Path
    _rows: dict[str, list[dict[str, int]]] = field(default_factory=dict)

    def rows(self) -> list[dict[str, int]]:
        for path in self._files():
            if path not in self._rows:
                self._rows[path] = list(self._read(path))
        return [row for rows in self._rows.values() for row in rows]

    def _files(self) -> list[str]:
        if self.sink != "delta":
            return glob.glob(f"{self.folder}/**/part-*", recursive=True)
        return DeltaTable(str(self.folder)).file_uris() if DeltaTable.is_deltatable(str(self.folder)) else []

    def _read(self, path: str) -> Iterator[dict[str, int]]:
        if self.sink == "text":
            yield from map(json.loads, Path(path).read_text().splitlines())
        else:
            yield from pq.ParquetFile(path).read().to_pylist()


class FollowedNumbers:
    """A run of the script over a folder, to which numbers are added while it runs."""

    def __init__(self, root: Path, source: str, sink: str) -> None:
        self.root = root
        self.source = source
        self.added = 0
        """How many files have been added."""
        for name in ("in", "out"):
            (root / name).mkdir()
        self._copies = Output(sink, root / "out" / "copies")
        self._counts = Output(sink, root / "out" / "counts")
        for _ in range(AT_FIRST):
            self._put()
        self.run = KilledScript(root, SCRIPT.format(source=source, sink=sink))

    def add(self, files: int = 1) -> None:
        """Add files, each as soon as the watermark can't pass a number that is not written yet. Files are read at the
        same time in any order, and after a kill are read again from the last checkpoint on: if too many of them were
        unread, the numbers in some would be late."""
        for _ in range(files):
            self.run.wait_until(lambda: (self.added + 1) * LINES <= self._first_unwritten() + OUT_OF_ORDERNESS)
            self._put()

    def copies(self) -> list[int]:
        """The numbers that have been written."""
        return sorted(row["n"] for row in self._copies.rows())

    def counts(self) -> list[tuple[int, int]]:
        """The windows that have been written, each with its count."""
        return sorted((row["window"], row["count"]) for row in self._counts.rows())

    def wait_until_written(self) -> None:
        """Wait until all numbers are written."""
        self.run.wait_until(lambda: len(self.copies()) >= self.added * LINES)

    def wait_for_more(self) -> None:
        """Wait until numbers are written, if there are any that have not been."""
        before = len(self.copies())
        self.run.wait_until(lambda: len(self.copies()) > before or before >= self.added * LINES)

    def interrupted(self, name: str) -> int:
        """Let a process be interrupted at a point, as `SIGKILL before moving`, and return its pid."""
        (self.root / "out" / name).touch()
        self.add()
        self.run.wait_until(lambda: list((self.root / "out").glob(f"{name} *")))
        (found,) = (self.root / "out").glob(f"{name} *")
        return int(found.name.rpartition(" ")[2])

    def check(self) -> None:
        """Stop the script when all is written, and check that each number and each window is written once."""
        self.wait_until_written()
        windows = (self.added * LINES - 1 - OUT_OF_ORDERNESS) // WINDOW
        self.run.wait_until(lambda: len(self.counts()) >= windows)
        self.run.interrupt()
        assert self.copies() == list(range(self.added * LINES))
        assert self.counts() == [(window, WINDOW) for window in range(windows)]
        assert set(json.loads((self.root / "out" / "dropped").read_text()).values()) == {0}
        assert glob.glob(f"{self.root}/out/*/.tidegate-*") == []

    def _put(self) -> None:
        first = self.added * LINES
        numbers = range(first, first + LINES)
        folder = self.root / "in"
        if self.source == "delta":
            write_deltalake(str(folder / "table"), pa.table({"n": list(numbers)}), mode="append")
        else:
            header = "n\n" if self.source == "csv" else ""
            part = folder / f".{self.added:04}"
            part.write_text(header + "".join(f"{n}\n" for n in numbers))
            part.rename(folder / f"{self.added:04}.{'csv' if header else 'txt'}")
        self.added += 1

    def _first_unwritten(self) -> int:
        written = set(self.copies())
        return next(n for n in range(self.added * LINES + 1) if n not in written)
