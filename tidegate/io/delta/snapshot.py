"""A table at one version: its columns, and its data files with their statistics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.io.delta.client import check_readable, client_errors
from tidegate.io.delta.location import Location
from tidegate.io.delta.log import DataFile, path_below
from tidegate.sdk.errors import ReadError


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table: as the log describes them, in JSON, and which of them name partitions."""

    json: str
    partition: tuple[str, ...]

    @property
    def schema(self) -> Any:
        """The columns as a `pyarrow.Schema`."""
        import deltalake
        import pyarrow as pa

        return pa.schema(deltalake.Schema.from_json(self.json).to_arrow())

    @staticmethod
    def of_metadata(metadata: Mapping[str, Any]) -> TableColumns:
        """The columns that a `metaData` action of the log sets."""
        return TableColumns(metadata["schemaString"], tuple(metadata.get("partitionColumns") or ()))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of a table. `id` is the same for all versions of it; `files` begin with the oldest."""

    id: str
    version: int
    columns: TableColumns
    files: tuple[DataFile, ...]


def columns_of(location: Location, table: Any) -> TableColumns:
    """The columns of a `DeltaTable`."""
    with client_errors(location, "can't be read"):
        return TableColumns(table.schema().to_json(), tuple(table.metadata().partition_columns))


def snapshot_of(location: Location, table: Any) -> Snapshot:
    """The version that a `DeltaTable` has loaded. ReadError for a table that can't be read."""
    import pyarrow as pa

    check_readable(location, table)
    with client_errors(location, "can't be read"):
        id, version = str(table.metadata().id), table.version()
        actions = pa.table(table.get_add_actions()).to_pylist()
        vectors = _deletion_vectors(location, table, {action["path"] for action in actions})
    found = [
        DataFile(
            path_below(location, action["path"]),
            action["size_bytes"],
            action["modification_time"] or 0,
            action.get("partition") or {},
            action.get("num_records"),
            action.get("min") or {},
            action.get("max") or {},
            action.get("null_count") or {},
            vectors.get(action["path"]),
        )
        for action in actions
    ]
    found.sort(key=lambda file: (file.modified, file.path))
    return Snapshot(id, version, columns_of(location, table), tuple(found))


def _deletion_vectors(location: Location, table: Any, paths: Collection[str]) -> dict[str, tuple[int, bytes]]:
    """The deletion vectors by the paths of their files in the log: the number of rows that a vector covers, and a
    compressed bit for each of these rows, which is set if the row exists. All later rows exist."""
    import zlib

    import pyarrow as pa

    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    folder = table.table_uri.rstrip("/") + "/"
    if "://" not in folder:
        folder = f"file://{folder}"
    found: dict[str, tuple[int, bytes]] = {}
    for batch in map(pa.record_batch, table.deletion_vectors()):
        for url, kept in zip(batch.column("filepath").to_pylist(), batch.column("selection_vector")):
            path = url.removeprefix(folder)
            if path not in paths:
                raise ReadError(f"{location.shown}: a deletion vector belongs to {url}, which is no file of the table")
            bits = pa.concat_arrays([kept.values])  # a copy, which begins with the first bit
            found[path] = len(bits), zlib.compress(bits.buffers()[1].to_pybytes(), 1)
    return found
