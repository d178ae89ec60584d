"""What Spark and its workers read of files: the columns and rows that a query needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.runners.planner.explain import explain
from tidegate.runners.spark.catalyst.frames import NativeFrames
from tidegate.runners.spark.catalyst.regions import with_regions
from tidegate.runners.spark.runner import SparkRunner
from tidegate.sdk.portable.model import Read

pytestmark = pytest.mark.xdist_group("spark")
QUERY = "SELECT shop, SUM(amount) AS total FROM sales WHERE day >= 3 AND shop <> 'b' GROUP BY shop"
SALES = pa.table({"day": [1, 2, 3, 4], "shop": ["a", "b", "a", "c"], "amount": [10, 20, 30, 40], "note": ["x"] * 4})


def test_spark_gives_its_own_reader_the_columns_and_conditions(spark_session: Any, tmp_path: Path) -> None:
    pq.write_table(SALES, tmp_path / "sales.parquet")
    rows = {"sales": tg.Pipeline("spark") | tg.ReadFromParquet(tmp_path / "sales.parquet")} | tg.Sql(QUERY)
    _ = rows | tg.Map(str)
    (read,) = [node for node in with_regions(rows.pipeline.sealed()).pipeline.nodes if isinstance(node, Read)]
    native = read.source.load()
    frame = NativeFrames(spark_session, native.region, [native.collection]).frame(native.collection)
    text = frame._jdf.queryExecution().executedPlan().toString()
    assert "ReadSchema: struct<day:bigint,shop:string,amount:bigint>" in text
    assert "GreaterThanOrEqual(day,3)" in text
    assert sorted(map(tuple, frame.collect())) == [("a", 30), ("c", 40)]


def test_workers_of_spark_read_what_other_runners_read(spark_session: Any, tmp_path: Path) -> None:
    pyarrow.csv.write_csv(SALES, tmp_path / "sales.csv")
    p = tg.Pipeline("spark")
    rows = {"sales": p | tg.ReadFromCsv(tmp_path / "sales.csv")} | tg.Sql(QUERY)
    assert sorted(map(tuple, rows.collect())) == [("a", 30), ("c", 40)]
    _ = rows | tg.Map(str)
    text = explain(SparkRunner().plan(p.sealed(), p.options))
    assert "only day, shop, amount; no rows but where (day >= 3) & (shop != 'b')" in text
