"""The recorded tables of TPC-H as collections."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow.parquet as parquet

import tidegate as tg

TABLES = ("nation", "region", "part", "supplier", "partsupp", "customer", "orders", "lineitem")
_TYPES: dict[str, Any] = {"int64": int, "date32[day]": datetime.date, "string": str}


def _type_of(name: str) -> Any:
    digits = re.fullmatch(r"decimal128\((\d+), (\d+)\)", name)
    return Annotated[Decimal, f"decimal({digits[1]},{digits[2]})"] if digits else _TYPES[name]


@cache
def record_of(path: Path) -> Any:
    """The type of a table's rows."""
    fields = [(field.name, _type_of(str(field.type))) for field in parquet.read_schema(path)]
    return NamedTuple("Record", fields)  # type: ignore[misc]


def tables(pipeline: tg.Pipeline, folder: Path, query: str) -> dict[str, tg.PCollection[Any]]:
    """The tables that a query names."""
    found = {}
    for name in TABLES:
        path = folder / f"{name}.parquet"
        if name in query:
            found[name] = pipeline | name >> tg.ReadFromParquet(path, as_=record_of(path))
    return found
