"""DataFrames and tables: a pipeline inside a Spark job."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import pytest
from click.testing import CliRunner

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.cli import app
from tidegate.runners.spark.driver.execution import Execution
from tidegate.sdk.errors import BuildError, RunError, UnsupportedError
from tidegate.sdk.portable.json import dump
from tidegate.transforms.rows.dataframes import columns_of, fields_of

UTC = datetime.UTC


class Sale(NamedTuple):
    customer: str
    amount: float
    at: datetime.datetime | None


@dataclass(frozen=True)
class Place:
    name: str
    tags: list[str]


class Visit(TypedDict):
    place: Place
    count: int
    by_day: dict[str, int]


@pytest.fixture
def spark(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield spark_session
    for table in spark_session.catalog.listTables():
        spark_session.sql(f"DROP TABLE IF EXISTS `{table.name}`")


# -- reading


def test_the_rows_of_a_dataframe_are_elements(flags: list[str], spark: Any) -> None:
    frame = spark.range(0, 1000, 1, 5).selectExpr("id", "cast(id % 7 as string) as name", "id / 2 as half")

    def build(p: tg.Pipeline) -> dict[str, Any]:
        rows = p | tg.io.ReadFromSpark(frame)
        return {
            "sums": rows | tg.Map(lambda row: (row.name, row.id)) | tg.CombinePerKey(sum),
            "halves": rows | "halves" >> tg.Filter(lambda row: row.id > 997),
        }

    found = collect(build, options=flags)
    assert dict(found.values("sums")) == {str(n): sum(range(n, 1000, 7)) for n in range(7)}
    assert sorted(found.values("halves")) == [(998, "4", 499.0), (999, "5", 499.5)]
    assert found.result.metrics().query("elements_out", step="ReadFromSpark")[0].value == 1000


def test_columns_of_every_type_are_read_as_python_values(flags: list[str], spark: Any) -> None:
    frame = spark.sql("""SELECT 1L AS n, CAST(NULL AS int) AS none, 'x' AS s, 1.50BD AS d, true AS b,
        DATE'2024-02-29' AS day,
        TIMESTAMP'2024-01-01 00:00:00Z' AS at, array(1, 2) AS many, map('a', 1) AS m, named_struct('x', 1) AS st,
        X'00ff' AS bin""")  # fmt: skip
    (row,) = collect(lambda p: {"it": p | tg.io.ReadFromSpark(frame)}, options=flags).values("it")
    assert row == (
        1, None, "x", decimal.Decimal("1.50"), True, datetime.date(2024, 2, 29),
        datetime.datetime(2024, 1, 1, tzinfo=UTC),
        [1, 2], {"a": 1}, {"x": 1}, b"\x00\xff",
    )  # fmt: skip


def test_event_times_are_taken_from_a_column(flags: list[str], spark: Any) -> None:
    frame = spark.range(100)

    def build(p: tg.Pipeline) -> dict[str, Any]:
        rows = p | tg.io.ReadFromSpark(frame, timestamp=lambda row: row.id)
        windowed = rows | tg.Map(lambda row: ("all", row.id)) | tg.WindowInto(tg.FixedWindows(50))
        return {"it": windowed | tg.CombinePerKey(sum)}

    assert sorted(collect(build, options=flags).values("it")) == [("all", sum(range(50))), ("all", sum(range(50, 100)))]


def test_dataframes_are_joined_with_other_sources_and_each_other(flags: list[str], spark: Any) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        frames = [spark.range(start, start + 10, 1, parts) for start, parts in ((0, 1), (100, 4))]
        ids = [p | f"read {n}" >> tg.io.ReadFromSpark(frame) | f"id {n}" >> tg.Map(lambda row: row.id)
               for n, frame in enumerate(frames)]  # fmt: skip
        other = p | tg.Create([1000]) | tg.Reshuffle()
        total = tg.AsSingleton(ids[0] | tg.CombineGlobally(sum))
        return {
            "all": (*ids, other) | tg.Flatten(),
            "shares": ids[1] | tg.Map(lambda x, total: (x, total), total),
        }

    found = collect(build, options=flags)
    assert sorted(found.values("all")) == [*range(10), *range(100, 110), 1000]
    assert sorted(found.values("shares")) == [(x, 45) for x in range(100, 110)]


def test_a_dataframe_persisted_for_a_later_action_is_joined_with_sources_of_that_action(
    flags: list[str], spark: Any
) -> None:
    frame = spark.range(300).repartition(4)

    def build(p: tg.Pipeline) -> dict[str, Any]:
        read = p | tg.io.ReadFromSpark(frame) | "read" >> tg.Map(lambda row: row.id)
        total = tg.AsSingleton(read | tg.CombineGlobally(sum))
        both = (read, p | tg.Create(range(1000, 1100))) | tg.Flatten()
        return {"": both | tg.Map(lambda x, total: (x, total), total)}

    found = collect(build, options=flags).seen[""]
    assert sorted(e.value for e in found) == [(x, 44_850) for x in (*range(300), *range(1000, 1100))]


def test_each_task_writes_its_rows_once(flags: list[str], spark: Any, tmp_path: Path) -> None:
    with tg.Pipeline(options=flags) as p:
        rows = p | tg.io.ReadFromSpark(spark.range(0, 50, 1, 6))
        _ = rows | tg.Map(lambda row: row.id) | tg.io.WriteToText(str(tmp_path / "out"))
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(map(int, lines)) == list(range(50))


def test_a_table_is_read_by_name_with_the_selected_columns(flags: list[str], spark: Any) -> None:
    spark.range(3).selectExpr("id", "id * id AS square", "id AS `_odd`").createOrReplaceTempView("numbers")

    def build(p: tg.Pipeline) -> dict[str, Any]:
        return {
            "rows": p | "rows" >> tg.io.ReadFromSpark("numbers", columns=["square", "id"]),
            "dicts": p | "dicts" >> tg.io.ReadFromSpark("numbers", columns=["_odd"], as_dicts=True),
        }

    found = collect(build, options=flags)
    assert sorted(found.values("rows")) == [(0, 0), (1, 1), (4, 2)]
    assert found.values("rows")[0]._fields == ("square", "id")
    assert sorted(found.values("dicts"), key=str) == [{"_odd": 0}, {"_odd": 1}, {"_odd": 2}]


# -- ToDataFrame


def test_a_collection_becomes_a_dataframe_with_the_columns_of_its_type(flags: list[str]) -> None:
    day = datetime.datetime(2024, 5, 1, tzinfo=UTC)
    with tg.Pipeline(options=flags) as p:
        numbers = p | tg.Create(range(100))
        sales = numbers | tg.Map(lambda n: Sale(f"c{n % 3}", n / 2, day if n else None)).with_output_types(Sale)
        _ = sales | "sales" >> tg.ToDataFrame()
    frame = p.result.dataframe("sales")
    assert frame.dtypes == [("customer", "string"), ("amount", "double"), ("at", "timestamp")]
    assert frame.groupBy("customer").sum("amount").count() == 3
    assert frame.where("at IS NULL").count() == 1
    assert frame.is_cached


def test_the_columns_of_untyped_rows_are_inferred_from_their_values(flags: list[str]) -> None:
    with tg.Pipeline(options=flags) as p:
        words = p | tg.Create([("a", 1), ("b", 2), ("a", 3)]) | tg.CombinePerKey(sum)
        _ = words | tg.Select(word=lambda pair: pair[0], total=lambda pair: pair[1]) | "totals" >> tg.ToDataFrame()
        mixed = p | "mixed" >> tg.Create([{"n": 1}, {"n": 1.5, "s": None}])
        _ = mixed | "numbers" >> tg.ToDataFrame()
    totals, numbers = p.result.dataframe("totals"), p.result.dataframe("numbers")
    assert totals.dtypes == [("word", "string"), ("total", "bigint")]
    assert sorted(map(tuple, totals.collect())) == [("a", 4), ("b", 2)]
    assert numbers.dtypes == [("n", "double"), ("s", "string")]
    assert sorted(map(tuple, numbers.collect())) == [(1.0, None), (1.5, None)]


def test_a_declared_schema_is_applied_to_tuples(flags: list[str]) -> None:
    with tg.Pipeline(options=flags) as p:
        _ = p | "few" >> tg.Create([(1, "x"), (2, None)]) | "a" >> tg.ToDataFrame("n int, s string")
        _ = p | "none" >> tg.Create([]) | "b" >> tg.ToDataFrame("n int, m map<string, int>")
    assert p.result.dataframe("a").dtypes == [("n", "int"), ("s", "string")]
    assert sorted(map(tuple, p.result.dataframe("a").collect())) == [(1, "x"), (2, None)]
    assert (p.result.dataframe("b").count(), p.result.dataframe("b").columns) == (0, ["n", "m"])


def test_a_dataframe_that_is_used_repeatedly_is_computed_once(flags: list[str], tmp_path: Path) -> None:
    log = tmp_path / "log"

    def log_and_pair(n: int) -> Any:
        with log.open("a") as file:
            file.write("x")
        return tg.Row(n=n)

    with tg.Pipeline(options=flags) as p:
        _ = p | tg.Create(range(10)) | tg.Map(log_and_pair) | "rows" >> tg.ToDataFrame()
    frame = p.result.dataframe("rows")
    assert [frame.count(), frame.agg({"n": "sum"}).first()[0]] == [10, 45]
    assert log.read_text() == "x" * 10


def test_an_unknown_label_is_refused_with_the_existing_labels(flags: list[str]) -> None:
    with tg.Pipeline(options=flags) as p:
        _ = p | tg.Create([{"a": 1}]) | "rows" >> tg.ToDataFrame()
    with pytest.raises(RunError, match=r"no ToDataFrame has the label 'row'; there are: 'rows'"):
        p.result.dataframe("row")


@pytest.mark.parametrize(
    ("hint", "columns"),
    [
        (Sale, "`customer` string, `amount` double, `at` timestamp"),
        (Visit, "`place` struct<`name`: string, `tags`: array<string>>, `count` bigint, `by_day` map<string, bigint>"),
        (tg.Row, None),
        (dict[str, Any], None),
        (Any, None),
    ],
    ids=["NamedTuple", "TypedDict", "Row", "dict", "Any"],
)
def test_columns_follow_from_the_element_type(hint: Any, columns: str | None) -> None:
    assert columns_of(hint, "ToDataFrame") == columns


class Odd(NamedTuple):
    thing: Path


@pytest.mark.parametrize(
    ("hint", "message"),
    [(int, "takes elements with named fields .*, not int"), (Odd, "no column can hold the field 'thing' of Odd")],
    ids=["no fields", "no column"],
)
def test_elements_that_no_column_can_contain_are_refused_when_the_pipeline_is_built(hint: Any, message: str) -> None:
    p = tg.Pipeline()
    elements = p | tg.Create([1]) | tg.Map(lambda x: x).with_output_types(hint)
    with pytest.raises(BuildError, match=message):
        _ = elements | tg.ToDataFrame()


@pytest.mark.parametrize(
    ("elements", "schema", "message"),
    [
        ([{"a": 1}, {"a": "x"}], None, "don't fit one table"),
        ([(1, "x"), (2, 3)], "a int, b string", "field 'b': 3 is not of type string"),
        ([{"a": 1, "z": 2}], "a int", "has the field 'z', and the columns are a"),
        ([(1, 2, 3)], "a int, b int", "has 3 parts, and there are 2 columns"),
        ([{"a": object}], None, "is not a value that a column can hold"),
        ([1], "a int", "1 has no named fields"),
        ([(1,)], "a wint", "'a wint' is not a valid Spark schema"),
        ([], None, "the columns can.t be inferred, because there are no elements: give schema="),
    ],
    ids=["two types", "misfit", "stranger", "too long", "object", "no fields", "no schema", "nothing"],
)
def test_elements_that_do_not_fit_the_schema_are_reported_with_step_field_and_value(
    elements: list[Any], schema: str | None, message: str, flags: list[str]
) -> None:
    p = tg.Pipeline(options=flags)
    typed = p | tg.Create(elements) | tg.Map(lambda x: x).with_output_types(Any)
    _ = typed | "rows" >> tg.ToDataFrame(schema)
    with pytest.raises(RunError, match=message) as caught:
        p.run()
    assert "in step 'rows', applied at" in str(caught.value)


def test_values_are_converted_to_the_types_of_the_columns() -> None:
    import pyarrow as pa

    from tidegate.transforms.rows.dataframes import FrameSink

    id = uuid.UUID(int=7)
    values = [tg.Row(a=tg.Timestamp(1), b=(1, 2), c=Place("x", ["y"]), d=id, e=tg.Duration(2), f=frozenset({3}))]
    batch = FrameSink().record_batch(values, None)
    assert batch.to_pylist() == [
        {
            "a": datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "b": [1, 2], "c": {"name": "x", "tags": ["y"]},
            "d": str(id), "e": datetime.timedelta(seconds=2), "f": [3],
        }
    ]  # fmt: skip
    assert pa.types.is_timestamp(batch.schema.field("a").type)
    assert fields_of([tg.Row(x=1), tg.Row(y=2)], None) == {"x": [1, None], "y": [None, 2]}


# -- types of columns that are not declared


EVERY_KIND = """SELECT CAST(1.50 AS decimal(10,2)) AS price, CAST(1 AS tinyint) AS b, CAST(2 AS smallint) AS s,
    CAST(3 AS int) AS i, 4L AS l, CAST(0.1 AS float) AS f, CAST('NaN' AS float) AS nan, 0.5D AS d, true AS yes,
    DATE'2024-02-29' AS day, TIMESTAMP'2024-01-01 00:00:00Z' AS at, TIMESTAMP_NTZ'2024-01-01 00:00:00' AS local,
    CAST(NULL AS int) AS none, CAST(NULL AS decimal(5,1)) AS nothing, X'00ff' AS bin, 'x' AS text,
    INTERVAL '1 02:03:04' DAY TO SECOND AS span,
    named_struct('x', CAST(1 AS smallint), 'deep', named_struct('p', CAST(1.5 AS decimal(4,1)))) AS st,
    array(CAST(1 AS tinyint), NULL) AS many, map('a', CAST(1.5 AS float)) AS m,
    map('k', array(named_struct('n', CAST(7 AS smallint)))) AS nested, array(CAST(NULL AS date)) AS days"""


def unchanged(row: Any) -> Any:
    return row


def rebuilt(row: Any) -> Any:
    return tg.Row(**row.as_dict())


def in_a_dict(row: Any) -> Any:
    return row.as_dict()


def through_a_group(rows: Any) -> Any:
    return rows | tg.Map(lambda row: (row.i, row)) | tg.GroupByKey() | tg.FlatMap(lambda pair: pair[1])


@pytest.mark.parametrize("way", [unchanged, rebuilt, in_a_dict], ids=["the same", "a new Row", "a dict"])
def test_columns_of_a_dataframe_that_was_read_keep_their_types(way: Any, flags: list[str], spark: Any) -> None:
    frame = spark.sql(f"{EVERY_KIND} UNION ALL {EVERY_KIND}")
    with tg.Pipeline(options=flags) as p:
        rows = through_a_group(p | tg.io.ReadFromSpark(frame))
        _ = rows | tg.Map(way).with_output_types(Any) | "rows" >> tg.ToDataFrame()
    frame = p.result.dataframe("rows")
    types = [(field.name, field.dataType) for field in frame.schema]
    assert [(field.name, field.dataType) for field in frame.schema] == [(n, _nullable(kind)) for n, kind in types]
    assert list(map(repr, frame.collect())) == list(map(repr, frame.collect()))
    frame.unpersist()


def _nullable(kind: Any) -> Any:
    """Make all parts of a type nullable."""
    return type(kind).fromDDL(kind.simpleString()) if kind.typeName() in ("struct", "array", "map") else kind


def test_inferred_columns_are_wide_enough_for_later_runs(flags: list[str]) -> None:
    with tg.Pipeline(options=flags) as p:
        value = {
            "n": 1, "x": 0.5, "price": decimal.Decimal("1.50"), "none": None, "nones": [None],
            "parts": [{"fee": decimal.Decimal("0.1")}], "fine": decimal.Decimal("1e-20"),
        }  # fmt: skip
        _ = p | tg.Create([value]) | "rows" >> tg.ToDataFrame()
    frame = p.result.dataframe("rows")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("n", "bigint"), ("x", "double"), ("price", "decimal(38,18)"), ("none", "string"), ("nones", "array<string>"),
        ("parts", "array<struct<fee:decimal(38,18)>>"), ("fine", "decimal(38,20)"),
    ]  # fmt: skip
    (row,) = frame.collect()
    assert (row.price, row.fine, row.parts[0].fee) == (value["price"], value["fine"], decimal.Decimal("0.1"))
    frame.unpersist()


def test_a_column_whose_values_no_longer_fit_its_type_gets_a_wider_type(flags: list[str], spark: Any) -> None:
    frame = spark.sql("""SELECT CAST(id AS tinyint) AS b, CAST(id AS float) AS f, CAST(id AS decimal(4,2)) AS price,
        DATE'2024-02-29' AS day, TIMESTAMP_NTZ'2024-01-01 00:00:00' AS local, CAST(id AS int) AS kept
        FROM range(50)""")
    time = datetime.datetime(2024, 2, 29, 12, tzinfo=UTC)

    def changed(row: Any) -> Any:
        return tg.Row(b=row.b * 100, f=row.f + 0.1, price=row.price * 10, day=time, local=time, kept=row.kept)

    with tg.Pipeline(options=flags) as p:
        _ = p | tg.io.ReadFromSpark(frame) | tg.Map(changed) | "rows" >> tg.ToDataFrame()
    frame = p.result.dataframe("rows")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("b", "bigint"), ("f", "double"), ("price", "decimal(38,18)"), ("day", "timestamp"), ("local", "timestamp"),
        ("kept", "int"),
    ]  # fmt: skip
    found = {row.kept: row for row in frame.collect()}
    assert (found[49].b, found[49].f, found[49].price) == (4900, 49.1, decimal.Decimal(490))
    frame.unpersist()


def test_a_column_with_different_types_in_two_dataframes_inherits_neither(flags: list[str], spark: Any) -> None:
    first = spark.sql("SELECT id, 'x' AS s FROM range(3)")
    second = spark.sql("SELECT CAST(id AS int) AS id, 'x' AS s, CAST(1 AS smallint) AS own FROM range(3)")
    with tg.Pipeline(options=flags) as p:
        rows = [p | f"read {n}" >> tg.io.ReadFromSpark(frame) for n, frame in enumerate((first, second))]
        _ = tuple(rows) | tg.Flatten() | tg.Map(in_a_dict) | "rows" >> tg.ToDataFrame()
        _ = rows[1] | "alone" >> tg.ToDataFrame()
    types = {name: dict(p.result.dataframe(name).dtypes) for name in ("rows", "alone")}
    assert types["rows"] == {"id": "bigint", "s": "string", "own": "smallint"}
    assert types["alone"] == {"id": "int", "s": "string", "own": "smallint"}
    for name in types:
        p.result.dataframe(name).unpersist()


def test_columns_keep_the_length_of_a_string_type_if_all_values_fit(
    flags: list[str], spark: Any, tmp_path: Path
) -> None:
    columns = "code CHAR(2), name VARCHAR(5), note VARCHAR(5)"
    spark.sql(f"CREATE TABLE short ({columns}) USING parquet LOCATION '{tmp_path / 'in'}'")
    spark.sql("INSERT INTO short VALUES ('ab', 'tea', 'hot'), ('cd', NULL, 'cold')")
    with tg.Pipeline(options=flags) as p:
        rows = p | tg.io.ReadFromSpark("short")
        longer = rows | tg.Map(lambda row: tg.Row(code=row.code, name=row.name, note=row.note * 2))
        options = {"path": str(tmp_path / "out")}
        _ = longer | tg.io.WriteToSpark("short_again", format="parquet", table=True, options=options)
    types = {row.col_name: row.data_type for row in spark.sql("DESCRIBE short_again").collect()}
    assert types == {"code": "char(2)", "name": "varchar(5)", "note": "string"}
    assert sorted(spark.table("short_again").collect()) == [("ab", "tea", "hothot"), ("cd", None, "coldcold")]


# -- WriteToSpark


def test_files_are_written_by_sparks_writers(flags: list[str], spark: Any, tmp_path: Path) -> None:
    def run(mode: Any, start: int) -> None:
        with tg.Pipeline(options=flags) as p:
            rows = p | tg.Create(range(start, start + 4)) | tg.Map(lambda n: tg.Row(n=n, even=n % 2 == 0))
            _ = rows | tg.io.WriteToSpark(tmp_path / "out", format="parquet", mode=mode, partition_by=["even"])

    def written() -> list[int]:
        return sorted(row.n for row in spark.read.parquet(str(tmp_path / "out")).collect())

    run("error", 0)
    assert written() == [0, 1, 2, 3]
    assert sorted(path.name for path in (tmp_path / "out").glob("even=*")) == ["even=false", "even=true"]
    run("append", 4)
    assert written() == list(range(8))
    run("overwrite", 100)
    assert written() == [100, 101, 102, 103]
    with pytest.raises(RunError, match="already exists"):
        run("error", 0)
    assert written() == [100, 101, 102, 103]


def test_a_table_is_written_and_read_again(
    flags: list[str], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"path": str(tmp_path / "sales")}
    with tg.Pipeline(options=flags) as p:
        rows = p | tg.Create([("a", 1.5), ("b", 2.5)])
        _ = rows | tg.io.WriteToSpark(
            "sales_written", format="parquet", table=True, options=options, schema="name string, amount double"
        )
    found = collect(lambda p: {"it": p | tg.io.ReadFromSpark("sales_written")}, options=flags)
    assert sorted(found.values("it")) == [("a", 1.5), ("b", 2.5)]


def test_nothing_is_written_when_a_step_fails(flags: list[str], tmp_path: Path) -> None:
    p = tg.Pipeline(options=flags)
    rows = p | tg.Create(range(10)) | tg.Map(lambda n: tg.Row(n=1 // (9 - n)))
    _ = rows | tg.io.WriteToSpark(tmp_path / "out", format="json")
    with pytest.raises(tg.UserCodeError):
        p.run()
    assert not (tmp_path / "out").exists()


# -- refused pipelines


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda p: p | tg.io.ReadFromSpark([1]), "takes a Spark DataFrame or RDD, or a table's name"),
        (lambda p: p | tg.io.ReadFromSpark(" "), "the table's name is empty"),
        (lambda p: p | tg.io.ReadFromSpark("t", columns="id"), "columns is a list of names"),
        (lambda p: p | tg.io.ReadFromSpark("t", columns=["a", "a"]), "one or more different names"),
        (lambda p: p | tg.Create([{"a": 1}]) | tg.io.WriteToSpark("x", mode="replace"), "mode is one of 'error'"),  # type: ignore[arg-type]
        (lambda p: p | tg.Create([{"a": 1}]) | tg.io.WriteToSpark(None), "the table's name is empty"),
        (lambda p: p | tg.Create([{"a": 1}]) | tg.io.WriteToSpark("t", partition_by="a"), "partition_by is a list"),
        (lambda p: p | tg.Create([1]) | tg.io.WriteToSpark("t"), "takes elements with named fields"),
    ],
    ids=["no frame", "no name", "columns", "twice", "mode", "no table", "partitions", "elements"],
)
def test_pipelines_that_cannot_work_are_refused_when_built(build: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        build(tg.Pipeline())


def test_columns_that_cannot_be_fields_are_refused_with_what_to_do(spark: Any) -> None:
    with pytest.raises(BuildError, match=r"the column '_1' can't be a field of a Row: rename it .* as_dicts=True"):
        _ = tg.Pipeline() | tg.io.ReadFromSpark(spark.range(3).toDF("_1"))
    with pytest.raises(BuildError, match=r"has no column 'x', but id"):
        _ = tg.Pipeline() | tg.io.ReadFromSpark(spark.range(3), columns=["x"])


def test_other_runners_refuse_dataframes_by_the_name_of_the_step(spark: Any, tmp_path: Path) -> None:
    p = tg.Pipeline()
    _ = p | tg.io.ReadFromSpark("t") | tg.Map(print)
    with pytest.raises(UnsupportedError, match="only the spark runner reads DataFrames, tables and RDDs: use --runner"):
        p.run()
    for write in (tg.ToDataFrame(), tg.io.WriteToSpark(tmp_path / "out", format="json")):
        p = tg.Pipeline()
        _ = p | tg.Create([{"a": 1}]) | write
        with pytest.raises(
            UnsupportedError, match=r"only the spark runner writes to a .*: run the pipeline with --runner spark"
        ):
            p.run()
    p = tg.Pipeline()
    _ = p | tg.Create([1]) | tg.Map(print)
    with pytest.raises(UnsupportedError, match="only runs on the spark runner produce DataFrames"):
        p.run().dataframe("x")


def test_a_compiled_pipeline_with_a_dataframe_cannot_run_in_another_process(
    spark: Any, flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = tg.Pipeline(options=flags)
    _ = p | tg.io.ReadFromSpark(spark.range(3)) | tg.Map(print)
    (tmp_path / "job.json").write_text(dump(p.sealed(values=True)))
    monkeypatch.setattr("tidegate.io.spark._handles", {})  # as in another process
    result = CliRunner().invoke(app, ["run", str(tmp_path / "job.json"), *flags])
    assert result.exit_code == 2
    assert "the DataFrame exists only in the process in which the pipeline was built" in result.output


# -- many DataFrames


def jobs_of(spark: Any, p: tg.Pipeline) -> tuple[tg.PipelineResult, list[list[int]]]:
    """Run a pipeline, and return for each of its jobs the numbers of tasks of the stages."""
    context = spark.sparkContext
    tracker = context.statusTracker()
    group = f"counted-{uuid.uuid4()}"
    context.setLocalProperty("spark.jobGroup.id", group)
    try:
        result = p.run()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    jobs = [tracker.getJobInfo(job) for job in sorted(tracker.getJobIdsForGroup(group))]
    return result, [[tracker.getStageInfo(stage).numTasks for stage in job.stageIds] for job in jobs]


def test_all_returned_dataframes_are_computed_in_one_action(flags: list[str], spark: Any) -> None:
    p = tg.Pipeline(options=flags)
    numbers = p | tg.Create(range(7))
    for n in range(12):
        rows = numbers | f"times {n}" >> tg.Map(lambda x, n=n: tg.Row(x=x * n))
        _ = rows | f"frame {n}" >> tg.ToDataFrame(None if n % 2 else "x bigint")
    result, jobs = jobs_of(spark, p)
    assert len(jobs) == 2
    for n in range(12):
        frame = result.dataframe(f"frame {n}")
        assert sorted(row.x for row in frame.collect()) == [x * n for x in range(7)]
        assert frame.is_cached
        frame.unpersist()


def of_two_actions(p: tg.Pipeline, frame: Any) -> Any:
    """Elements of which some are persisted by the first action and others by the second, read together by the third."""
    pairs = tuple[int, int]
    rows = p | tg.io.ReadFromSpark(frame) | "rows" >> tg.Map(lambda row: (row[0] % 3, 1)).with_output_types(pairs)
    sums = rows | "sums" >> tg.CombinePerKey(sum)

    def plus(step: str, first: Any, second: Any) -> Any:
        more = tg.Map(lambda pair, n: (pair[0], pair[1] + len(n)), tg.AsList(second))
        return first | step >> more.with_output_types(pairs)

    second = plus("second", rows, sums)
    third = (second, sums) | tg.Flatten() | "again" >> tg.CombinePerKey(sum)
    return (plus("third", second, third), sums) | "both" >> tg.Flatten()


OF_TWO_ACTIONS = sorted([(key % 3, 7) for key in range(20)] + [(0, 7), (1, 7), (2, 6)])


def checkpointed(spark: Any) -> Any:
    """A checkpoint of whose distribution Spark knows."""
    adaptive = spark.conf.get("spark.sql.adaptive.enabled")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    try:
        return spark.range(20).repartition(2, "id").localCheckpoint()
    finally:
        spark.conf.set("spark.sql.adaptive.enabled", adaptive)


def test_a_checkpoint_is_read_by_several_actions_and_dataframes(flags: list[str], spark: Any) -> None:
    p = tg.Pipeline(options=flags)
    found = of_two_actions(p, checkpointed(spark))
    _ = found | "all" >> tg.ToDataFrame("key int, n int")
    _ = found | tg.Filter(lambda pair: pair[0] == 1) | "some" >> tg.ToDataFrame("key int, n int")
    result = p.run()
    frames = {name: result.dataframe(name) for name in ("all", "some")}
    assert sorted(map(tuple, frames["all"].collect())) == OF_TWO_ACTIONS
    assert sorted(map(tuple, frames["some"].collect())) == [pair for pair in OF_TWO_ACTIONS if pair[0] == 1]
    for frame in frames.values():
        frame.unpersist()


def test_lost_rows_of_two_actions_are_computed_again(
    flags: list[str], spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on executors that are lost after each action: nothing that was persisted is there any more."""
    lost = []
    run_action = Execution._run_action

    def losing(self: Execution, action: int, start: int) -> None:
        for rdd in spark.sparkContext._jsc.getPersistentRDDs().values():
            lost.append(rdd.unpersist(True))
        run_action(self, action, start)

    monkeypatch.setattr(Execution, "_run_action", losing)
    p = tg.Pipeline(options=flags)
    found = sorted(of_two_actions(p, spark.range(20)).collect())
    assert found == OF_TWO_ACTIONS
    assert len(lost) >= 2


