"""The keyword arguments that the readers of all formats have in common, and what they mean for a source of files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias, TypedDict, cast

from tidegate.io.compression import Compression
from tidegate.io.file_source.following import Follow
from tidegate.io.file_source.format import FileFormat
from tidegate.io.file_source.source import MIN_SPLIT_SIZE, FileSource
from tidegate.io.records.problems import BadRecords
from tidegate.io.records.projection import SchemaEvolution, selection_of
from tidegate.io.records.schema import SchemaLike
from tidegate.io.storage_options import StorageOptions, options_of
from tidegate.sdk.primitives import ReadOptions
from tidegate.sdk.time import DurationLike
from tidegate.transforms.rows.row import Row

Where: TypeAlias = Iterable[Sequence[Any]]


class RecordOptions(TypedDict, total=False):
    """How records are made of files; `ReadFromParquet` explains the arguments."""

    columns: Iterable[str] | None
    where: Where | None
    as_: Any
    schema: SchemaLike
    schema_evolution: SchemaEvolution
    timezone: str | None
    bad_records: BadRecords
    allow_empty: bool
    storage_options: StorageOptions | None


class FileOptions(RecordOptions, ReadOptions, total=False):
    """How the files of a pattern are read, and which times their records get."""

    min_split_size: int
    follow: bool
    poll_interval: DurationLike
    min_age: DurationLike | None


DEFAULTS: Final[FileOptions] = {
    "columns": None,
    "where": None,
    "as_": Row,
    "schema": None,
    "schema_evolution": "refuse",
    "timezone": None,
    "bad_records": "fail",
    "allow_empty": False,
    "storage_options": None,
    "min_split_size": MIN_SPLIT_SIZE,
    "follow": False,
    "poll_interval": 1.0,
    "min_age": None,
}
"""The defaults of the arguments that `tg.Read` doesn't have."""


def source_of(
    of: str, paths: tuple[str, ...], format: FileFormat, compression: Compression, options: FileOptions
) -> FileSource:
    """The source that reads these files, as the arguments of the transform `of` say. Raises BuildError for arguments
    that are wrong, or don't fit together."""
    given: FileOptions = {**DEFAULTS, **options}
    return FileSource(
        paths,
        format,
        selection_of(
            of,
            as_=given["as_"],
            schema=given["schema"],
            columns=given["columns"],
            where=given["where"],
            timezone=given["timezone"],
            schema_evolution=given["schema_evolution"],
            bad_records=given["bad_records"],
        ),
        of,
        compression,
        given["allow_empty"],
        given["min_split_size"],
        Follow.of(given["poll_interval"], given["min_age"], of) if given["follow"] else None,
        options_of(given["storage_options"], paths, of),
    )


def read_options(options: FileOptions) -> ReadOptions:
    """The arguments that `tg.Read` takes."""
    return cast(ReadOptions, {name: value for name, value in options.items() if name in ReadOptions.__annotations__})
