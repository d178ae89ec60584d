"""The recorded tables of TPC-H as collections."""

from __future__ import annotations

import datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as parquet

import tidegate as tg

TABLES = ("nation", "region", "part", "supplier", "partsupp", "customer", "orders", "lineitem")
_TYPES: dict[str, Any] = {"int64": int, "double": float, "date32[day]": datetime.date, "string": str}


@cache
def record_of(path: Path) -> Any:
    """The type of a table's rows."""
    fields = [(field.name, _TYPES[str(field.type)]) for field in parquet.read_schema(path)]
    return NamedTuple("Record", fields)  # type: ignore[misc]


def tables(pipeline: tg.Pipeline, folder: Path, query: str) -> dict[str, tg.PCollection[Any]]:
    """The tables that a query names."""
    found = {}
    for name in TABLES:
        path = folder / f"{name}.parquet"
        if name in query:
            found[name] = pipeline | name >> tg.ReadFromParquet(path, as_=record_of(path))
    return found