def test_an_error_while_columns_are_computed_names_the_step_and_leaves_no_output(
    flags: list[str], spark: Any, tmp_path: Path
) -> None:
    p = tg.Pipeline(options=flags)
    kept = len(spark.sparkContext._jsc.getPersistentRDDs())
    _ = p | "few" >> tg.Create([{"n": 1}]) | "good" >> tg.ToDataFrame()
    _ = p | "two" >> tg.Create([{"n": 2**60 + 1}, {"n": 0.5}, {"n": 1}]) | tg.Reshuffle() | "bad" >> tg.ToDataFrame()
    _ = p | "out" >> tg.Create([{"n": 1}]) | tg.io.WriteToSpark(tmp_path / "out", format="json")
    with pytest.raises(RunError) as caught:
        p.run()
    assert "in step 'bad', applied at" in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) == kept


def test_dataframes_of_one_schema_are_read_by_one_stage(flags: list[str], spark: Any) -> None:
    p = tg.Pipeline(options=flags)
    parts = [n % 4 + 1 for n in range(12)]
    for n, tasks in enumerate(parts):
        rows = p | f"read {n}" >> tg.io.ReadFromSpark(spark.range(10 * n, 10 * n + 10, 1, tasks))
        _ = rows | f"id {n}" >> tg.Map(lambda row: tg.Row(id=row.id)) | f"frame {n}" >> tg.ToDataFrame("id bigint")
    result, jobs = jobs_of(spark, p)
    assert len(jobs[0]) == 1
    for n in range(12):
        frame = result.dataframe(f"frame {n}")
        assert sorted(row.id for row in frame.collect()) == list(range(10 * n, 10 * n + 10))
        frame.unpersist()


