"""Windows of expressions and SQL that Spark computes itself: those of the direct runner, with windows and panes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tidegate.runners.spark.runner import SparkRunner
from tidegate.sdk.errors import UserCodeError


class Bid(NamedTuple):
    user: str | None
    n: int
    at: tg.Timestamp | None


TIMES = (0, 1, 4.5, 9.999999, 10, 25, -0.000001, -13, 31, 40)
BIDS = [Bid(user, n, tg.Timestamp(at)) for n, at in enumerate(TIMES) for user in ("ada", None)[: 1 + n % 2]]
GROUPS = "GROUP BY user, window_start, window_end"
TUMBLE = "TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECONDS)"
OFFSET = "TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECONDS, INTERVAL '3' SECONDS)"
HOP = "HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '4' SECONDS, INTERVAL '10' SECONDS)"
GAPS = "HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECONDS, INTERVAL '2' SECONDS)"
CUMULATE = "CUMULATE(TABLE bids, DESCRIPTOR(at), INTERVAL '5' SECONDS, INTERVAL '20' SECONDS)"
SESSION = "SESSION(TABLE bids PARTITION BY user, DESCRIPTOR(at), INTERVAL '{}' SECONDS)"
PARTS = f"SELECT user, window_start, window_end, SUM(n) AS n FROM {TUMBLE} {GROUPS}"
JOINED = f"""
    SELECT a.user, a.n AS one, b.n AS two, {{start}} AS start FROM {TUMBLE} a {{kind}} JOIN
    (SELECT * FROM {TUMBLE} WHERE n % 3 = 0) b
    ON a.user = b.user AND a.window_start = b.window_start AND a.window_end = b.window_end"""

QUERIES = [
    *(f"SELECT *, window_time AS last FROM (SELECT user, window_start, window_end, window_time, SUM(n) AS n, "
      f"COUNT(*) AS many FROM {windows} {GROUPS}, window_time)" for windows in (TUMBLE, OFFSET, HOP, GAPS, CUMULATE)),
    *(f"SELECT user, window_start, window_end, window_time, SUM(n) AS n, COUNT(DISTINCT n) AS many "
      f"FROM {SESSION.format(gap)} {GROUPS}, window_time" for gap in ("5", "5.5", "9", "0.000001")),
    f"""SELECT n, COUNT(*) AS many FROM (SELECT user, SUM(n) AS n, window_start, window_end FROM {SESSION.format(5)}
        WHERE n <> 3 {GROUPS}) WHERE window_end > window_start + INTERVAL '6' SECONDS GROUP BY n""",
    f"SELECT COUNT(*) AS n, MAX(user) AS user FROM {HOP} WHERE n > 1 GROUP BY window_start, window_end",
    f"SELECT user, SUM(n) AS n FROM ({PARTS}) GROUP BY user",
    f"SELECT user, COUNT(*) AS n FROM {CUMULATE} GROUP BY user",
    f"""SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY n DESC) AS place
        FROM {TUMBLE}) WHERE place <= 2""",
    JOINED.format(kind="", start="a.window_start"),
    JOINED.format(kind="LEFT", start="a.window_start"),
    """SELECT window_start, MAX(n) AS n FROM TUMBLE(TABLE parts, DESCRIPTOR(ended), INTERVAL '20' SECONDS)
        GROUP BY window_start, window_end""",
]  # fmt: skip


def answer(runner: str, query: str) -> list[Any]:
    bids = tg.Pipeline(runner) | tg.Create(BIDS)
    text = query
    if "TABLE parts" in query:
        text = f"WITH parts AS (SELECT n, window_time AS ended FROM {TUMBLE} GROUP BY n, window_time) {query}"
    rows = ({"bids": bids} | tg.Sql(text)).collect(include_window_info=True)
    return sorted(rows, key=repr)


@pytest.mark.parametrize("query", QUERIES)
def test_native_windows_are_those_of_the_direct_runner(no_workers: None, query: str) -> None:
    found = answer("spark", query)
    assert found == answer("direct", query)
    assert found


def test_a_time_that_is_null_is_an_error_of_the_step(no_workers: None) -> None:
    messages = []
    for runner in ("direct", "spark"):
        bids = tg.Pipeline(runner) | tg.Create([*BIDS, Bid("ada", 1, None)])
        with pytest.raises(UserCodeError) as caught:
            ({"bids": bids} | tg.Sql(PARTS)).collect()
        messages.append(str(caught.value).splitlines()[:2])
    assert messages[0] == messages[1]


def test_a_time_that_is_null_is_an_error_though_a_filter_would_drop_its_row(no_workers: None, tmp_path: Path) -> None:
    rows = [{"user": each.user, "n": each.n, "at": None if each.at is None else each.at.to_utc_datetime()}
            for each in (*BIDS, Bid("ada", 1, None))]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "bids.parquet")
    query = PARTS.replace(GROUPS, f"WHERE n > 3 {GROUPS}")
    for runner in ("direct", "spark"):
        # Of files, whose rows Spark filters while it reads them; those of Create are checked before it has them.
        bids = tg.Pipeline(runner) | tg.io.ReadFromParquet(tmp_path / "bids.parquet")
        with pytest.raises(UserCodeError, match="is NULL"):
            ({"bids": bids} | tg.Sql(query)).collect()


class Step(NamedTuple):
    """What is applied to bids that have timestamps, and to every third of them."""

    name: str
    apply: Callable[[Any, Any], Any]


def joined_within(kind: str, within: Any, where: Any = None) -> Step:
    def apply(bids: Any, few: Any) -> Any:
        return bids | tg.Join.on(few, "user", how=kind, within=within, where=where, suffix="_2")

    return Step(f"{kind} join within {within}", apply)


STEPS = [
    *(joined_within(kind, 4.5) for kind in ("inner", "left", "right", "full", "semi", "anti")),
    joined_within("full", (-20, -1)),
    joined_within("left", (0, 10), tg.col("n") + tg.col("n_2") > 4),
    Step("sessions", lambda bids, few: bids | tg.WindowInto(tg.Sessions(5)) | tg.GroupBy("user").agg(n=tg.fn.sum("n"))),
    Step(
        "sessions of all keys",
        lambda bids, few: (
            (bids, few) | tg.Flatten() | tg.WindowInto(tg.Sessions(6)) | tg.GroupBy().agg(n=tg.fn.max("n"))
        ),
    ),
    Step(
        "windows of joined rows",
        lambda bids, few: (
            joined_within("left", 5).apply(bids, few)
            | tg.WindowInto(tg.FixedWindows(10))
            | tg.GroupBy("n_2").agg(n=tg.fn.sum("n"))
        ),
    ),
    Step("timestamps", lambda bids, few: bids | tg.Filter(tg.col("n") > 2)),
]


@pytest.fixture(scope="module")
def frame(spark_session: Any) -> Any:
    """A DataFrame of the bids."""
    columns = {
        "user": [each.user for each in BIDS],
        "n": pa.array([each.n for each in BIDS], pa.int64()),
        "at": pa.array([each.at.micros for each in BIDS if each.at is not None], pa.timestamp("us", "UTC")),
    }
    return spark_session.createDataFrame(pa.table(columns))


STAMPED = [(step, ("by the source", "by a step")[number % 2]) for number, step in enumerate(STEPS)]
"""The ways of giving timestamps, in turn: `test_random_regions.py` combines them with everything else."""


@pytest.mark.parametrize(("step", "stamping"), STAMPED, ids=lambda each: getattr(each, "name", each))
def test_timestamps_of_a_column_are_those_of_the_direct_runner(
    no_workers: None, frame: Any, step: Step, stamping: str
) -> None:
    found = []
    for runner in ("direct", "spark"):
        p = tg.Pipeline(runner)
        if runner == "direct":
            bids = p | tg.Create([tg.TimestampedValue(each, each.at) for each in BIDS]).with_output_types(Bid)
        elif stamping == "by the source":
            bids = p | tg.io.ReadFromSpark(frame, timestamp=lambda bid: bid.at)
        else:
            rows = p | tg.io.ReadFromSpark(frame)
            bids = rows | tg.Map(lambda bid: tg.TimestampedValue(bid, bid.at)).with_output_types(rows.element_type)
        rows = step.apply(bids, bids | "few" >> tg.Filter(tg.col("n") % 3 == 0))
        plain = rows | tg.Select(**{name: tg.col(name) for name in rows.schema.names})
        found.append(sorted(plain.collect(include_window_info=True), key=repr))
    assert found[0] == found[1]
    assert found[0]


def explained(query: str) -> str:
    bids = tg.Pipeline("spark") | tg.Create(BIDS)
    rows = {"bids": bids} | tg.Sql(query)
    _ = rows | tg.Map(print)
    runner = SparkRunner()
    p = rows.pipeline
    return runner.explain(runner.plan(p.sealed(), p.options), p.options)


def test_the_explanation_says_which_windows_are_native() -> None:
    assert "without Python\n  Sql/Time of bids\n  Sql/TUMBLE bids\n  Sql/GroupBy user" in explained(PARTS)
    assert "without Python\n  Sql/Time of bids\n  Sql/SESSION bids\n" in explained(
        PARTS.replace(TUMBLE, SESSION.format(5))
    )
    rows = explained(f"SELECT * FROM {TUMBLE}")
    assert "'Sql/TUMBLE bids': a worker computes its input 'Sql/Time of bids': sending rows to Spark only to" in rows
