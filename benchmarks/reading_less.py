"""Columns and conditions given to readers: one query over a wide Parquet file, with and without them, in turns.

The file has 40 columns of three types, sorted by day. The query reads three of the columns, and a tenth of the days.

    python benchmarks/reading_less.py --rows 200000 --turns 3
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy
import pyarrow as pa
import pyarrow.parquet

import tidegate as tg
from tidegate.runners.planner.relational.rewrites import REWRITES

QUERY = "SELECT shop, SUM(c3) AS total FROM sales WHERE day >= 90 GROUP BY shop"
PASSES = ("columns of readers", "rows of readers")


def write(path: Path, rows: int) -> None:
    """Write the file."""
    chance = numpy.random.default_rng(1)
    columns = {"day": numpy.arange(rows) * 100 // rows, "shop": chance.integers(0, 50, rows).astype(str)}
    for k in range(38):
        values = chance.integers(0, 1000, rows)
        columns[f"c{k}"] = values if k % 3 == 0 else values / 7 if k % 3 == 1 else values.astype(str)
    pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=20_000)


def seconds(path: Path) -> float:
    """The processor time of one run."""
    rows = {"sales": tg.Pipeline(options=[]) | tg.ReadFromParquet(path)} | tg.Sql(QUERY)
    begun = time.process_time()
    assert len(rows.collect()) == 50
    return time.process_time() - begun


def main() -> None:
    """Print the least time of each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    ways = {"columns and rows": (), "columns": PASSES[1:], "rows": PASSES[:1], "neither": PASSES}
    found: dict[str, list[float]] = {way: [] for way in ways}
    passes = dict(REWRITES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "sales.parquet")
        write(path, given.rows)
        for _ in range(given.turns):
            for way, without in ways.items():
                REWRITES.clear()
                REWRITES.update({name: each for name, each in passes.items() if name not in without})
                found[way].append(seconds(path))
    for way, times in found.items():
        print(f"{way:16} {min(times):6.2f} s")


if __name__ == "__main__":
    main()