@pytest.mark.parametrize("spread", [lambda f: f, lambda f: f.coalesce(1), lambda f: f.repartition(3, "id")],
                         ids=["as they are", "one partition each", "by key"])  # fmt: skip
def test_dataframes_of_equal_and_different_schemas_keep_their_elements_separate(
    spread: Any, flags: list[str], spark: Any
) -> None:
    frames = {
        "a": spread(spark.range(0, 100)),
        "none": spread(spark.range(0)),
        "b": spread(spark.range(1000, 1500)),
        "other": spark.range(5).selectExpr("id", "'x' AS s"),
        "c": spread(spark.range(2000, 2003)),
    }

    def build(p: tg.Pipeline) -> dict[str, Any]:
        read = {name: p | f"read {name}" >> tg.io.ReadFromSpark(frame) for name, frame in frames.items()}
        ids = {name: rows | f"id {name}" >> tg.Map(lambda row: row.id) for name, rows in read.items()}
        none = tg.AsList(ids["none"])
        count = tg.AsSingleton(ids["b"] | tg.CombineGlobally(len))
        return {
            **ids,
            "all": tuple(ids.values()) | tg.Flatten() | tg.CombineGlobally(len),
            "beside": ids["c"] | tg.Map(lambda x, none, count: (x, none, count), none, count),
        }

    found = collect(build, options=flags)
    assert sorted(found.values("a")) == list(range(100))
    assert found.values("none") == []
    assert sorted(found.values("b")) == list(range(1000, 1500))
    assert sorted(found.values("other")) == list(range(5))
    assert sorted(found.values("c")) == [2000, 2001, 2002]
    assert found.values("all") == [608]
    assert sorted(found.values("beside")) == [(x, [], 500) for x in (2000, 2001, 2002)]


def test_rdds_and_dataframes_of_bytes_are_both_read(flags: list[str], spark: Any) -> None:
    rdds = [spark.sparkContext.parallelize(range(start, start + 5), 2) for start in (0, 100)]
    raw = spark.createDataFrame([(b"x",)], "value binary")

    def build(p: tg.Pipeline) -> dict[str, Any]:
        read = {str(n): p | f"rdd {n}" >> tg.io.ReadFromSpark(rdd) for n, rdd in enumerate(rdds)}
        return {**read, "raw": p | "raw" >> tg.io.ReadFromSpark(raw)}

    found = collect(build, options=flags)
    assert [sorted(found.values(str(n))) for n in range(2)] == [list(range(5)), list(range(100, 105))]
    assert found.values("raw") == [(b"x",)]
