"""What tg.Sql refuses, with messages that point into the text."""

from __future__ import annotations

import re
import sys

import pytest

import tidegate as tg
from tests.support.sql.shop import answer, shop

REFUSED = {
    "SELECT usr FROM orders": r"no column usr; there are id, user, price, qty, at. Did you mean user\?\n"
    r"  line 1, column 8:\n    SELECT usr FROM orders\n           \^",
    "SELECT o.id FROM orders JOIN users u ON user = name": r"there is no table o in this query; it has orders, u",
    "SELECT id\nFROM orders, users\nWHERE nam = user": r"column nam;.*\n  line 3, column 7:\n    WHERE nam",
    "SELECT at.day FROM orders": "at.day: a value of type timestamp has no fields",
    "SELECT at.hour.minute FROM orders": "at.hour.minute: a value of type timestamp has no fields",
    "SELECT o.id.x FROM orders o": "o.id.x: a value of type bigint has no fields",
    "SELECT id[0] AS x FROM orders": r"in id\[0\], \[…\] takes \(array, bigint; map, key; struct, literal string\)",
    "SELECT users.* FROM orders": "there is no table users",
    "SELECT CARDINALITY(id) AS n FROM orders": r"size takes \(array; map\), not \(bigint\)",
    "SELECT id FROM order_s": r"there is no table order_s; there are orders, users. Did you mean orders\?",
    "SELECT id FORM orders WHERE": "this is no SQL:.*\n  line 1, column",
    "SELECT id,\n  'a FROM orders": r"' begins what nothing ends\n  line 2, column 3:",
    "SELECT id /* a FROM orders": r"/\* begins what nothing ends\n  line 1, column 11:",
    "SELECT id FROM orders WHERE": r"a part of WHERE is missing\n  line 1, column",
    "SELECT id FROM orders JOIN": r"Expected table name but found the end of the text\n",
    "SELECT id FROM orders LIMIT": r"(a part of LIMIT is missing|LIMIT begins a clause, .*)\n  line 1, column 23",
    "SELECT * FROM (SELECT id FROM orders) JOIN (SELECT name FROM users) ON id > 1": (
        r"two queries of FROM have no name: write \(SELECT …\) AS name"
    ),
    "SELECT id FROM orders OFFSET": "OFFSET begins a clause, and nothing follows it",
    "SELECT n FROM (SELECT COUNT(*) AS n FROM orders GROUP) AS c": "GROUP begins a clause, and nothing follows it",
    "SELECT CASE WHEN id THEN FROM orders": "a part of WHEN is missing",
    "SELECT id, qty AS id FROM orders UNION SELECT id, id FROM orders": (
        r"the result has two columns id: .*\n  line 1, column 12"
    ),
    "SELECT COUNT(*) AS n FROM orders GROUP BY": "GROUP BY needs at least one column or expression",
    "SELECT DATE_TRUNC('hours', at) AS t FROM orders": r"the unit is one of YEAR, QUARTER, .*\n  line 1, column",
    "SELECT DATE_TRUNC('yyyy', at) AS t FROM orders": "the unit is one of YEAR, QUARTER",
    "SELECT DATE_TRUNC(user, at) AS t FROM orders": "the unit is one of YEAR, QUARTER",
    "SELECT FLOOR(at TO DECADE) AS t FROM orders": "the unit is one of YEAR, QUARTER",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY user ORDER BY id) AS user FROM orders) WHERE user = 1": (
        "user is ambiguous: the table has two of that name"
    ),
    "SELECT COUNT(*) n FROM TABLE(TUMBLE(TABLE 'a.csv', DESCRIPTOR(at), INTERVAL '1' MINUTE))": (
        r"name the file in WITH name AS \(SELECT \* FROM 'a.csv'\)"
    ),
    "SELECT COUNT(*) n FROM TABLE(TUMBLE(TABLE (SELECT * FROM orders), DESCRIPTOR(at), INTERVAL '1' MINUTE))": (
        "name the query in WITH name AS"
    ),
    "SELECT user, qty FROM orders GROUP BY user": "qty has many values in a group: aggregate it, or add it to GROUP BY",
    "SELECT user + 1 AS n FROM orders": r"\+ takes .*, not \(string, bigint\). To convert a value, write CAST",
    "SELECT id FROM orders WHERE qty": "qty is a condition, and of type bigint",
    "SELECT id FROM orders WHERE SUM(qty) > 1": "aggregates can't stand here. Write them in HAVING",
    "SELECT id, user AS id FROM orders": r"the result has two columns id: .*\n  line 1, column 12",
    "SELECT * FROM orders o JOIN orders p ON o.id = p.id": r"the result has two columns id: .*\n  line 1, column",
    'SELECT id,\n  user AS "a b" FROM orders': r"'a b' can't name a field of a Row: .*\n  line 2, column 3",
    "SELECT at FROM orders o JOIN orders p ON o.id = p.id": r"at is ambiguous: write one of o.at, p.at",
    "SELECT id FROM orders UNION SELECT name FROM users": "type bigint in one query, and of type string in the other",
    "SELECT id FROM orders UNION SELECT name, city FROM users": "one query has 1 columns, and the other 2",
    "SELECT id FROM orders EXCEPT ALL SELECT id FROM orders": "EXCEPT ALL is not supported",
    "SELECT RANK() OVER (ORDER BY id) AS r FROM orders": r"of OVER clauses, only ROW_NUMBER\(\) OVER",
    "SELECT ROW_NUMBER() OVER (PARTITION BY user) AS r FROM orders": "needs an ORDER BY",
    "SELECT user, ROW_NUMBER() OVER (ORDER BY COUNT(*)) AS r FROM orders GROUP BY user": (
        r"a query with groups can't number them: write it in FROM \(SELECT …\), and ROW_NUMBER\(\) around it"
    ),
    "SELECT COUNT(*) n FROM orders ORDER BY 1 + ROW_NUMBER() OVER (ORDER BY COUNT(*))": (
        "a query with groups can't number them"
    ),
    "SELECT id, (SELECT MAX(p.qty) + o.id FROM orders p WHERE p.user = o.user) AS v FROM orders o": (
        "may name columns of the query around it only in its WHERE"
    ),
    "SELECT id FROM orders WHERE qty = ANY (SELECT qty FROM orders)": r"ARRAY_CONTAINS\(array, value\), or IN \(SELECT",
    "SELECT DATE_ADD('day', 1, at) AS d FROM orders": r"write DATE_ADD\(date, days\)",
    "SELECT DATE_DIFF(DATE '2024-01-02', DATE '2024-01-01', DAY) AS d FROM orders": "DATEDIFF counts days, so write",
    "SELECT id FROM orders JOIN users ON user = name AND EXISTS (SELECT 1 FROM users)": "EXISTS stands in WHERE alone",
    "SELECT id FROM orders JOIN users ON user = name AND id = (SELECT MAX(id) FROM orders)": (
        r"make columns of their results in FROM \(SELECT …\)"
    ),
    "SELECT TRY_CAST(user AS BIGINT) AS n FROM orders": "a value that can't be cast is an error",
    "SELECT CAST(user AS FOO) AS n FROM orders": "the type FOO is not supported: the types are BOOLEAN, ",
    "SELECT CAST(user AS INT) AS n FROM orders": "the type INT is not supported: write BIGINT",
    "SELECT CURRENT_TIMESTAMP AS t FROM orders": "would differ whenever the pipeline runs again",
    "SELECT at + INTERVAL '1' MONTH AS t FROM orders": "moves dates, and at is a timestamp: write CAST",
    "SELECT id FROM orders WHERE id = 1 OR EXISTS (SELECT 1 FROM users)": "EXISTS stands in WHERE alone",
    "SELECT id FROM orders WHERE id BETWEEN SYMMETRIC 5 AND 1": "SYMMETRIC is not supported here",
    "SELECT FLOOR(price, 1) AS f FROM orders": "DECIMALS is not supported here",
    "SELECT id FROM orders TABLESAMPLE (10 PERCENT)": "not supported here",
    "SELECT id FROM orders QUALIFY id = 1": "QUALIFY is not supported here",
    "SELECT DISTINCT ON (user) id FROM orders": "not supported here",
    "SELECT user, COUNT(*) n FROM orders GROUP BY ROLLUP (user)": "ROLLUP",
    "SELECT * FROM orders o NATURAL JOIN users u": "not supported here",
    "INSERT INTO x SELECT id FROM orders": "is no query",
    "SELECT SUM(DISTINCT id, qty) AS n FROM orders": r"SUM\(DISTINCT id, qty\): DISTINCT takes one column",
    "SELECT SUM(DISTINCT user) AS n FROM orders": r"sum_distinct takes \(bigint; decimal; double\), not \(string\)",
    "SELECT COUNT(DISTINCT id, qty) AS n FROM orders": r"COUNT\(DISTINCT id, qty\): DISTINCT takes one column",
    "SELECT nope(id) AS n FROM orders": r"there is no function nope; functions=\{…\} of tg.Sql has none",
    "SELECT SPLIT_PART(user, 'a') AS n FROM orders": "SPLIT_PART takes a string, a separator and a number",
    "SELECT id FROM orders WHERE id = :n": "the parameter n has no value",
    "SELECT 1 AS one": "the query has no FROM",
    "SELECT COUNT(*) n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(id), INTERVAL '1' MINUTE)) "
    "GROUP BY window_start": r"DESCRIPTOR\(id\) has to be a timestamp, and the column is of type bigint",
    "SELECT COUNT(*) n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at)))": "TUMBLE has 0 intervals: write TUMBLE",
    "SELECT COUNT(*) n FROM TABLE(HOP(TABLE orders DESCRIPTOR(at)))": ", is missing in HOP",
    "SELECT COUNT(*) n FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '1' MONTH))": "the unit of an interval",
    "SELECT COUNT(*) n FROM TABLE(SESSION(TABLE orders PARTITION BY user, DESCRIPTOR(at), INTERVAL '1' MINUTE)) "
    "GROUP BY window_start, window_end": "SESSION has PARTITION BY user, so its rows are grouped by that",
    "SELECT name, (SELECT CASE WHEN MAX(qty) IS NULL THEN -1 ELSE MAX(qty) END FROM orders WHERE user = name) AS n "
    "FROM users": "may be NULL, and is another value where the subquery has no rows: write COALESCE.*line 1, column 32",
    "SELECT id, COUNT(*) AS qty, qty + 1 AS n FROM orders GROUP BY id": "qty has many values in a group",
    "SELECT id + 1 AS qty, qty AS n FROM orders GROUP BY id + 1": "qty has many values in a group",
    "SELECT id + 1 AS k, COUNT(*) AS qty FROM orders GROUP BY id + 1 HAVING qty > 5": "qty has many values in a group",
    "SELECT name FROM users WHERE EXISTS (SELECT 1 FROM orders WHERE user = name OFFSET 10)": "OFFSET is not supported",
    "SELECT name FROM users WHERE name IN (SELECT user FROM orders WHERE user = name OFFSET 5)": "OFFSET is not",
    "SELECT name, (SELECT COUNT(*) FROM orders WHERE user = name LIMIT 0) AS n FROM users": "LIMIT is not supported in",
    "SELECT name FROM users WHERE EXISTS (SELECT 1 FROM orders WHERE user = name HAVING COUNT(*) > 1)": "be grouped",
    "SELECT name FROM users WHERE EXISTS (SELECT nope FROM orders WHERE user = name)": "no column nope",
    "SELECT name FROM users LEFT JOIN orders": "a LEFT JOIN needs ON or USING",
    "SELECT 1e400 AS n FROM users": r"1e400 is too large for a double\n  line 1, column 8",
    "SELECT 1e99999999999999999999 AS n FROM users": "is too large for a double",
    "SELECT -99999999999999999999 AS n FROM users": r"\n  line 1, column 9",
    "SELECT user, COUNT(*) AS n FROM orders GROUP BY 1.5": r"GROUP BY 1.5: SELECT has 2 columns, numbered from 1\n",
    "SELECT user FROM orders ORDER BY 1.5": r"ORDER BY 1.5: SELECT has 1 columns, numbered from 1\n  line",
    "SELECT DATE '0001-01-01' - INTERVAL '1' YEAR AS d FROM users": "moves 0001-01-01 out of the years 1 to 9999\n",
    "SELECT DATE '9999-12-31' + INTERVAL '1' DAY AS d FROM users": "moves 9999-12-31 out of the years 1 to 9999\n",
    "SELECT TIMESTAMP '0001-01-01T00:00:00+05:00' AS d FROM users": "is outside the years 1 to 9999\n  line",
    "SELECT at + INTERVAL '9999999999999' DAY AS d FROM orders": "is too long\n  line",
    "SELECT id FROM orders WHERE (SELECT MAX(qty) FROM orders) IN (SELECT qty FROM orders)": "can't stand before IN",
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_query_is_refused_with_a_message_that_says_what_to_write(query: str) -> None:
    with pytest.raises(tg.BuildError, match=re.compile(REFUSED[query], re.DOTALL)):
        answer(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT f(SUM(qty)) AS n FROM orders",
        "SELECT f((SELECT MAX(qty) FROM orders)) AS n FROM orders",
        "SELECT name FROM users WHERE EXISTS (SELECT 1 FROM orders WHERE f(name) = qty)",
    ],
)
def test_a_function_that_would_be_called_before_its_arguments_are_known_is_refused(query: str) -> None:
    message = re.compile(r"f is called for each row of the tables.*FROM \(SELECT …\)\n  line 1, column", re.DOTALL)
    with pytest.raises(tg.BuildError, match=message):
        answer(query, functions={"f": tg.udf(lambda n: n, returns=int)})


