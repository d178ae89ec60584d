"""`ReadFromCsv`, `ReadFromJson`, `ReadFromParquet`, `ReadFromAvro` and `ReadFromArrow`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from tidegate.io.compression import Compression
from tidegate.io.file_source.format import FileFormat
from tidegate.io.file_source.source import FileSource
from tidegate.io.formats.arrow_ipc import ArrowFormat
from tidegate.io.formats.avro import AvroFormat, reader_schema_of
from tidegate.io.formats.csv import DEFAULT_NULLS, CsvFormat
from tidegate.io.formats.json_lines import JsonFormat
from tidegate.io.formats.parquet import ParquetFormat
from tidegate.io.records.problems import BadRecord, BadRecords
from tidegate.io.records.projection import SchemaEvolution, Selection, selection_of
from tidegate.io.records.schema import SchemaLike
from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.connectors.sources import Source
from tidegate.sdk.data.values import TaggedOutput
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.metrics import Metrics
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.primitives import ParDo, Read
from tidegate.sdk.primitives.exception_handling import Handled
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import MIN_TIMESTAMP, DurationLike, TimestampLike
from tidegate.transforms.rows.row import Row

Path: TypeAlias = str | os.PathLike[str]
Where: TypeAlias = Iterable[Sequence[Any]]


class ReadRecords(PTransform[Pipeline, Any]):
    """The base of the readers of records: a source, event times, and dead letters."""

    def __init__(
        self,
        source: Source[Any],
        selection: Selection,
        *,
        timestamp: Callable[[Any], TimestampLike] | None = None,
        out_of_orderness: DurationLike = 0,
        idle_after: DurationLike | None = None,
        name: str | None = None,
    ) -> None:
        self.label = name
        self.selection = selection
        self.source = source
        if timestamp is not None and selection.bad_records == "dead_letter":
            timestamp = _TimestampOfGood(timestamp)
        self.read: Read[Any] = Read(
            self.source,
            timestamp=timestamp,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
            name="Read",
        )

    def expand(self, input: Pipeline) -> Any:
        records = input | self.read
        if self.selection.bad_records == "fail":
            return records
        good = self.selection.shape.element_type
        outputs = records | "Divide" >> ParDo(_Divide()).with_outputs("bad", main="good")
        outputs.good.element_type = good
        outputs.bad.element_type = BadRecord
        return Handled.of(outputs.good, outputs.bad, input.step)


class ReadFromFiles(ReadRecords):
    """The base of the readers of all formats of files, which are a `FileSource`."""

    def __init__(
        self,
        path: Path | Iterable[Path],
        format: FileFormat,
        selection: Selection,
        *,
        compression: Compression = "none",
        allow_empty: bool = False,
        min_split_size: int = 16 << 20,
        timestamp: Callable[[Any], TimestampLike] | None = None,
        out_of_orderness: DurationLike = 0,
        idle_after: DurationLike | None = None,
        name: str | None = None,
    ) -> None:
        of = type(self).__name__
        super().__init__(
            FileSource(_paths(path, of), format, selection, of, compression, allow_empty, min_split_size),
            selection,
            timestamp=timestamp,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
            name=name,
        )


class _Divide(DoFn):
    """Emits dead letters to an output of their own, and counts them."""

    def __init__(self) -> None:
        self.bad_records = Metrics.counter("tidegate", "bad_records")

    def process(self, element: Any) -> Iterator[Any]:
        if type(element) is BadRecord:
            self.bad_records.inc()
            yield TaggedOutput("bad", element)
        else:
            yield element


class _TimestampOfGood:
    """The author's event time. Dead letters have none: they get the minimum, which does not affect the watermark."""

    def __init__(self, timestamp: Callable[[Any], TimestampLike]) -> None:
        self._timestamp = timestamp

    def __call__(self, element: Any) -> TimestampLike:
        return MIN_TIMESTAMP if type(element) is BadRecord else self._timestamp(element)


