"""Reading Avro: files are divided at the sync markers between their blocks, and fastavro decodes the records."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO, ClassVar, Final, cast

from tidegate.io.file_source.format import Chunk, FileFormat, Reading, Start, mismatch_error
from tidegate.io.file_source.opened import OpenedFile
from tidegate.io.formats.packages import need_fastavro, need_pyarrow
from tidegate.io.records.decoder import DictDecoder
from tidegate.io.records.problems import BadRecord, SchemaMismatch, bad_file
from tidegate.io.records.projection import Projection, Selection
from tidegate.io.records.schema import Field, RecordSchema
from tidegate.sdk.connectors.outage import is_outage
from tidegate.sdk.errors import BuildError, ReadError, TidegateError, shorten

_SYNC: Final = 16
_ROWS: Final = 4096


@dataclass(frozen=True, slots=True)
class AvroFormat(FileFormat):
    """Avro object container files. A chunk starts at `[offset of a block, record]`. `reader_schema` is JSON: the
    schema that records are resolved to, by the rules of Avro."""

    name: ClassVar[str] = "avro"
    casts: ClassVar[bool] = False  # a union of several types has no type to which its values could be cast
    states_columns: ClassVar[bool] = True
    reader_schema: str | None = None

    def check(self, of: str) -> None:
        need_fastavro(of)
        need_pyarrow(of)
        if self.reader_schema is not None:
            _check_schema(self.reader_schema, of)

    def takes_conditions(self, selection: Selection) -> bool:
        return False

    def infers_columns(self, selection: Selection) -> bool:
        return selection.schema is None and self.reader_schema is None

    def inspect(self, file: OpenedFile, selection: Selection) -> RecordSchema | None:
        return _columns_of(file, self._resolved(_header(file, file.plain())))

    def read(self, file: OpenedFile, start: Start, reading: Reading) -> Iterator[Chunk]:
        offset, first = start or (None, 0)
        fails = reading.selection.bad_records == "fail"
        try:
            stream = file.plain()
            header = _header(file, stream)
            schema = self._resolved(header)
            projection = reading.project(file, _columns_of(file, schema))
            if offset is None:
                offset = _first_block(stream, header, file.part.start)
        except ReadError as error:
            if reading.refuses(error):
                raise
            yield [0, 0], [bad_file(file.url, error)]
            return
        decoder = DictDecoder(reading.selection, projection)
        rows = _RowNumbers(file, header)
        wanted = _wanted(schema, projection, self.reader_schema is not None)
        blocks = _blocks(stream, header, offset, wanted)
        while True:
            at, found = 0, None
            try:
                found = next(blocks, None)
                if found is None or (file.part.end is not None and found[0] - _SYNC >= file.part.end):
                    return
                offset, block = found
                records = iter(block)
                if first:
                    at, first = first, 0
                    next(itertools.islice(records, at - 1, at), None)  # passes over the records before
                while some := list(itertools.islice(records, _ROWS)):
                    number = partial(_number, rows, offset, at)
                    yield [offset, at], reading.report(file, "row", decoder.decode(some), number)
                    at += len(some)
                offset += block.size
            except TidegateError:
                raise
            except Exception as error:  # what fastavro raises for bytes that are no records has no common class
                if is_outage(error) or (isinstance(error, OSError) and error.errno is not None):
                    raise  # the block is not bad
                file.check_unchanged()
                words = f"the block at byte {offset} can't be read: {_own_words(error)}"
                row = _number(rows, offset, at, 0)
                if fails:
                    raise ReadError(f"{file.url}, row {row}: {words}") from error
                yield [offset, at], [BadRecord(file.url, row, None, words, None)]
                if found is None:
                    return

    def _resolved(self, header: _Header) -> Any:
        """The schema that records are read with: the author's, or else the file's."""
        return header.schema if self.reader_schema is None else json.loads(self.reader_schema)


@dataclass(frozen=True, slots=True)
class _Header:
    """The beginning of a file, which says how its blocks are written."""

    data: bytes
    schema: Any

    @property
    def sync(self) -> bytes:
        """The marker at the end of each block."""
        return self.data[-_SYNC:]


def _header(file: OpenedFile, stream: BinaryIO) -> _Header:
    import fastavro

    recorded = _Recorded(stream)
    try:
        opened = fastavro.reader(cast(Any, recorded))
        return _Header(b"".join(recorded.pieces), opened.writer_schema)
    except OSError:
        raise
    except Exception as error:
        if is_outage(error):
            raise
        raise ReadError(f"{file.url}: not an Avro file: {_own_words(error)}") from error


class _Recorded:
    """A stream that records the bytes that are read from it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.pieces: list[bytes] = []

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.pieces.append(data)
        return data


