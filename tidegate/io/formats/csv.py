"""Reading CSV: the file is divided into whole records at line ends outside of quotes, and pyarrow parses them."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, BinaryIO, ClassVar, Final

from tidegate.io.byte_streams import check_encoding, needs_recoding
from tidegate.io.file_source.format import Chunk, FileFormat, Reading, Start
from tidegate.io.file_source.lines import (
    TextFile,
    chunks_of,
    damage,
    good_and_bad,
    is_damaged,
    moved,
    resemblance,
    split_records,
)
from tidegate.io.file_source.opened import OpenedFile
from tidegate.io.file_source.pieces import PIECE, Piece, first_record, whole_records
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.records.decoder import BatchDecoder
from tidegate.io.records.problems import Problem, WithProblems, bad_file, excerpt
from tidegate.io.records.projection import Projection, Selection
from tidegate.io.records.schema import Field, RecordSchema
from tidegate.io.records.types import LONG_INTEGER, is_rounded, kind_of, zone_of_type
from tidegate.sdk.errors import BuildError, ReadError

DEFAULT_NULLS: Final = ("", "#N/A", "#NA", "N/A", "NA", "NULL", "NaN", "nan", "null", "None", "none")


@dataclass(frozen=True, slots=True)
class CsvFormat(FileFormat):
    """CSV files. A chunk starts at the offset of a record, in bytes of the decompressed text."""

    name: ClassVar[str] = "csv"
    unit: ClassVar = "line"

    delimiter: str = ","
    quote_char: str | None = '"'
    escape_char: str | None = None
    column_names: tuple[str, ...] | None = None
    null_values: tuple[str, ...] = DEFAULT_NULLS
    strings_can_be_null: bool = False
    encoding: str = "utf-8"
    splittable: bool = True
    max_record_bytes: int = 32 << 20

    @property
    def divisible(self) -> bool:
        return self.splittable and not needs_recoding(self.encoding)

    def check(self, of: str) -> None:
        need_pyarrow(of)
        check_encoding(self.encoding, of)
        for name, char in (
            ("delimiter", self.delimiter),
            ("quote_char", self.quote_char),
            ("escape_char", self.escape_char),
        ):
            if char is None and name != "delimiter":
                continue
            if not isinstance(char, str) or len(char) != 1 or not char.isascii() or char in "\r\n":
                raise BuildError(f"{of}: {name} is one ASCII character, not {char!r}")
        if type(self.max_record_bytes) is not int or self.max_record_bytes < PIECE:
            raise BuildError(f"{of}: max_record_bytes is a whole number from {PIECE} on, not {self.max_record_bytes!r}")
        names = self.column_names or ()
        if len(set(names)) < len(names):
            raise BuildError(f"{of}: column_names are different names, not {list(names)}")

    def inspect(self, file: OpenedFile, selection: Selection) -> RecordSchema | None:
        text = TextFile(file, self.encoding)
        stream = text.stream()
        names, body = self._header(text, stream)
        if not names:
            return None
        inferred = {} if _knows_all(selection, names) else self._inferred(text, stream, names, body)
        if inferred is None:
            return None
        return RecordSchema(tuple(Field(name, _parsed_type(name, inferred, selection)) for name in names))

    def read(self, file: OpenedFile, start: Start, reading: Reading) -> Iterator[Chunk]:
        text = TextFile(file, self.encoding)
        stream = text.stream()
        try:
            names, body = self._header(text, stream)
            if not names:
                return
            found = self._found(file, names, reading)
            projection = reading.project(file, found)
        except ReadError as error:
            if reading.refuses(error):
                raise
            yield 0, [bad_file(file.url, error)]
            return
        except Exception as error:
            if not is_damaged(file, error):
                raise
            yield 0, [damage(file, error, reading)]
            return
        parser = _Parser(self, names, projection, found)
        decoder = BatchDecoder(reading.selection, projection, reading.conditions)
        if start is None:
            start = first_record(stream, body, file.part.start)
        else:
            text.jump(stream, start)
        quote = self._quote
        pieces = whole_records(stream, start, file.part.end, self.max_record_bytes, quote, text.refuse)
        yield from chunks_of(text, pieces, start, quote, reading, lambda piece: _decoded(text, piece, parser, decoder))

    def _found(self, file: OpenedFile, names: tuple[str, ...], reading: Reading) -> RecordSchema:
        """The columns of a file, as they are parsed: as those of the other files, or as the author's schema says."""
        selection = reading.selection
        schemas = [reading.reference] if reading.reference is not None else []
        known = set(reading.reference.names) if reading.reference is not None else set()
        if not schemas or (selection.schema is not None and set(names) & set(selection.schema.names) - known):
            schemas.append(self.inspect(file, selection) or RecordSchema(()))

        def field(name: str) -> Field:
            return next((found for each in schemas if (found := each.field(name)) is not None), Field(name, _string()))

        return RecordSchema(tuple(field(name) for name in names))

    @property
    def _quote(self) -> bytes | None:
        return None if self.quote_char is None else self.quote_char.encode()

    def _header(self, text: TextFile, stream: BinaryIO) -> tuple[tuple[str, ...], int]:
        """The names of the columns, none for an empty file, and the offset of the first record, where the stream stands
        afterwards."""
        if self.column_names is not None:
            return self.column_names, 0
        line = body = b""
        while part := stream.readline(PIECE):
            body += part
            line = body.strip(b"\r\n")
            if len(body) > self.max_record_bytes:
                raise text.refuse(0, f"the header has more than {self.max_record_bytes:,} bytes (max_record_bytes)")
            odd = self._quote is not None and body.count(self._quote) % 2
            if not odd and line and (part.endswith(b"\n") or len(part) < PIECE):
                break
        try:
            header = text.in_utf8(body, 0).decode()
        except UnicodeDecodeError as error:
            raise text.refuse(0, f"the header is not {self.encoding}: {error.reason}{resemblance(body)}") from error
        if not header.strip():
            return (), len(body)
        if header.startswith("{") and _is_object(header):
            raise text.refuse(
                0, f"the header is a JSON object, {excerpt(header.strip(), 60)}: tg.ReadFromJson reads lines of JSON"
            )
        import csv

        options: dict[str, Any] = {"quotechar": self.quote_char} if self.quote_char else {"quoting": csv.QUOTE_NONE}
        lines = io.StringIO(header.lstrip("\r\n"), newline="")
        rows = csv.reader(lines, delimiter=self.delimiter, escapechar=self.escape_char, **options)
        names = tuple(next(rows, ()))
        if any(rows):
            raise text.refuse(0, f"lines end with a carriage return alone, after {names[-1]!r}: they need line feeds")
        doubled = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if doubled is not None:
            raise text.refuse(0, f"the header has {doubled!r} twice: give names of your own, as in column_names=[…]")
        return names, len(body)

    def _inferred(self, text: TextFile, stream: BinaryIO, names: tuple[str, ...], body: int) -> dict[str, Any] | None:
        """The types of the columns in the first records; None if there are no records."""
        pieces = whole_records(stream, body, None, self.max_record_bytes, self._quote, text.refuse)
        piece = next((piece for piece in pieces if piece.problem is None), None)
        if piece is None:
            return None
        parser = _Parser(self, names, None, None)
        try:
            schema = parser(text.in_utf8(piece.data, piece.offset)).schema
        except _errors():
            records = split_records(piece.data, self._quote)
            good = next(
                (
                    found
                    for _, found in good_and_bad(records, parser, _explain, _errors())
                    if type(found) is not Problem
                ),
                None,
            )
            if good is None:
                return {}
            schema = good.schema
        types = {field.name: field.type for field in schema}
        inexact = [name for name, type in types.items() if kind_of(type) == "float"]
        if inexact and LONG_INTEGER.search(piece.data):
            as_text = _Parser(self, names, None, RecordSchema(tuple(Field(name, _string()) for name in inexact)))
            for at, found in good_and_bad(split_records(piece.data, self._quote), as_text, _explain, _errors()):
                del at
                for name in inexact if type(found) is not Problem else ():
                    if any(map(_is_long_and_rounded, found.column(name).to_pylist())):
                        types[name] = _string()
        return types


