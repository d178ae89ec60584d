"""tg.Sql on bounded tables: what each clause gives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from sqlglot.tokens import Tokenizer

import tidegate as tg
from tests.support.sql.shop import ORDERS, Order, answer, shop
from tidegate.sdk.data.schema import schema_of
from tidegate.sql.syntax import parsing

CASES: dict[str, list[tuple[Any, ...]]] = {
    "SELECT user, price * qty AS total FROM orders WHERE qty > 1 ORDER BY total DESC": [("ada", 7.0), ("ada", 3.0)],
    "SELECT id FROM orders ORDER BY price * qty DESC LIMIT 2": [(4,), (3,)],
    "SELECT id FROM orders ORDER BY 1 LIMIT 2 OFFSET 1": [(2,), (3,)],
    "SELECT name, city FROM users ORDER BY city DESC NULLS FIRST": [("max", None), ("zoe", "Rom"), ("ada", "Bern")],
    "SELECT name FROM users WHERE city IS NULL": [("max",)],
    "SELECT name FROM users WHERE city <> 'Rom'": [("ada",)],
    "SELECT user, COUNT(*), SUM(qty) FILTER (WHERE qty > 1) AS s, AVG(price) FROM orders GROUP BY user "
    "HAVING COUNT(*) > 0 ORDER BY 2 DESC, user": [("ada", 2, 9, 1.25), ("eve", 1, None, 9.0), ("max", 1, None, 2.5)],
    "SELECT id, REGEXP_EXTRACT(user, '(.)a$', 1) AS r, REGEXP_EXTRACT(user, 'm(a|x)') a, SPLIT_PART(user, 'a', -1) s "
    "FROM orders WHERE id < 3 ORDER BY id": [(1, "d", "", ""), (2, "", "a", "x")],
    "SELECT DATE_FORMAT(at, 'dd.MM.yyyy HH:mm') AS d FROM orders WHERE id = 2": [("01.01.2024 10:05",)],
    "SELECT DATEDIFF(CAST(at AS DATE), DATE '2023-12-30') a, DATE_SUB(DATE '2024-03-01', qty) b, DATE_ADD(DATE "
    "'2024-02-28', INTERVAL '1' MONTH) c, ADD_MONTHS(DATE '2024-01-31', qty) d FROM orders WHERE id = 2": [
        (2, date(2024, 2, 29), date(2024, 3, 28), date(2024, 2, 29))
    ],
    "SELECT id FROM orders WHERE at IN (DATE '2024-01-01', TIMESTAMP '2024-01-01 10:05:00')": [(2,)],
    "SELECT id FROM orders WHERE DATE '2024-01-01' IN (CAST(at AS DATE)) AND id = 2": [(2,)],
    "SELECT id, CAST(id AS DECIMAL(38, 0)) IN (0.5, 3) AS e FROM orders WHERE id < 4 ORDER BY id": [
        (1, True),
        (2, False),
        (3, True),  # 0.5 as a decimal(38,0) is 1
    ],
    "SELECT COUNT(DISTINCT user) n, MIN(DISTINCT qty) m FROM orders": [(3, 1)],
    "SELECT COUNT(DISTINCT user) a, COUNT(DISTINCT qty) b, COUNT(DISTINCT qty) FILTER (WHERE id < 3) c, COUNT(*) n "
    "FROM orders": [(3, 3, 2, 4)],
    "SELECT SUM(DISTINCT qty) a, AVG(DISTINCT qty) b, SUM(DISTINCT qty) FILTER (WHERE id <> 3) c, AVG(DISTINCT price) "
    "FILTER (WHERE qty = 1) d, SUM(DISTINCT CAST(qty AS DECIMAL(4, 1))) e FROM orders": [
        (10, 10 / 3, 3, 5.75, Decimal("10.0"))
    ],
    "SELECT SUM(DISTINCT qty) a, AVG(DISTINCT price) b FROM orders WHERE qty > 1000": [(None, None)],
    "SELECT COUNT(*) n, SUM(qty) s FROM orders WHERE qty > 1000": [(0, None)],
    "SELECT qty % 2 AS odd, COUNT(*) AS n FROM orders GROUP BY qty % 2 ORDER BY odd": [(0, 1), (1, 3)],
    "SELECT qty % 2 AS odd, COUNT(*) AS n FROM orders GROUP BY odd ORDER BY n": [(0, 1), (1, 3)],
    "SELECT SUM(qty) + 1 AS s FROM orders GROUP BY user ORDER BY MAX(id)": [(2,), (10,), (2,)],
    "SELECT DISTINCT user FROM orders ORDER BY user": [("ada",), ("eve",), ("max",)],
    "SELECT o.id, u.city FROM orders o JOIN users u ON o.user = u.name ORDER BY id": [
        (1, "Bern"),
        (2, None),
        (3, "Bern"),
    ],
    "SELECT id, city FROM orders, users WHERE user = name AND qty = 7": [(3, "Bern")],
    "SELECT o.id, u.name FROM orders o LEFT JOIN users u ON o.user = u.name AND o.qty > 1 ORDER BY id": [
        (1, "ada"),
        (2, None),
        (3, "ada"),
        (4, None),
    ],
    "SELECT u.name, o.id FROM orders o RIGHT JOIN users u ON o.user = u.name ORDER BY name, id": [
        ("ada", 1),
        ("ada", 3),
        ("max", 2),
        ("zoe", None),
    ],
    "SELECT name, id FROM users FULL JOIN orders ON name = user ORDER BY name, id": [
        (None, 4),
        ("ada", 1),
        ("ada", 3),
        ("max", 2),
        ("zoe", None),
    ],
    "SELECT a.name, b.name AS other FROM users a CROSS JOIN users b WHERE a.name < b.name ORDER BY 1, 2": [
        ("ada", "max"),
        ("ada", "zoe"),
        ("max", "zoe"),
    ],
    "SELECT name FROM users WHERE NOT EXISTS (SELECT 1 FROM orders WHERE user = name)": [("zoe",)],
    "SELECT name FROM users WHERE name IN (SELECT user FROM orders) ORDER BY name": [("ada",), ("max",)],
    "SELECT name FROM users WHERE name NOT IN (SELECT user FROM orders)": [("zoe",)],
    "SELECT user FROM orders WHERE user NOT IN (SELECT city FROM users)": [],
    "SELECT name FROM users WHERE city NOT IN (SELECT user FROM orders WHERE qty > 99) ORDER BY name": [
        ("ada",),
        ("max",),
        ("zoe",),
    ],
    "SELECT o.id FROM orders o WHERE EXISTS (SELECT * FROM orders i WHERE i.user = o.user AND i.id <> o.id) "
    "ORDER BY id": [(1,), (3,)],
    "SELECT id FROM orders o WHERE price > (SELECT AVG(price) FROM orders i WHERE i.user = o.user)": [(1,)],
    "SELECT name, (SELECT COUNT(*) FROM orders WHERE user = name) AS n FROM users ORDER BY name": [
        ("ada", 2),
        ("max", 1),
        ("zoe", 0),
    ],
    "SELECT id, (SELECT MAX(qty) FROM orders) AS most FROM orders WHERE id = 1": [(1, 7)],
    "SELECT user, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user ORDER BY at DESC) AS rn FROM orders) "
    "WHERE rn = 1 ORDER BY user": [("ada", 3), ("eve", 4), ("max", 2)],
    "SELECT user FROM orders UNION SELECT name FROM users ORDER BY user": [("ada",), ("eve",), ("max",), ("zoe",)],
    "SELECT user FROM orders UNION ALL SELECT name FROM users ORDER BY user LIMIT 3": [("ada",), ("ada",), ("ada",)],
    "SELECT user FROM orders EXCEPT SELECT name FROM users": [("eve",)],
    "SELECT 1.5 AS x FROM orders UNION SELECT 20.25 FROM orders UNION SELECT qty FROM orders ORDER BY x": [
        (Decimal("1.00"),),
        (Decimal("1.50"),),
        (Decimal("2.00"),),
        (Decimal("7.00"),),
        (Decimal("20.25"),),
    ],
    "SELECT 2.0 AS x FROM orders INTERSECT SELECT qty FROM orders": [(Decimal("2.0"),)],
    "SELECT user FROM orders INTERSECT SELECT name FROM users ORDER BY 1": [("ada",), ("max",)],
    "WITH b AS (SELECT user, SUM(qty) q FROM orders GROUP BY user) SELECT MAX(q) m, MIN(q) n FROM b": [(9, 1)],
    "SELECT CASE WHEN city IS NULL THEN '?' ELSE UPPER(city) END c, name LIKE 'a%' l FROM users ORDER BY name": [
        ("BERN", True),
        ("?", False),
        ("ROM", False),
    ],
    "SELECT CAST(qty AS VARCHAR) || '!' s FROM orders WHERE qty BETWEEN 2 AND 6": [("2!",)],
    "SELECT EXTRACT(MINUTE FROM at) m, SUBSTRING(user FROM 2 FOR 1) s FROM orders WHERE id IN (1, 4) ORDER BY m": [
        (1, "d"),
        (13, "v"),
    ],
    "SELECT id FROM orders WHERE at >= TIMESTAMP '2024-01-01 10:00:00' + INTERVAL '12' MINUTES ORDER BY id": [
        (3,),
        (4,),
    ],
    "SELECT `id` FROM orders WHERE price = 0.5 + 0.5": [(3,)],
    "SELECT user FROM orders WHERE user NOT LIKE 'x_%' ESCAPE 'x' AND user LIKE '%_x' IS FALSE ORDER BY id LIMIT 1": [
        ("ada",)
    ],
    "SELECT v + 1 AS w FROM (SELECT NULL AS v FROM users UNION ALL SELECT qty FROM orders) ORDER BY w DESC LIMIT 5": [
        (8,),
        (3,),
        (2,),
        (2,),
        (None,),
    ],
    "SELECT name, (SELECT COALESCE(SUM(qty), 0) FROM orders WHERE user = name) AS n FROM users ORDER BY name": [
        ("ada", 9),
        ("max", 1),
        ("zoe", 0),
    ],
    "SELECT name, (SELECT CASE WHEN MAX(qty) IS NULL THEN -1 ELSE COUNT(*) END FROM orders WHERE user = name) AS n "
    "FROM users ORDER BY name": [("ada", 2), ("max", 1), ("zoe", -1)],
    "SELECT name, (SELECT COUNT(*) + MAX(qty) FROM orders WHERE user = name) AS n FROM users ORDER BY name": [
        ("ada", 9),
        ("max", 2),
        ("zoe", None),
    ],
    "SELECT user, MAX(qty) AS qty, qty + 1 AS n FROM orders GROUP BY user, qty ORDER BY n": [
        ("eve", 1, 2),
        ("max", 1, 2),
        ("ada", 2, 3),
        ("ada", 7, 8),
    ],
    "SELECT id FROM orders WHERE EXISTS (SELECT 1 FROM users OFFSET 10)": [],
    "SELECT id FROM orders WHERE EXISTS (SELECT MAX(name) FROM users HAVING COUNT(*) > 5)": [],
    "SELECT u.* FROM orders JOIN (SELECT name AS user, city FROM users) u USING (user) WHERE id = 1": [("ada", "Bern")],
    "SELECT 1e0 AS a, -1e0 AS b, 2. AS c FROM users WHERE name = 'ada'": [(1.0, -1.0, 2.0)],
}


@pytest.mark.parametrize("query", CASES)
def test_a_query_has_its_answer(query: str) -> None:
    assert answer(query) == CASES[query]


def test_the_rows_have_a_schema_that_further_steps_are_checked_against() -> None:
    rows = shop() | tg.Sql("SELECT user, price * qty AS total, city FROM orders JOIN users ON user = name")
    assert str(schema_of(rows.element_type)) == "user string not null, total double not null, city string"
    assert (rows | tg.Filter(tg.col("total") > 5)).collect() == [tg.Row(user="ada", total=7.0, city="Bern")]


def test_one_collection_is_the_table_pcoll() -> None:
    assert (shop()["users"] | tg.Sql("SELECT COUNT(city) AS n FROM pcoll")).collect() == [(2,)]


class Tables(NamedTuple):
    orders: tg.PCollection[Any]
    users: tg.PCollection[Any]


def test_a_named_tuple_of_collections_names_the_tables() -> None:
    rows = Tables(**shop()) | tg.Sql("SELECT COUNT(*) AS n FROM orders JOIN users ON user = name")
    assert rows.collect() == [(3,)]


def test_parameters_are_values_and_never_text_of_the_query() -> None:
    query = "SELECT id FROM orders WHERE user = :user AND qty > :n LIMIT :most"
    assert answer(query, params={"user": "ada", "n": 2, "most": 5}) == [(3,)]
    assert answer(query, params={"user": "ada' OR 1 = 1 --", "n": 2, "most": 5}) == []


def test_a_function_of_the_author_is_called_for_each_row() -> None:
    functions = {"twice": tg.udf(lambda n: n * 2, returns=int)}
    query = "SELECT user, SUM(twice(qty)) AS n FROM orders WHERE twice(qty) > 2 GROUP BY user"
    assert answer(query, functions=functions) == [("ada", 18)]


def test_a_function_of_the_author_goes_before_one_that_sql_has_in_some_dialects() -> None:
    functions = {"date_format": tg.udf(lambda n: f"day {n}", returns=str)}
    assert answer("SELECT DATE_FORMAT(id) AS d FROM orders WHERE id = 3", functions=functions) == [("day 3",)]


def test_a_function_takes_the_result_of_a_function() -> None:
    functions = {"twice": tg.udf(lambda n: n * 2, returns=int), "less": tg.udf(lambda n: n - 1, returns=int)}
    query = "SELECT less(twice(twice(qty)) + less(id)) AS n FROM orders WHERE id = 3"
    assert answer(query, functions=functions) == [(29,)]


def test_a_column_of_nulls_has_the_type_of_the_other_query() -> None:
    for query in (
        "SELECT NULL AS v FROM users UNION ALL SELECT qty FROM orders",
        "SELECT qty AS v FROM orders UNION ALL SELECT NULL FROM users",
    ):
        assert str(schema_of((shop() | tg.Sql(query)).element_type)) == "v bigint"


def test_a_query_used_as_a_value_fails_the_run_if_it_has_two_rows() -> None:
    with pytest.raises(tg.RunError, match="SCALAR_SUBQUERY_TOO_MANY_ROWS"):
        answer("SELECT id, (SELECT name FROM users) AS n FROM orders")


def test_each_operator_is_a_step_with_a_stable_label() -> None:
    rows = shop() | tg.Sql("SELECT user, COUNT(*) AS n FROM orders WHERE qty > 1 GROUP BY user", name="counts")
    labels = [node.label for node in rows.pipeline.portable().nodes if node.label.startswith("counts")]
    assert labels == ["counts/Where", "counts/GroupBy user"]


def test_limits_break_ties_by_the_other_columns() -> None:
    assert answer("SELECT user, id FROM orders ORDER BY qty LIMIT 2") == [("eve", 4), ("max", 2)]


def test_a_column_of_a_union_may_be_null_if_it_may_in_one_of_its_queries() -> None:
    one, two = "SELECT name, city, name AS a FROM users", "SELECT name, name AS city, city AS a FROM users"
    rows = shop() | tg.Sql(f"SELECT DISTINCT * FROM ({one} UNION ALL {two})")
    assert str(schema_of(rows.element_type)) == "name string not null, city string, a string"
    assert len(rows.collect()) == 6


OWN = {
    "SELECT UPPER(user) AS x FROM orders WHERE id = 3": "upper",
    "SELECT Sum(user) AS x, MIN(id) FROM orders WHERE id = 3 GROUP BY sum(user)": "SUM",
    "SELECT TRIM(user) AS x FROM orders WHERE id = 3": "trim",
    "SELECT COALESCE(user) AS x FROM orders WHERE id = 3": "coalesce",
    "WITH upper (user, n) AS (SELECT user, id FROM orders) SELECT upper(user) FROM upper WHERE n = 3": "upper",
}


@pytest.mark.parametrize("query", OWN)
def test_a_function_of_the_authors_wins_over_one_of_sql(query: str) -> None:
    functions = {OWN[query]: tg.udf(lambda text: f"own {text}", returns=str)}
    assert [row[0] for row in answer(query, functions=functions)] == ["own ada"]


@pytest.mark.parametrize("functions", [{}, {"twice": tg.udf(lambda n: n * 2, returns=int)}])
def test_no_text_or_name_in_a_query_is_taken_for_a_mark_of_functions(functions: dict[str, Any]) -> None:
    query = "SELECT 'author_function_call' AS word, id AS author_function_id FROM orders WHERE id = 3"
    rows = shop() | tg.Sql(query, functions=functions)
    assert [row._asdict() for row in rows.collect()] == [{"word": "author_function_call", "author_function_id": 3}]


WORDS = sorted({word for word in Tokenizer.KEYWORDS if word.isidentifier()} | {"GROUP", "ORDER", "CAST", "TUMBLE"})


def test_any_word_can_name_a_function_but_those_that_sql_writes_before_a_parenthesis() -> None:
    for name in {*WORDS} - parsing._RESERVED:
        query = f"SELECT {name.lower()}(id) AS n FROM t WHERE {name}(id) > 2 ORDER BY {name} (id) LIMIT 1 OFFSET 1"
        tree = parsing.only_query(query, {name.lower()}).tree
        assert [node.name.upper() for node in tree.find_all("Anonymous")] == [name] * 3, name
    refused = {*WORDS} & parsing._RESERVED
    assert len(refused) > 40
    for name in refused:
        with pytest.raises(tg.BuildError, match=rf"^functions\['{name}'\]: '{name}' can't name a function in SQL\."):
            parsing.only_query("SELECT 1", {name})


@pytest.mark.parametrize("name", ["index", "left", "date", "decimal", "if", "count", "call", "row"])
def test_a_function_that_has_the_name_of_a_keyword_is_called(name: str) -> None:
    functions = {name: tg.udf(lambda n: n * 2, returns=int)}
    query = (
        f"SELECT CAST({name}(id) AS DECIMAL(5, 0)) AS n FROM orders WHERE {name.upper()}(id) > 2 ORDER BY {name}(id)"
    )
    assert answer(query, functions=functions) == [(Decimal(4),), (Decimal(6),), (Decimal(8),)]


@dataclass(frozen=True)
class Basket:
    items: list[Order]
    tags: list[str]


NESTED_REFUSED = {
    "SELECT x FROM t, UNNEST(tags) AS x": "no table and no query: apply tg.FlatMap before the query",
    "SELECT EXPLODE(tags) AS x FROM t": "is not supported (Explode): apply tg.FlatMap before the query",
    "SELECT 'a' = ANY(tags) AS b FROM t": "write ARRAY_CONTAINS(array, value)",
    "SELECT ARRAY[1] AS a FROM t": "let a function of tg.udf make it",
    "SELECT tags[1:2] AS a FROM t": "let a function of tg.udf make it",
    "SELECT tags[0, 1] AS a FROM t": "one index or one key stands in brackets",
    "SELECT DISTINCT tags FROM t": "of type array<string not null>, which can't be a key of groups: group by its parts",
    "SELECT items[0], COUNT(*) n FROM t GROUP BY 1": "which can't be a key of groups: group by its fields",
    "SELECT MIN(tags) AS a FROM t": "min takes (T), T being one comparable type, not (array<string not null>). To",
    "SELECT items[0].cost FROM t": "items[0].cost: there is no field cost; there are id, user, price, qty, at",
    "SELECT t.items.id FROM t": "t.items.id: a value of type array<struct<",
    "SELECT items FROM t WHERE tags = tags": "== takes (T, T), T being one comparable type, not (array<",
}


@pytest.mark.parametrize("query", NESTED_REFUSED)
def test_what_is_not_supported_of_arrays_and_records_is_refused_by_name(query: str) -> None:
    baskets = tg.Pipeline() | tg.Create([Basket([], [])])
    with pytest.raises(tg.BuildError, match=re.escape(NESTED_REFUSED[query])):
        {"t": baskets} | tg.Sql(query)


class IbisExpression:
    """What Ibis gives: an object of a class of the package `ibis`, which Ibis itself translates."""


def test_an_ibis_expression_is_translated_by_ibis(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    ibis = types.ModuleType("ibis")
    monkeypatch.setattr(IbisExpression, "__module__", "ibis.expr.types")
    monkeypatch.setitem(sys.modules, "ibis", ibis)
    monkeypatch.setattr(
        ibis, "to_sql", lambda _, dialect: f"SELECT `t0`.`id` FROM `orders` AS `t0` -- {dialect}", False
    )
    assert len((shop() | tg.Sql(IbisExpression())).collect()) == len(ORDERS)

    def fail(expression: Any, dialect: str) -> None:
        raise ImportError("No module named 'sqlglot'", name="sqlglot")

    monkeypatch.setattr(ibis, "to_sql", fail)
    with pytest.raises(tg.BuildError, match=r"Ibis needs the package sqlglot .*: pip install 'tidegate\[sql\]'"):
        tg.Sql(IbisExpression())


@pytest.mark.parametrize("name", ["limit", "offset", "window", '"limit"'])
def test_words_that_begin_clauses_name_tables(name: str) -> None:
    expected = answer("SELECT id FROM orders")
    assert answer(f"SELECT {name}.id FROM orders AS {name}") == expected
    assert answer(f"SELECT id FROM (SELECT {name}.id FROM orders AS {name}) AS {name}") == expected
    assert answer(f"SELECT o.id FROM orders AS {name} JOIN orders o ON o.id = {name}.id") == expected


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_a_table_that_rows_in_windows_look_up_may_have_their_names(kind: str) -> None:
    windows = "TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MINUTE))"
    query = "SELECT a.id, b.id AS other, b.qty, b.user FROM {} a {} orders b ON a.user = b.user AND a.qty < b.qty"
    found = answer(query.format(windows, kind))
    assert found
    assert sorted(found, key=repr) == sorted(answer(query.format("orders", kind)), key=repr)