class _Spliced:
    """The header of a file, followed by the file from one of its blocks on."""

    def __init__(self, header: bytes, stream: BinaryIO) -> None:
        self._header = io.BytesIO(header)
        self._stream = stream
        self._read = 0

    def read(self, size: int) -> bytes:
        data = self._header.read(size) or self._stream.read(size)
        self._read += len(data)
        return data

    def tell(self) -> int:
        return self._read


def _first_block(stream: BinaryIO, header: _Header, start: int) -> int:
    """The offset of the first block of a part. A block belongs to the part with the sync marker before it."""
    begin = len(header.data)
    if start <= begin - _SYNC:
        return begin
    stream.seek(start)
    carried, at = b"", start
    while data := stream.read(1 << 16):
        text = carried + data
        found = text.find(header.sync)
        if found >= 0:
            return at - len(carried) + found + _SYNC
        at += len(data)
        carried = text[-_SYNC + 1 :]
    return at


def _blocks(stream: BinaryIO, header: _Header, offset: int, wanted: Any) -> Iterator[tuple[int, Any]]:
    """The blocks from the byte at `offset` on, each with where it begins."""
    import fastavro

    if stream.seekable():
        stream.seek(offset)
    for block in fastavro.block_reader(cast(Any, _Spliced(header.data, stream)), reader_schema=wanted):
        yield offset, block
        offset += block.size


def _wanted(schema: Any, projection: Projection, resolves: bool) -> Any:
    """The reader's schema to give to fastavro: the author's, or the file's with fewer fields; None for the file's."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        return schema if resolves else None
    names = set(projection.to_read)
    fields = [field for field in schema["fields"] if field["name"] in names]
    if len(fields) == len(schema["fields"]):
        return schema if resolves else None
    kept = {key: value for key, value in schema.items() if not key.startswith("__")}
    return {**kept, "fields": fields}


class _RowNumbers:
    """The number of a row in its file, for messages: reads how many records each block has."""

    def __init__(self, file: OpenedFile, header: _Header) -> None:
        self._file = file
        self._known = len(header.data), 0

    def before(self, offset: int) -> int:
        """How many records the blocks before the byte at `offset` have."""
        at, rows = self._known
        if at > offset:
            return 0
        stream = self._file.raw()
        while at < offset:
            stream.seek(at)
            count, size = _varint(stream), _varint(stream)
            rows += count
            at = stream.tell() + size + _SYNC
        self._known = at, rows
        return rows


def _number(rows: _RowNumbers, offset: int, at: int, record: int) -> int:
    return rows.before(offset) + at + record + 1


def _varint(stream: BinaryIO) -> int:
    """Read one of Avro's variable-length integers from a stream."""
    value = shift = 0
    while True:
        byte = stream.read(1)
        if not byte:
            raise EOFError("it ends in the middle of a block")
        value |= (byte[0] & 0x7F) << shift
        shift += 7
        if not byte[0] & 0x80:
            return (value >> 1) ^ -(value & 1)


def _columns_of(file: OpenedFile, schema: Any) -> RecordSchema:
    try:
        return schema_of_avro(schema)
    except SchemaMismatch as error:
        raise mismatch_error(file.url, error) from error


def schema_of_avro(schema: Any) -> RecordSchema:
    """The columns of records with an Avro schema. Raises SchemaMismatch for a column that can't be read."""
    if not isinstance(schema, Mapping) or schema.get("type") != "record":
        raise ReadError(f"an Avro file of {shorten(schema)} has no columns: only files of records can be read")
    named: dict[str, Any] = {}
    _collect(schema, named)
    fields = []
    for field in schema["fields"]:
        try:
            fields.append(Field(field["name"], *_column(field["type"], named)))
        except _Unreadable as error:
            raise SchemaMismatch(field["name"], str(error)) from None
    return RecordSchema(tuple(fields))


