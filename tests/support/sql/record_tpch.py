"""Records TPC-H's tables, queries and answers from DuckDB, in an environment of its own.

    python3 -m venv /tmp/duck && /tmp/duck/bin/pip install duckdb==1.5.5 duckdb_extension_tpch==1.5.5
    /tmp/duck/bin/python tests/support/sql/record_tpch.py 0.01 FOLDER
    .venv/bin/python -m pytest tests/sql/test_tpch.py --tpch FOLDER

Integers are recorded as bigints. DuckDB answers the queries over these tables: its sums and products of decimals are
exact, and recorded as strings; its quotients and means of them are doubles. Comments that no query reads are left out.
"""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

UNREAD = ("l_comment", "ps_comment", "p_comment")


def column(name: str, type: str) -> str:
    """The column as it is recorded."""
    if name in UNREAD:
        return f"'' AS {name}"
    return f"CAST({name} AS BIGINT) AS {name}" if type == "INTEGER" else name


def plain(value: Any) -> Any:
    """The value as JSON."""
    if isinstance(value, Decimal):
        return str(value)
    return value.isoformat() if hasattr(value, "isoformat") else value


def record(scale: float, folder: Path) -> None:
    """Write the tables as Parquet files, and `queries.json`."""
    import duckdb
    import duckdb_extension_tpch

    folder.mkdir(parents=True, exist_ok=True)
    db = duckdb.connect()
    extension = next(Path(duckdb_extension_tpch.__file__).parent.rglob("*.duckdb_extension"))
    db.execute(f"LOAD '{extension}'")
    db.execute(f"CALL dbgen(sf={scale})")
    for (table,) in db.execute("SHOW TABLES").fetchall():
        columns = ", ".join(column(name, type) for name, type, *_ in db.execute(f"DESCRIBE {table}").fetchall())
        db.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT {columns} FROM {table}")
        db.execute(f"COPY {table} TO '{folder}/{table}.parquet' (FORMAT parquet, COMPRESSION zstd)")
    queries = dict(db.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    answers = {
        number: [list(map(plain, row)) for row in db.execute(query).fetchall()] for number, query in queries.items()
    }
    (folder / "queries.json").write_text(json.dumps({"queries": queries, "answers": answers}, indent=1))


if __name__ == "__main__":
    record(float(sys.argv[1]), Path(sys.argv[2]))
