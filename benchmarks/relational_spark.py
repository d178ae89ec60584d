"""Compares queries that Spark computes for Tidegate with hand-written DataFrame code and with Python workers.

    python benchmarks/relational.py --spark [W1 W3 W5 W7] [--turns 7] [--scale 1.0]

All ways read the same persisted DataFrames in one session, and sum a checksum of the result. `by hand` is DataFrame
code, `native` the query in SQL, and `workers` the same query with `--spark_native off`. The ways take turns; the best
processor time of each counts, of this process, the JVM and the workers together.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tidegate as tg
import tidegate.io

TARGET_BY_HAND = 1.1
TARGETS = {"W3": 0.4, "W7": 0.2}
"""The time of `native` divided by that of `by hand`, and by that of `workers`."""
WARM_UPS = {"by hand": 20, "native": 20, "workers": 2}
"""The turns of each way that don't count: the JVM compiles what plans and computes queries as it goes."""
_TICK = os.sysconf("SC_CLK_TCK")
DataFrame = Any
Tables = dict[str, DataFrame]

QUERIES = {
    "W1": """
        WITH kept AS (SELECT x FROM (SELECT x + 1 AS x FROM numbers) WHERE x % 3 = 0)
        SELECT COUNT(*) AS n, SUM(x % 1000003) AS total FROM (
            SELECT x * 2 AS x FROM kept UNION ALL SELECT -x * 3 AS x FROM kept)""",
    "W3": """
        SELECT COUNT(*) AS n, SUM((key * 31 + value) % 1000003) AS total FROM (
            SELECT key, window_start, SUM(value) AS value
            FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(at), INTERVAL '10' SECONDS))
            GROUP BY key, window_start, window_end)""",
    "W5": """
        SELECT COUNT(*) AS n, SUM((key * 31 + value * place) % 1000003) AS total FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY key ORDER BY value) AS place FROM pairs)""",
    "W7": """
        SELECT COUNT(*) AS n, SUM((key * 31 + value * 7 + other) % 1000003) AS total FROM (
            SELECT l.key AS key, l.value AS value, r.value AS other FROM lefts l JOIN rights r ON l.key = r.key)""",
}


def _total(frame: DataFrame, term: str) -> DataFrame:
    from pyspark.sql.functions import expr

    return frame.agg(expr("count(1)").alias("n"), expr(f"sum(({term}) % 1000003)").alias("total"))


def w1_by_hand(tables: Tables) -> DataFrame:
    kept = tables["numbers"].selectExpr("x + 1 AS x").where("x % 3 = 0")
    return _total(kept.selectExpr("x * 2 AS x").unionAll(kept.selectExpr("-x * 3 AS x")), "x")


def w3_by_hand(tables: Tables) -> DataFrame:
    from pyspark.sql.functions import expr, window

    sums = tables["events"].groupBy("key", window("at", "10 seconds")).agg(expr("sum(value)").alias("value"))
    return _total(sums, "key * 31 + value")


def w5_by_hand(tables: Tables) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql.functions import row_number

    place = row_number().over(Window.partitionBy("key").orderBy("value"))
    return _total(tables["pairs"].withColumn("place", place), "key * 31 + value * place")


def w7_by_hand(tables: Tables) -> DataFrame:
    left, right = tables["lefts"], tables["rights"].withColumnRenamed("value", "other")
    return _total(left.join(right, "key"), "key * 31 + value * 7 + other")


BY_HAND: dict[str, Callable[[Tables], DataFrame]] = {
    "W1": w1_by_hand,
    "W3": w3_by_hand,
    "W5": w5_by_hand,
    "W7": w7_by_hand,
}


def _with_pipeline(name: str, tables: Tables, native: str) -> tuple[int, int]:
    p = tg.Pipeline(options=["--runner", "spark", "--spark_native", native])
    read: Any = {
        each: p | each >> tg.io.ReadFromSpark(frame) for each, frame in tables.items() if each in QUERIES[name]
    }
    (row,) = (read | tg.Sql(QUERIES[name])).collect()
    return row.n, row.total


def _by_hand(name: str, tables: Tables) -> tuple[int, int]:
    (row,) = BY_HAND[name](tables).collect()
    return row.n, row.total


def processor_time() -> float:
    """The seconds of this process, of all processes below it, and of those that have ended."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for pid, fields in _processes():
        parents[pid] = int(fields[1])
        seconds[pid] = sum(map(int, fields[11:15])) / _TICK
    return sum(time for pid, time in seconds.items() if os.getpid() in _ancestors(pid, parents))


def _processes() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                yield int(folder.name), (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid:
        yield pid
        pid = parents.get(pid, 0)


def frames(spark: Any, tables: dict[str, list[Any]], folder: Path) -> Tables:
    """Persisted DataFrames of records.

    They are read from files: the plan of a DataFrame that is made of rows has all rows in it, and Spark compares plans
    with those of persisted DataFrames by them.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = {}
    for name, records in tables.items():
        columns = dict(zip(type(records[0])._fields, map(list, zip(*records, strict=True)), strict=True))
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        made[name] = spark.read.parquet(str(folder / f"{name}.parquet")).repartition(2).persist()
        made[name].count()
    return made


def compare(name: str, tables: Tables, turns: int) -> dict[str, float]:
    """The best processor times (s) of a query's ways. Exits if their results differ."""
    ways = {
        "by hand": partial(_by_hand, name, tables),
        "native": partial(_with_pipeline, name, tables, "on"),
        "workers": partial(_with_pipeline, name, tables, "off"),
    }
    best = dict.fromkeys(ways, math.inf)
    for turn in range(-max(WARM_UPS.values()), turns):
        results = {}
        for way, work in ways.items():
            if turn < -WARM_UPS[way]:
                continue
            begun = processor_time()
            results[way] = work()
            if turn >= 0:
                best[way] = min(best[way], processor_time() - begun)
        if len(set(results.values())) > 1:
            raise SystemExit(f"{name}: the results differ: {results}")
    return best


def compare_all(tables: dict[str, Callable[[], list[Any]]], names: list[str], turns: int) -> None:
    """Print a line for each workload."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder.master("local[2]").appName("relational")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    print("      by hand, s   native, s   workers, s   native ÷ by hand (1.1)   native ÷ workers")
    for name in names:
        read = {each: records for each, records in tables.items() if each in QUERIES[name]}
        with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
            made = frames(spark, {each: records() for each, records in read.items()}, Path(folder))
            best = compare(name, made, turns)
        hand, native, workers = best.values()
        target = f" ({TARGETS[name]})" if name in TARGETS else ""
        print(
            f"{name:5}{hand:11.2f}{native:12.2f}{workers:13.2f}{native / hand:25.2f}{native / workers:19.2f}{target}",
            flush=True,
        )
        for frame in made.values():
            frame.unpersist()
    spark.stop()