class ReadFromParquet(ReadFromFiles):
    """The rows of Parquet files.

        pipeline | tg.ReadFromParquet("s3://bucket/visits/*.parquet", columns=["url", "at"], where=[("at", ">=", day)])

    `path` is a path, a pattern (`*`, `?`, `[…]`, `**`) or several of them, local or any URL that fsspec knows.

    - `as_`: what elements are: `tg.Row`, `dict`, or a dataclass, a NamedTuple or a pydantic model of yours, whose
      annotations are then the schema.
    - `columns`: which columns, in this order; others are not read.
    - `where`: conditions `(column, operator, value)` that all hold for the rows that are read; operators are `==`,
      `!=`, `<`, `<=`, `>`, `>=`, `in` and `not in`. Row groups whose statistics rule them out are skipped.
    - `schema`: `{name: Python type}`, a `pyarrow.Schema`, or a class with annotations. By default, it is the schema of
      the first file.
    - `schema_evolution`: `"refuse"` fails at a file whose columns are not those of the first; `"union"` takes all
      columns of all files by name, widens their types, and puts None where a file lacks one.
    - `timezone`: the zone of times that don't name one; without it, such times are refused. Instants are aware
      datetimes in UTC.
    - `bad_records="dead_letter"` returns `(good, bad)`: `bad` has a `tg.io.BadRecord` for each record that can't be
      converted, and the counter `bad_records` counts them. `"fail"` fails the run at the first one.
    - `timestamp`, `out_of_orderness`, `idle_after`: event time, as in `tg.Read`.
    - `allow_empty`: a pattern without a file is no error.
    - `min_split_size`: files of twice this size (in bytes) may be divided, so that several workers read them at once.

    Raises BuildError when applied, if a path matches nothing or the first file doesn't fit; ReadError when running,
    naming the file, the row and the column.
    """

    def __init__(
        self,
        path: Path | Iterable[Path],
        *,
        columns: Iterable[str] | None = None,
        where: Where | None = None,
        as_: Any = Row,
        schema: SchemaLike = None,
        schema_evolution: SchemaEvolution = "refuse",
        timezone: str | None = None,
        bad_records: BadRecords = "fail",
        timestamp: Callable[[Any], TimestampLike] | None = None,
        out_of_orderness: DurationLike = 0,
        idle_after: DurationLike | None = None,
        allow_empty: bool = False,
        min_split_size: int = 16 << 20,
        name: str | None = None,
    ) -> None:
        super().__init__(
            path,
            ParquetFormat(),
            selection_of(
                "ReadFromParquet",
                as_=as_,
                schema=schema,
                columns=columns,
                where=where,
                timezone=timezone,
                schema_evolution=schema_evolution,
                bad_records=bad_records,
            ),
            allow_empty=allow_empty,
            min_split_size=min_split_size,
            timestamp=timestamp,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
            name=name,
        )


class ReadFromArrow(ReadFromFiles):
    """The rows of Arrow IPC files (Feather 2) and Arrow streams. The beginning of a file tells which of them it is.

        pipeline | tg.ReadFromArrow("visits-*.arrow", as_=Visit)

    The arguments are those of `ReadFromParquet`. Files are divided by record batches.
    """

    def __init__(
        self,
        path: Path | Iterable[Path],
        *,
        columns: Iterable[str] | None = None,
        where: Where | None = None,
        as_: Any = Row,
        schema: SchemaLike = None,
        schema_evolution: SchemaEvolution = "refuse",
        timezone: str | None = None,
        bad_records: BadRecords = "fail",
        timestamp: Callable[[Any], TimestampLike] | None = None,
        out_of_orderness: DurationLike = 0,
        idle_after: DurationLike | None = None,
        allow_empty: bool = False,
        min_split_size: int = 16 << 20,
        name: str | None = None,
    ) -> None:
        super().__init__(
            path,
            ArrowFormat(),
            selection_of(
                "ReadFromArrow",
                as_=as_,
                schema=schema,
                columns=columns,
                where=where,
                timezone=timezone,
                schema_evolution=schema_evolution,
                bad_records=bad_records,
            ),
            allow_empty=allow_empty,
            min_split_size=min_split_size,
            timestamp=timestamp,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
            name=name,
        )


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
        columns: Iterable[str] | None = None,
        where: Where | None = None,
        as_: Any = Row,
        schema: SchemaLike = None,
        reader_schema: Any = None,
        schema_evolution: SchemaEvolution = "refuse",
        timezone: str | None = None,
        bad_records: BadRecords = "fail",
        timestamp: Callable[[Any], TimestampLike] | None = None,
        out_of_orderness: DurationLike = 0,
        idle_after: DurationLike | None = None,
        allow_empty: bool = False,
        min_split_size: int = 16 << 20,
        name: str | None = None,
    ) -> None:
        super().__init__(
            path,
            AvroFormat(reader_schema_of(reader_schema, "ReadFromAvro")),
            selection_of(
                "ReadFromAvro",
                as_=as_,
                schema=schema,
                columns=columns,
                where=where,
                timezone=timezone,
                schema_evolution=schema_evolution,
                bad_records=bad_records,
            ),
            allow_empty=allow_empty,
            min_split_size=min_split_size,
            timestamp=timestamp,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
            name=name,
        )


