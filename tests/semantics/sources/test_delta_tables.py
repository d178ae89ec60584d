"""Delta tables on every runner: a version is read, and its rows are those that any reader of Delta tables finds."""

from __future__ import annotations

from pathlib import Path

import tidegate as tg
from tests.support.delta_tables import append, table_of_visits
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
