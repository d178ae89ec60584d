"""`ReadFromCsv`, `ReadFromJson`, `ReadFromParquet`, `ReadFromAvro` and `ReadFromArrow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from tidegate.io.compression import Compression
from tidegate.io.file_source.format import FileFormat
from tidegate.io.file_source.listing import Path, paths_of
from tidegate.io.formats.arrow_ipc import ArrowFormat
from tidegate.io.formats.avro import AvroFormat, reader_schema_of
from tidegate.io.formats.dead_letters import TimestampOfGood, good_and_bad
from tidegate.io.formats.options import (
    FileOptions,
    ReadCsvOptions,
    ReadJsonOptions,
    compression_of,
    csv_format,
    json_format,
    source_of,
)
from tidegate.io.formats.parquet import ParquetFormat
from tidegate.io.records.projection import Selection
from tidegate.sdk.connectors.sources import Source
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.primitives import Read, ReadOptions, read_options
from tidegate.sdk.steps.transform import PTransform


class ReadRecords(PTransform[Pipeline, Any]):
    """The base of the readers of records: a source, event times, and dead letters."""

    def __init__(self, source: Source[Any], selection: Selection, options: ReadOptions, name: str | None) -> None:
        self.label = name
        self.selection = selection
        self.source = source
        reading = read_options(options)
        timestamp = reading.get("timestamp")
        if timestamp is not None and selection.bad_records == "dead_letter":
            reading["timestamp"] = TimestampOfGood(timestamp)
        self.read: Read[Any] = Read(source, name="Read", **reading)

    def expand(self, input: Pipeline) -> Any:
        records = input | self.read
        if self.selection.bad_records == "fail":
            return records
        return good_and_bad(records, self.good_type(), input.step)

    def good_type(self) -> Any:
        """The type of the elements that are no dead letters, once the source has been checked."""
        return self.selection.shape.element_type


class ReadFromFiles(ReadRecords):
    """The base of the readers of all formats of files, whose source is a `FileSource`."""

    def __init__(
        self,
        path: Path | Iterable[Path],
        format: FileFormat,
        compression: Compression,
        options: FileOptions,
        name: str | None,
    ) -> None:
        of = type(self).__name__
        source = source_of(of, paths_of(path, of), format, compression, options)
        super().__init__(source, source.selection, options, name)
        self.files = source

    def good_type(self) -> Any:
        return self.files.good_type


class ReadFromParquet(ReadFromFiles):
    """The rows of Parquet files.

        pipeline | tg.ReadFromParquet("s3://bucket/visits/*.parquet", columns=["url", "at"], where=[("at", ">=", day)])

    `path` is a path, a pattern (`*`, `?`, `[…]`, `**`) or several of them, local or any URL that fsspec knows.

    - `as_`: what elements are: `tg.Row` (the default), `dict`, or a dataclass, a NamedTuple or a pydantic model of
      yours, whose annotations are then the schema.
    - `columns`: which columns to read, in this order; by default all.
    - `where`: conditions `(column, operator, value)` that all hold for the rows that are read; operators are `==`,
      `!=`, `<`, `<=`, `>`, `>=`, `in` and `not in`. Row groups whose statistics rule them out are skipped.
    - `schema`: `{name: Python type}`, a `pyarrow.Schema`, or a class with annotations. By default, it is the schema of
      the first file.
    - `schema_evolution`: `"refuse"` (the default) fails at a file whose columns differ from those of the first;
      `"union"` unites the columns of all files by name, widens their types, and puts None where a file lacks one.
    - `timezone`: the zone of times that don't name one; without it, such times are refused. Instants are aware
      datetimes in UTC.
    - `bad_records`: `"fail"` (the default) fails the run at the first record that can't be converted; `"dead_letter"`
      returns `(good, bad)`, where `bad` has a `tg.io.BadRecord` for each of them, which `bad_records` counts.
    - `timestamp`, `out_of_orderness`, `ingestion_time`, `idle_after`, `rate_limit`: as in `tg.Read`.
    - `allow_empty=True`: a pattern without a file is no error.
    - `min_split_size`: files of twice this size (in bytes, by default 16 MiB) may be divided among workers.
    - `follow=True`: look for new files every `poll_interval` (1 s), and read each of them once, also after a restart on
      the streaming runner. A file is read when it is `min_age` old (2 s; at once in object stores) and two looks have
      found it unchanged. Without a schema, the first file found gives it, and `"union"` extends it by later files.
    - `storage_options`: arguments for the file system of a URL, as fsspec takes them: `{"endpoint_url": "…"}`. Secrets
      among them are `pydantic.SecretStr`, or references such as `"${NAME}"` to environment variables.

    Raises BuildError when applied, if a path matches nothing or the first file doesn't fit; ReadError when running,
    naming the file, the row and the column.
    """

    def __init__(self, path: Path | Iterable[Path], *, name: str | None = None, **options: Unpack[FileOptions]) -> None:
        super().__init__(path, ParquetFormat(), "none", options, name)


class ReadFromArrow(ReadFromFiles):
    """The rows of Arrow IPC files (Feather 2) and Arrow streams, which are recognized by their first bytes.

        pipeline | tg.ReadFromArrow("visits-*.arrow", as_=Visit)

    The arguments are those of `ReadFromParquet`. Files are divided by record batches.
    """

    def __init__(self, path: Path | Iterable[Path], *, name: str | None = None, **options: Unpack[FileOptions]) -> None:
        super().__init__(path, ArrowFormat(), "none", options, name)


class ReadFromAvro(ReadFromFiles):
    """The records of Avro files.

        pipeline | tg.ReadFromAvro("visits-*.avro", reader_schema=json.loads(Path("visit.avsc").read_text()))

    The arguments are those of `ReadFromParquet`, and

    - `reader_schema`: an Avro schema, as a dict or as JSON, to which records of all files are resolved by Avro's rules:
      defaults, aliases, promotions.

    Files are divided between their blocks.
    """

    def __init__(
        self,
        path: Path | Iterable[Path],
        *,
        reader_schema: Any = None,
        name: str | None = None,
        **options: Unpack[FileOptions],
    ) -> None:
        format = AvroFormat(reader_schema_of(reader_schema, "ReadFromAvro"))
        super().__init__(path, format, "none", options, name)


class ReadFromJson(ReadFromFiles):
    """The objects of files of JSON lines, one a line.

        pipeline | tg.ReadFromJson("logs/*.jsonl.gz", as_=dict)

    The arguments are those of `ReadFromParquet`, and

    - `compression`: `"auto"` to choose by the suffix (.gz, .bz2, .xz, .zst, .zip), or the name of one.
    - `max_record_bytes`: a longer line is a bad record.
    - `encoding`: that of the text.

    With `as_=dict` and without a schema, elements are the objects as they are. Otherwise, columns and types are
    inferred from the first 256 KiB, unless they are given; a line with others is a bad record. A missing member is
    None.
    """

    def __init__(
        self, path: Path | Iterable[Path], *, name: str | None = None, **options: Unpack[ReadJsonOptions]
    ) -> None:
        super().__init__(path, json_format(options), compression_of(options), options, name)


class ReadFromCsv(ReadFromFiles):
    """The records of CSV files, whose first line names the columns.

        pipeline | tg.ReadFromCsv("sales/*.csv", schema={"customer": str, "amount": float})

    The arguments are those of `ReadFromParquet`, and

    - `splittable=False`: quoted values contain line breaks, so a large file can't be divided. Without it, a file that
      is divided inside of such a value fails the run. Small files need nothing.
    - `delimiter`, `quote_char` (None: quotes are ordinary characters), `escape_char`.
    - `column_names`: the names of the columns, for files without a header.
    - `null_values`: texts that mean None, in columns of text only with `strings_can_be_null`.
    - `compression`: `"auto"` to choose by the suffix (.gz, .bz2, .xz, .zst, .zip), or the name of one.
    - `max_record_bytes`: a longer record is a bad one.
    - `encoding`: that of the text.

    Types are inferred from the first 256 KiB, unless a schema gives them; a value of another type is a bad record.
    """

    def __init__(
        self,
        path: Path | Iterable[Path],
        *,
        splittable: bool = True,
        name: str | None = None,
        **options: Unpack[ReadCsvOptions],
    ) -> None:
        format = csv_format(options, splittable=splittable)
        super().__init__(path, format, compression_of(options), options, name)
