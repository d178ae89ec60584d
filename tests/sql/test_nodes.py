"""Every argument of every node of sqlglot is read, or the query is refused."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlglot import exp

import tidegate as tg
from tests.sql.test_queries import CASES
from tests.support.sql.shop import Order, shop
from tests.support.sql.tpch_tables import tables
from tidegate.sdk.errors import SqlError
from tidegate.sql.syntax import parsing
from tidegate.sql.syntax.expressions import HANDLERS, tree_of
from tidegate.sql.syntax.nodes import check_all_read
from tidegate.sql.syntax.parse_tree import Node
from tidegate.sql.syntax.text import SqlText

KINDS = {
    name: each
    for name, each in vars(exp).items()
    if inspect.isclass(each) and issubclass(each, exp.Expression) and hasattr(each, "arg_types")
}
TPCH = Path(__file__).parent / "tpch"
FURTHER = (
    "SELECT ABS(id) a, CEIL(price) b, FLOOR(price) c, SQRT(price) d, EXP(price) e, LN(price) f, IS_NAN(price) g, "
    "ROUND(price, 1) h, POWER(price, 2) i, id DIV 2 j, id / 2 k, id - 1 l, NULLIF(id, 1) m, GREATEST(id, qty) n, "
    "LEAST(id, qty) o, IF(id > 1, 1, 2) p, (id) q, id = :one r, id = @two s FROM orders WHERE id <= 2 OR id >= 3",
    "SELECT LENGTH(user) a, UPPER(user) b, LOWER(user) c, REVERSE(user) d, CONCAT(user, user) e, user || 'x' f, "
    "TRIM(user) g, TRIM(LEADING FROM user) h, REPLACE(user, 'a', 'b') i, CONTAINS(user, 'a') j, STARTS_WITH(user, 'a') "
    "k, ENDS_WITH(user, 'a') l, INSTR(user, 'a') m, user ILIKE 'A%' n, user <=> 'a' o, user IS DISTINCT FROM 'a' p, "
    "user LIKE 'a!%' ESCAPE '!' q, SUBSTRING(user, 1, 2) r FROM orders",
    "SELECT YEAR(at) a, QUARTER(at) b, MONTH(at) c, DAY(at) d, DAYOFMONTH(at) e, DAYOFWEEK(at) f, DAYOFYEAR(at) g, "
    "HOUR(at) h, MINUTE(at) i, SECOND(at) j, DATE_TRUNC('day', at) k, EXTRACT(YEAR FROM at) l, "
    "CAST(at AS DATE) + INTERVAL '1' MONTH m, TIMESTAMP_TRUNC(at, DAY) n, UNIX_MICROS(at) o, "
    "DATE_ADD(CAST(at AS DATE), 1) p, DATE_SUB(CAST(at AS DATE), 1) q, ADD_MONTHS(CAST(at AS DATE), 1) r, "
    "DATEDIFF(CAST(at AS DATE), CAST(at AS DATE)) s FROM orders",
    "SELECT COUNT_IF(id > 1) a, LOGICAL_OR(id > 1) b, BOOL_AND(id > 1) c, COUNT(DISTINCT id) d FROM orders",
    "WITH known (a, b) AS (SELECT id, CAST(price AS DECIMAL(10, 2)) FROM orders) SELECT a FROM known k (a, b) "
    "EXCEPT SELECT id FROM orders ORDER BY 1 LIMIT 3 OFFSET 1",
    "SELECT items[0].price a, ARRAY_LENGTH(items) b, ARRAY_CONTAINS(tags, 'x') c, baskets.items[1] d FROM baskets",
)
"""Queries that have the nodes which the queries with answers don't have."""

PARAMETERS = {"one": 1, "two": 2}


@dataclass(frozen=True)
class Basket:
    items: list[Order]
    tags: list[str]


def plan(statement: parsing.Parsed) -> None:
    """Plan a query over the shop."""
    named = {name: value for name, value in PARAMETERS.items() if name in statement.source.text}
    query = tg.Sql(statement.source.text, params=named)
    tables = shop()
    baskets = tables["orders"].pipeline | "baskets" >> tg.Create([Basket([], [])])
    query.rows_of(statement, {**tables, "baskets": baskets})


def parsed(query: str) -> parsing.Parsed:
    return parsing.only_query(query)


class NoNames:
    """Names of which there is none."""

    source = SqlText("")


@pytest.fixture
def unprintable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes without their arguments, which sqlglot can't print."""
    monkeypatch.setattr(Node, "sql", lambda self: self.kind)


@pytest.mark.usefixtures("unprintable")
@pytest.mark.parametrize("kind", sorted(HANDLERS.by_kind.keys() & KINDS.keys()))
def test_an_argument_that_a_handler_does_not_declare_is_refused(kind: str) -> None:
    unknown = [name for name in KINDS[kind].arg_types if name not in HANDLERS.by_kind[kind].arguments]
    for name in [*unknown, "argument_of_a_later_version"]:
        node = Node(KINDS[kind](**{name: exp.Literal.string("x")}))
        with pytest.raises(SqlError, match="is not supported here"):
            HANDLERS.function(node, SqlText(""))


@pytest.mark.usefixtures("unprintable")
def test_every_other_node_is_refused_by_name() -> None:
    others = sorted(KINDS.keys() - HANDLERS.by_kind.keys())
    assert len(others) > 500
    for name in others:
        with pytest.raises(SqlError, match=rf"is not supported \({KINDS[name].__name__}\)"):
            tree_of(Node(KINDS[name]()), NoNames())  # type: ignore[arg-type]


