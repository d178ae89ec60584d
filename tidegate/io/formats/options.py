"""The keyword arguments that the readers of formats have in common, and what they mean for a source of files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias, TypedDict

from tidegate.io.compression import Compression
from tidegate.io.file_source.following import FollowOptions, follow_of
from tidegate.io.file_source.format import FileFormat
from tidegate.io.file_source.source import MIN_SPLIT_SIZE, FileSource
from tidegate.io.formats.csv import DEFAULT_NULLS, CsvFormat
from tidegate.io.formats.json_lines import JsonFormat
from tidegate.io.records.problems import BadRecords
from tidegate.io.records.projection import SchemaEvolution, Selection, selection_of
from tidegate.io.records.schema import SchemaLike
from tidegate.io.storage_options import StorageOptions, options_of
from tidegate.sdk.data.row import Row
from tidegate.sdk.primitives import ReadOptions
from tidegate.sdk.primitives.io import DEFAULTS as DEFAULTS_OF_READ

Where: TypeAlias = Iterable[Sequence[Any]]


class RecordOptions(TypedDict, total=False):
    """How records are made of files or tables; `ReadFromParquet` explains the arguments."""

    columns: Iterable[str] | None
    where: Where | None
    as_: Any
    schema: SchemaLike
    schema_evolution: SchemaEvolution
    timezone: str | None
    bad_records: BadRecords
    storage_options: StorageOptions | None


class SourceOptions(RecordOptions, ReadOptions, total=False):
    """How the records of a source are read, and which times they get."""

    min_split_size: int


class FileOptions(SourceOptions, FollowOptions, total=False):
    """How the files of a pattern are read."""

    allow_empty: bool


class ReadAllOptions(RecordOptions, total=False):
    """How the files that elements name are read."""

    allow_empty: bool


class LineOptions(TypedDict, total=False):
    """How the text of a file is divided into records; `ReadFromJson` explains the arguments."""

    compression: Compression
    encoding: str
    max_record_bytes: int


class CsvOptions(LineOptions, total=False):
    """How the records of CSV are divided into values; `ReadFromCsv` explains the arguments."""

    delimiter: str
    quote_char: str | None
    escape_char: str | None
    column_names: Iterable[str] | None
    null_values: Iterable[str]
    strings_can_be_null: bool


class ReadCsvOptions(CsvOptions, FileOptions, total=False):
    """The arguments of `ReadFromCsv`."""


class ReadAllCsvOptions(CsvOptions, ReadAllOptions, total=False):
    """The arguments of `ReadAllFromCsv`."""


class ReadJsonOptions(LineOptions, FileOptions, total=False):
    """The arguments of `ReadFromJson`."""


class ReadAllJsonOptions(LineOptions, ReadAllOptions, total=False):
    """The arguments of `ReadAllFromJson`."""


DEFAULTS: Final[ReadCsvOptions] = {
    "delimiter": ",",
    "quote_char": '"',
    "escape_char": None,
    "column_names": None,
    "null_values": DEFAULT_NULLS,
    "strings_can_be_null": False,
    "compression": "auto",
    "encoding": "utf-8",
    "max_record_bytes": 32 << 20,
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
    **DEFAULTS_OF_READ,
}
"""The defaults of all arguments."""


def source_of(
    of: str, paths: tuple[str, ...], format: FileFormat, compression: Compression, options: RecordOptions
) -> FileSource:
    """The source that reads these files, as the arguments of the transform `of` say. Raises BuildError for arguments
    that are wrong, or don't fit together."""
    given: ReadCsvOptions = {**DEFAULTS, **options}
    return FileSource(
        paths,
        format,
        selection_for(of, given),
        of,
        compression,
        given["allow_empty"],
        given["min_split_size"],
        follow_of(given, of),
        options_of(given["storage_options"], paths, of),
    )


def selection_for(of: str, options: RecordOptions) -> Selection:
    """Which records are selected, and what elements are, as the arguments of the transform `of` say. Raises BuildError
    for arguments that are wrong, or don't fit together."""
    given: ReadCsvOptions = {**DEFAULTS, **options}
    return selection_of(
        of,
        as_=given["as_"],
        schema=given["schema"],
        columns=given["columns"],
        where=given["where"],
        timezone=given["timezone"],
        schema_evolution=given["schema_evolution"],
        bad_records=given["bad_records"],
    )


def csv_format(options: CsvOptions, *, splittable: bool) -> CsvFormat:
    """The format of CSV files that the arguments describe."""
    given: ReadCsvOptions = {**DEFAULTS, **options}
    names = given["column_names"]
    return CsvFormat(
        given["delimiter"],
        given["quote_char"],
        given["escape_char"],
        None if names is None else tuple(names),
        tuple(given["null_values"]),
        given["strings_can_be_null"],
        given["encoding"],
        splittable,
        given["max_record_bytes"],
    )


def json_format(options: LineOptions) -> JsonFormat:
    """The format of files of JSON lines that the arguments describe."""
    given: ReadCsvOptions = {**DEFAULTS, **options}
    return JsonFormat(given["encoding"], given["max_record_bytes"])


def compression_of(options: LineOptions) -> Compression:
    """The compression of files of lines."""
    return options.get("compression", DEFAULTS["compression"])
