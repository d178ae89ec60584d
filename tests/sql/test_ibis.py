"""tg.Sql takes expressions of Ibis: run where Ibis is installed, as `make sqlglot-versions` does it."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tests.support.sql.shop import at, shop

ibis: Any = pytest.importorskip("ibis")

ORDERS = ibis.table(
    {"id": "int64", "user": "string", "price": "float64", "qty": "int64", "at": "timestamp('UTC')"}, name="orders"
)
USERS = ibis.table({"name": "string", "city": "string"}, name="users")

CASES: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "filter": (ORDERS.filter(ORDERS.qty > 1).select("id", "user"), [(1, "ada"), (3, "ada")]),
    "aggregate": (
        ORDERS.group_by("user").aggregate(s=ORDERS.qty.sum(), n=ORDERS.count()),
        [("ada", 9, 2), ("eve", 1, 1), ("max", 1, 1)],
    ),
    "distinct count": (ORDERS.aggregate(n=ORDERS.user.nunique()), [(3,)]),
    "join": (
        ORDERS.left_join(USERS, ORDERS.user == USERS.name).select("id", "city"),
        [(1, "Bern"), (2, None), (3, "Bern"), (4, None)],
    ),
    "order": (ORDERS.order_by(ORDERS.id.desc()).limit(2).select("id"), [(3,), (4,)]),
    "functions": (
        ORDERS.filter(ORDERS.id == 1).select(x=ORDERS.user.upper(), y=ORDERS.user.substr(1, 2), z=ORDERS.at.year()),
        [("ADA", "da", 2024)],
    ),
    "truncated times": (
        ORDERS.filter(ORDERS.id == 2).select(hour=ORDERS.at.truncate("h"), year=ORDERS.at.strftime("%Y")),
        [(at(0), "2024")],
    ),
    "conditions in aggregates": (
        ORDERS.aggregate(m=ORDERS.price.mean(where=ORDERS.qty == 1), s=ORDERS.qty.sum(where=ORDERS.id > 1)),
        [(5.75, 9)],
    ),
    "case": (
        ORDERS.select("id", c=ibis.cases((ORDERS.qty > 1, "many"), else_="one")),
        [(1, "many"), (2, "one"), (3, "many"), (4, "one")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_expression_of_ibis_has_the_rows_that_it_means(name: str) -> None:
    expression, rows = CASES[name]
    assert sorted(map(tuple, (shop() | tg.Sql(expression)).collect())) == rows


def test_what_ibis_or_a_query_does_not_have_is_refused() -> None:
    with pytest.raises(tg.BuildError, match=r"Ibis can't write its expression in SQL of Flink: .*Hash"):
        tg.Sql(ORDERS.select(h=ORDERS.user.hash()))
    with pytest.raises(tg.BuildError, match=r"(?s)VARIANCE.* is not supported.*line \d, column"):
        shop() | tg.Sql(ORDERS.aggregate(v=ORDERS.qty.var()))
