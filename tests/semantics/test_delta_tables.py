"""Delta tables on every runner: a version is read, and a run appends or replaces rows in one version."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.support.delta_tables import VISITS, append, rows_of, table_of_visits
from tests.support.record_files import visits
from tests.support.run_and_collect import collect


def test_a_version_is_read_with_chosen_columns_and_rows(runner: str, tmp_path: Path) -> None:
    table = table_of_visits(tmp_path, versions=4, rows=25, partition_by=["url"])
    append(table, visits(25, 100))
    where = [("id", ">", 30), ("url", "in", ["https://example.com/1"])]

    def sums(p: tg.Pipeline) -> dict[str, tg.PCollection[tuple[str, int]]]:
        rows = p | tg.ReadFromDelta(table, version=3, columns=["url", "id"], where=where)
        return {"sums": rows | tg.Map(lambda row: (row.url, row.id)) | tg.CombinePerKey(sum)}

    expected = sum(id for id in range(31, 100) if id % 7 == 1)
    assert collect(sums, runner=runner).values("sums") == [("https://example.com/1", expected)]


def test_rows_are_appended_in_one_version_and_a_failed_run_adds_none(runner: str, tmp_path: Path) -> None:
    table = tmp_path / "visits"
    for first in (0, 50):
        with tg.Pipeline(runner=runner) as p:
            rows = p | tg.Create(visits(50, first)) | tg.Reshuffle()
            _ = rows | tg.WriteToDelta(table, VISITS, partition_by="url")
    before = sorted(rows_of(table), key=lambda row: row["id"])
    assert before == visits(100)
    p = tg.Pipeline(runner=runner)
    _ = p | tg.Create([visits(1)[0], {"id": "many"}]) | tg.WriteToDelta(table)
    with pytest.raises(tg.TidegateError, match=r"column 'id' of .*'many'"):
        p.run().wait_until_finish()
    assert sorted(rows_of(table), key=lambda row: row["id"]) == before
    assert len(list((table / "_delta_log").glob("*.json"))) == 3


def test_overwriting_replaces_the_rows(runner: str, tmp_path: Path) -> None:
    table = table_of_visits(tmp_path, versions=1)
    with tg.Pipeline(runner=runner) as p:
        _ = p | tg.Create(visits(5, 100)) | tg.WriteToDelta(table, mode="overwrite")
    assert sorted(rows_of(table), key=lambda row: row["id"]) == visits(5, 100)
