"""The columns that a sink writes: those of the table, if there is one, into which the author's must fit.

What a table demands of its writers beyond that (constraints, generated columns, identities, …) is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidegate.io.delta.client import client_errors, words_of
from tidegate.io.delta.location import Location
from tidegate.io.delta.snapshot import columns_of
from tidegate.io.delta.statistics import check_partition_type
from tidegate.io.records.schema import RecordSchema, to_arrow
from tidegate.io.records.types import kind_of
from tidegate.sdk.errors import BuildError, WriteError

_HARMLESS: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",  # rows that are appended need no file of changes
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "generatedColumns",
        "identityColumns",
        "inCommitTimestamp",
        "invariants",
        "rowTracking",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
"""Writer features that demand nothing of an appending writer, unless `_demands` finds that the table uses them."""

_OF_FIELDS: Final = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}
_OF_PROPERTIES: Final = {
    "delta.enableRowTracking": "rowTracking",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
}


def check_writable(location: Location, table: Any, mode: str) -> None:
    """Raise WriteError, naming them, for features that a table uses and that this package doesn't write."""
    with client_errors(location, "can't be written", WriteError):
        protocol, metadata = table.protocol(), table.metadata()
        fields = json.loads(table.schema().to_json())["fields"]
    properties = dict(metadata.configuration)
    demanded = _demands(fields, properties)
    demanded |= set(protocol.writer_features or ()) - _HARMLESS
    if protocol.min_writer_version > 7:
        demanded.add(f"writer version {protocol.min_writer_version}")
    if demanded:
        raise WriteError(
            f"{location.shown}: the table uses {', '.join(sorted(demanded))}, which WriteToDelta can't write"
        )
    if mode == "overwrite" and properties.get("delta.appendOnly") == "true":
        raise WriteError(f"{location.shown}: the table has delta.appendOnly=true, so it can't be overwritten")


def _demands(fields: Sequence[Mapping[str, Any]], properties: Mapping[str, str]) -> set[str]:
    found = {feature for key, feature in _OF_PROPERTIES.items() if properties.get(key) == "true"}
    found |= {feature for field in fields for key, feature in _OF_FIELDS.items() if key in field.get("metadata", {})}
    if any(key.startswith("delta.constraints.") for key in properties):
        found.add("checkConstraints")
    if properties.get("delta.columnMapping.mode", "none") != "none":
        found.add("columnMapping")
    return found


def new_columns(schema: RecordSchema, partition_by: Sequence[str], of: str) -> Any:
    """The `pyarrow.Schema` of a table that is created with these columns. BuildError for types that Delta lacks."""
    import deltalake
    import pyarrow as pa

    fields = []
    for field in to_arrow(schema):
        try:
            plain = pa.schema([field.with_type(_microseconds(field.type))])
            fields += list(pa.schema(deltalake.Schema.from_arrow(plain).to_arrow()))
        except Exception as error:  # the library has no class of its own for it
            reason = words_of(error).partition(": 0:")[0]
            raise BuildError(
                f"{of}: column {field.name!r} is {field.type}, which Delta tables don't have: {reason}"
            ) from (error)
    found = pa.schema(fields)
    check_partitions(found, partition_by, of)
    return found


def _microseconds(type: Any) -> Any:
    """The type with instants in UTC and times in microseconds, as Delta has them."""
    import pyarrow as pa

    if pa.types.is_timestamp(type):
        return pa.timestamp("us", None if type.tz is None else "UTC")
    return type


def check_partitions(schema: Any, partition_by: Sequence[str], of: str) -> None:
    """Raise BuildError for columns by which a table can't be partitioned."""
    for name in partition_by:
        if name not in schema.names:
            raise BuildError(f"{of}: partition_by names {name!r}, which is no column: {', '.join(schema.names)}")
        check_partition_type(name, schema.field(name).type, of)
    if len(partition_by) == len(schema.names):
        raise BuildError(f"{of}: partition_by names all columns, so that the files would have none")


def check_fits_table(location: Location, given: RecordSchema, table: Any) -> None:
    """Raise WriteError if records with the columns `given` don't fit a table with the `pyarrow.Schema` `table`."""
    for field in given.fields:
        if field.name not in table.names:
            raise WriteError(
                f"{location.shown} has no column {field.name!r}, but {', '.join(table.names)}: add the column to the "
                "table, or leave it out of the records"
            )
        wanted = table.field(field.name).type
        if field.type is not None and not _fits(field.type, wanted):
            raise WriteError(f"{location.shown}: column {field.name!r} is {wanted} in the table, and {field.type} here")
    for field in table:
        if not field.nullable and field.name not in given.names:
            raise WriteError(f"{location.shown}: column {field.name!r} may not be null, and the records lack it")


def _fits(type: Any, wanted: Any) -> bool:
    kinds = kind_of(type), kind_of(wanted)
    return kinds[0] == kinds[1] or kinds[0] == "null" or kinds in (("integer", "float"), ("integer", "decimal"))


def check_unchanged(location: Location, table: Any, schema: Any, partition_by: Sequence[str]) -> None:
    """Raise WriteError if data files with these columns don't fit a `DeltaTable` as it is now: it was altered since
    the pipeline was built. Columns that were added, and may be null, do no harm."""
    import pyarrow as pa

    columns = columns_of(location, table)
    now = pa.schema(columns.schema)
    where = f"{location.shown} was altered while the pipeline ran: "
    if columns.partition != tuple(partition_by):
        raise WriteError(
            f"{where}it is partitioned by {_list(columns.partition)} now, and was by {_list(partition_by)}. {_AGAIN}"
        )
    for field in schema:
        if field.name not in now.names:
            raise WriteError(f"{where}it has no column {field.name!r} any more. {_AGAIN}")
        found = now.field(field.name)
        if not found.type.equals(field.type):
            raise WriteError(f"{where}column {field.name!r} is {found.type} now, and was {field.type}. {_AGAIN}")
        if field.nullable and not found.nullable:
            raise WriteError(f"{where}column {field.name!r} may not be null any more. {_AGAIN}")
    lacking = next((field.name for field in now if not field.nullable and field.name not in schema.names), None)
    if lacking is not None:
        raise WriteError(f"{where}it has a column {lacking!r} that may not be null. {_AGAIN}")


def _list(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"


_AGAIN: Final = "Build the pipeline again to write the table as it is now"
