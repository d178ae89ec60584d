"""Reading JSON lines, one object on each line: pyarrow parses records with columns, `json` parses plain dicts."""

from __future__ import annotations

import json
import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, Final

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
from tidegate.io.file_source.pieces import PIECE, first_record, whole_records
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.records.decoder import BatchDecoder
from tidegate.io.records.object_decoder import ObjectDecoder
from tidegate.io.records.problems import Problem, WithProblems, bad_file, excerpt
from tidegate.io.records.projection import Selection
from tidegate.io.records.schema import Field, RecordSchema
from tidegate.io.records.types import LONG_INTEGER, is_rounded, kind_of
from tidegate.sdk.errors import BuildError, ReadError


@dataclass(frozen=True, slots=True)
class JsonFormat(FileFormat):
    """JSON lines. A chunk starts at the offset of a line, in bytes of the decompressed text."""

    name: ClassVar[str] = "json"
    unit: ClassVar = "line"
    may_lack: ClassVar[bool] = True

    encoding: str = "utf-8"
    max_record_bytes: int = 32 << 20

    @property
    def divisible(self) -> bool:
        return not needs_recoding(self.encoding)

    def check(self, of: str) -> None:
        need_pyarrow(of)
        check_encoding(self.encoding, of)
        if type(self.max_record_bytes) is not int or self.max_record_bytes < PIECE:
            raise BuildError(f"{of}: max_record_bytes is a whole number from {PIECE} on, not {self.max_record_bytes!r}")

    def infers_columns(self, selection: Selection) -> bool:
        return selection.schema is None and not _as_objects(selection)

    def takes_columns(self, selection: Selection) -> bool:
        return not _as_objects(selection) and FileFormat.takes_columns(self, selection)

    def takes_conditions(self, selection: Selection) -> bool:
        return not _as_objects(selection) and FileFormat.takes_conditions(self, selection)

    def inspect(self, file: OpenedFile, selection: Selection) -> RecordSchema | None:
        if _as_objects(selection):
            return None
        if selection.schema is not None and all(
            selection.schema.field(condition.column) for condition in selection.where
        ):
            return _readable(selection.schema)
        text = TextFile(file, self.encoding)
        pieces = whole_records(text.stream(), 0, None, self.max_record_bytes, None, text.refuse)
        piece = next((piece for piece in pieces if piece.problem is None), None)
        if piece is None:
            return None
        parser = _Parser(None, "infer")
        records = _objects_in(split_records(piece.data, None))
        runs = good_and_bad(records, lambda data: parser(text.in_utf8(data)), _explain, _errors())
        found = next((found for _, found in runs if type(found) is not Problem), None)
        if found is None:
            return None
        given_names = () if selection.schema is None else selection.schema.names
        _check_exact(file, found.schema, set(given_names), piece.data)
        inferred = [Field(field.name, _of_json(field.type)) for field in found.schema]
        if selection.schema is not None:
            given = _readable(selection.schema).fields
            inferred = [*given, *(field for field in inferred if selection.schema.field(field.name) is None)]
        return RecordSchema(tuple(inferred))

    def read(self, file: OpenedFile, start: Start, reading: Reading) -> Iterator[Chunk]:
        text = TextFile(file, self.encoding)
        stream = text.stream()
        try:
            decode = self._decoder(file, text, reading)
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
        if start is None:
            start = first_record(stream, 0, file.part.start)
        else:
            text.jump(stream, start)
        pieces = whole_records(stream, start, file.part.end, self.max_record_bytes, None, text.refuse)
        yield from chunks_of(text, pieces, start, None, reading, lambda piece: decode(piece.offset, piece.data))

    def _decoder(self, file: OpenedFile, text: TextFile, reading: Reading) -> Any:
        selection = reading.selection
        if _as_objects(selection):
            objects = ObjectDecoder(selection)
            return lambda offset, data: _objects_decoded(text, objects, offset, data)
        found = reading.reference or self.inspect(file, selection)
        if found is None:
            found = selection.schema or RecordSchema(())
        projection = reading.project(file, found, may_lack=True)
        types = {column.name: column for column in (*projection.columns, *projection.for_conditions) if column.in_file}
        fields = [(name, _as_written(found.field(name), column.type)) for name, column in types.items()]
        parser = _Parser(fields, "error" if selection.names is None else "ignore")
        decoder = BatchDecoder(selection, projection, reading.conditions)
        return lambda offset, data: _decoded(text, parser, decoder, offset, data)


