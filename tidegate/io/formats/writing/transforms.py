"""Writing files of records: `WriteToCsv`, `WriteToJson`, `WriteToParquet`, `WriteToAvro`, `WriteToArrow`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypedDict, Unpack, get_origin

from tidegate.io import compression as _compression
from tidegate.io.compression import Compression
from tidegate.io.file_sink.output_files import OutputFiles, longest_ending
from tidegate.io.file_sink.sink import DEFAULT_TEMPLATE, FileSink, rolling_seconds
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.formats.writing.arrow_ipc import ArrowFormat
from tidegate.io.formats.writing.avro import AvroFormat
from tidegate.io.formats.writing.csv import CsvFormat
from tidegate.io.formats.writing.json_lines import JsonLinesFormat
from tidegate.io.formats.writing.parquet import ParquetFormat
from tidegate.io.formats.writing.record_format import RecordFormat
from tidegate.io.output_names import NameTemplate, check_windows, with_address, zone_of
from tidegate.io.partitions import Partitioning
from tidegate.io.records.row_access import OF_DEAD_LETTER, OF_TUPLE, OF_VALUE, RECORDS
from tidegate.io.records.schema import RecordSchema, class_fields, schema_of, to_arrow
from tidegate.io.storage_options import StorageOptions, options_of
from tidegate.sdk.errors import BuildError, TypeCheckError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Write
from tidegate.sdk.primitives.exception_handling import DEAD_LETTER
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import DurationLike
from tidegate.sdk.typehints.hints import plain_hint, type_name

Path: TypeAlias = str | os.PathLike[str]
Destination: TypeAlias = Callable[[Any], str | int]

_NO_RECORDS: Final = (str, bytes, bool, int, float, list, set, frozenset)


class WriteOptions(TypedDict, total=False):
    """The keyword arguments that the writers of all formats have; `WriteToParquet` describes them."""

    file_name_suffix: str
    num_shards: int
    shard_name_template: str
    destination: Destination | None
    partition_by: str | Sequence[str] | None
    max_file_bytes: int | None
    roll_interval: DurationLike | None
    timezone: str | None
    storage_options: StorageOptions | None


class WriteRecords(PTransform[PCollection[Any], None]):
    """The base of the writers of all formats: a `FileSink`, and the columns of its files."""

    def __init__(
        self,
        path: Path,
        format: RecordFormat,
        schema: Any,
        *,
        name: str | None,
        file_name_suffix: str = "",
        num_shards: int = 0,
        shard_name_template: str = DEFAULT_TEMPLATE,
        destination: Destination | None = None,
        partition_by: str | Sequence[str] | None = None,
        max_file_bytes: int | None = None,
        roll_interval: DurationLike | None = None,
        timezone: str | None = None,
        storage_options: StorageOptions | None = None,
    ) -> None:
        self.label = name
        of = format.transform
        if not isinstance(path, (str, os.PathLike)):
            raise BuildError(f"{of} takes a path, not {shorten(path)}")
        columns = partition_columns(partition_by, of)
        self.template = template = NameTemplate.of(_with_partition(os.fspath(path)) if columns else os.fspath(path))
        zone = zone_of(timezone or "UTC", of)
        partition = Partitioning(columns, timezone) if columns else None
        ending = longest_ending(shard_name_template, file_name_suffix)
        self.address = with_address(of, template, destination, zone, partition, ending=ending)
        self.schema = schema
        if not shard_name_template and not num_shards:
            num_shards = 1
        options = options_of(storage_options, [os.fspath(path)], of)
        format = dataclasses.replace(format, without=columns, timezone=timezone)
        if schema is not None:
            format = _with_schema(format, schema)
        self.sink = FileSink(
            template.prefix if template.placeholders else template.filled(()),
            file_name_suffix,
            _with_compression(format, template.prefix, shard_name_template, file_name_suffix, options),
            num_shards,
            shard_name_template,
            bool(template.placeholders),
            max_file_bytes,
            rolling_seconds(roll_interval, of),
            options,
        )

    def expand(self, input: PCollection[Any]) -> None:
        format = self.sink.format
        assert isinstance(format, RecordFormat)
        sink = self.sink
        if self.schema is None:
            sink = dataclasses.replace(sink, format=_of_element_type(format, input))
        if sink.addressed:
            check_windows(self.sink.format.transform, self.template, input.windowing)
            input = input | self.address
        return input | Write(sink, name="Write")


class WriteToCsv(WriteRecords):
    """Each element as a line of CSV, with the names of the columns as the first line of each file.

    Elements are records, and files appear, as for `WriteToParquet`, which describes the other arguments. Text is
    quoted, and None is an empty field without quotes, so that it differs from an empty text.

    - `header=False` leaves out the first line; `delimiter` is the character between fields.
    - `compression`: `"auto"` goes by the file's name (.gz, .bz2, .xz, .zst); or `"none"`, `"gzip"`, `"bz2"`, `"xz"`,
      `"zstd"`.
    """

    def __init__(
        self,
        path: Path,
        schema: Any = None,
        *,
        header: bool = True,
        delimiter: str = ",",
        compression: Compression = "auto",
        name: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        format = CsvFormat(header=header, delimiter=delimiter, compression=compression)
        super().__init__(path, format, schema, name=name, **options)


class WriteToJson(WriteRecords):
    """Each element as a line with a JSON object, in UTF-8.

    Elements are records, and files appear, as for `WriteToParquet`, which describes the other arguments. Without
    `schema`, elements may differ in their fields. Instants are written as ISO text in UTC (`2013-01-01T06:00:00Z`),
    dates and times as ISO text, decimals and UUIDs as text. NaN, infinities and bytes are errors: JSON has no form for
    them.

    - `compression`: `"auto"` goes by the file's name (.gz, .bz2, .xz, .zst); or `"none"`, `"gzip"`, `"bz2"`, `"xz"`,
      `"zstd"`.
    """

    def __init__(
        self,
        path: Path,
        schema: Any = None,
        *,
        compression: Compression = "auto",
        name: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        super().__init__(path, JsonLinesFormat(compression=compression), schema, name=name, **options)


class WriteToParquet(WriteRecords):
    """Elements as the rows of Parquet files.

    An element is a record: a `tg.Row`, a dict, a dataclass, a NamedTuple or a pydantic model. Files are named, and
    appear, as those of `WriteToText`: `file_path_prefix`, the shard (`-00000-of-00003`), `file_name_suffix`, all of
    them together when the run has succeeded, and on a stream at each checkpoint.

    - `schema`: the columns, as a `pyarrow.Schema`, a dict of names and Python types (`{"n": int, "city": str | None}`)
      or a class with annotations. Left out, it is that of the element type, if it is such a class, else each task
      infers it from its first elements. A value that its column can't represent exactly is a WriteError that names
      both. A datetime needs a time zone, unless `timezone` says which zone naive ones are in.
    - `codec`: `"none"`, `"snappy"`, `"gzip"`, `"brotli"`, `"lz4"` or `"zstd"`.
    - `row_group_buffer_size`: about how many bytes of memory become a row group.
    - `partition_by`: columns whose values name folders, as Hive has them: `out/part` becomes
      `out/country=DE/day=2013-01-01/part-…`. These columns are left out of the files. None is
      `__HIVE_DEFAULT_PARTITION__`.
    - `destination`, and `{window}` in the path: as for `WriteToText`. `timezone` is also that of windows in names.
    - `storage_options`: arguments for the file system of a URL, as for `ReadFromText`.
    - `max_file_bytes`: begins a new file when the current one has about this size. Where elements are of similar
      size, a file ends between nine tenths and nine eighths of it; a compressor adds what it holds back, at most
      128 KiB (bz2: 900 kB).
    - `roll_interval` (seconds): an element that arrives when the current file is this old begins a new one. A stream
      also begins new files after each checkpoint.
    - `num_shards`: how many files; 0: one for each task that writes. Files of several tasks are then rewritten as one.

    Raises BuildError when applied, if the folder can't be written to, if the schema or an option is wrong, or if
    another step of the pipeline writes the same files; WriteError when running.
    """

    def __init__(
        self,
        file_path_prefix: Path,
        schema: Any = None,
        *,
        codec: str = "snappy",
        row_group_buffer_size: int = 1 << 26,
        name: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        format = ParquetFormat(codec=codec, row_group_buffer_size=row_group_buffer_size)
        super().__init__(file_path_prefix, format, schema, name=name, **options)


class WriteToAvro(WriteRecords):
    """Elements as the records of Avro object container files.

    Elements are records, and files appear, as for `WriteToParquet`, which describes the other arguments.

    - `schema` may also be an Avro schema: a dict with `"type": "record"`.
    - `codec`: `"null"`, `"deflate"`, `"bzip2"`, `"xz"`, `"zstandard"`, `"snappy"` or `"lz4"`; the last three need
      packages of their own.
    """

    def __init__(
        self,
        file_path_prefix: Path,
        schema: Any = None,
        *,
        codec: str = "deflate",
        name: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        super().__init__(file_path_prefix, AvroFormat(codec=codec), schema, name=name, **options)


class WriteToArrow(WriteRecords):
    """Elements as the rows of Arrow IPC files, which are Feather files of version 2.

    Elements are records, and files appear, as for `WriteToParquet`, which describes the other arguments. `codec` is
    `"none"`, `"lz4"` or `"zstd"`.
    """

    def __init__(
        self,
        file_path_prefix: Path,
        schema: Any = None,
        *,
        codec: str = "none",
        name: str | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        super().__init__(file_path_prefix, ArrowFormat(codec=codec), schema, name=name, **options)


def partition_columns(partition_by: str | Sequence[str] | None, of: str) -> tuple[str, ...]:
    """The columns that an author names for partitions. BuildError for anything else than a name or several."""
    if partition_by is None:
        return ()
    try:
        columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    except TypeError:
        columns = ()
    if not columns or not all(isinstance(column, str) and column for column in columns):
        raise BuildError(f"{of}: partition_by is a column's name or a list of names, not {shorten(partition_by)}")
    if len(set(columns)) < len(columns):
        raise BuildError(f"{of}: partition_by names a column twice: {', '.join(columns)}")
    return columns


def _with_partition(path: str) -> str:
    """A prefix with the folders of partitions in front of the name of its files."""
    if NameTemplate.of(path).has("partition"):
        return path
    folder, slash, base = path.rpartition("/")
    return f"{folder}{slash}{{partition}}/{base or 'part'}"


def _with_schema(format: RecordFormat, given: Any) -> RecordFormat:
    """The format with the columns that an author gave, without those that are in the names of files."""
    of = format.transform
    if isinstance(format, AvroFormat) and isinstance(given, Mapping) and given.get("type") == "record":
        fields = given.get("fields")
        if not isinstance(fields, Sequence) or not all(
            isinstance(field, Mapping) and "name" in field for field in fields
        ):
            raise BuildError(f"{of}: this is no Avro schema: it has no list of fields, each with a name")
        _check_columns([str(field["name"]) for field in fields], format.without, of)
        return dataclasses.replace(format, schema=dict(given))
    need_pyarrow(of)
    schema = schema_of(given, of)
    assert schema is not None
    if untyped := next((field.name for field in schema.fields if field.type is None), None):
        raise BuildError(f"{of}: the column {untyped!r} needs a type")
    _check_columns(schema.names, format.without, of)
    columns = schema.select(name for name in schema.names if name not in format.without)
    return dataclasses.replace(format, schema=to_arrow(columns))


def schema_of_element_type(input: PCollection[Any], of: str) -> RecordSchema | None:
    """The columns of the elements' class; None if the class doesn't determine them. TypeCheckError for elements that
    are no records."""
    hint = plain_hint(input.element_type)
    if input.pipeline.checks_types and (advice := _advice_on(hint)):
        raise TypeCheckError(f"{of} takes records ({RECORDS}), but its input holds {type_name(hint)}: {advice}")
    try:
        if not isinstance(hint, type) or not class_fields(hint):
            return None
        need_pyarrow(of)
        schema = schema_of(hint, of)
    except (BuildError, NameError):
        return None  # the columns are inferred from the first elements
    if schema is None or any(field.type is None for field in schema.fields):
        return None
    return schema


def _advice_on(hint: Any) -> str:
    """How to make records of elements of a type that are none; "" if they may be records."""
    if hint == DEAD_LETTER:
        return OF_DEAD_LETTER
    if hint is tuple or get_origin(hint) is tuple:
        return f"{OF_TUPLE}. If they are NamedTuples, annotate their class"
    if isinstance(get_origin(hint) or hint, type) and issubclass(get_origin(hint) or hint, _NO_RECORDS):
        return OF_VALUE
    return ""


def _of_element_type(format: RecordFormat, input: PCollection[Any]) -> RecordFormat:
    """The format with the columns of the elements' class, if the class determines them."""
    schema = schema_of_element_type(input, format.transform)
    if schema is None or isinstance(format, JsonLinesFormat):
        return format
    _check_columns(schema.names, format.without, format.transform)
    columns = schema.select(name for name in schema.names if name not in format.without)
    return dataclasses.replace(format, schema=to_arrow(columns))


def _check_columns(names: Sequence[str], partition: Sequence[str], of: str) -> None:
    for column in partition:
        if column not in names:
            raise BuildError(f"{of}: partition_by names {column!r}, which is no column: {', '.join(names)}")
    if not set(names) - set(partition):
        raise BuildError(f"{of}: partition_by names all columns, so that the files would have none")


def _with_compression(
    format: RecordFormat, prefix: str, template: str, suffix: str, options: StorageOptions | None
) -> RecordFormat:
    """The format with the compression that `auto` chooses."""
    if not isinstance(format, CsvFormat | JsonLinesFormat):
        return format
    path = OutputFiles.of(prefix, template, suffix, addressed=True, options=options).final(prefix, 0, 1)
    return dataclasses.replace(format, compression=_compression.of_path(path, format.compression))