def _is_long_and_rounded(text: str | None) -> bool:
    """Whether a text, None for a null, is an integer that a float can't represent."""
    return text is not None and re.fullmatch(r"[-+]?\d{16,}", text) is not None and is_rounded(Decimal(text))


class _Parser:
    """From the bytes of records to a record batch of the columns that are read."""

    def __init__(
        self, format: CsvFormat, names: tuple[str, ...], projection: Projection | None, found: RecordSchema | None
    ) -> None:
        import pyarrow.csv as csv

        self.names = names
        read = names if projection is None else tuple(dict.fromkeys(projection.to_read))
        self._counts_only = not read
        types = {} if found is None else {field.name: field.type for field in found.fields if field.type is not None}
        self._parse = csv.ParseOptions(
            delimiter=format.delimiter,
            quote_char=format.quote_char or False,
            double_quote=format.quote_char is not None,
            escape_char=format.escape_char or False,
            newlines_in_values=True,
        )
        self._convert = csv.ConvertOptions(
            column_types=types,
            include_columns=list(read or names[:1]),
            null_values=list(format.null_values),
            strings_can_be_null=format.strings_can_be_null,
        )

    def __call__(self, data: bytes) -> Any:
        import pyarrow as pa
        import pyarrow.csv as csv

        options = csv.ReadOptions(
            column_names=list(self.names), use_threads=False, block_size=max(len(data) + 1, 1 << 12)
        )
        if not data.strip(b"\r\n"):
            return pa.record_batch([pa.array([], pa.null())] * len(self.names), names=list(self.names))
        table = csv.read_csv(pa.BufferReader(data), options, self._parse, self._convert)
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


