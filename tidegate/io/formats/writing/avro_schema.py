"""The Avro schema of columns, from their Arrow types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from tidegate.io.records.types import kind_of

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class NoAvroType(ValueError):
    """A column that Avro can't represent; the message names it."""


def avro_schema(schema: Any) -> dict[str, Any]:
    """The Avro schema of records with the columns of a `pyarrow.Schema`. Raises NoAvroType for a name or a type that
    Avro doesn't have.

    >>> import pyarrow as pa
    >>> avro_schema(pa.schema([pa.field("n", pa.int64(), nullable=False)]))["fields"]
    [{'name': 'n', 'type': 'long'}]
    """
    return _record("Record", schema, count(1))


def _record(name: str, fields: Any, numbers: Iterator[int]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [_field(field, numbers) for field in fields]}


def _field(field: Any, numbers: Iterator[int]) -> dict[str, Any]:
    if not _NAME.fullmatch(field.name):
        raise NoAvroType(f"column {field.name!r}: Avro's names have ASCII letters, digits and underscores")
    found = _type(field.type, field.name, numbers)
    if not field.nullable or found == "null":
        return {"name": field.name, "type": found}
    return {"name": field.name, "type": ["null", found], "default": None}


def _type(type: Any, column: str, numbers: Iterator[int]) -> Any:
    import pyarrow as pa

    match kind_of(type):
        case "null":
            return "null"
        case "boolean":
            return "boolean"
        case "integer":
            return "int" if type.bit_width < 32 or type.equals(pa.int32()) else "long"
        case "float":
            return "double" if type.equals(pa.float64()) else "float"
        case "string":
            return "string"
        case "binary":
            return "bytes"
        case "date":
            return {"type": "int", "logicalType": "date"}
        case "timestamp":
            return {"type": "long", "logicalType": f"{'' if type.tz else 'local-'}timestamp-micros"}
        case "time":
            return {"type": "long", "logicalType": "time-micros"}
        case "decimal":
            return {"type": "bytes", "logicalType": "decimal", "precision": type.precision, "scale": type.scale}
        case "list":
            return {"type": "array", "items": _nullable(type.value_field, column, numbers)}
        case "map" if kind_of(type.key_type) == "string":
            return {"type": "map", "values": _nullable(type.item_field, column, numbers)}
        case "struct":
            return _record(f"Record{next(numbers)}", type, numbers)
    raise NoAvroType(f"column {column!r} is {type}, which Avro doesn't have")


def _nullable(field: Any, column: str, numbers: Iterator[int]) -> Any:
    found = _type(field.type, column, numbers)
    return ["null", found] if field.nullable and found != "null" else found
