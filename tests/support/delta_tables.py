"""Delta tables for tests: made by the client library, as other writers would make them, and read back by it."""

from __future__ import annotations

import json
import struct
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
    found: list[dict[str, Any]] = DeltaTable(str(table), **options).to_pyarrow_table().to_pylist()
    return found


def commit_by_hand(table: Path, number: int, *actions: Mapping[str, Any]) -> None:
    """Write a version of the log, as a writer does that knows more than the library."""
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (table / "_delta_log" / f"{number:020}.json").write_text(text)


def actions_of(table: Path, number: int) -> list[dict[str, Any]]:
    """The actions of a version of the log."""
    return [json.loads(line) for line in (table / "_delta_log" / f"{number:020}.json").read_text().splitlines()]


def delete_by_vector(table: Path, number: int, rows: Sequence[int]) -> None:
    """Add a version that deletes some rows of the table's only data file by a deletion vector in the log."""
    (file,) = [action["add"] for action in actions_of(table, 0) if "add" in action]
    features = ["deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    data = _roaring(rows)
    vector = {"storageType": "i", "pathOrInlineDv": _z85(data), "sizeInBytes": len(data), "cardinality": len(rows)}
    commit_by_hand(
        table,
        number,
        {"protocol": protocol},
        {"remove": {"path": file["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**file, "deletionVector": vector}},
    )


def _roaring(rows: Sequence[int]) -> bytes:
    """A RoaringBitmapArray in its portable form, of rows below 65,536."""
    header = struct.pack("<iQI", 1681511377, 1, 0)
    container = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16)
    data = header + container + struct.pack(f"<{len(rows)}H", *rows)
    return data + b"\0" * (-len(data) % 4)


def _z85(data: bytes) -> str:
    characters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    return "".join(
        characters[word // 85**place % 85] for (word,) in struct.iter_unpack(">I", data) for place in (4, 3, 2, 1, 0)
    )
