"""A table at one version: its columns, and its data files with their statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.io.delta.client import check_readable, client_errors
from tidegate.io.delta.location import Location
from tidegate.io.delta.log import DataFile, deletion_vectors_refused, path_below


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
        if "deletionVectors" in (table.protocol().reader_features or ()):
            if any(batch.num_rows for batch in table.deletion_vectors()):
                raise deletion_vectors_refused(location)
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
        )
        for action in actions
    ]
    found.sort(key=lambda file: (file.modified, file.path))
    return Snapshot(id, version, columns_of(location, table), tuple(found))