# -- in whole queries


def places() -> Iterator[tuple[str, str, int]]:
    """Each kind of node that is accepted: a query that has it, and the number of the node there."""
    seen = set()
    for query in [*CASES, *FURTHER]:
        for number, node in enumerate(parsed(query).tree.walk()):
            if node.kind not in seen:
                seen.add(node.kind)
                yield node.kind, query, number


PLACES = list(places())


def test_the_queries_have_every_node_that_is_accepted() -> None:
    planned_apart = {"DateTrunc"}  # DATE_TRUNC is this node of dates, and TimestampTrunc of what may be either
    assert HANDLERS.by_kind.keys() - {kind for kind, *_ in PLACES} <= planned_apart
    for query in FURTHER:
        plan(parsed(query))


@pytest.mark.parametrize(("kind", "query", "number"), PLACES, ids=[kind for kind, *_ in PLACES])
def test_a_further_argument_of_a_node_in_a_query_is_refused_at_its_place(kind: str, query: str, number: int) -> None:
    node = list(parsed(query).tree.walk())[number]
    free = [name for name in node.declared if name not in node.set_arguments()]
    for name in [*free, "argument_of_a_later_version"]:
        statement = parsed(query)
        changed = list(statement.tree.walk())[number]
        added = Node(exp.Literal.string("x"), changed)
        changed.args[name] = [added] if name in ("using", "joins", "columns") else added
        with pytest.raises(SqlError) as refused:
            plan(statement)
        assert "\n  line 1, column " in str(refused.value), name
        assert "^" in str(refused.value), name


def test_an_argument_that_a_handler_declares_and_never_reads_is_refused() -> None:
    node = parsed("SELECT id FROM orders").tree
    node.skip()
    node.args.read.remove("from_")
    with pytest.raises(SqlError, match=r"SELECT id FROM orders: FROM is not supported here \(FROM orders\): leave"):
        check_all_read(node, SqlText("SELECT id FROM orders"))


def test_printing_a_node_does_not_count_as_reading_it() -> None:
    tree = parsed("SELECT id FROM orders").tree
    tree.sql()
    assert ("Select", "expressions") in [(node.kind, name) for node, name in tree.unread()]


@pytest.mark.parametrize("number", range(1, 23))
def test_every_argument_of_the_queries_of_tpch_is_read(number: int) -> None:
    query = json.loads((TPCH / "queries.json").read_text())["queries"][str(number)]
    statement = parsed(query)
    tg.Sql(query).rows_of(statement, tables(tg.Pipeline(), TPCH, query))
    assert list(statement.tree.unread()) == []
    assert any(node.args.read for node in statement.tree.walk())


REFUSED = {
    "SELECT * EXCEPT (id) FROM orders": (1, 8, r"\* EXCEPT \(id\): EXCEPT is not supported here: name the columns"),
    "SELECT id FROM orders\n QUALIFY ROW_NUMBER() OVER (PARTITION BY user ORDER BY id) = 1": (2, 10, "in FROM (…)"),
    "SELECT at + INTERVAL '5' DAY TO HOUR AS x FROM orders": (1, 22, "is no interval: write INTERVAL '10' MINUTES"),
    "SELECT EXTRACT(WEEK(MONDAY) FROM at) FROM orders": (1, 16, "EXTRACT takes one of YEAR, QUARTER"),
    "SELECT id FROM orders LIMIT 5 PERCENT": (1, 29, "LIMIT OPTIONS is not supported here"),
    "SELECT id FROM orders LIMIT '5'": (1, 29, "LIMIT takes a whole number, not '5'"),
    "SELECT id FROM orders FETCH FIRST 2 ROWS ONLY": (1, 35, "is not supported here: write LIMIT n"),
    "SELECT COUNT(id, qty) FROM orders": (1, 8, "COUNT takes one column"),
    "SELECT id FROM orders NATURAL JOIN users": (1, 36, "name the columns in USING or ON"),
    "SELECT id FROM orders UNION ALL BY NAME SELECT id FROM orders": (1, 8, "BY NAME is not supported here"),
    "SELECT TRIM(BOTH 'x' FROM user) FROM orders": (1, 18, "it takes away spaces alone"),
    "SELECT FLOOR(price, 1) FROM orders": (1, 21, "DECIMALS is not supported here"),
    "SELECT DATE_TRUNC(WEEK(MONDAY), at) FROM orders": (1, 8, "the unit is one of YEAR, QUARTER, MONTH, WEEK"),
    "SELECT /*+ BROADCAST(orders) */ id FROM orders": (1, 33, "HINT is not supported here"),
    "SELECT INSTR(user, 'a', 2) FROM orders": (1, 25, "POSITION is not supported here"),
    "SELECT MAX(id, 2) FROM orders": (1, 8, "is not supported here"),
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_would_be_ignored_is_refused_where_it_stands(query: str) -> None:
    line, column, message = REFUSED[query]
    with pytest.raises(SqlError) as refused:
        shop() | tg.Sql(query)
    text = str(refused.value)
    assert re.search(message if "\\" in message else re.escape(message), text), text
    assert f"line {line}, column {column}:" in text, text


def test_a_table_of_with_that_nothing_reads_is_left_out() -> None:
    query = "WITH unused AS (SELECT f(id) FROM nowhere TABLESAMPLE (5 PERCENT)) SELECT id FROM orders WHERE id = 2"
    assert [tuple(row) for row in (shop() | tg.Sql(query)).collect()] == [(2,)]
