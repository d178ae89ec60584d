"""The columns that expressions see of the records of files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegate.io.records.projection import Projected
from tidegate.sdk.data.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    MAX_PRECISION,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    ArrayType,
    ColumnType,
    DecimalType,
    Field,
    MapType,
    Schema,
    StructType,
)


def schema_of_records(columns: Iterable[Projected]) -> Schema:
    """The schema of the records of a file."""
    return Schema(tuple(Field(column.name, column_type_of_arrow(column.type), column.nullable) for column in columns))


def column_type_of_arrow(type: Any) -> ColumnType:
    """The type of a column for the values that a reader makes of an Arrow type; None is an unknown type."""
    if type is None:
        return UNKNOWN
    import pyarrow.types as kinds

    if kinds.is_dictionary(type):
        return column_type_of_arrow(type.value_type)
    for fits, found in (
        (kinds.is_boolean, BOOLEAN),
        (kinds.is_integer, BIGINT),
        (kinds.is_floating, DOUBLE),
        (kinds.is_date, DATE),
        (kinds.is_timestamp, TIMESTAMP),
        (kinds.is_duration, INTERVAL),
        (_is_string, STRING),
        (_is_binary, BINARY),
    ):
        if fits(type):
            return found
    if kinds.is_decimal(type):
        fits = type.precision <= MAX_PRECISION and 0 <= type.scale <= type.precision
        return DecimalType(type.precision, type.scale) if fits else UNKNOWN
    if kinds.is_map(type):
        return MapType(column_type_of_arrow(type.key_type), column_type_of_arrow(type.item_type))
    if kinds.is_struct(type):
        members = (type.field(at) for at in range(type.num_fields))
        return StructType(tuple(Field(each.name, column_type_of_arrow(each.type), each.nullable) for each in members))
    if kinds.is_list(type) or kinds.is_large_list(type) or kinds.is_fixed_size_list(type):
        return ArrayType(column_type_of_arrow(type.value_type), type.value_field.nullable)
    return UNKNOWN


def _is_string(type: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_string(type) or kinds.is_large_string(type))


def _is_binary(type: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_binary(type) or kinds.is_large_binary(type) or kinds.is_fixed_size_binary(type))