def _check_exact(file: OpenedFile, inferred: Any, given: set[str], data: bytes) -> None:
    """Raise ReadError if a column that is inferred to be of floats begins with an integer that no float represents."""
    names = [field.name for field in inferred if kind_of(field.type) == "float" and field.name not in given]
    if not names or not LONG_INTEGER.search(data):
        return
    for line in filter(LONG_INTEGER.search, data.split(b"\n")):
        try:
            values = json.loads(line, parse_int=Decimal)  # an int can't be made of some texts of digits
        except (ValueError, RecursionError):
            continue
        for name in names:
            value = values.get(name) if isinstance(values, dict) else None
            if type(value) is Decimal and is_rounded(value):
                raise ReadError(
                    f"{file.url}, column {name!r}: no column of numbers can have {excerpt(str(value), 60)} and the "
                    f"other values: read as_=dict, or round them by {name!r}: float in schema="
                )


def _as_objects(selection: Selection) -> bool:
    """Whether elements are made of the objects that `json` returns, whatever their members are."""
    return (selection.schema is None and selection.shape.kind == "dict") or selection.shape.kind == "pydantic"


class _Parser:
    """From lines to a record batch."""

    def __init__(self, fields: list[tuple[str, Any]] | None, unexpected: str) -> None:
        import pyarrow as pa
        import pyarrow.json as pj

        self._schema = None if fields is None else pa.schema(fields)
        self._options = pj.ParseOptions(self._schema, newlines_in_values=False, unexpected_field_behavior=unexpected)

    def __call__(self, data: bytes) -> Any:
        import pyarrow as pa
        import pyarrow.json as pj

        if not data.strip():
            return pa.RecordBatch.from_pylist([], self._schema or pa.schema([]))
        options = pj.ReadOptions(use_threads=False, block_size=max(len(data) + 1, 1 << 12))
        table = pj.read_json(pa.BufferReader(data), options, self._options)
        batches = table.combine_chunks().to_batches()
        return batches[0]

    def explain(self, record: bytes, error: Exception) -> Problem:
        """What is wrong with a record that can't be parsed: a member that is no column, by its name, or else."""
        problem = _explain(record, error)
        names = () if self._schema is None else self._schema.names
        if names and problem.reason.startswith("Failed to convert JSON to "):
            return self._explain_fraction(json.loads(record), problem)
        if not names or "unexpected field" not in problem.reason:
            return problem
        new = next((name for name in json.loads(record) if name not in names), None)
        if new is None:
            twice = _repeated(record)  # else it is in an object inside the record
            return problem if twice is None else Problem(0, twice, "it is there twice", problem.text)
        reason = (
            f"it is no column: the first records have {', '.join(names)}. schema= gives the columns, and "
            "schema_evolution='union' reads those of all files"
        )
        return Problem(0, new, reason, problem.text)

    def _explain_fraction(self, object: dict[str, Any], problem: Problem) -> Problem:
        """The problem of a number in an object that its column's type doesn't have: with the column, and with advice if
        it is a column of integers, as one whose first values are whole numbers."""
        for field in self._schema or ():
            value = object.get(field.name)
            if kind_of(field.type) == "integer" and isinstance(value, float):
                advice = f"; with {field.name!r}: float in schema= it may have fractions"
                return Problem(0, field.name, problem.reason + advice, problem.text)
        return problem


