"""Windows of expressions and SQL that Spark computes itself: those of the direct runner, with windows and panes."""

from __future__ import annotations

from typing import Any, NamedTuple

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
PARTS = f"SELECT user, window_start, window_end, SUM(n) AS n FROM {TUMBLE} {GROUPS}"
JOINED = f"""
    SELECT a.user, a.n AS one, b.n AS two, {{start}} AS start FROM {TUMBLE} a {{kind}} JOIN
    (SELECT * FROM {TUMBLE} WHERE n % 3 = 0) b
    ON a.user = b.user AND a.window_start = b.window_start AND a.window_end = b.window_end"""

QUERIES = [
    *(f"SELECT *, window_time AS last FROM (SELECT user, window_start, window_end, window_time, SUM(n) AS n, "
      f"COUNT(*) AS many FROM {windows} {GROUPS}, window_time)" for windows in (TUMBLE, OFFSET, HOP, GAPS, CUMULATE)),
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


def test_a_time_that_is_null_is_an_error_though_a_filter_would_drop_its_row(no_workers: None) -> None:
    query = PARTS.replace(GROUPS, f"WHERE n > 3 {GROUPS}")
    for runner in ("direct", "spark"):
        bids = tg.Pipeline(runner) | tg.Create([*BIDS, Bid("ada", 1, None)])
        with pytest.raises(UserCodeError, match="is NULL"):
            ({"bids": bids} | tg.Sql(query)).collect()


def explained(query: str) -> str:
    bids = tg.Pipeline("spark") | tg.Create(BIDS)
    rows = {"bids": bids} | tg.Sql(query)
    _ = rows | tg.Map(print)
    runner = SparkRunner()
    p = rows.pipeline
    return runner.explain(runner.plan(p.sealed(), p.options), p.options)


def test_the_explanation_says_which_windows_are_native() -> None:
    assert "without Python\n  Sql/Time of bids\n  Sql/TUMBLE bids\n  Sql/GroupBy user" in explained(PARTS)
    sessions = PARTS.replace("TUMBLE(TABLE bids", "SESSION(TABLE bids PARTITION BY user")
    assert "has windows with a trigger, or of another kind than fixed, sliding or cumulative ones" in explained(
        sessions
    )
    rows = explained(f"SELECT * FROM {TUMBLE}")
    assert "'Sql/TUMBLE bids': a worker computes its input 'Sql/Time of bids': sending rows to Spark only to" in rows