class ReadFromJson(ReadFromFiles):
    """The objects of files of JSON lines, one a line.

        pipeline | tg.ReadFromJson("logs/*.jsonl.gz", as_=dict)

    The arguments are those of `ReadFromParquet`, and

    - `compression`: `"auto"` goes by the suffix (.gz, .bz2, .xz, .zst, .zip); or one of its names.
    - `max_record_bytes`: a longer line is a bad record.
    - `encoding`: of the text.

    With `as_=dict` and without a schema, elements are the objects as they are. Otherwise, columns and types are
    inferred from the first 256 KiB, unless they are given; a line with others is a bad record. A missing member is
    None.
    """

    def __init__(
        self,
        path: Path | Iterable[Path],
        *,
        columns: Iterable[str] | None = None,
        where: Where | None = None,
        as_: Any = Row,
        schema: SchemaLike = None,
        schema_evolution: SchemaEvolution = "refuse",
        timezone: str | None = None,
        compression: Compression = "auto",
        encoding: str = "utf-8",
        max_record_bytes: int = 32 << 20,
        bad_records: BadRecords = "fail",
        timestamp: Callable[[Any], TimestampLike] | None = None,
        out_of_orderness: DurationLike = 0,
        idle_after: DurationLike | None = None,
        allow_empty: bool = False,
        min_split_size: int = 16 << 20,
        name: str | None = None,
    ) -> None:
        super().__init__(
            path,
            JsonFormat(encoding, max_record_bytes),
            selection_of(
                "ReadFromJson",
                as_=as_,
                schema=schema,
                columns=columns,
                where=where,
                timezone=timezone,
                schema_evolution=schema_evolution,
                bad_records=bad_records,
            ),
            compression=compression,
            allow_empty=allow_empty,
            min_split_size=min_split_size,
            timestamp=timestamp,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
            name=name,
        )


class ReadFromCsv(ReadFromFiles):
    """The records of CSV files, whose first line names the columns.

        pipeline | tg.ReadFromCsv("sales/*.csv", schema={"customer": str, "amount": float})

    The arguments are those of `ReadFromParquet`, and

    - `splittable=False`: quoted values contain line breaks, so a large file can't be divided. Without it, a file that
      is divided inside of such a value fails the run. Small files need nothing.
    - `delimiter`, `quote_char` (None: quotes are ordinary characters), `escape_char`.
    - `column_names`: the names of the columns, for files without a header.
    - `null_values`: texts that mean None, in columns of text only with `strings_can_be_null`.
    - `compression`: `"auto"` goes by the suffix (.gz, .bz2, .xz, .zst, .zip); or one of its names.
    - `max_record_bytes`: a longer record is a bad one.
    - `encoding`: of the text.

    Types are inferred from the first 256 KiB, unless a schema gives them; a value of another type is a bad record.
    """

    def __init__(
        self,
        path: Path | Iterable[Path],
        *,
        columns: Iterable[str] | None = None,
        where: Where | None = None,
        as_: Any = Row,
        schema: SchemaLike = None,
        schema_evolution: SchemaEvolution = "refuse",
        timezone: str | None = None,
        splittable: bool = True,
        delimiter: str = ",",
        quote_char: str | None = '"',
        escape_char: str | None = None,
        column_names: Iterable[str] | None = None,
        null_values: Iterable[str] = DEFAULT_NULLS,
        strings_can_be_null: bool = False,
        compression: Compression = "auto",
        encoding: str = "utf-8",
        max_record_bytes: int = 32 << 20,
        bad_records: BadRecords = "fail",
        timestamp: Callable[[Any], TimestampLike] | None = None,
        out_of_orderness: DurationLike = 0,
        idle_after: DurationLike | None = None,
        allow_empty: bool = False,
        min_split_size: int = 16 << 20,
        name: str | None = None,
    ) -> None:
        super().__init__(
            path,
            CsvFormat(
                delimiter,
                quote_char,
                escape_char,
                None if column_names is None else tuple(column_names),
                tuple(null_values),
                strings_can_be_null,
                encoding,
                splittable,
                max_record_bytes,
            ),
            selection_of(
                "ReadFromCsv",
                as_=as_,
                schema=schema,
                columns=columns,
                where=where,
                timezone=timezone,
                schema_evolution=schema_evolution,
                bad_records=bad_records,
            ),
            compression=compression,
            allow_empty=allow_empty,
            min_split_size=min_split_size,
            timestamp=timestamp,
            out_of_orderness=out_of_orderness,
            idle_after=idle_after,
            name=name,
        )


def _paths(path: Path | Iterable[Path], of: str) -> tuple[str, ...]:
    try:
        paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        return tuple(os.fspath(path) for path in paths)
    except TypeError:
        raise BuildError(f"{of} takes a path, a pattern, or a list of them, not {shorten(path)}") from None
