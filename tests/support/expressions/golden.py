"""The golden file: expressions and queries in SQL over edge values, with the answers that Spark gave.

`python -m tests.support.expressions.golden` asks the pinned Spark again and writes the file. Values without errors come
from one SELECT, those with errors from a query each, since the first error ends a query.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import tidegate as tg
from tests.support.expressions.cases import INPUT, SCHEMA, edge_rows, python_results
from tests.support.expressions.spark_reference import SparkRows, condition_of, from_spark
from tidegate.sdk.data.schema import with_schema
from tidegate.sdk.errors import UserCodeError
from tidegate.sdk.relational.authoring import literal
from tidegate.sdk.relational.binding import bound
from tidegate.sdk.relational.expressions import Call, Column, Tree, column_names
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sql.syntax.expressions import tree_of
from tidegate.sql.syntax.parsing import only_query
from tidegate.sql.syntax.text import SqlText

FILE: Final = Path(__file__).parents[2] / "sql" / "golden.json"

ROWS: Final = edge_rows()

EXPRESSIONS: Final = tuple(
    line
    for block in (
        # whole numbers: overflow, division, remainders
        "a + b; a - b; a * b; -a; ABS(a); a / b; a DIV b; a % b; a + b - b; a * 0; a + 1; a - 1; NULLIF(a, b)",
        "CAST(a AS DOUBLE); CAST(a AS STRING); CAST(a AS BOOLEAN); CAST(a AS DECIMAL(38, 0)); CAST(a AS DECIMAL(3, 1))",
        "a = b; a <> b; a < b; a <= b; a > b; a >= b; a <=> b; a IS DISTINCT FROM b; a BETWEEN b AND 7; a IN (0, 7)",
        "a NOT IN (0, NULL); a IS NULL; a IS NOT NULL; COALESCE(a, b, 5); GREATEST(a, b); LEAST(a, b)",
        "CASE a WHEN 0 THEN 'none' WHEN 1 THEN 'one' END; CASE WHEN a = 0 THEN 0 ELSE 7 DIV a END; IF(a > b, a, b)",
        # doubles: NaN, signed zeros, infinities
        "x + y; x - y; x * y; x / y; -x; ABS(x); x = y; x <> y; x < y; x >= y; x <=> y; x IN (0.0e0, 1.5e0)",
        "GREATEST(x, y); LEAST(x, y); FLOOR(x); CEIL(x); ROUND(x); ROUND(x, 1); SQRT(x); CAST(x AS BIGINT)",
        "CAST(x AS STRING); CAST(x AS BOOLEAN); CAST(x AS DECIMAL(10, 2)); x % y; NULLIF(x, y)",
        # decimals: digits of results, rounding, overflow
        "m + n; m - n; m * n; m / n; m % n; -m; ABS(m); m = n; m < n; m + a; m * x; ROUND(m); ROUND(m, 1)",
        "FLOOR(m); CEIL(m); CAST(m AS BIGINT); CAST(m AS DOUBLE); CAST(m AS STRING); CAST(m AS DECIMAL(3, 1))",
        "ROUND(m, -1); m * n * m * n; m + 0.005; GREATEST(m, n)",
        # strings: code points, empty strings, patterns, positions beyond the ends
        "LENGTH(s); UPPER(s); LOWER(s); REVERSE(s); TRIM(s); TRIM(LEADING FROM s); TRIM(TRAILING FROM s); s || t",
        "CONCAT(s, t, s); s = t; s < t; s >= t; s <=> t; REPLACE(s, t, '_'); INSTR(s, t); CONTAINS(s, t)",
        "STARTSWITH(s, t); ENDSWITH(s, t); SUBSTRING(s, 2); SUBSTRING(s, 0, 2); SUBSTRING(s, -2); SUBSTRING(s, -9, 7)",
        "SUBSTRING(s, 2, 0); SUBSTRING(s, 1, -1); s LIKE '%'; s LIKE '_%e'; s LIKE 'a'; s LIKE ''",
        "s LIKE '% 12%'; s LIKE '%!_%' ESCAPE '!'; s LIKE '_é_'; s NOT LIKE '%a%'; SPLIT_PART(s, 'a', 1)",
        "SPLIT_PART(s, 'a', -1); REGEXP_EXTRACT(s, '([0-9]+)', 1); CAST(s AS BIGINT); CAST(s AS DOUBLE)",
        "CAST(s AS BOOLEAN); CAST(s AS DATE); CAST(s AS TIMESTAMP); CAST(s AS DECIMAL(10, 2)); NULLIF(s, t)",
        # the logic of NULL
        "p AND q; p OR q; NOT p; p = q; p <=> q; p IS TRUE; p IS NOT FALSE; COALESCE(p, q); p AND 1 / a > 0",
        "p OR 1 / a > 0; CAST(p AS BIGINT); CAST(p AS STRING); CASE WHEN p THEN s ELSE t END; p IN (TRUE, NULL)",
        "CAST(p AS DECIMAL(3, 1))",
        # dates, timestamps, intervals
        "YEAR(d); QUARTER(d); MONTH(d); DAY(d); DAYOFWEEK(d); DAYOFYEAR(d); d = e; d < e; GREATEST(d, e)",
        "d + INTERVAL '1' MONTH; d - INTERVAL '1' YEAR; d + INTERVAL '10' DAY; CAST(d AS STRING); CAST(d AS TIMESTAMP)",
        "HOUR(at); MINUTE(at); SECOND(at); YEAR(at); DATE_TRUNC('month', at); DATE_TRUNC('week', at)",
        "DATE_TRUNC('second', at); EXTRACT(QUARTER FROM at); at < until; at - until; at + i; at - i; CAST(at AS DATE)",
        "CAST(at AS STRING); DATE_FORMAT(at, 'yyyy-MM-dd HH:mm:ss.SSSSSS'); at + INTERVAL '90' MINUTE",
        "CAST(at AS BIGINT); at BETWEEN until AND until; i + j; i - j; i = j; i < j; GREATEST(i, j)",
        # arrays, maps and structs: NULLs inside them, items beyond the end, keys that are missing
        "numbers[0]; numbers[1]; numbers[a % 3]; numbers[5 - 6]; doubles[0]; words[1]; decimals[0]; numbers[0] + a",
        "counts['a']; counts['none']; counts[s]; weights[a]; weights[7] * x; record.n; record.s; record.at",
        "record.of.x; record.`a b`; record.`a b`[0]; record.n + a; record.of.x IS NULL; record IS NULL",
        "SIZE(numbers); SIZE(words); SIZE(counts); SIZE(weights); SIZE(record.`a b`); ARRAY_CONTAINS(words, s)",
        "ARRAY_CONTAINS(numbers, a); ARRAY_CONTAINS(doubles, x); ARRAY_CONTAINS(decimals, m); weights IS NULL",
        "COALESCE(counts[s], record.n, a); CASE WHEN SIZE(numbers) > 1 THEN numbers[1] END; numbers[0] DIV numbers[1]",
        "record.at < at; UPPER(record.s) || s; CAST(record.of.x AS BIGINT); IF(SIZE(words) > 0, words[0], t)",
    )
    for line in (each.strip() for each in block.split(";"))
)

QUERIES: Final = (
    # values that are equal in groups: zeros, NaN, NULL, equal decimals of two columns
    "SELECT DISTINCT x, p FROM t",
    "SELECT DISTINCT numbers[0] AS number, record.s AS s, SIZE(words) AS n FROM t WHERE SIZE(numbers) <> 0",
    "SELECT DISTINCT m * n AS product FROM t",
    "SELECT DISTINCT d, at FROM t WHERE i > INTERVAL '1' HOUR",
    "SELECT x, COUNT(DISTINCT y) AS c, COUNT(DISTINCT s) AS s, COUNT(DISTINCT d) AS d FROM t GROUP BY x",
    "SELECT p, q, SUM(DISTINCT a % 1000) AS sum, AVG(DISTINCT b % 1000) AS avg, COUNT(DISTINCT a) AS c FROM t "
    "GROUP BY p, q",
    "SELECT s, SUM(DISTINCT m) AS sum, AVG(DISTINCT m) AS avg, AVG(DISTINCT n) AS other, SUM(m) AS plain FROM t "
    "GROUP BY s",
    "SELECT p, SUM(DISTINCT x) AS sum, AVG(DISTINCT y) AS avg FROM t WHERE x < 9 AND y BETWEEN -9 AND 9 GROUP BY p",
    "SELECT SUM(DISTINCT a) AS a, SUM(DISTINCT m) AS m, AVG(DISTINCT y) AS y, COUNT(DISTINCT p) AS p FROM t "
    "WHERE a IS NULL AND m IS NULL AND y IS NULL",
    "SELECT p, COUNT(DISTINCT s) FILTER (WHERE a > 0) AS c, SUM(DISTINCT m) FILTER (WHERE q) AS sum, "
    "MIN(DISTINCT t) AS least FROM t GROUP BY p HAVING COUNT(DISTINCT s) > 2",
    "SELECT numbers[0] AS number, COUNT(DISTINCT counts['a']) AS c, SUM(DISTINCT record.n) AS n, "
    "AVG(DISTINCT decimals[0]) AS avg, MAX(record.of.x) AS x FROM t WHERE SIZE(numbers) <> 0 AND SIZE(decimals) > 0 "
    "GROUP BY numbers[0]",
    "SELECT p, SUM(DISTINCT a) AS sum FROM t WHERE a > 7 AND b > 7 OR a = b GROUP BY p",
    # set operations: the digits of decimals, rows that are equal
    "SELECT m AS v, x FROM t UNION SELECT CAST(n AS DECIMAL(20, 5)), y FROM t",
    "SELECT m AS v FROM t INTERSECT SELECT a FROM t WHERE a < 100",
    "SELECT x AS v FROM t EXCEPT SELECT y FROM t WHERE y > 0",
)
"""Queries of the edge rows, whose answers are rows in any order."""


class Columns:
    """The names in an expression: the columns of the edge rows."""

    source = SqlText("")

    def column(self, node: Any) -> Tree:
        name, *fields = [each for each in (node.args.get("db"), node.args.get("table"), node.this) if each is not None]
        tree: Tree = Column(name.name)
        for each in fields:
            tree = self.field(tree, each.name, node)
        return tree

    def field(self, tree: Tree, name: str, node: Any) -> Tree:
        return Call("part", (tree, literal(name)))

    def has_function(self, name: str) -> bool:
        return False

    def type_of(self, tree: Tree) -> Any:
        return bound(tree, INPUT).type


def tree(expression: str) -> Tree:
    """The bound tree of an expression in SQL."""
    query = only_query(f"SELECT {expression} AS v FROM t").tree
    return bound(tree_of(query.expressions[0].this, Columns()), INPUT)  # type: ignore[arg-type]


def rows_for(expression: str) -> list[int]:
    """The numbers of edge rows that have each combination of values of the columns that an expression reads once."""
    names = dict.fromkeys(column_names(tree(expression)))
    found: dict[str, int] = {}
    for number, row in enumerate(ROWS):
        found.setdefault(repr([row[name] for name in names]), number)
    return list(found.values())


def encoded(value: Any) -> Any:
    """A value or an error as JSON, which tells apart what is equal only in Python."""
    match value:
        case ExpressionError():
            return {"error": value.condition}
        case float():
            return {"double": repr(value)}
        case Decimal():
            return {"decimal": f"{value.normalize():f}" if value else "0"}
        case datetime.datetime():
            return {"timestamp": value.astimezone(datetime.UTC).isoformat()}
        case datetime.date():
            return {"date": value.isoformat()}
        case datetime.timedelta():
            return {"interval": value // datetime.timedelta(microseconds=1)}
        case list():
            return [encoded(each) for each in value]
        case _:
            return value


def python_answers(expression: str) -> list[Any]:
    """For each row of an expression Python's answer."""
    results = python_results(tree(expression), [ROWS[number] for number in rows_for(expression)])
    return [encoded(each) for each in results]


