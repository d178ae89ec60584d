"""The transaction log of a table: what one version has added, removed and altered, and which files a version has.

A version is a file of JSON lines, `_delta_log/<version>.json`, each with one action; see "Delta Transaction Log
Protocol". The client library reads whole tables; a single version, which it has no function for, is read here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

from tidegate.io import files
from tidegate.io.delta.client import client_errors
from tidegate.io.delta.location import Location
from tidegate.io.delta.store import store_of
from tidegate.io.records.types import kind_of
from tidegate.sdk.errors import ReadError


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a table: its path below the table, its size in bytes, when it was written (ms since 1970), the
    values of its partition's columns, and statistics: its number of rows, and by column the least and the greatest
    value and the number of nulls, as far as they are known. `deletion_vector` says which of its rows exist, if not all
    do: a bit for each row, compressed; see `snapshot.py`."""

    path: str
    size: int
    modified: int
    partition: Mapping[str, Any]
    rows: int | None
    least: Mapping[str, Any]
    greatest: Mapping[str, Any]
    nulls: Mapping[str, Any]
    deletion_vector: tuple[int, bytes] | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """What a version has changed. `added` are the add actions with new data, `rewrites` whether it removes data, and
    `metadata` and `protocol` are those of the table, if the version sets them."""

    number: int
    operation: str
    timestamp: int | None
    added: tuple[Mapping[str, Any], ...]
    rewrites: bool
    metadata: Mapping[str, Any] | None
    protocol: Mapping[str, Any] | None


class Log:
    """The log of a table."""

    def __init__(self, location: Location) -> None:
        self._location = location
        with client_errors(location, "can't be read"):
            self._store, root = store_of(location)
        self._folder = files.join(root, "_delta_log")

    def exists(self, number: int) -> bool:
        """Whether there is a file of a version."""
        with client_errors(self._location, "can't be read"):
            return self._store.find(files.join(self._folder, f"{number:020}.json")) is not None

    def version(self, number: int) -> Version | None:
        """What a version has changed; None if there is no file of it, or not any more."""
        data = self._contents(f"{number:020}.json")
        return None if data is None else self._parsed(number, data)

    def checkpointed(self) -> int:
        """The version of the last checkpoint; -1 if there is none. Files of versions after it still exist."""
        data = self._contents("_last_checkpoint")
        try:
            return -1 if data is None else int(json.loads(data)["version"])
        except (ValueError, KeyError, TypeError):
            return -1

    def _contents(self, name: str) -> bytes | None:
        path = files.join(self._folder, name)
        with client_errors(self._location, f"_delta_log/{name} can't be read"):
            try:
                with self._store.open(path) as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def _parsed(self, number: int, data: bytes) -> Version:
        added: list[Mapping[str, Any]] = []
        rewrites = False
        operation, timestamp = "a change", None
        metadata = protocol = None
        try:
            for line in data.splitlines():
                if not line.strip():
                    continue
                for kind, action in json.loads(line).items():
                    match kind:
                        case "add" if action.get("dataChange", True):
                            added.append(action)
                        case "remove":
                            rewrites |= bool(action.get("dataChange", True))
                        case "metaData":
                            metadata = action
                        case "protocol":
                            protocol = action
                        case "commitInfo":
                            operation, timestamp = str(action.get("operation", operation)), action.get("timestamp")
        except (ValueError, AttributeError) as error:
            raise ReadError(f"{self._location.shown}: _delta_log/{number:020}.json is broken: {error}") from error
        return Version(number, operation, timestamp, tuple(added), rewrites, metadata, protocol)


def file_of_action(location: Location, action: Mapping[str, Any], schema: Any) -> DataFile:
    """The data file of an add action."""
    if action.get("deletionVector") is not None:
        raise ReadError(
            f"{location.shown}: a followed version adds a data file with a deletion vector (the reader feature "
            "deletionVectors), which ReadFromDelta only reads at a version: start a new run"
        )
    types = {field.name: field.type for field in schema}
    statistics: dict[str, Any] = {}
    if action.get("stats"):
        try:
            statistics = json.loads(action["stats"], parse_float=Decimal)
        except ValueError:
            pass  # they only help to skip the file
    texts: Mapping[str, str | None] = action.get("partitionValues") or {}
    return DataFile(
        path_below(location, action["path"]),
        action["size"],
        action.get("modificationTime") or 0,
        {name: partition_value(location, text, name, types[name]) for name, text in texts.items() if name in types},
        statistics.get("numRecords"),
        _typed(statistics.get("minValues"), types),
        _typed(statistics.get("maxValues"), types),
        statistics.get("nullCount") or {},
    )


def partition_value(location: Location, text: str | None, name: str, type: Any) -> Any:
    """The value of a partition's column, which the log has as text. ReadError for a text that is no such value."""
    import pyarrow as pa

    if text is None or text == "":
        return None
    try:
        return _parsed_value(text, type)
    except (pa.ArrowException, ValueError) as error:
        raise ReadError(f"{location.shown}: the partition {name}={text!r} is no {type}: {error}") from error


def _parsed_value(text: str, type: Any) -> Any:
    import pyarrow as pa

    kind = kind_of(type)
    if kind == "string":
        return text
    if kind == "binary":
        return text.encode("latin-1")  # written as a text whose characters are the bytes
    if kind == "timestamp":
        zoned = text.endswith("Z") or "+" in text
        at = pa.array([text]).cast(pa.timestamp("us", "UTC") if zoned else pa.timestamp("us"))
        return at.cast(type)[0].as_py()
    return pa.array([text]).cast(type)[0].as_py()


def _typed(values: Any, types: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics of columns as values of their types; those that are none are left out."""
    import pyarrow as pa

    found: dict[str, Any] = {}
    for name, value in (values or {}).items():
        type = types.get(name)
        try:
            match None if type is None else kind_of(type):
                case "integer" if isinstance(value, int):
                    found[name] = value
                case "float" if isinstance(value, int | Decimal):
                    found[name] = float(value)
                case "decimal" if isinstance(value, int | Decimal):
                    found[name] = Decimal(value)
                case "boolean" if isinstance(value, bool):
                    found[name] = value
                case "string" if isinstance(value, str):
                    found[name] = value
                case "date" | "timestamp" if isinstance(value, str):
                    found[name] = _parsed_value(value, type)
        except (pa.ArrowException, ValueError):
            continue
    return found


def path_below(location: Location, path: str) -> str:
    decoded = unquote(path)
    if "://" in path or decoded.startswith("/"):
        raise ReadError(
            f"{location.shown}: the data file {decoded} lies outside the table's folder, as those of a shallow clone "
            "do, which ReadFromDelta doesn't read: read the table that it was cloned from"
        )
    return decoded