def _repeated(record: bytes) -> str | None:
    """The name of a member that an object has twice."""
    pairs: list[tuple[str, Any]] = json.loads(record, object_pairs_hook=list)
    names = [name for name, _ in pairs]
    return next((name for at, name in enumerate(names) if name in names[:at]), None)


def _decoded(text: TextFile, parser: _Parser, decoder: BatchDecoder, offset: int, data: bytes) -> list[Any]:
    try:
        lines = text.in_utf8(data, offset)
        lines = lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines
        batch = parser(lines)
        if _one_a_line(lines, batch.num_rows):
            return decoder.decode(batch)
    except _errors():
        pass
    # Blank lines, several objects in a line, or an error: line by line.
    elements = WithProblems()
    records = _objects_in(split_records(data, None))

    def parse(data: bytes) -> Any:
        batch = parser(text.in_utf8(data))
        if not _one_a_line(data, batch.num_rows):
            raise UnicodeError("it is not one JSON object")
        return batch

    for at, found in good_and_bad(records, parse, parser.explain, _errors()):
        elements += [found] if type(found) is Problem else moved(decoder.decode_all(found), at)
    return elements


def _one_a_line(data: bytes, objects: int) -> bool:
    """Whether each line holds one of the objects, and nothing else: then it begins and ends as one, and two lines can't
    hold one together."""
    return objects == _framed_lines(data)


def _framed_lines(data: bytes) -> int:
    """The number of lines, if each of them begins with an opening and ends with a closing brace; else 0."""
    if not data.startswith(b"{") or not data.endswith((b"}", b"}\n")):
        return 0
    try:
        import numpy as np
    except ImportError:
        lines = data.count(b"\n") + (not data.endswith(b"\n"))
        return lines if data.count(b"}\n{") == lines - 1 else 0
    # The same, in a third of the time.
    letters = np.frombuffer(data, np.uint8)
    breaks = np.flatnonzero(letters[:-1] == _BREAK)
    framed = (letters[breaks - 1] == _CLOSING).all() and (letters[breaks + 1] == _OPENING).all()
    return len(breaks) + 1 if framed else 0


def _count(data: bytes, letter: int) -> int:
    try:
        import numpy as np
    except ImportError:
        return data.count(letter)
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == letter))


_BREAK, _OPENING, _CLOSING = b"\n{}"


def _objects_decoded(text: TextFile, decoder: ObjectDecoder, offset: int, data: bytes) -> list[Any]:
    try:
        lines = text.in_utf8(data, offset)
        return decoder.decode(_parsed(lines.replace(b"\r\n", b"\n") if b"\r" in lines else lines))
    except (ValueError, RecursionError):
        pass
    elements = WithProblems()
    records = _objects_in(split_records(data, None))
    for at, found in good_and_bad(
        records, lambda data: _parsed(text.in_utf8(data)), _explain, (ValueError, RecursionError)
    ):
        elements += [found] if type(found) is Problem else moved(decoder.decode(found), at)
    return elements


_NEWLINE: Final = "\n"
_SEPARATOR: Final = os.urandom(4).hex()
"""Stands between the lines when they are parsed together; random, so that no line can contain it on purpose."""


def _parsed(lines: bytes) -> list[dict[str, Any]]:
    """The objects of lines. ValueError unless each line holds one, and nothing else."""
    # One call for all lines: objects then share the strings of their keys, which takes a third less time.
    text = lines.decode()
    framed = _framed_lines(lines)
    if framed and framed == _count(lines, _OPENING) == _count(lines, _CLOSING):
        # Each line is one pair of braces with something between: if there are as many values as lines, each is an
        # object of one line.
        found: list[Any] = json.loads(f"[{text.removesuffix(_NEWLINE).replace(_NEWLINE, ',')}]")
        if len(found) != framed:
            raise ValueError("a line holds one JSON object")
        return found
    joined = text.replace(_NEWLINE, f',"{_SEPARATOR}",')
    ended = text.endswith(_NEWLINE)
    found = json.loads(f"[{joined}null]" if ended else f"[{joined}]")
    if ended:
        found.pop()
    separators = found[1::2]
    if len(separators) != text.count(_NEWLINE) or separators.count(_SEPARATOR) != len(separators):
        raise ValueError("a line holds one JSON object")
    return _objects(found[::2])


