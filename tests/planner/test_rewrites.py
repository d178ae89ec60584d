"""Rewrites of relations: what each one changes, and that results and errors are the same without it."""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.planner import Traits, plan
from tidegate.runners.planner.relational.lower import lower
from tidegate.runners.planner.relational.rewrites import REWRITES, rewritten
from tidegate.sdk.portable.model import CombinePerKey, Relate
from tidegate.sdk.relational.relations import EVERY, Rank


@dataclass(frozen=True)
class Bid:
    item: str
    price: int | None
    size: int


CHANCE = random.Random(7)
BIDS = [Bid(CHANCE.choice("abc"), CHANCE.choice([None, *range(9)]), CHANCE.randrange(4)) for _ in range(60)]
NUMBERED = "SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC) AS n FROM pcoll"

LIMITED = {
    f"SELECT item, price FROM ({NUMBERED}) WHERE n <= 2": 2,
    f"SELECT item, n FROM ({NUMBERED}) WHERE n = 3": 3,
    f"SELECT item, n FROM ({NUMBERED}) WHERE 3 > n AND size > 1": 2,
    f"SELECT item FROM ({NUMBERED}) WHERE n BETWEEN 2 AND 4 AND 10 / size > 3": 4,
    f"SELECT item FROM ({NUMBERED}) WHERE 10 / size > 3 AND n BETWEEN 2 AND 4": EVERY,
    f"SELECT item, m FROM (SELECT n AS m, item FROM ({NUMBERED}) WHERE price IS NOT NULL) WHERE m < 4": 3,
    f"SELECT item FROM ({NUMBERED}) WHERE n <= 0": 0,
    f"SELECT item FROM ({NUMBERED}) WHERE n <= 2 AND n <= 5": 2,
    f"SELECT item FROM ({NUMBERED}) WHERE n = 3 AND n BETWEEN 1 AND 7": 3,
    f"SELECT item FROM (SELECT * FROM ({NUMBERED}) WHERE n <= 2) WHERE n <= 5": 2,
    f"SELECT item FROM (SELECT item, n AS a, n AS b FROM ({NUMBERED})) WHERE a <= 2 AND b <= 5": 2,
    f"SELECT item FROM ({NUMBERED}) WHERE n <= 2 OR size = 1": EVERY,
    f"SELECT item FROM ({NUMBERED}) WHERE n >= 2": EVERY,
    f"SELECT item FROM (SELECT item, n + 1 AS n FROM ({NUMBERED})) WHERE n <= 2": EVERY,
    f"SELECT item FROM (SELECT item, n, 1 / size AS r FROM ({NUMBERED})) WHERE n <= 1": EVERY,
    f"WITH r AS ({NUMBERED}) SELECT item FROM r WHERE n <= 1 UNION ALL SELECT item FROM r": EVERY,
}
"""Queries, and the limits of their ranks."""


def answer(query: str) -> Any:
    """The rows of a query in any order, or its error."""
    rows = tg.Pipeline() | tg.Create(BIDS) | tg.Sql(query)
    try:
        return sorted(map(repr, rows.collect()))
    except tg.TidegateError as error:
        return type(error), str(error).partition("\n")[0]


@pytest.mark.parametrize("query", LIMITED)
def test_a_rank_keeps_no_more_elements_than_a_filter_lets_through(query: str) -> None:
    rows = tg.Pipeline() | tg.Create(BIDS) | tg.Sql(query)
    made = rewritten(rows.pipeline.sealed(values=True), frozenset())
    ranks = [node.relation for node in made.nodes if isinstance(node, Relate) and isinstance(node.relation, Rank)]
    assert [rank.limit for rank in ranks] == [LIMITED[query]]


def test_a_rank_reads_the_state_of_earlier_versions() -> None:
    rows = tg.Pipeline() | tg.Create(BIDS) | tg.TopN(2, by=tg.col("price").desc(), per="item")
    lowered = lower(rewritten(rows.pipeline.sealed(values=True), frozenset()))
    (fn,) = [pickle.loads(node.fn.code.data) for node in lowered.nodes if isinstance(node, CombinePerKey)]
    saved = [((1, 5), "a", 1, Bid("a", 5, 1)), ((1, 3), "a", 0, Bid("a", 3, 0))]
    added = fn.add_input(fn.create_accumulator(), Bid("a", 4, 2))
    assert fn.extract_output(fn.merge_accumulators([saved, added])) == [Bid("a", 5, 1), Bid("a", 4, 2)]


def test_explain_shows_the_limits_that_were_found_and_no_constants_of_lowering() -> None:
    def explained(query: str) -> str:
        rows = tg.Pipeline() | tg.Create(BIDS) | tg.Sql(query)
        made = plan(rows.pipeline.sealed(values=True), Traits(parallel=False, drops_unread=False))
        return "\n".join(each.reason for each in made.decisions)

    assert "First 2 by price descending" in explained(f"SELECT item FROM ({NUMBERED}) WHERE n <= 2")
    assert "Numbered by price descending" in explained(f"SELECT item FROM ({NUMBERED}) WHERE n >= 2")
    crossed = explained("SELECT a.item FROM pcoll AS a CROSS JOIN pcoll AS b")
    assert "Inner join of all pairs" in crossed
    assert "0 == 0" not in crossed


def test_a_rank_that_is_read_elsewhere_keeps_all_elements() -> None:
    rows = tg.Pipeline() | tg.Create(BIDS) | tg.Sql(f"SELECT item FROM ({NUMBERED}) WHERE n <= 2")
    portable = rows.pipeline.sealed(values=True)
    rank = next(node for node in portable.nodes if isinstance(node, Relate) and isinstance(node.relation, Rank))
    assert rewritten(portable, frozenset({rank.output()})) == portable


@pytest.mark.parametrize("rewrite", REWRITES)
@pytest.mark.parametrize("query", LIMITED)
def test_a_query_has_the_same_result_without_a_rewrite(
    query: str, rewrite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answer(query)
    monkeypatch.delitem(REWRITES, rewrite)
    assert answer(query) == found
