"""`WriteToDelta`: records appended to a Delta table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from tidegate.io.delta.client import QUICK, NoTable, is_slow, need_deltalake, open_table
from tidegate.io.delta.location import Location
from tidegate.io.delta.sink import DeltaSink
from tidegate.io.delta.snapshot import columns_of
from tidegate.io.delta.table_schema import check_fits_table, check_writable, new_columns
from tidegate.io.first_contact import report_slow
from tidegate.io.formats.writing.transforms import partition_columns, schema_of_element_type
from tidegate.io.records.projection import check_zone
from tidegate.io.records.schema import RecordSchema, SchemaLike, schema_of
from tidegate.sdk.errors import BuildError, ReadError, WriteError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Write
from tidegate.sdk.steps.transform import PTransform

Path: TypeAlias = str | os.PathLike[str]

_OF: Final = "WriteToDelta"


class WriteToDelta(PTransform[PCollection[Any], None]):
    """Appends elements to a Delta table, as rows.

        visits | tg.WriteToDelta("s3://bucket/visits", Visit, partition_by="day")

    An element is a record: a `tg.Row`, a dict, a dataclass, a NamedTuple or a pydantic model. Its fields must be
    columns of the table; a column that it lacks is null. Rows appear in one transaction: that of a bounded run when the
    run has succeeded, those of a stream at each checkpoint, each exactly once.

    - `table`: the path of a local folder, or a URL of S3, Google Cloud Storage or Azure.
    - `schema`: the columns, as for `WriteToParquet`. It may be left out if the table exists, or if the class of the
      elements says it.
    - `partition_by`: the columns by which a table is partitioned that is created. An existing one has its own.
    - `mode="overwrite"` replaces the rows of the table, in the same transaction; only for bounded input.
    - `create=False` refuses to create the table.
    - `codec`, `row_group_buffer_size`, `timezone`: as for `WriteToParquet`. A data file is finished when it has about
      `max_file_bytes`.
    - `storage_options`: options of the client, such as `{"AWS_ENDPOINT_URL": …}`. Secrets are references (`"${NAME}"`)
      or `SecretStr`s. The usual environment variables of the store are read, too.

    Raises BuildError when applied, if the records don't fit the table, if the table demands something of its writers
    that this package doesn't do, or if another step of the pipeline writes to it; WriteError when running.
    """

    def __init__(
        self,
        table: Path,
        schema: SchemaLike = None,
        *,
        mode: Literal["append", "overwrite"] = "append",
        partition_by: str | Sequence[str] | None = None,
        create: bool = True,
        codec: str = "snappy",
        row_group_buffer_size: int = 1 << 26,
        max_file_bytes: int = 1 << 27,
        timezone: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        self.label = name
        need_deltalake(_OF)
        if timezone is not None:
            check_zone(timezone, _OF)
        self.given = schema_of(schema, _OF)
        self.partition_by = partition_columns(partition_by, _OF)
        self.sink = DeltaSink(
            Location.of(table, storage_options, _OF),
            None,
            self.partition_by,
            mode,
            create,
            codec,
            timezone,
            row_group_buffer_size,
            max_file_bytes,
        )

    def expand(self, input: PCollection[Any]) -> None:
        if self.sink.mode == "overwrite" and not input.is_bounded:
            raise BuildError(
                f"{_OF}: mode='overwrite' would replace what the stream has written before: append instead"
            )
        given = self.given or schema_of_element_type(input, _OF)
        columns = _columns(self.sink, given, self.partition_by)
        sink = replace(self.sink, schema=columns.schema, partition_by=columns.partition_by)
        return input | Write(sink, name="Write")


class _Columns(NamedTuple):
    schema: Any
    partition_by: tuple[str, ...]


def _columns(sink: DeltaSink, given: RecordSchema | None, partition_by: tuple[str, ...]) -> _Columns:
    """The columns to write: those of the table, or of the one that will be created. BuildError if they don't fit."""
    sink.check()
    location = sink.location
    if not location.resolves_here():
        why = "this process can't read the table, because it lacks the secrets of storage_options"
        return _new(sink, given, partition_by, why)
    try:
        table = _table(location)
        check_writable(location, table, sink.mode)
        columns = columns_of(location, table)
        schema = columns.schema
        if given is not None:
            check_fits_table(location, given, schema)
    except NoTable as error:
        if not sink.create:
            raise BuildError(f"{_OF}: {error}; create=True creates it") from error
        return _new(sink, given, partition_by, "there is no table yet")
    except (ReadError, WriteError) as error:
        raise BuildError(f"{_OF}: {error}") from error
    if partition_by and partition_by != columns.partition:
        raise BuildError(
            f"{_OF}: partition_by is {', '.join(partition_by)}, but {location.shown} is partitioned by "
            f"{', '.join(columns.partition) or 'nothing'}: leave it out for a table that exists"
        )
    return _Columns(schema, columns.partition)


def _table(location: Location) -> Any:
    """The `DeltaTable`; if the first contact shows that its store is slow, with the patience of the client."""
    try:
        return open_table(location, None, QUICK)
    except ReadError as error:
        if not is_slow(error):
            raise
        report_slow(str(error))
        return open_table(location, None, {})


def _new(sink: DeltaSink, given: RecordSchema | None, partition_by: tuple[str, ...], why: str) -> _Columns:
    if given is None:
        raise BuildError(f"{_OF}: {sink.location.shown}: {why}: give its columns with schema=")
    if vague := next((field.name for field in given.fields if field.type is None), None):
        raise BuildError(f"{_OF}: the column {vague!r} needs a type, to be written")
    return _Columns(new_columns(given, partition_by, _OF), partition_by)
