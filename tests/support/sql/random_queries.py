"""Random queries over two small tables, in the SQL that DuckDB and Tidegate have in common."""

from __future__ import annotations

import random

ROWS_A = [(k, v, s) for k, v, s in zip([1, 1, 2, 3, 3, 3, 5, 7], [4, None, 0, -2, 9, 4, None, 1], "xyxzxyzx")]
ROWS_B = [(k, w) for k, w in zip([1, 2, 2, 3, 4, 7, 7], [None, 3, 4, 4, 0, 1, None])]
SCHEMA = "CREATE TABLE a (k BIGINT, v BIGINT, s VARCHAR); CREATE TABLE b (k BIGINT, w BIGINT);"


class Grammar:
    """Draws queries; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def query(self) -> str:
        """A query whose columns are `c1`, `c2`, …"""
        kind = self.random.random()
        if kind < 0.15:
            operation = self.pick("UNION", "UNION ALL", "INTERSECT", "EXCEPT")
            return f"{self.select(2)} {operation} {self.select(2)}"
        if kind < 0.3:
            inner = self.select(2)
            where = self.pick("", " WHERE c1 > 1", " WHERE c2 IS NOT NULL")
            return f"WITH t AS ({inner}) SELECT c1, COUNT(*) AS c2, MAX(c2) AS c3 FROM t{where} GROUP BY c1"
        if kind < 0.4:
            return self.ranked()
        return self.select(self.random.randint(1, 3))

    def ranked(self) -> str:
        """The first rows of each partition. Its order leaves no ties, which DuckDB would break in its own way."""
        by = self.pick("k", "s", "v % 2", "k, s")
        order = f"{self.pick('v', 'v DESC', 'v + k')} NULLS {self.pick('FIRST', 'LAST')}"
        number = f"ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY {order}, k, s) AS n"
        kept = self.pick("n = 1", "n <= 2", "n BETWEEN 2 AND 3", "n > 1 AND k > 1")
        return f"SELECT k AS c1, v AS c2, n AS c3 FROM (SELECT k, v, {number} FROM a) AS r WHERE {kept}"

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def select(self, columns: int) -> str:
        numbers, joined = self.tables()
        where = f" WHERE {self.condition(numbers)}" if self.random.random() < 0.7 else ""
        if self.random.random() < 0.4:
            key = self.number(numbers, 1)
            shown = [f"{key} AS c1", *(f"{self.aggregate(numbers)} AS c{at}" for at in range(2, columns + 1))]
            having = f" HAVING {self.aggregate(numbers)} > 1" if self.random.random() < 0.3 else ""
            return f"SELECT {', '.join(shown)} FROM {joined}{where} GROUP BY {key}{having}"
        shown = [f"{self.number(numbers)} AS c{at}" for at in range(1, columns + 1)]
        distinct = self.pick("", "", "DISTINCT ")
        return f"SELECT {distinct}{', '.join(shown)} FROM {joined}{where}"

    def tables(self) -> tuple[list[str], str]:
        """Columns that are numbers, and FROM."""
        kind = self.pick("", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", ",")
        if not kind:
            return ["a.k", "a.v"], "a"
        numbers = ["a.k", "a.v", "b.k", "b.w"]
        if kind == ",":
            return numbers, "a, b"
        more = self.pick("", " AND a.v < b.w", " AND b.w > 1", " AND a.v IS NOT NULL")
        joined = f"a {kind} b ON a.k = b.k{more}"
        if self.random.random() < 0.6:
            return numbers, joined
        third = self.pick("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
        on = self.pick("a.k = d.k", "b.k = d.k", "b.w = d.v", "a.v = d.v AND d.k > 1")
        return [*numbers, "d.k", "d.v"], f"{joined} {third} a AS d ON {on}"

    def number(self, columns: list[str], depth: int = 0) -> str:
        if depth > 1 or self.random.random() < 0.5:
            return self.pick(*columns)
        one, two = self.number(columns, depth + 1), self.number(columns, depth + 1)
        return self.pick(
            f"({one} + {two})",
            f"({one} * 2 - {two})",
            f"COALESCE({one}, {two}, 0)",
            f"CASE WHEN {self.condition(columns, depth + 1)} THEN {one} ELSE {two} END",
            f"NULLIF({one}, 4)",
            f"GREATEST({one}, {two})",
            f"ABS({one})",
        )

    def aggregate(self, columns: list[str]) -> str:
        value = self.pick(*columns)
        found = self.pick(
            "COUNT(*)",
            f"COUNT({value})",
            f"SUM({value})",
            f"MIN({value})",
            f"MAX({value})",
            f"COUNT(DISTINCT {value})",
            f"SUM(DISTINCT {value})",
            f"AVG({value})",
        )
        return f"{found} FILTER (WHERE {self.condition(columns, 1)})" if self.random.random() < 0.2 else found

    def condition(self, columns: list[str], depth: int = 0) -> str:
        value = self.pick(*columns)
        simple = [
            f"{value} {self.pick('=', '<>', '<', '>=')} {self.random.randint(-1, 4)}",
            f"{value} IS {self.pick('', 'NOT ')}NULL",
            f"{value} {self.pick('', 'NOT ')}BETWEEN 1 AND 4",
            f"{value} {self.pick('', 'NOT ')}IN (1, 4, 9)",
            f"a.s {self.pick('', 'NOT ')}LIKE '{self.pick('x%', '%y', '_')}'",
            f"{value} IS {self.pick('', 'NOT ')}DISTINCT FROM {self.pick(*columns)}",
        ]
        if depth:
            return self.pick(*simple)
        one, two = self.condition(columns, 1), self.condition(columns, 1)
        inner = self.pick("a", "b")
        column = "v" if inner == "a" else "w"
        return self.pick(
            *simple,
            f"({one} OR {two})",
            f"NOT ({one} AND {two})",
            f"{one} AND {two}",
            f"{value} {self.pick('', 'NOT ')}IN (SELECT {column} FROM {inner} WHERE k > {self.random.randint(0, 9)})",
            f"{self.pick('', 'NOT ')}EXISTS (SELECT * FROM {inner} AS i WHERE i.k = {value} AND i.{column} > 1)",
            f"{value} >= (SELECT MIN({column}) FROM {inner})",
            f"{value} < (SELECT {self.pick('MAX', 'SUM', 'COUNT')}({column}) FROM {inner} AS i WHERE i.k = a.k)",
        )