def recorded() -> dict[str, list[Any]]:
    """The answers of the file, by expression."""
    cases: dict[str, list[Any]] = json.loads(FILE.read_text())["cases"]
    return cases


def recorded_rows() -> dict[str, Any]:
    """The answers of the file, by query."""
    queries: dict[str, Any] = json.loads(FILE.read_text())["queries"]
    return queries


def spark_answers(table: SparkRows, expressions: Sequence[str]) -> dict[str, list[Any]]:
    """For each expression Spark's answers for its rows."""
    ours = {each: dict(zip(rows_for(each), python_answers(each), strict=True)) for each in expressions}
    found = values(table, {each: [k for k, one in rows.items() if not is_error(one)] for each, rows in ours.items()})
    for expression, rows in ours.items():
        for number, one in rows.items():
            if is_error(one):
                found[expression][number] = answer(table, expression, number)
    return {each: [found[each][number] for number in ours[each]] for each in expressions}


def python_rows(query: str) -> Any:
    """The rows of a query in an order of their own, or the error, on the direct runner."""
    p = tg.Pipeline()
    rows = p | tg.Create(ROWS) | tg.Map(lambda row: row).with_output_types(with_schema(dict[str, Any], SCHEMA))
    try:
        return _in_order(({"t": rows} | tg.Sql(query)).collect())
    except UserCodeError as error:
        return {"error": re.findall(r"\[([A-Z_]+)\]", str(error))[0]}


