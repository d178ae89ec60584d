"""Readers that get the columns and conditions of the relations behind them: the same answers, errors and positions."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tidegate as tg
from tidegate.io.file_source import reader as file_reader
from tidegate.io.formats import parquet
from tidegate.runners.planner import Traits, plan
from tidegate.runners.planner.explain import explain
from tidegate.runners.planner.relational.rewrites import REWRITES
from tidegate.sdk.portable.model import Read
from tidegate.sdk.relational.expressions import Tree

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pc = pytest.importorskip("pyarrow.csv")

every = parquet._batches
CHANCE = random.Random(3)
DAY = dt.datetime(2024, 2, 29, tzinfo=dt.UTC)
VALUES: dict[str, list[Any]] = {
    "n": [None, -(2**63), 2**63 - 1, *range(-3, 6)],
    "x": [None, math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, 2.5],
    "d": [None, *map(Decimal, ("-1.50", "0.00", "1.20", "99.99"))],
    "s": [None, "", "a", "ab", "b", "é", "😀", "Z"],
    "b": [None, True, False],
    "day": [None, dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(2030, 1, 1)],
    "at": [DAY + dt.timedelta(hours=each) for each in range(5)],
}
TYPES = {
    "i": pa.int64(),
    "n": pa.int64(),
    "x": pa.float64(),
    "d": pa.decimal128(10, 2),
    "s": pa.string(),
    "b": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "unread": pa.string(),
}
ROWS = [
    {"i": i, **{name: CHANCE.choice(values) for name, values in VALUES.items()}, "unread": f"u{i}"} for i in range(90)
]
ROWS[30:50] = [{**each, "n": 7, "s": None, "x": math.nan} for each in ROWS[30:50]]
"""The rows of the files: those in the middle are alike, so that the statistics of row groups rule out something."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A reader of the same rows for each format."""

    folder = tmp_path_factory.mktemp("files")
    table = pa.Table.from_pylist(ROWS, pa.schema(list(TYPES.items())))
    pq.write_table(table, folder / "t.parquet", row_group_size=10)
    with pa.ipc.new_file(folder / "t.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=10)
    as_text = table.set_column(table.schema.get_field_index("x"), "x", table["x"].cast(pa.string()))
    pc.write_csv(as_text, folder / "t.csv")
    schema = pa.schema(list(TYPES.items()))
    return {
        "parquet": lambda **more: tg.io.ReadFromParquet(folder / "t.parquet", **more),
        "arrow": lambda **more: tg.io.ReadFromArrow(folder / "t.arrow", **more),
        "csv": lambda **more: tg.io.ReadFromCsv(
            folder / "t.csv", schema=schema, strings_can_be_null=True, null_values=["", "NA"], **more
        ),
    }


def planned(rows: tg.PCollection[Any]) -> list[Read]:
    """The reads of the plan of a pipeline."""
    made = plan(rows.pipeline.sealed(values=True), Traits(parallel=False, drops_unread=False))
    return [node for node in made.pipeline.nodes if isinstance(node, Read)]


def condition(depth: int = 2) -> tg.Expression:
    """A random condition, of which readers can take some or all."""
    kind = CHANCE.choice(["and", "or", "not", *["leaf"] * 4]) if depth else "leaf"
    match kind:
        case "and":
            return condition(depth - 1) & condition(depth - 1)
        case "or":
            return condition(depth - 1) | condition(depth - 1)
        case "not":
            return ~condition(depth - 1)
    name = CHANCE.choice([*VALUES])
    column = tg.col(name)
    values = [value for value in VALUES[name] if value is not None]
    value = CHANCE.choice(values)
    match CHANCE.randrange(9):
        case 0:
            return column.is_null()
        case 1:
            return column.is_not_null()
        case 2:
            return column.is_in(CHANCE.sample(values, 2))
        case 3 if name == "b":
            return column
        case 4 if name == "n":
            return column % 3 == 1
        case 5:
            return tg.lit(value) <= column
        case 6:
            return column < value
        case 7:
            return column > value
        case _:
            return column != value if CHANCE.random() < 0.3 else column == value


@pytest.mark.parametrize("format", ["parquet", "arrow", "csv"])
def test_random_filters_have_the_same_answer_without_conditions_and_columns_of_readers(
    files: dict[str, Any], format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conditions = [condition() for _ in range(16)]

    def queries() -> tg.PCollection[Any]:
        p = tg.Pipeline()
        rows = [p | f"read {k}" >> files[format]() | tg.Filter(where) for k, where in enumerate(conditions)]
        return [each | tg.Select("i", "x", "s", query=tg.lit(k)) for k, each in enumerate(rows)] | tg.Flatten()

    def answers() -> list[list[str]]:
        found: list[list[str]] = [[] for _ in conditions]
        for row in queries().collect():
            found[row.query].append(repr(row))
        return [sorted(each) for each in found]

    assert sum(bool(read.conditions) for read in planned(queries())) > 5
    assert sum(read.columns is not None for read in planned(queries())) > 12
    found = answers()
    assert any(0 < len(each) < len(ROWS) for each in found)
    for name in ("columns of readers", "rows of readers"):
        monkeypatch.delitem(REWRITES, name)
    assert not any(read.conditions or read.columns for read in planned(queries()))
    for where, rows, others in zip(conditions, found, answers(), strict=True):
        assert rows == others, where


def conditions_of(where: tg.Expression, reader: Any) -> tuple[Tree, ...]:
    """The conditions that the planner gives a reader for a filter."""
    (read,) = planned(tg.Pipeline() | reader() | tg.Filter(where) | tg.Select("i"))
    return read.conditions


@pytest.mark.parametrize("format", ["parquet", "arrow", "csv"])
def test_a_position_is_the_same_place_whatever_the_conditions(files: dict[str, Any], format: str) -> None:
    source = replace(files[format]().source, min_split_size=1)
    ways = [
        conditions_of(each, files[format])
        for each in (tg.col("n") == 7, tg.col("n") < 0, (tg.col("x") > 1.0) | tg.col("s").is_null())
    ]
    scans = [source.scan(None, conditions) for conditions in ((), *ways)]
    (split,) = source.splits(1)

    def read(scan: Any, position: Any = None) -> Iterator[tuple[list[int], Any]]:
        reader = scan.reader(split, position)
        while not (batch := reader.read(7)).end:
            yield [row.i for row in batch.block.values], reader.position()
        yield [row.i for row in batch.block.values], reader.position()
        reader.close()

    whole = [[i for some, _ in read(scan) for i in some] for scan in scans]
    assert len({*map(len, whole)}) > 2
    for before, own in zip(scans, whole, strict=True):
        last = -1
        for some, position in read(before):
            last = max([last, *some])
            for after, kept in zip(scans, whole, strict=True):
                found = [i for rest, _ in read(after, position) for i in rest]
                assert found == kept[len(kept) - len(found) :]
                assert found[:1] > [last] or not found
                next_one = next((i for i in own if i > last), len(ROWS))
                assert len(found) >= len([i for i in kept if i >= next_one])


def test_only_columns_that_relations_read_are_read(files: dict[str, Any]) -> None:
    p = tg.Pipeline()
    rows = p | files["parquet"]()
    some = {"t": rows} | tg.Sql("SELECT s, SUM(n) AS n FROM t WHERE b GROUP BY s")
    assert [read.columns for read in planned(some)] == [("n", "s", "b")]
    whole = rows | tg.Filter(lambda row: row.n == 7)
    assert [read.columns for read in planned(whole)] == [None]
    assert [read.columns for read in planned(tg.Pipeline() | files["parquet"]())] == [None]

    counted = {"t": tg.Pipeline() | files["csv"]()} | tg.Sql("SELECT COUNT(*) AS n FROM t")
    assert [read.columns for read in planned(counted)] == [("i",)]
    assert counted.collect() == [tg.Row(n=90)]

    joined = tg.Pipeline() | files["parquet"]()
    joined = {"t": joined} | tg.Sql("SELECT a.i, b.s FROM t a JOIN t b ON a.i = b.n")
    assert [read.columns for read in planned(joined)] == [("i", "n", "s")]


class Order(NamedTuple):
    i: int
    n: int | None
    s: str | None


def test_rows_of_the_authors_classes_are_left_out_and_their_fields_are_not(files: dict[str, Any]) -> None:
    rows = tg.Pipeline() | files["parquet"](as_=Order) | tg.Filter(tg.col("n") == 7)
    (read,) = planned(rows)
    assert (read.columns, len(read.conditions)) == (None, 1)
    assert rows.collect()[0] == Order(30, 7, None)


def test_conditions_that_may_fail_keep_those_behind_them_from_the_reader(files: dict[str, Any]) -> None:
    fails = tg.Pipeline() | files["parquet"]() | tg.Filter((tg.lit(10) / tg.col("n") > 1) & (tg.col("i") > 100))
    assert planned(fails)[0].conditions == ()
    with pytest.raises(tg.TidegateError, match="DIVIDE_BY_ZERO"):
        fails.collect()
    before = tg.Pipeline() | files["parquet"]() | tg.Filter((tg.col("i") > 100) & (tg.lit(10) / tg.col("n") > 1))
    assert len(planned(before)[0].conditions) == 1
    assert before.collect() == []


def test_a_row_without_a_time_is_an_error_though_a_filter_would_drop_it(tmp_path: Path) -> None:

    rows = [{"n": 1, "at": DAY}, {"n": 2, "at": None}, {"n": 3, "at": DAY}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    text = (
        "SELECT window_start, SUM(n) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' HOUR)) "
        "WHERE n {} 2 GROUP BY window_start, window_end"
    )

    def made(where: str) -> tg.PCollection[Any]:
        read = tg.io.ReadFromParquet(tmp_path / "t.parquet")
        return {"t": tg.Pipeline() | read} | tg.Sql(text.format(where))

    assert len(planned(made("> "))[0].conditions) == 1
    with pytest.raises(tg.TidegateError, match="NULL"):
        made("<>").collect()


def test_timestamps_and_limited_rates_keep_conditions_from_the_reader(files: dict[str, Any]) -> None:
    for options in ({"timestamp": lambda row: row.at}, {"rate_limit": 1e6}):
        rows = tg.Pipeline() | files["parquet"](**options) | tg.Filter(tg.col("n") == 7) | tg.Select("n")
        assert planned(rows)[0].conditions == ()
    stamped = tg.Pipeline() | files["parquet"](timestamp=lambda row: row.at) | tg.Select(n=tg.col("n"))
    assert planned(stamped)[0].columns is None
    read = tg.io.ReadFromParquet(
        str(files["parquet"]().files.patterns[0]).replace("t.parquet", "*.parquet"), follow=True
    )
    followed = tg.Pipeline() | read | tg.Filter(tg.col("n") == 7) | tg.Select(n=tg.col("n"))
    assert [(read.columns, read.conditions) for read in planned(followed)] == [(("n",), ())]


def test_whole_row_groups_are_skipped_by_their_statistics(
    files: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    monkeypatch.setattr(parquet, "_batches", lambda file, group, names: read.append(group) or every(file, group, names))

    def groups(where: tg.Expression) -> list[int]:
        read.clear()
        (tg.Pipeline() | files["parquet"]() | tg.Filter(where) | tg.Select(i=tg.col("i"))).collect()
        return list(read)

    assert groups(tg.col("s").is_not_null() & (tg.col("i") >= 35)) == [5, 6, 7, 8]
    assert groups(tg.col("i").is_in([3, 71])) == [0, 7]
    assert {3, 4} <= {*groups(tg.col("x") > 1e300)}  # NaN is greater than all numbers


def test_a_reader_that_finds_nothing_lets_its_task_do_other_work(
    files: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reader, "_LONGEST_SEARCH", -1.0)
    source = files["arrow"]().source
    scan = source.scan(None, conditions_of(tg.col("i") >= 85, files["arrow"]))
    reader = scan.reader(source.splits(1)[0])
    found = []
    while not (batch := reader.read(1000)).end:
        found.append(len(batch.block.values))
    assert found == [0] * 8 + [5]


def test_positions_in_left_out_row_groups_count_the_elements_that_meet_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reader, "_LONGEST_SEARCH", -1.0)
    rows = [{"i": i, "odd": i % 2} for i in range(20)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet", row_group_size=10)

    def read() -> Any:
        return tg.io.ReadFromParquet(tmp_path / "t.parquet", where=[("odd", "==", 1)])

    whole = read().source
    (split,) = whole.splits(1)
    reader = whole.scan(None, conditions_of(tg.col("i") >= 10, read)).reader(split)
    assert len(reader.read(2).block.values) == 0
    found: list[int] = []
    rest = whole.scan(None, ()).reader(split, reader.position())
    reader.close()
    while not (batch := rest.read(100)).end:
        found += [row.i for row in batch.block.values]
    assert [i for i in found if i >= 10] == [11, 13, 15, 17, 19]


@pytest.mark.parametrize(
    ("type", "nullable", "value", "message"),
    [(pa.timestamp("ns", "UTC"), True, 1, "microsecond|lose|nanosecond"), (pa.int64(), False, None, "is null")],
)
def test_a_bad_value_is_an_error_though_statistics_leave_its_row_group_out(
    tmp_path: Path, type: Any, nullable: bool, value: Any, message: str
) -> None:
    stored = pa.table({"i": range(4), "v": pa.array([value, 0, 0, 0], type)})
    pq.write_table(stored, tmp_path / "t.parquet", row_group_size=2)
    as_read = pa.timestamp("us", "UTC") if value else type
    schema = pa.schema([("i", pa.int64()), pa.field("v", as_read, nullable)])
    rows = tg.Pipeline() | tg.io.ReadFromParquet(tmp_path / "t.parquet", schema=schema) | tg.Filter(tg.col("i") >= 2)
    assert planned(rows)[0].conditions
    with pytest.raises(tg.TidegateError, match=message):
        rows.collect()


def test_explain_shows_what_is_read(files: dict[str, Any]) -> None:
    rows = {"t": tg.Pipeline() | files["parquet"]()} | tg.Sql("SELECT s FROM t WHERE n > 3 AND x < 2")
    text = explain(plan(rows.pipeline.sealed(values=True), Traits(parallel=False, drops_unread=False)))
    assert "only n, x, s; no rows but where (n > 3) & (x < 2.0); " in text


def test_a_broken_column_that_is_not_read_is_no_error(tmp_path: Path) -> None:

    path = tmp_path / "t.parquet"
    table = pa.table({"n": list(range(100)), "text": [f"{i:0100}" for i in range(100)]})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    data = bytearray(path.read_bytes())
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(1)
    data[chunk.data_page_offset : chunk.data_page_offset + 40] = b"\xff" * 40
    path.write_bytes(data)

    def query(columns: str) -> tg.PCollection[Any]:
        return {"t": tg.Pipeline() | tg.io.ReadFromParquet(path)} | tg.Sql(f"SELECT {columns} FROM t WHERE n >= 98")

    assert query("n").collect() == [tg.Row(n=98), tg.Row(n=99)]
    with pytest.raises(tg.TidegateError, match=r"t\.parquet, row group 0 can't be read"):
        query("n, text").collect()
