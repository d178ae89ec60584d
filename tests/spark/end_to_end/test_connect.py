"""The Spark runner over Spark Connect, with a server started by the tests: results, errors, files, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest

import tidegate as tg
import tidegate.io
from tests.semantics.test_corner_cases import IN_ORDER, bounded
from tests.support.run_and_collect import collect
from tests.support.spark.connect import connect_server
from tidegate.runners.spark.driver.session import missing, stop
from tidegate.sdk.errors import BuildError, OptionsError, UserCodeError

pytest.importorskip("grpc")


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    lacks = missing()
    if lacks:
        pytest.skip("; ".join(lacks))
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield ["--runner", "spark", "--spark_remote", address, "--spark_partitions", "2"]
        stop()


def test_windows_groups_and_side_inputs_work_over_connect(remote: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        values = p | tg.Create(range(200))
        total = tg.AsSingleton(values | tg.CombineGlobally(sum))
        timed = values | tg.Map(lambda x, total: tg.TimestampedValue((x % 3, total), x), total)
        return {"it": timed | tg.WindowInto(tg.FixedWindows(50)) | tg.CombinePerKey(len)}

    found, expected = (collect(build, options=options) for options in (remote, None))
    assert sorted(found.values("it")) == sorted(expected.values("it"))
    assert found.metrics() == expected.metrics()


def test_rounds_run_over_connect(remote: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        links = p | "links" >> tg.Create([(n, (n + 1) % 5) for n in range(5)]).with_output_types(tuple[int, int])
        start = p | "start" >> tg.Create([(0, 1)]).with_output_types(tuple[int, int])

        def step(before: Any) -> Any:
            most = tg.AsSingleton(before | tg.Values() | tg.CombineGlobally(max))
            along = before | tg.Join.inner(links) | tg.MapTuple(lambda _, both: (both[1], both[0]))
            return along | tg.Map(lambda pair, most: (pair[0], most + 1), most).with_output_types(tuple[int, int])

        return {"it": start | tg.Iterate(step, rounds=12)}

    found, expected = (collect(build, options=options) for options in (remote, None))
    assert found.values("it") == expected.values("it") == [(2, 13)]
    assert found.metrics() == expected.metrics()


def test_large_created_values_are_sent_as_rows_over_connect(remote: list[str], tmp_path: Path) -> None:
    with tg.Pipeline(options=remote) as p:
        pairs = p | tg.Create([(i % 10, "x" * 30) for i in range(100_000)])
        _ = pairs | tg.CombinePerKey(len) | tg.Map(repr) | tg.io.WriteToText(str(tmp_path / "out"))
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == [f"({key}, 10000)" for key in range(10)]


def test_an_error_in_author_code_is_raised_over_connect(remote: list[str]) -> None:
    p = tg.Pipeline(options=remote)
    _ = p | tg.Create(range(100)) | "boom" >> tg.Map(lambda x: 1 / (x - 50))
    with pytest.raises(UserCodeError) as caught:
        p.run()
    assert (caught.value.step, caught.value.element) == ("boom", "50")
    assert "java" not in str(caught.value).lower()


def test_edge_cases_of_the_semantics_hold_over_connect(remote: list[str]) -> None:
    flags = dict(zip((flag.removeprefix("--") for flag in remote[::2]), remote[1::2], strict=True))
    result = bounded("spark", IN_ORDER, flags)
    assert {name: result.of_key for name, result in result.items()} == {
        case.name: list(case.expected) for case in IN_ORDER
    }


def test_large_side_inputs_and_large_functions_are_sent_as_artifacts(remote: list[str]) -> None:
    ballast = bytes(range(256)) * 20_000

    def build(p: tg.Pipeline) -> dict[str, Any]:
        pairs = p | tg.Create(range(80_000)) | tg.Map(lambda n: (f"key {n}", f"{n:0100}"))
        found = (
            p
            | "asked" >> tg.Create(range(0, 80_000, 997))
            | "look" >> tg.Map(lambda n, d: (n, d[f"key {n}"], len(ballast)), tg.AsDict(pairs))
        )
        return {"it": found, "all": found | "count" >> tg.Map(lambda x, all: (x[0], len(all)), tg.AsList(pairs))}

    found, expected = (collect(build, options=options) for options in (remote, None))
    for name in ("it", "all"):
        assert sorted(found.values(name)) == sorted(expected.values(name))


def test_dataframes_are_read_and_returned_over_connect(remote: list[str], tmp_path: Path) -> None:
    from pyspark.sql.connect.session import SparkSession

    spark = SparkSession.builder.remote(remote[3]).create()
    try:
        with tg.Pipeline(options=[*remote[:2], "--spark_partitions", "2"]) as p:
            rows = p | tg.io.ReadFromSpark(spark.range(0, 100, 1, 3))
            sums = rows | tg.Map(lambda row: (row.id % 3, row.id)) | tg.CombinePerKey(sum)
            named = sums | tg.Select(key=lambda pair: pair[0], total=lambda pair: pair[1])
            _ = named | "totals" >> tg.ToDataFrame()
            _ = named | tg.io.WriteToSpark(tmp_path / "out", format="parquet")
            more = p | "more" >> tg.io.ReadFromSpark(spark.range(100, 104, 1, 1))
            _ = more | "as they are" >> tg.ToDataFrame("id bigint")
        assert sorted(row.id for row in p.result.dataframe("as they are").collect()) == [100, 101, 102, 103]
        expected = [(key, sum(range(key, 100, 3))) for key in range(3)]
        for frame in (p.result.dataframe("totals"), spark.read.parquet(str(tmp_path / "out"))):
            assert sorted(map(tuple, frame.collect())) == expected
    finally:
        spark.stop()


class Sale(NamedTuple):
    user: str
    price: Annotated[Decimal, "decimal(8,2)"]
    n: int
    at: tg.Timestamp


SALES = [Sale("ada", Decimal("1.25"), n, tg.Timestamp(n * 4)) for n in range(6)]
TOTALS = """
    SELECT user, window_start, SUM(price * n) AS total
    FROM TUMBLE(TABLE sales, DESCRIPTOR(at), INTERVAL '10' SECONDS) GROUP BY user, window_start, window_end"""


def test_relations_are_native_over_connect(remote: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.session import SparkSession

    def totals(options: list[str]) -> list[Any]:
        sales = tg.Pipeline(options=options) | tg.Create(SALES)
        return sorted(({"sales": sales} | tg.Sql(TOTALS)).collect(include_window_info=True), key=repr)

    def refused(*arguments: Any) -> None:
        raise AssertionError("a worker is used")

    expected = totals(["--runner", "direct"])
    spark = SparkSession.builder.remote(remote[3]).create()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(DataFrame, "mapInArrow", refused)
            assert totals(remote) == expected
        rows = tg.Pipeline(options=remote[:2]) | tg.io.ReadFromSpark(spark.sql("SELECT 'x' AS text, 0 AS zero"))
        cast = rows | "cast" >> tg.Select(n=tg.col("text").cast("bigint")) | tg.GroupBy("n").agg(k=tg.fn.count())
        with pytest.raises(UserCodeError, match=r"CAST_INVALID_INPUT(?s:.*)in step 'cast'"):
            cast.collect()
        spark.conf.set("spark.sql.ansi.enabled", "false")
        with pytest.raises(OptionsError, match=r"spark.sql.ansi.enabled=false.*--spark_native off"):
            cast.collect()
    finally:
        spark.stop()


def test_an_rdd_is_refused_over_connect(remote: list[str], spark_session: Any) -> None:
    from pyspark.sql.connect.session import SparkSession

    spark = SparkSession.builder.remote(remote[3]).create()
    try:
        p = tg.Pipeline(options=remote[:2])
        frame = p | "frame" >> tg.io.ReadFromSpark(spark.range(3))
        rdd = p | "rdd" >> tg.io.ReadFromSpark(spark_session.sparkContext.parallelize([1]))
        _ = (frame, rdd) | tg.Flatten() | tg.Map(print)
        with pytest.raises(
            BuildError, match=r"the RDD belongs to another SparkContext .* Spark Connect does not support RDDs"
        ):
            p.run()
    finally:
        spark.stop()