def _objects(found: list[Any]) -> list[dict[str, Any]]:
    if found and set(map(type, found)) != {dict}:
        wrong = next(value for value in found if type(value) is not dict)
        raise ValueError(f"a line holds one JSON object, not {json.dumps(wrong)[:80]}")
    return found


def _objects_in(records: list[bytes]) -> list[bytes]:
    return [stripped + b"\n" for record in records if (stripped := record.removeprefix(BOM_UTF8).strip())]


def _explain(record: bytes, error: Exception) -> Problem:
    text = excerpt(record.rstrip())
    if isinstance(error, UnicodeDecodeError):
        bad = " ".join(f"0x{byte:02x}" for byte in error.object[error.start : error.end][:4])
        return Problem(0, None, f"{bad} is not {error.encoding}{resemblance(record)}", text)
    try:
        value = json.loads(record)
    except (ValueError, RecursionError) as broken:
        where = f" (character {broken.pos + 1})" if isinstance(broken, json.JSONDecodeError) else ""
        reason = broken.msg if isinstance(broken, json.JSONDecodeError) else str(broken)
        part = "; each line of a file of JSON lines has one object" if record.lstrip()[:1] in (b"[", b"{") else ""
        return Problem(0, None, f"it is not JSON: {reason}{where}{part}", text)
    if not isinstance(value, dict):
        return Problem(0, None, f"a line holds one JSON object, not {text[:80]}", text)
    return _explain_object(str(error), text)


def _explain_object(words: str, text: str) -> Problem:
    changed = re.search(r"Column\(/([^)]*)\) changed from (\w+) to (\w+)", words)
    if changed is not None:
        found, expected = (f"an {kind}" if kind[0] in "ao" else f"a {kind}" for kind in (changed[3], changed[2]))
        return Problem(0, changed[1].replace("/", "."), f"it is {found}, where {expected} is expected", text)
    twice = re.search(r"Column\(/([^)]*)\) was specified twice", words)
    if twice is not None:
        return Problem(0, twice[1].replace("/", "."), "it is there twice", text)
    return Problem(0, None, re.sub(r"^JSON parse error: | in row \d+$", "", words.splitlines()[0]), text)


def _errors() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (pa.ArrowInvalid, UnicodeError)


def _readable(schema: RecordSchema) -> RecordSchema:
    """A schema that an author gave. ReadError for a type that JSON can't be read as."""
    for field in schema.fields:
        if field.type is None:
            raise ReadError(
                f"column {field.name!r}: JSON of any type can't be a column; read as_=dict without a schema, or a "
                "pydantic model"
            )
        if kind_of(field.type) in ("map", "duration"):
            raise ReadError(
                f"column {field.name!r}: JSON can't be read as {field.type}; read as_=dict without a schema, or a "
                "pydantic model"
            )
    return schema


def _of_json(type: Any) -> Any:
    """The type of a column as it was inferred, without what JSON doesn't have: times are text."""
    import pyarrow as pa

    match kind_of(type):
        case "timestamp" | "null":
            return pa.string()
        case "list":
            return pa.list_(_of_json(type.value_type))
        case "struct":
            return pa.struct([pa.field(field.name, _of_json(field.type)) for field in type])
    return type


def _as_written(field: Field | None, type: Any) -> Any:
    """The type by which a column is parsed that becomes `type`: times are text in JSON."""
    import pyarrow as pa

    type = type if field is None or field.type is None else field.type
    match kind_of(type):
        case "timestamp" | "date" | "time":
            return pa.string()
        case "list":
            return pa.list_(_as_written(None, type.value_type))
        case "struct":
            return pa.struct([pa.field(field.name, _as_written(None, field.type)) for field in type])
    return type
