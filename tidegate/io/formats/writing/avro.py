"""Writing Avro object container files by fastavro: blocks of records, after the schema that they have.

The schema is Avro's own, as Beam's `WriteToAvro` takes it, or is made from the columns.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from typing import Any, BinaryIO, ClassVar, Final, cast
from zoneinfo import ZoneInfo

from tidegate.io.file_sink.element_sizes import estimated_size
from tidegate.io.file_sink.format import FileWriter
from tidegate.io.formats.packages import need_fastavro, need_pyarrow
from tidegate.io.formats.writing.avro_schema import NoAvroType, avro_schema
from tidegate.io.formats.writing.record_format import RecordFormat, check_codec
from tidegate.io.records.row_access import ColumnReader, NoRecord
from tidegate.io.records.row_converter import RowConverter, UnfitValue, instant_of, no_record, value_converter
from tidegate.io.records.types import kind_of
from tidegate.sdk.errors import BuildError, WriteError, shorten

_CODECS: Final = ("null", "deflate", "bzip2", "xz", "zstandard", "snappy", "lz4")
_NONE: Final = type(None)
_EXACT: Final[dict[str, frozenset[type]]] = {
    "boolean": frozenset({bool, _NONE}),
    "integer": frozenset({int, _NONE}),
    "float": frozenset({float, int, _NONE}),
    "string": frozenset({str, _NONE}),
    "binary": frozenset({bytes, _NONE}),
    "decimal": frozenset({Decimal, _NONE}),
}
"""The classes of values that fastavro writes as the type of a column exactly, by the kind of the column."""
_NOTHING: Final[frozenset[type]] = frozenset()
_DICT: Final = {dict}
_AT_ONCE: Final = 256
"""The number of records that are checked and written at once: they fit the processor's cache."""


@dataclass(frozen=True, slots=True)
class AvroFormat(RecordFormat):
    """Records in blocks; see `WriteToAvro`. `schema` may also be an Avro schema, as a dict."""

    codec: str = "deflate"

    name: ClassVar[str] = "avro"
    transform: ClassVar[str] = "WriteToAvro"

    @property
    def buffer_bytes(self) -> int:
        return 1 << 20

    def check(self, path: str) -> None:
        need_fastavro(self.transform)
        need_pyarrow(self.transform)
        check_codec(self.codec, _CODECS, self.transform)
        try:
            _open_avro(io.BytesIO(), _NO_COLUMNS, self.codec).dump()
        except ValueError as error:  # fastavro names the package that a codec needs
            raise BuildError(f"{self.transform}: codec={self.codec!r}: {error}") from None
        from fastavro.schema import SchemaParseException, UnknownType, parse_schema

        try:
            if self.schema is not None:
                parse_schema(self.avro(self.schema))
        except NoAvroType as error:
            raise BuildError(f"{self.transform}: {error}") from None
        except (SchemaParseException, UnknownType, KeyError, ValueError) as error:
            raise BuildError(f"{self.transform}: this is no Avro schema: {type(error).__name__}: {error}") from None

    def avro(self, schema: Any) -> dict[str, Any]:
        """The Avro schema of the files' records. Raises NoAvroType for columns that Avro can't represent."""
        if isinstance(schema, Mapping):
            fields = [field for field in schema["fields"] if field["name"] not in self.without]
            return {**schema, "fields": fields}
        return avro_schema(schema)

    def writers(self, sink: str) -> Callable[[], FileWriter]:
        records = _Records(self, sink)
        return lambda: _AvroWriter(self.codec, records)

    def empty(self) -> bytes:
        target = io.BytesIO()
        _open_avro(target, self.avro(self.schema) if self.schema is not None else _NO_COLUMNS, self.codec).flush()
        return target.getvalue()

    def join(self, parts: Sequence[Callable[[], BinaryIO]], target: BinaryIO, sink: str) -> None:
        """Copy block after block, unchanged."""
        from fastavro import block_reader

        schemas = []
        for part in parts:
            with part() as file:
                schemas.append(cast(dict[str, Any], block_reader(file).writer_schema))
        if any(schema != schemas[0] for schema in schemas):
            raise WriteError(
                f"{sink}: tasks inferred different types from their first elements, so their output can't be one "
                "file: give the types with schema="
            )
        writer = _open_avro(target, schemas[0], self.codec)
        for part in parts:
            with part() as file:
                for block in block_reader(file):
                    writer.write_block(block)
        writer.flush()


_NO_COLUMNS: Final = {"type": "record", "name": "Record", "fields": []}