def _collect(schema: Any, named: dict[str, Any]) -> None:
    match schema:
        case list():
            for each in schema:
                _collect(each, named)
        case {"type": "record" | "enum" | "fixed", "name": str(name)}:
            named[name] = schema
            for field in schema.get("fields", ()):
                _collect(field["type"], named)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            _collect(inner, named)


def _column(schema: Any, named: Mapping[str, Any]) -> tuple[Any, bool]:
    """The Arrow type of an Avro schema, None if it has none, and whether it may be null."""
    import pyarrow as pa

    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        inner = _column(kinds[0], named)[0] if len(kinds) == 1 else None
        return inner, len(kinds) < len(schema)
    if isinstance(schema, str):
        if schema in named:
            rest = {name: known for name, known in named.items() if name != schema}
            return _column(named[schema], rest)  # a type that holds itself has no Arrow type
        return _PRIMITIVES.get(schema, lambda: None)(), schema == "null"
    match schema:
        case {"logicalType": str(logical)} if logical in _LOGICAL:
            return _LOGICAL[logical](schema), False
        case {"type": "array", "items": inner}:
            return _of(pa.list_, _column(inner, named)[0]), False
        case {"type": "map", "values": inner}:
            return _of(lambda value: pa.map_(pa.string(), value), _column(inner, named)[0]), False
        case {"type": "record", "fields": fields}:
            columns = [(field["name"], *_column(field["type"], named)) for field in fields]
            if any(type is None for _, type, _ in columns):
                return None, False
            return pa.struct([pa.field(*column) for column in columns]), False
        case {"type": "enum"}:
            return pa.string(), False
        case {"type": "fixed"}:
            return pa.binary(), False
        case {"type": inner}:
            return _column(inner, named)
    return None, False


def _of(make: Callable[[Any], Any], inner: Any) -> Any:
    return None if inner is None else make(inner)


def _type(name: str, *arguments: Any) -> Callable[..., Any]:
    def made(schema: Any = None) -> Any:
        import pyarrow as pa

        return getattr(pa, name)(*arguments)

    return made


_PRIMITIVES: Final[dict[str, Callable[[], Any]]] = {
    "null": _type("null"),
    "boolean": _type("bool_"),
    "int": _type("int32"),
    "long": _type("int64"),
    "float": _type("float32"),
    "double": _type("float64"),
    "string": _type("string"),
    "bytes": _type("binary"),
}


def _decimal(schema: Any) -> Any:
    import pyarrow as pa

    precision = int(schema["precision"])
    return (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, int(schema.get("scale", 0)))


class _Unreadable(Exception):
    pass


def _unread(schema: Any) -> Any:
    raise _Unreadable(f"its logical type is {schema['logicalType']}, of which fastavro doesn't make times")


_LOGICAL: Final[dict[str, Callable[[Any], Any]]] = {
    "timestamp-millis": _type("timestamp", "us", "UTC"),
    "timestamp-micros": _type("timestamp", "us", "UTC"),
    "local-timestamp-millis": _type("timestamp", "us"),
    "local-timestamp-micros": _type("timestamp", "us"),
    "date": _type("date32"),
    "time-millis": _type("time64", "us"),
    "time-micros": _type("time64", "us"),
    "decimal": _decimal,
    "uuid": lambda schema: None,
    "timestamp-nanos": _unread,
    "local-timestamp-nanos": _unread,
}


def reader_schema_of(given: Any, of: str) -> str | None:
    """An author's Avro schema, as JSON. BuildError for what is none."""
    if given is None:
        return None
    try:
        text = given if isinstance(given, str) else json.dumps(given)
        json.loads(text)
    except (TypeError, ValueError) as error:
        raise BuildError(f"{of}: reader_schema is an Avro schema, as JSON or as a dict: {error}") from error
    return text


def _check_schema(text: str, of: str) -> None:
    import fastavro

    try:
        fastavro.parse_schema(json.loads(text))
    except Exception as error:
        raise BuildError(f"{of}: reader_schema is no Avro schema: {_own_words(error)}") from error


def _own_words(error: BaseException) -> str:
    text = str(error).strip().rstrip(".")
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