def test_the_message_names_the_step_and_the_line_of_the_author() -> None:
    with pytest.raises(tg.BuildError, match=r"in step 'top', applied at .*test_refusals.py:\d+"):
        shop() | tg.Sql("SELECT usr FROM orders", name="top")


def test_a_parameter_that_the_query_lacks_is_refused() -> None:
    with pytest.raises(tg.BuildError, match="the query has no parameter :n"):
        answer("SELECT id FROM orders", params={"n": 1})


def test_a_table_without_fields_is_refused() -> None:
    with pytest.raises(
        tg.BuildError, match=r"(?s)the table words has no columns: its elements don't declare fields.*line 1"
    ):
        {"words": tg.Pipeline() | tg.Create(["a"])} | tg.Sql("SELECT * FROM words")


def test_something_else_than_text_is_refused() -> None:
    with pytest.raises(tg.BuildError, match=r"tg\.Sql takes the text of a query, or an Ibis expression, not 7"):
        tg.Sql(7)


@pytest.mark.parametrize("name", ["in", "cast", "my function", "a.b", "1st"])
def test_a_name_that_sql_has_another_use_for_is_refused_for_a_function(name: str) -> None:
    with pytest.raises(tg.BuildError, match=rf"functions\['{name}'\]: '{name}' can't name a function in SQL"):
        answer("SELECT id FROM orders", functions={name: tg.udf(lambda n: n, returns=int)})


def test_without_sqlglot_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(tg.BuildError, match=r"SQL needs the package sqlglot: pip install 'tidegate\[sql\]'"):
        answer("SELECT id FROM orders")


def test_sqlglot_is_imported_by_the_first_query_only() -> None:
    import subprocess

    script = "import sys, tidegate as tg; tg.Sql; print([m for m in sys.modules if 'sqlglot' in m])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