class _Records:
    """Makes the dicts that fastavro writes, and refuses values that it would change."""

    def __init__(self, format: AvroFormat, sink: str) -> None:
        self._format = format
        self._sink = sink
        self._zone = None if format.timezone is None else ZoneInfo(format.timezone)
        self._reader: ColumnReader | None = None
        self._converters: dict[str, Callable[[Any], Any]] = {}
        self._exact: dict[str, frozenset[type]] = {}
        self.schema: dict[str, Any] | None = None
        if isinstance(format.schema, Mapping):
            self._use_avro(format.schema)
        elif format.schema is not None:
            self._use(format.schema)

    def infer(self, records: Sequence[Any]) -> None:
        """Learn the columns from the first records, unless they are given."""
        if self._reader is None:
            converter = RowConverter(self._sink, None, self._format.without, self._format.timezone)
            self._use(converter.batch(records).schema)

    def dicts(self, records: Sequence[Any]) -> list[dict[str, Any]]:
        """The records as dicts. Raises WriteError for a field that is no column, and for a naive time."""
        assert self._reader is not None
        if not self._format.without and self._are_plain(records):
            return list(records)
        try:
            columns = self._reader.columns(records)
        except NoRecord as error:
            raise no_record(self._sink, error, inferred=self._format.schema is None) from None
        changed = False
        for at, name in enumerate(self._reader.names):
            if set(map(type, columns[at])) <= self._exact.get(name, _NOTHING):
                continue
            if (convert := self._converters.get(name)) is not None:
                columns[at] = [self._converted(name, convert, *pair) for pair in zip(columns[at], records)]
                changed = True
        if changed:
            return [dict(zip(self._reader.names, values)) for values in zip(*columns)]
        return self._reader.rows(records, columns)

    def _are_plain(self, records: Sequence[Any]) -> bool:
        """Whether the records are dicts of all columns, with values of classes that fastavro writes exactly."""
        assert self._reader is not None
        names = self._reader.names
        if set(map(type, records)) != _DICT or set(map(len, records)) != {len(names)}:
            return False
        try:
            return all(
                set(map(type, map(itemgetter(name), records))) <= self._exact.get(name, _NOTHING) for name in names
            )
        except KeyError:
            return False

    def unfit(self, rows: Sequence[dict[str, Any]], error: Exception) -> WriteError:
        """The error for rows of which fastavro refuses one, naming that row and the column."""
        from fastavro import parse_schema, schemaless_writer

        assert self.schema is not None
        columns = [(field, parse_schema({**self.schema, "fields": [field]})) for field in self.schema["fields"]]
        for row in rows:
            for field, schema in columns:
                value = row.get(field["name"])
                try:
                    schemaless_writer(io.BytesIO(), schema, {field["name"]: value})
                except Exception as found:
                    return WriteError(
                        f"{self._sink}: column {field['name']!r} of {shorten(row)}: {shorten(value, 60)} doesn't fit "
                        f"{field['type']}: {found or type(found).__name__}"
                    )
        return WriteError(f"{self._sink}: can't be written: {error or type(error).__name__}")

    def _converted(self, name: str, convert: Callable[[Any], Any], value: Any, record: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (UnfitValue, NoRecord, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise WriteError(f"{self._sink}: column {name!r} of {shorten(record)}: {error}") from None

    def _use(self, schema: Any) -> None:
        try:
            self.schema = self._format.avro(schema)
        except NoAvroType as error:
            raise WriteError(f"{self._sink}: {error}") from None
        self._reader = ColumnReader(schema.names, self._format.without)
        for field in schema:
            self._exact[field.name] = _EXACT.get(kind_of(field.type), frozenset())
            self._converters[field.name] = value_converter(field.type, self._zone, dict)

    def _use_avro(self, schema: Mapping[str, Any]) -> None:
        """Use an Avro schema: fastavro checks values against it, except times without a zone."""
        self.schema = self._format.avro(schema)
        self._reader = ColumnReader([field["name"] for field in self.schema["fields"]], self._format.without)
        for field in self.schema["fields"]:
            types = field["type"] if isinstance(field["type"], list) else [field["type"]]
            logical = {each.get("logicalType") for each in types if isinstance(each, Mapping)}
            if logical & {"timestamp-millis", "timestamp-micros"}:
                self._converters[field["name"]] = lambda value: (
                    value if isinstance(value, int) else instant_of(value, self._zone)
                )


class _AvroWriter(FileWriter):
    def __init__(self, codec: str, records: _Records) -> None:
        self._codec = codec
        self._records = records
        self._rows: list[Any] = []
        self._file: BinaryIO | None = None
        self._writer: Any = None

    def add(self, values: Sequence[Any]) -> None:
        self._rows += values
        self.buffered += estimated_size(values)

    def begin(self, file: BinaryIO) -> None:
        self._file = file

    def flush(self) -> None:
        rows, self._rows, self.buffered = self._rows, [], 0
        if not rows:
            return
        self._records.infer(rows)
        writer = self._open()
        for start in range(0, len(rows), _AT_ONCE):
            dicts = self._records.dicts(rows[start : start + _AT_ONCE])
            try:
                deque(map(writer.write, dicts), 0)
            except Exception as error:  # including those of a value's own methods
                raise self._records.unfit(dicts, error) from None
        writer.flush()  # the block that it collects, so that the file's size is known

    def finish(self) -> None:
        self.flush()
        self._open().flush()
        self._writer = self._file = None

    def discard(self) -> None:
        self._writer = self._file = None

    def _open(self) -> Any:
        if self._writer is None:
            self._writer = _open_avro(self._file, self._records.schema or _NO_COLUMNS, self._codec)
        return self._writer


def _open_avro(target: Any, schema: dict[str, Any], codec: str) -> Any:
    from fastavro import parse_schema
    from fastavro.write import Writer

    return Writer(target, parse_schema(schema), codec=codec)