def spark_rows(table: SparkRows, query: str) -> Any:
    """The rows of a query in an order of their own, or the error, in Spark."""
    from pyspark.errors import PySparkException

    try:
        return _in_order(table.session.sql(f"WITH t AS (TABLE expression_rows) {query}").collect())
    except PySparkException as error:
        return {"error": condition_of(error)}


def _in_order(rows: Iterable[Iterable[Any]]) -> list[Any]:
    return sorted(([encoded(from_spark(each)) for each in row] for row in rows), key=repr)


def is_error(answer: Any) -> bool:
    """Whether an answer is an error."""
    return isinstance(answer, dict) and "error" in answer


def values(table: SparkRows, wanted: Mapping[str, Sequence[int]]) -> dict[str, dict[int, Any]]:
    """The answers for rows that should have no error: of one SELECT, unless it has one."""
    from pyspark.errors import PySparkException

    columns = [
        f"CASE WHEN row IN ({', '.join(map(str, numbers)) or -1}) THEN {expression} END AS v{k}"
        for k, (expression, numbers) in enumerate(wanted.items())
    ]
    try:
        rows = table.session.sql(f"SELECT row, {', '.join(columns)} FROM expression_rows").collect()
    except PySparkException:
        if len(wanted) > 1:
            return {each: values(table, {each: numbers})[each] for each, numbers in wanted.items()}
        return {each: {n: answer(table, each, n) for n in numbers} for each, numbers in wanted.items()}
    by_number = {row["row"]: row for row in rows}
    return {
        expression: {number: encoded(from_spark(by_number[number][f"v{k}"])) for number in numbers}
        for k, (expression, numbers) in enumerate(wanted.items())
    }


