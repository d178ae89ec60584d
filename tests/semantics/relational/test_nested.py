"""Fields of records, items of arrays and values of maps mean the same on every runner, in expressions and in SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import pytest

import tidegate as tg
from tidegate.testing import TestPipeline, assert_that, equal_to


class Place(TypedDict):
    x: float
    y: float | None


@dataclass(frozen=True)
class Address:
    city: str
    place: Place | None


class Person(NamedTuple):
    name: str
    home: Address | None
    tags: list[str]
    scores: dict[str, int]


PEOPLE = [
    Person("ada", Address("Bern", {"x": 1, "y": None}), ["a", "b"], {"go": 3}),
    Person("max", Address("Rom", None), ["b"], {}),
    Person("zoe", None, ["c", "b", "c"], {"go": -1, "chess": 7}),
]
ANSWER = [("ada", "Bern", 1.0, "a", 2, 3, True), ("max", "Rom", None, "b", 1, None, False)]


def test_parts_of_values_in_expressions_and_in_sql(runner: str) -> None:
    with TestPipeline(runner) as p:
        people = p | tg.Create(PEOPLE)
        col, fn = tg.col, tg.fn
        rows = people | tg.Filter(col("home")["city"].is_not_null()) | tg.Select(
            "name",
            city=col("home")["city"],
            x=col("home")["place"]["x"],
            first=col("tags")[0],
            n=fn.size("tags"),
            go=col("scores")["go"],
            tagged=fn.array_contains("tags", "a"),
        )  # fmt: skip
        query = people | tg.Sql("""
            SELECT name, home.city, p.home.place.x, tags[0] AS first, CARDINALITY(tags) AS n, scores['go'] AS go,
                ARRAY_CONTAINS(tags, 'a') AS tagged
            FROM pcoll p WHERE Home.City IS NOT NULL""")
        groups = people | "groups" >> tg.Sql("SELECT home.city, SUM(SIZE(tags)) AS n FROM pcoll GROUP BY home.city")
        assert_that(rows, equal_to(ANSWER), label="rows")
        assert_that(query, equal_to(ANSWER), label="query")
        assert_that(groups, equal_to([("Bern", 2), ("Rom", 1), (None, 3)]), label="cities")


@pytest.mark.parametrize("columns", ["tags", "home, tags, scores", "NULL AS nothing"])
def test_rows_without_a_column_that_has_an_order_are_cut(columns: str, runner: str) -> None:
    with TestPipeline(runner) as p:
        rows = p | tg.Create([PEOPLE[0], PEOPLE[0], PEOPLE[0]]) | tg.Sql(f"SELECT {columns} FROM pcoll LIMIT 2")
        assert_that(rows | tg.Map(len), equal_to([columns.count(",") + 1] * 2))


@pytest.mark.parametrize("element", [PEOPLE[0]._replace(tags=[None]), PEOPLE[0]._replace(tags="ab")])  # type: ignore[list-item,arg-type]
def test_a_part_that_is_not_of_its_type_fails_the_run(element: Any, runner: str) -> None:
    p = TestPipeline(runner)
    _ = p | tg.Create([element]) | tg.Select(first=tg.col("tags")[0]) | tg.Map(print)
    with pytest.raises(tg.UserCodeError, match="INVALID_COLUMN_VALUE"):
        p.run()
