"""A query in SQL and the same steps of expressions are one plan: the same relations of the same inputs."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tests.support.sql.shop import shop
from tidegate.sdk.portable.model import AssignWindows, Pipeline, Relate

Tables = dict[str, Any]

col, fn = tg.col, tg.fn


def steps_to(rows: Any) -> Any:
    """What the nodes compute that lead to a collection, without labels and ids."""
    portable = rows.pipeline.sealed(values=True)
    return _steps(portable, rows.id)


def _steps(portable: Pipeline, collection: str) -> Any:
    node = portable.producer(collection)
    inputs = [_steps(portable, each) for each in node.inputs]
    match node:
        case Relate():
            return (node.relation, portable.collection(collection).schema, inputs)
        case AssignWindows():
            return ("windows", portable.collection(collection).windowing, inputs)
        case _:
            return (node.label, inputs)


COMPUTED = {
    "price * qty": col("price") * col("qty"),
    "qty + 1 - id": col("qty") + 1 - col("id"),
    "qty / id": col("qty") / col("id"),
    "qty % 2": col("qty") % 2,
    "-qty": -col("qty"),
    "qty > 1 AND price < 2e0": (col("qty") > 1) & (col("price") < 2.0),
    "qty > 1 OR NOT qty = id": (col("qty") > 1) | ~(col("qty") == col("id")),
    "qty <> id": col("qty") != col("id"),
    "qty BETWEEN 1 AND 3": col("qty").between(1, 3),
    "qty IN (1, 2)": col("qty").is_in([1, 2]),
    "user IS NULL": col("user").is_null(),
    "CASE WHEN qty > 1 THEN 'many' ELSE 'one' END": fn.when(col("qty") > 1, "many").otherwise("one"),
    "COALESCE(user, 'none')": fn.coalesce(col("user"), "none"),
    "GREATEST(qty, id)": fn.greatest(col("qty"), col("id")),
    "CAST(qty AS DOUBLE)": col("qty").cast(float),
    "CAST(qty AS VARCHAR)": col("qty").cast(str),
    "UPPER(user) || 'x'": fn.concat(fn.upper(col("user")), "x"),
    "LENGTH(TRIM(user))": fn.length(fn.trim(col("user"))),
    "SUBSTRING(user, 2, 1)": fn.substring(col("user"), 2, 1),
    "user LIKE 'a%'": col("user").like("a%"),
    "YEAR(at)": fn.year(col("at")),
    "DATE_TRUNC('hour', at)": fn.date_trunc("hour", col("at")),
    "DATE_ADD(CAST(at AS DATE), qty)": fn.add_days(col("at").cast(datetime.date), col("qty")),
    "DATE_SUB(CAST(at AS DATE), qty)": fn.add_days(col("at").cast(datetime.date), -col("qty")),
    "DATE_ADD(CAST(at AS DATE), INTERVAL '2' DAYS)": fn.add_days(col("at").cast(datetime.date), 2),
    "ADD_MONTHS(CAST(at AS DATE), 1)": fn.add_months(col("at").cast(datetime.date), 1),
    "UNIX_MICROS(TIMESTAMP_MICROS(id))": fn.unix_micros(fn.timestamp_micros(col("id"))),
    "FLOOR(at TO DAY)": fn.date_trunc("day", col("at")),
    "FLOOR(price)": fn.floor(col("price")),
    "ROUND(price, 1)": fn.round(col("price"), 1),
    "ABS(qty)": abs(col("qty")),
}
"""Expressions in SQL and in Python."""


@pytest.mark.parametrize("expression", COMPUTED)
def test_an_expression_is_one_tree(expression: str) -> None:
    query = f"SELECT {expression} AS v FROM orders"
    assert steps_to(shop() | tg.Sql(query)) == steps_to(shop()["orders"] | tg.Select(v=COMPUTED[expression]))


AGGREGATES = {
    "COUNT(*)": fn.count(),
    "COUNT(user)": fn.count(col("user")),
    "COUNT(DISTINCT user)": fn.count_distinct(col("user")),
    "SUM(DISTINCT qty)": fn.sum_distinct(col("qty")),
    "AVG(DISTINCT price) FILTER (WHERE qty > 1)": fn.avg_distinct(col("price")).filter(col("qty") > 1),
    "SUM(qty)": fn.sum(col("qty")),
    "AVG(price)": fn.avg(col("price")),
    "MIN(at)": fn.min(col("at")),
    "MAX(user)": fn.max(col("user")),
    "BOOL_AND(qty > 1)": fn.bool_and(col("qty") > 1),
    "SUM(qty * 2) FILTER (WHERE price > 1e0)": fn.sum(col("qty") * 2).filter(col("price") > 1.0),
}


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_an_aggregate_is_one_plan(aggregate: str) -> None:
    query = f"SELECT user, {aggregate} AS v FROM orders GROUP BY user"
    steps = shop()["orders"] | tg.GroupBy("user").agg(v=AGGREGATES[aggregate])
    assert steps_to(shop() | tg.Sql(query)) == steps_to(steps)


PAIRS: dict[str, Callable[[Tables], Any]] = {
    "SELECT id, user AS who FROM orders WHERE qty > 1": lambda t: (
        t["orders"] | tg.Filter(col("qty") > 1) | tg.Select(id=col("id"), who=col("user"))
    ),
    "SELECT s FROM (SELECT id, qty + 1 AS s FROM orders) WHERE s > 2": lambda t: (
        t["orders"] | tg.Select(id=col("id"), s=col("qty") + 1) | tg.Filter(col("s") > 2) | tg.Select(s=col("s"))
    ),
    "SELECT qty % 2 AS odd, SUM(id) AS s FROM orders WHERE id > 1 GROUP BY qty % 2": lambda t: (
        t["orders"] | tg.Filter(col("id") > 1) | tg.GroupBy(odd=col("qty") % 2).agg(s=fn.sum(col("id")))
    ),
    "SELECT user, COUNT(*) AS n FROM orders GROUP BY user HAVING COUNT(*) > 1": lambda t: (
        t["orders"] | tg.GroupBy("user").agg(n=fn.count()) | tg.Filter(col("n") > 1)
    ),
    "SELECT * FROM orders LEFT JOIN users ON user = name AND id > 1": lambda t: (
        t["orders"] | tg.Join.on(t["users"], ("user", "name"), how="left", where=col("id") > 1)
    ),
    "SELECT * FROM (SELECT id, user FROM orders) o LEFT JOIN (SELECT name, city FROM users) u "
    "ON user = name AND id > 1": lambda t: (
        t["orders"]
        | "left" >> tg.Select(id=col("id"), user=col("user"))
        | tg.Join.on(
            t["users"] | "right" >> tg.Select(col("name").alias("name"), city=col("city")),
            ("user", "name"),
            how="left",
            where=col("id") > 1,
        )
    ),
    "SELECT *, ROW_NUMBER() OVER (PARTITION BY user ORDER BY qty) AS place FROM orders": lambda t: (
        t["orders"] | tg.TopN(2**63 - 1, by="qty", per="user", number="place")
    ),
    "SELECT user, SUM(qty) AS n FROM hours GROUP BY user": lambda t: (
        t["hours"] | tg.GroupBy("user").agg(n=fn.sum("qty"))
    ),
    "SELECT n, window_start FROM (SELECT MAX(id) AS n, window_start FROM hours GROUP BY window_start)": lambda t: (
        t["hours"] | tg.GroupBy().agg(n=fn.max("id")) | tg.Select(n=col("n"), window_start=fn.window_start())
    ),
}


def tables() -> Tables:
    """The tables of the shop, and its orders in windows."""
    found = shop()
    return {**found, "hours": found["orders"] | "hours" >> tg.WindowInto(tg.FixedWindows(3600))}


@pytest.mark.parametrize("query", PAIRS)
def test_a_query_and_the_same_expressions_are_one_plan(query: str) -> None:
    assert steps_to(tables() | tg.Sql(query)) == steps_to(PAIRS[query](tables()))