def answer(table: SparkRows, expression: str, number: int) -> Any:
    """Spark's answer for one row."""
    from pyspark.errors import PySparkException

    try:
        rows = table.session.sql(f"SELECT {expression} FROM expression_rows WHERE row = {number}").collect()
    except PySparkException as error:
        return {"error": condition_of(error)}
    return encoded(from_spark(rows[0][0]))


def main() -> None:
    """Record the file."""
    import pyspark
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[1]").config("spark.log.level", "OFF").getOrCreate()
    table = SparkRows(session, ROWS)
    cases = spark_answers(table, EXPRESSIONS)
    queries = {query: spark_rows(table, query) for query in QUERIES}
    session.stop()
    answers = f'"cases": {{\n{_lines(cases)}\n}}, "queries": {{\n{_lines(queries)}\n}}'
    FILE.write_text(f'{{"spark": "{pyspark.__version__}", {answers}}}\n')
    for name, given in cases.items():
        for number, ours, theirs in zip(rows_for(name), python_answers(name), given, strict=True):
            if ours != theirs:
                print(f"{name} of row {number}: Python {ours}, Spark {theirs}")
    for query, theirs in queries.items():
        if (ours := python_rows(query)) != theirs:
            print(f"{query}: Python {ours}, Spark {theirs}")


def _lines(answers: Mapping[str, Any]) -> str:
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in answers.items())


if __name__ == "__main__":
    main()
