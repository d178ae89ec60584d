"""Queries in SQL mean the same on every runner."""

from __future__ import annotations

from typing import Any

import tidegate as tg
from tests.support.sql.shop import ORDERS, USERS
from tidegate.testing import TestPipeline, assert_that, equal_to

QUERY = """
    SELECT window_start, city, SUM(price * qty) AS revenue, COUNT(*) AS n
    FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '10' MINUTES)) o JOIN users u ON o.user = u.name
    WHERE NOT EXISTS (SELECT * FROM orders other WHERE other.id > o.id AND other.user <> o.user AND other.qty = o.qty)
    GROUP BY city, window_start, window_end"""


def test_a_query_of_windows_joins_and_subqueries(runner: str) -> None:
    with TestPipeline(runner) as p:
        tables: Any = {"orders": p | "orders" >> tg.Create(ORDERS), "users": p | "users" >> tg.Create(USERS)}
        rows = tables | tg.Sql(QUERY) | tg.Map(lambda row: (row.window_start.minute, row.city, row.revenue, row.n))
        assert_that(rows, equal_to([(0, "Bern", 3.0, 1), (10, "Bern", 7.0, 1)]))
