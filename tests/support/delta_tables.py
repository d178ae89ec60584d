"""Delta tables for tests: made by the client library, as other writers would make them, and read back by it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from tests.support.record_files import visits

VISITS = pa.schema(
    [
        ("id", pa.int64()),
        ("url", pa.string()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("user", pa.string()),
    ]
)


def append(table: Path | str, records: Sequence[Mapping[str, Any]], schema: Any = None, **options: Any) -> None:
    """Append records to a table, in one version; create the table if there is none."""
    data = pa.Table.from_pylist(list(records), schema)
    write_deltalake(str(table), data, mode="append", **options)


def table_of_visits(folder: Path, versions: int = 3, rows: int = 20, **options: Any) -> Path:
    """A table of visits, so many of which each version adds."""
    for version in range(versions):
        append(folder / "visits", visits(rows, version * rows), VISITS, **options)
    return folder / "visits"


def rows_of(table: Path | str, **options: Any) -> list[dict[str, Any]]:
    """The rows of the latest version, in no particular order."""
    found: list[dict[str, Any]] = pa.table(DeltaTable(str(table), **options).scan()).to_pylist()
    return found


def commit_by_hand(table: Path, number: int, *actions: Mapping[str, Any]) -> None:
    """Write a version of the log, as a writer does that knows more than the library."""
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (table / "_delta_log" / f"{number:020}.json").write_text(text)


def actions_of(table: Path, number: int) -> list[dict[str, Any]]:
    """The actions of a version of the log."""
    return [json.loads(line) for line in (table / "_delta_log" / f"{number:020}.json").read_text().splitlines()]
