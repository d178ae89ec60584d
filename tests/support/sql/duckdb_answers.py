"""Answers queries with DuckDB, in an environment of its own: reads JSON from stdin, and writes JSON to stdout."""

from __future__ import annotations

import json
import sys


def main() -> None:
    """Answer `queries` over tables that `schema` creates and that have `rows`."""
    import duckdb

    given = json.load(sys.stdin)
    db = duckdb.connect()
    db.execute(given["schema"])
    for table, rows in given["rows"].items():
        if rows:
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    json.dump([db.execute(query).fetchall() for query in given["queries"]], sys.stdout, default=str)


if __name__ == "__main__":
    main()
