"""What the columns of a DataFrame are that nobody has said: kept where its elements' fields are columns that were read,
else wide enough for whatever values the next run has.

The driver names, for each DataFrame that is made, the columns it may keep: those of the DataFrames that its elements
come from, by name. Tasks convert to such a type what it holds without loss, and all else by its values; they tell which
types that gave. A column keeps its type if every task could.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidegate.runners.plan import Plan
from tidegate.sdk.errors import RunError

_CHAR_VARCHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata in which Spark notes that a string is a char or a varchar."""

WIDE_DECIMAL: Final = (38, 18)
"""Digits, and those after the point: what Spark itself takes for Decimals of which it knows no more."""


def columns_read(plan: Plan, read: Mapping[int, Any], step: int) -> dict[str, Any]:
    """The columns (Spark's StructFields) that fields of a step's elements may be, by name.

    `read` holds the schemas of DataFrames by the step that reads them. A name that means different types in two
    DataFrames from which the elements come means none here.
    """
    from pyspark.sql.types import StructField

    found: dict[str, Any] = {}
    for source in sorted(_before(plan, step).intersection(read)):
        for field in read[source]:
            column = StructField(field.name, _nullable(field.dataType), True, field.metadata)
            same = found.setdefault(column.name, column)
            if same is not None and (same.dataType, same.metadata) != (column.dataType, column.metadata):
                found[column.name] = None
    return {name: column for name, column in found.items() if column is not None and _arrow_type(column) is not None}


def _before(plan: Plan, step: int) -> set[int]:
    """The steps from which a step's elements come, side inputs among them."""
    found: set[int] = set()
    waiting = [step]
    while waiting:
        for edge in plan.inputs(waiting.pop()):
            if edge.source not in found:
                found.add(edge.source)
                waiting.append(edge.source)
    return found


def _nullable(kind: Any) -> Any:
    """A type of Spark's whose parts may be missing: steps may leave them out."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case StructType():
            return StructType([StructField(part.name, _nullable(part.dataType), True, part.metadata) for part in kind])
        case ArrayType():
            return ArrayType(_nullable(kind.elementType), True)
        case MapType():
            return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def wished(columns: Mapping[str, Any]) -> bytes:
    """Columns as the Arrow schema that tasks look at."""
    import pyarrow as pa  # type: ignore[import-untyped]

    fields = []
    for name, column in columns.items():
        length = (column.metadata or {}).get(_CHAR_VARCHAR, "").rpartition("(")[2].rstrip(")")
        fields.append(pa.field(name, _arrow_type(column), metadata={"length": length} if length.isdigit() else None))
    return bytes(pa.schema(fields).serialize())


def _arrow_type(column: Any) -> Any:
    """The Arrow type in which Spark hands a column over; None if there is none."""
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        return to_arrow_type(column.dataType, timezone="UTC")
    except Exception:  # PySpark's own, of several classes
        return None


def united(schemas: Iterable[bytes], kept: Mapping[str, Any]) -> tuple[bytes, Any] | None:
    """One Arrow schema for columns that turned out to be these, and what Spark calls it; None without elements.

    `kept` are Spark's columns whose types they may keep. RunError if no schema holds them all.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    found = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in dict.fromkeys(schemas)]
    if not found:
        return None
    try:
        whole = pa.unify_schemas(found, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise RunError(f"its elements don't fit one table: {error}. Say what the columns are, with schema=…") from None
    fields, spoken = [], []
    for field in whole:
        column = kept.get(field.name)
        if column is not None and field.type in (_arrow_type(column), pa.null()):
            fields.append(pa.field(field.name, _arrow_type(column)))
            spoken.append(column)
        else:
            fields.append(pa.field(field.name, _wide(field.type, field.name)))
            spoken.append(StructField(field.name, from_arrow_type(fields[-1].type), True))
    return bytes(pa.schema(fields).serialize()), StructType(spoken)


def _wide(kind: Any, name: str) -> Any:
    """A type that holds what values of this one may be like in another run."""
    import pyarrow as pa

    if pa.types.is_null(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        digits, scale = WIDE_DECIMAL
        scale = max(scale, kind.scale)
        if kind.precision - kind.scale > digits - scale:
            scale = digits - (kind.precision - kind.scale)  # less room after the point, if that is enough
        if scale < kind.scale:
            raise RunError(f"field {name!r}: its decimals take more than {digits} digits; give schema=…")
        return pa.decimal128(digits, scale)
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _wide(part.type, f"{name}.{part.name}")) for part in kind])
    if pa.types.is_map(kind):
        return pa.map_(_wide(kind.key_type, name), _wide(kind.item_type, name))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_wide(kind.value_type, name))
    return kind
