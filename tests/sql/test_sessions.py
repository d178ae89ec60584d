"""SESSION in queries: bounds of sessions that have merged, and what is refused because they haven't."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import TestStream


@dataclass(frozen=True)
class Click:
    user: str
    at: tg.Timestamp


CLICKS = [Click(user, tg.Timestamp(at)) for user, at in (("ada", 1), ("ada", 4), ("max", 3), ("ada", 30))]
SESSIONS = "SESSION(TABLE clicks PARTITION BY user, DESCRIPTOR(at), INTERVAL '5' SECONDS)"
GROUPED = f"""
    WITH s AS (
        SELECT user, window_start, window_end, COUNT(*) AS n FROM {SESSIONS} GROUP BY user, window_start, window_end)"""


def answer(query: str, stream: bool = False) -> list[tuple[Any, ...]]:
    pipeline = tg.Pipeline("direct")
    clicks: Any = tg.Create(CLICKS)
    if stream:
        events = [tg.TimestampedValue(each, each.at) for each in CLICKS]
        clicks = TestStream().add_elements(events).advance_watermark_to_infinity().with_output_types(Click)
    tables = {"clicks": pipeline | "clicks" >> clicks}
    rows = tables | tg.Sql(query)
    return sorted(
        tuple(each.second if hasattr(each, "second") else each for each in row)
        for row in (rows.collect(run_for=60) if stream else rows.collect())
    )


KNOWN = {
    f"{GROUPED} SELECT * FROM s": [("ada", 1, 9, 2), ("ada", 30, 35, 1), ("max", 3, 8, 1)],
    f"{GROUPED} SELECT user FROM s WHERE window_end > window_start + INTERVAL '5' SECONDS": [("ada",)],
    f"SELECT user FROM {SESSIONS} GROUP BY user, window_start, window_end HAVING window_end "
    "> window_start + INTERVAL '5' SECONDS": [("ada",)],
    f"SELECT user, COUNT(*) AS n FROM {SESSIONS} WHERE user <> 'max' GROUP BY user, window_start, window_end": [
        ("ada", 1),
        ("ada", 2),
    ],
    f"{GROUPED} SELECT window_end, SUM(n) AS n FROM s GROUP BY window_start, window_end": [(8, 1), (9, 2), (35, 1)],
    f"{GROUPED} SELECT user, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY user) AS r FROM s": [
        ("ada", 1),
        ("ada", 1),
        ("max", 1),
    ],
    f"SELECT user FROM {SESSIONS}": [("ada",), ("ada",), ("ada",), ("max",)],
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("query", KNOWN)
def test_the_bounds_of_sessions_that_have_merged_are_columns(query: str, stream: bool) -> None:
    assert answer(query, stream) == KNOWN[query]


JOINED = f"""{GROUPED} SELECT a.user, b.user AS other FROM s a JOIN s b
    ON a.window_start = b.window_start AND a.window_end = b.window_end"""


@pytest.mark.parametrize("stream", [False, True])
def test_sessions_that_overlap_are_joined_by_their_own_bounds(stream: bool) -> None:
    assert answer(JOINED, stream) == [("ada", "ada"), ("ada", "ada"), ("max", "max")]


REFUSED = [
    f"SELECT * FROM {SESSIONS}",
    f"SELECT user, window_end FROM {SESSIONS}",
    f"SELECT user FROM {SESSIONS} WHERE window_end > at",
    f"SELECT user FROM {SESSIONS} WHERE window_end > at GROUP BY user, window_start, window_end",
    f"SELECT MAX(window_end) AS n FROM {SESSIONS} GROUP BY user, window_start, window_end",
    f"SELECT COUNT(*) n FROM {SESSIONS} s JOIN clicks c ON s.user = c.user GROUP BY s.user, window_start, window_end",
    f"SELECT user FROM clicks WHERE EXISTS (SELECT * FROM {SESSIONS} s WHERE s.window_end > clicks.at)",
]


@pytest.mark.parametrize("query", REFUSED)
def test_the_bounds_of_sessions_that_still_grow_are_refused(query: str) -> None:
    message = r"bounds of a session are known once its rows are grouped: write GROUP BY user, window_start, window_end"
    with pytest.raises(tg.SqlError, match=message):
        answer(query)
