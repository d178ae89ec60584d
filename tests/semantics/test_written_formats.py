"""Files of records on every runner: their contents, and that a run replaces the files of the previous run."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.written_files import FORMATS, all_rows, files_of, rows_in

WRITERS: dict[str, Callable[..., Any]] = {
    "csv": tg.WriteToCsv,
    "json": tg.WriteToJson,
    "parquet": tg.WriteToParquet,
    "avro": tg.WriteToAvro,
    "arrow": tg.WriteToArrow,
}
MIDNIGHT = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)


@dataclasses.dataclass(frozen=True)
class Visit:
    country: str
    number: int
    at: dt.datetime


def visit(number: int) -> Visit:
    return Visit("DE" if number % 2 else "FR", number, MIDNIGHT + dt.timedelta(hours=number))


@pytest.mark.parametrize("format", FORMATS)
def test_records_are_in_the_files_of_their_partitions(runner: str, tmp_path: Path, format: str) -> None:
    for numbers in ([5], range(30)):
        with tg.Pipeline(runner=runner) as p:
            visits = p | tg.Create(list(numbers)) | tg.Reshuffle() | tg.Map(visit)
            _ = visits | WRITERS[format](f"{tmp_path}/visits", file_name_suffix=".x", partition_by="country")
    found: dict[str, list[int]] = {}
    for name, rows in rows_in(tmp_path, format).items():
        found.setdefault(name.rpartition("/")[0], []).extend(int(row["number"]) for row in rows)
        assert all(list(row) == ["number", "at"] for row in rows)
    assert {name: sorted(numbers) for name, numbers in found.items()} == {
        "country=DE": list(range(1, 30, 2)),
        "country=FR": list(range(0, 30, 2)),
    }


def test_a_failed_run_leaves_the_output_of_the_previous_run(runner: str, tmp_path: Path) -> None:
    def rows(*values: Any) -> None:
        p = tg.Pipeline(runner=runner)
        records = p | tg.Create(values) | tg.Map(lambda value: {"n": value})
        _ = records | tg.WriteToParquet(f"{tmp_path}/x", {"n": int}, num_shards=1)
        p.run().wait_until_finish()

    rows(1, 2, 3)
    before = files_of(tmp_path)
    with pytest.raises(tg.TidegateError, match=r"column 'n' of .*'many'"):
        rows(4, "many")
    assert files_of(tmp_path) == before
    assert sorted(row["n"] for row in all_rows(tmp_path, "parquet")) == [1, 2, 3]
