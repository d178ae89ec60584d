"""Writing JSON lines: a JSON object in UTF-8 for each record.

Instants are written as ISO text in UTC, dates and times as ISO text, decimals and UUIDs as text. NaN, infinities and
bytes have no form in JSON, and are refused.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any, ClassVar, Final
from uuid import UUID
from zoneinfo import ZoneInfo

from tidegate.io import compression as _compression
from tidegate.io.compression import Compression
from tidegate.io.file_sink.byte_stream import ByteStreamWriter, empty_stream
from tidegate.io.file_sink.format import FileWriter
from tidegate.io.formats.packages import need_pyarrow
from tidegate.io.formats.writing.record_format import RecordFormat
from tidegate.io.records.row_access import NoRecord, as_mapping, field_names
from tidegate.io.records.row_converter import RowConverter, UnfitValue, instant_of
from tidegate.sdk.errors import BuildError, WriteError, shorten
from tidegate.sdk.time import Timestamp

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_STR: Final = frozenset({str})


@dataclass(frozen=True, slots=True)
class JsonLinesFormat(RecordFormat):
    """Records as lines of JSON; see `WriteToJson`. The compression is never `auto`."""

    compression: Compression = "none"

    name: ClassVar[str] = "json"
    transform: ClassVar[str] = "WriteToJson"
    appends: ClassVar[bool] = True

    def check(self, path: str) -> None:
        if self.schema is not None:
            need_pyarrow(self.transform)
        if self.compression == "zip":
            raise BuildError(f"{self.transform}: zip files are only read; write gzip, bz2, xz or zstd")
        _compression.check(self.compression, self.transform)

    def writers(self, sink: str) -> Callable[[], FileWriter]:
        converter = None if self.schema is None else self.converter(sink)
        zone = None if self.timezone is None else ZoneInfo(self.timezone)
        return lambda: _JsonWriter(self, converter, zone, sink)

    def empty(self) -> bytes:
        return empty_stream(b"", b"", self.compression)


class _JsonWriter(ByteStreamWriter):
    def __init__(
        self, format: JsonLinesFormat, converter: RowConverter | None, zone: ZoneInfo | None, sink: str
    ) -> None:
        super().__init__(b"", b"", format.compression)
        self._without = format.without
        self._converter = converter
        self._zone = zone
        self._sink = sink
        self._encode = _encoder(self._default)

    def encode(self, values: Sequence[Any]) -> bytes:
        if self._converter is not None:
            self._converter.batch(values)  # refuses values that don't fit the schema
        try:
            lines = list(map(self._encode, self._objects(values)))
            lines.append("")
            return "\n".join(lines).encode()
        except (NoRecord, UnfitValue, TypeError, ValueError, RecursionError):
            pass  # find the element
        for value in values:
            try:
                self._encode(self._objects([value])[0]).encode()
            except NoRecord as error:
                raise WriteError(f"{self._sink}: {shorten(error.element)} can't be written: {error.reason}") from None
            except (UnfitValue, TypeError, ValueError, RecursionError) as error:
                raise WriteError(f"{self._sink}: {self._column(value)}{shorten(value)}: {error}") from None
        raise WriteError(f"{self._sink}: the elements can't be written as JSON")

    def _objects(self, records: Sequence[Any]) -> list[dict[str, Any]]:
        """The records as dicts whose values the encoder knows, or `_default` replaces."""
        classes = set(map(type, records))
        objects: list[dict[str, Any]]
        if classes == {dict}:
            objects = list(records)
        elif len(classes) == 1 and issubclass(next(iter(classes)), tuple) and field_names(records[0]) is not None:
            if len(fields := set(map(field_names, records))) == 1:
                (names,) = fields
                assert names is not None
                objects = [dict(zip(names, record)) for record in records]
            else:
                objects = list(map(as_mapping, records))
        else:
            objects = list(map(as_mapping, records))
        if self._without:
            objects = [{name: item for name, item in each.items() if name not in self._without} for each in objects]
        if not set(map(type, chain.from_iterable(set(map(tuple, objects))))) <= _STR:
            odd = next(record for record, each in zip(records, objects) if not set(map(type, each)) <= _STR)
            raise NoRecord("the names of its fields must be strings", odd)
        found = set(map(type, chain.from_iterable(map(_VALUES, objects))))
        if found <= _PLAIN:
            return objects
        return [{name: self._plain(item) for name, item in each.items()} for each in objects]

    def _plain(self, value: Any) -> Any:
        """A value with dicts in place of tuples that are records, which the encoder would write as arrays."""
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Mapping):
            return {key: self._plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            if field_names(value) is not None:
                return self._plain(as_mapping(value))
            return value if set(map(type, value)) <= _PLAIN else [self._plain(item) for item in value]
        return value

    def _default(self, value: Any) -> Any:
        """A replacement, which the encoder knows, for a value that it doesn't."""
        match value:
            case Timestamp() | datetime.datetime():
                return instant_of(value, self._zone).astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
            case datetime.date() | datetime.time():
                return value.isoformat()
            case Decimal() | UUID():
                return str(value)
            case bytes():
                raise UnfitValue("bytes have no form in JSON: decode them, or encode them as Base64 text")
        if field_names(value) is None:
            raise UnfitValue(f"{shorten(value, 60)}, a {type(value).__name__}, has no form in JSON")
        return self._plain(as_mapping(value))

    def _column(self, record: Any) -> str:
        """The beginning of a message about a record: the first column that can't be written."""
        for name, value in as_mapping(record).items():
            try:
                self._encode(self._plain(value)).encode()
            except (UnfitValue, TypeError, ValueError, RecursionError):
                return f"column {name!r} of "
        return ""


_VALUES: Final = dict.values


def _encoder(default: Callable[[Any], Any]) -> Callable[[Any], str]:
    """A function from a value to its JSON. `default` replaces values that JSON doesn't have."""
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, default=default)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # not CPython
        return encoder.encode
    # `JSONEncoder.encode` does the same, and makes such an object for each value.
    pieces = make(None, default, json.encoder.encode_basestring, None, ": ", ", ", False, False, False)
    return lambda value: "".join(pieces(value, 0))
