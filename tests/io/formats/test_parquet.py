"""Parquet: unneeded row groups and columns are not read, and statistics never skip a matching row."""

from __future__ import annotations

import datetime
import gc
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.record_files import elements_of, write

START = datetime.datetime(2013, 1, 1, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def damaged_file(tmp_path: Path, group: int, column: int) -> Path:
    """Write a file of three row groups, one of which has an undecodable column."""
    buffer = io.BytesIO()
    table = pa.table({"id": list(range(300)), "name": [f"n{i:03}" for i in range(300)]})
    table = table.append_column("at", pa.array([START + i * HOUR for i in range(300)]))
    pq.write_table(table, buffer, row_group_size=100, use_dictionary=False)
    data = bytearray(buffer.getvalue())
    chunk = pq.ParquetFile(buffer).metadata.row_group(group).column(column)
    data[chunk.data_page_offset : chunk.data_page_offset + 40] = b"\xff" * 40
    return write(tmp_path / "it.parquet", bytes(data))


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ([("id", ">=", 200)], range(200, 300)),
        ([("name", "==", "n250")], [250]),
        ([("id", "in", [3, 299])], [3, 299]),
        ([("id", "<", 50), ("name", "!=", None)], range(50)),
        ([("at", ">=", START + 200 * HOUR)], range(200, 300)),
        ([("at", "<", tg.Timestamp.of(START + 5 * HOUR))], range(5)),
    ],
)
def test_row_groups_that_statistics_rule_out_are_not_read(where: Any, ids: Any, tmp_path: Path) -> None:
    path = damaged_file(tmp_path, group=1, column=0)
    with pytest.raises(tg.ReadError, match="row group 1 can't be read"):
        elements_of(tg.io.ReadFromParquet(path))
    assert [row.id for row in elements_of(tg.io.ReadFromParquet(path, where=where))] == list(ids)


def test_columns_that_are_not_selected_are_not_read(tmp_path: Path) -> None:
    path = damaged_file(tmp_path, group=1, column=0)
    assert len(elements_of(tg.io.ReadFromParquet(path, columns=["name"]))) == 300


@given(
    values=st.lists(st.none() | st.integers(0, 6), min_size=1, max_size=40),
    rows=st.integers(1, 7),
    op=st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]),
    value=st.integers(0, 6),
)
def test_skipping_row_groups_changes_no_result(
    tmp_path_factory: pytest.TempPathFactory, values: list[Any], rows: int, op: str, value: int
) -> None:
    columns = {
        "int": pa.array(values, pa.int64()),
        "text": pa.array([None if each is None else str(each) for each in values], pa.string()),
        "float": pa.array([float("nan") if each == 0 else each for each in values], pa.float64()),
        "at": pa.array([None if each is None else START + each * HOUR for each in values], pa.timestamp("ms", "UTC")),
        "row": pa.array(range(len(values))),
    }
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, row_group_size=rows)
    path = write(tmp_path_factory.mktemp("parquet") / "it.parquet", buffer.getvalue())
    pq.write_table(pa.table(columns), buffer := io.BytesIO(), row_group_size=rows, write_statistics=False)
    without_statistics = write(path.parent / "without_statistics.parquet", buffer.getvalue())
    for column, operand in (
        ("int", value),
        ("text", str(value)),
        ("float", float(value)),
        ("at", START + value * HOUR),
    ):
        where = [(column, op, [operand] if "in" in op else operand)]
        found = [
            elements_of(tg.io.ReadFromParquet(each, columns=["row"], where=where))
            for each in (path, without_statistics)
        ]
        assert found[0] == found[1]


@pytest.mark.parametrize("where", [[], [("id", ">", 1)]])
def test_reading_a_file_leaves_no_garbage_that_only_a_collection_frees(where: Any, tmp_path: Path) -> None:
    """Collections are rare, and the metadata of a file is large: ten thousand small files took 100 MB."""
    read = tg.io.ReadFromParquet(tmp_path / "it.parquet", where=where)
    write(tmp_path / "it.parquet", parquet_of([1, 2, 3]))
    elements_of(read)
    gc.collect()
    gc.disable()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        elements_of(read)
        gc.collect()
        left = [type(each).__name__ for each in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert [name for name in left if name in ("FileMetaData", "ParquetSchema", "ParquetFile", "ParquetReader")] == []


def parquet_of(ids: list[int]) -> bytes:
    """A Parquet file with one column."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"id": ids}), buffer)
    return buffer.getvalue()


def test_a_file_without_columns_is_empty_and_rows_without_columns_are_refused(tmp_path: Path) -> None:
    without = pa.table({"a": range(2)}).select([])
    pq.write_table(without, tmp_path / "it.parquet")
    assert elements_of(tg.ReadFromParquet(tmp_path / "it.parquet", as_=dict)) == []
    with pa.ipc.new_file(tmp_path / "it.arrow", without.schema) as out:
        out.write_table(without)
    with pytest.raises(tg.ReadError, match=r"it.arrow, row 1: it has no columns"):
        elements_of(tg.ReadFromArrow(tmp_path / "it.arrow", as_=dict))
