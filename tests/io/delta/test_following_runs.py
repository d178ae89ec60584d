"""Pipelines that follow a Delta table, on every runner that can."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.io.file_source.test_following_runs import AppendTo, lines_of, wait_until
from tests.support.delta_tables import append, table_of_visits
from tests.support.record_files import visits


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_rows_are_read_as_versions_appear(tmp_path: Path, runner: str) -> None:
    table, seen = table_of_visits(tmp_path, versions=2, rows=3), tmp_path / "seen"
    p = tg.Pipeline(runner)
    rows = p | tg.ReadFromDelta(
        table, columns=["id", "at"], follow=True, poll_interval=0.02, timestamp=lambda row: row.at
    )
    assert not rows.is_bounded
    _ = rows | tg.Map(lambda row: row.id) | tg.ParDo(AppendTo(seen))
    result = p.run()
    try:
        wait_until(lambda: len(lines_of(seen)) == 6)
        append(table, visits(2, 6))
        wait_until(lambda: len(lines_of(seen)) == 8)
        append(table, visits(1, 8))
        wait_until(lambda: len(lines_of(seen)) == 9)
    finally:
        result.cancel()
        result.wait_until_finish()
    assert sorted(map(int, lines_of(seen))) == list(range(9))
