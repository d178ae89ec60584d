"""Answers to Nexmark's queries: rows in one form for both systems, DuckDB's texts, and the digests that are recorded.

python3 -m venv /tmp/duck && /tmp/duck/bin/pip install duckdb==1.5.5
.venv/bin/python -m tests.support.sql.nexmark_answers /tmp/duck/bin/python tests/sql/nexmark.json
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.nexmark.events import CYCLE, PLACES, Events
from benchmarks.nexmark.model import Auction, Bid, Person
from benchmarks.nexmark.queries import QUERIES
from tests.support.sql import duckdb_answers

EVENTS = Events(gap=20_000, disorder=500_000)
COUNT = 2_000

_TEN = "time_bucket(INTERVAL '10 seconds', {})"
_DIFFERENT = {
    5: """
        WITH counts AS (
            SELECT auction, COUNT(*) AS num, time_bucket(INTERVAL '2 seconds', dateTime) - k * INTERVAL '2 seconds' AS s
            FROM bid, range(5) AS r(k) GROUP BY 1, 3)
        SELECT auction, num FROM (SELECT *, MAX(num) OVER (PARTITION BY s) AS most FROM counts) WHERE num = most""",
    7: f"""
        SELECT auction, price, bidder, dateTime, extra
        FROM (SELECT *, MAX(price) OVER (PARTITION BY {_TEN.format("dateTime")}) AS most FROM bid)
        WHERE price = most""",
    8: f"""
        SELECT DISTINCT p.id, p.name, {_TEN.format("p.dateTime")}
        FROM person p JOIN auction a
        ON p.id = a.seller AND {_TEN.format("p.dateTime")} = {_TEN.format("a.dateTime")}""",
    11: """
        WITH begun AS (
            SELECT *, dateTime - LAG(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) < INTERVAL '10 seconds' AS o
            FROM bid),
        numbered AS (
            SELECT *, SUM(CASE WHEN o THEN 0 ELSE 1 END) OVER (PARTITION BY bidder ORDER BY dateTime) AS n FROM begun)
        SELECT bidder, COUNT(*), MIN(dateTime), MAX(dateTime) + INTERVAL '10 seconds'
        FROM numbered GROUP BY bidder, n""",
}
_WORDS = {
    "DATE_FORMAT(dateTime, 'yyyy-MM-dd')": "strftime(dateTime, '%Y-%m-%d')",
    "DATE_FORMAT(dateTime, 'HH:mm')": "strftime(dateTime, '%H:%M')",
    "count_char(extra, 'c')": "length(extra) - length(replace(extra, 'c', ''))",
    "0.908 * price": "0.908::DOUBLE * price",
    "ORDER BY price DESC)": "ORDER BY price DESC, bidder, channel, url, dateTime, extra)",
}
_TYPES = {"int": "BIGINT", "str": "VARCHAR", "datetime": "TIMESTAMP"}


def duckdb_text(number: int) -> str:
    """A query in DuckDB's SQL."""
    text = _DIFFERENT.get(number, QUERIES[number].sql)
    for ours, theirs in _WORDS.items():
        text = text.replace(ours, theirs)
    return text


def plain(value: Any) -> Any:
    """A value as both systems have it: instants as text, doubles and decimals with twelve digits."""
    match value:
        case float() | Decimal():
            return f"{float(value):.12g}"
        case datetime():
            return str(value.astimezone(UTC).replace(tzinfo=None))
    return value


def plain_row(row: Iterable[Any]) -> tuple[Any, ...]:
    """A row whose values are those of `plain`."""
    return tuple(map(plain, row))


def from_duckdb(python: str, events: Events, count: int, numbers: Sequence[int]) -> dict[int, list[tuple[Any, ...]]]:
    """The rows of queries over the first events, sorted. `python` has DuckDB."""
    kinds = {"person": Person, "auction": Auction, "bid": Bid}
    schema = ";".join(
        f"CREATE TABLE {name} ({', '.join(f'{each.name} {_TYPES[str(each.type)]}' for each in fields(kind))})"
        for name, kind in kinds.items()
    )
    rows = {
        name: [plain_row(astuple(events.at(n))) for n in range(count) if n % CYCLE in PLACES[kind]]
        for name, kind in kinds.items()
    }
    asked = {"schema": schema, "rows": rows, "queries": [duckdb_text(number) for number in numbers]}
    script = str(Path(duckdb_answers.__file__))
    done = subprocess.run([python, script], input=json.dumps(asked), capture_output=True, text=True, check=True)
    return {number: sorted(map(plain_row, found)) for number, found in zip(numbers, json.loads(done.stdout))}


def digest(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The number of rows and a digest of them, in any order."""
    lines = sorted(json.dumps(row) for row in rows)
    return [len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()[:24]]


def main() -> None:
    """Record the digests of DuckDB's answers."""
    python, path = sys.argv[1:]
    found = from_duckdb(python, EVENTS, COUNT, list(QUERIES))
    Path(path).write_text(json.dumps({n: digest(rows) for n, rows in found.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