def _decoded(text: TextFile, piece: Piece, parser: _Parser, decoder: BatchDecoder) -> list[Any]:
    try:
        return decoder.decode(parser(text.in_utf8(piece.data, piece.offset)))
    except _errors():
        pass
    elements = WithProblems()
    records = [record for record in split_records(piece.data, _quote_of(parser)) if record.strip(b"\r\n")]
    for at, found in good_and_bad(records, lambda data: parser(text.in_utf8(data)), parser_explains(parser), _errors()):
        elements += [found] if type(found) is Problem else moved(decoder.decode_all(found), at)
    return elements


def _quote_of(parser: _Parser) -> bytes | None:
    quote = parser._parse.quote_char
    return quote.encode() if quote else None


def parser_explains(parser: _Parser) -> Any:
    """A function that describes the error of a single record: the column and the reason, without the parser's row."""

    def explain(record: bytes, error: Exception) -> Problem:
        problem = _explain(record, error)
        number = re.search(r"In CSV column #(\d+)", str(error))
        if number is None or int(number[1]) >= len(parser.names):
            return problem
        reason = str(error).split("CSV conversion error ", 1)[-1].splitlines()[0].split(". If ")[0]
        name = parser.names[int(number[1])]
        return Problem(0, name, f"it can't be converted {reason}{_other_type(name, reason)}", problem.text)

    return explain


def _other_type(column: str, reason: str) -> str:
    """Which type the schema could give a column for a value that its own type doesn't have."""
    if not reason.startswith("to "):
        return ""
    value = reason.partition("invalid value ")[2].strip("'")
    if reason.startswith(("to int", "to uint")) and _is_number(value):
        return f"; with {column!r}: float in schema= it may have fractions"
    return f"; with {column!r}: str in schema= it is text"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _explain(record: bytes, error: Exception) -> Problem:
    if isinstance(error, UnicodeDecodeError):
        bad = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end][:4])
        return Problem(0, None, f"{bad} is not {error.encoding}", excerpt(record.rstrip()))
    reason = re.sub(r"^CSV parse error: (Row #\d+: )?", "", str(error)).splitlines()[0]
    return Problem(0, None, re.sub(r"(Expected \d+ columns, got \d+).*", r"\1", reason), excerpt(record.rstrip()))


def _errors() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (pa.ArrowInvalid, UnicodeDecodeError)


def _string() -> Any:
    import pyarrow as pa

    return pa.string()


def _knows_all(selection: Selection, names: tuple[str, ...]) -> bool:
    """Whether the schema suffices for parsing. It doesn't if there are times, whose texts may have a zone or not."""
    schema = selection.schema
    if schema is None or any(condition.column not in schema.names for condition in selection.where):
        return False
    return all(field.type is None or kind_of(field.type) != "timestamp" for field in schema.fields)


_SCALARS: Final = frozenset(
    {"boolean", "integer", "float", "decimal", "string", "binary", "timestamp", "date", "time", "duration"}
)


def _parsed_type(name: str, inferred: dict[str, Any], selection: Selection) -> Any:
    """The type to parse a column as: the schema's, else that of the first records, else text."""
    import pyarrow as pa

    field = selection.schema.field(name) if selection.schema is not None else None
    found = inferred.get(name)
    if field is not None:
        if field.type is None:
            return pa.string()
        kind = kind_of(field.type)
        if kind not in _SCALARS:
            raise ReadError(f"column {name!r}: CSV has no {field.type}; read it as str")
        if kind != "timestamp":
            return field.type
        if found is not None and kind_of(found) == "timestamp":
            return pa.timestamp("us", "UTC" if zone_of_type(found) else None)
        return pa.timestamp("us", None if selection.timezone else "UTC")
    if found is None or kind_of(found) == "null":
        return pa.string()
    match kind_of(found):
        case "timestamp":
            return pa.timestamp("us", "UTC" if zone_of_type(found) else None)
        case "time":
            return pa.time64("us")
        case "binary":
            return pa.string()
    return found
