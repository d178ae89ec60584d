"""Infers the schema of a DataFrame for which the author gave none.

A field that has the name of a column in an upstream DataFrame inherits that column's type; any other field gets a type
wide enough for the values of later runs, too.

The driver lists the columns whose types may be inherited. Each task converts a field to the inherited type if that
loses nothing, else to the type of its values, and reports the schema. A column inherits its type if this worked in
every task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tidegate.runners.plan import Plan
from tidegate.sdk.data.columns import PLAIN_DECIMAL
from tidegate.sdk.errors import RunError

_CHAR_VARCHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key with which Spark marks a string as char or varchar."""


def inherited_columns(plan: Plan, read: Mapping[int, Any], step: int) -> dict[str, Any]:
    """The columns (Spark's StructFields) whose types the fields of a step's elements may inherit, by name.

    `read` has the schema of each DataFrame by the step that reads it. A name with different types in two upstream
    DataFrames is left out.
    """
    from pyspark.sql.types import StructField

    found: dict[str, Any] = {}
    for source in sorted(_upstream(plan, step).intersection(read)):
        for field in read[source]:
            column = StructField(field.name, _nullable(field.dataType), True, field.metadata)
            same = found.setdefault(column.name, column)
            if same is not None and (same.dataType, same.metadata) != (column.dataType, column.metadata):
                found[column.name] = None
    return {name: column for name, column in found.items() if column is not None and _arrow_type(column) is not None}


def _upstream(plan: Plan, step: int) -> set[int]:
    """The steps upstream of a step, including those of its side inputs."""
    found: set[int] = set()
    waiting = [step]
    while waiting:
        for edge in plan.inputs(waiting.pop()):
            if edge.source not in found:
                found.add(edge.source)
                waiting.append(edge.source)
    return found


def _nullable(kind: Any) -> Any:
    """A Spark type with all its parts nullable: steps may omit fields."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    match kind:
        case StructType():
            return StructType([StructField(part.name, _nullable(part.dataType), True, part.metadata) for part in kind])
        case ArrayType():
            return ArrayType(_nullable(kind.elementType), True)
        case MapType():
            return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind


def preferred_schema(columns: Mapping[str, Any]) -> bytes:
    """The inherited columns as the Arrow schema to which tasks try to convert."""
    import pyarrow as pa

    fields = []
    for name, column in columns.items():
        length = (column.metadata or {}).get(_CHAR_VARCHAR, "").rpartition("(")[2].rstrip(")")
        fields.append(pa.field(name, _arrow_type(column), metadata={"length": length} if length.isdigit() else None))
    return bytes(pa.schema(fields).serialize())


def _arrow_type(column: Any) -> Any:
    """The Arrow type that Spark uses for a column; None if there is none."""
    from pyspark.sql.pandas.types import to_arrow_type

    try:
        return to_arrow_type(column.dataType, timezone="UTC")
    except Exception:  # PySpark raises errors of several classes
        return None


def unify(schemas: Iterable[bytes], inherited: Mapping[str, Any]) -> tuple[bytes, Any] | None:
    """Merge the schemas that tasks reported into one, as Arrow's and as Spark's; None if there were no elements.

    `inherited` has the columns that may keep the type of an upstream DataFrame. Raises RunError if no schema fits all.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    found = [pa.ipc.read_schema(pa.py_buffer(schema)) for schema in dict.fromkeys(schemas)]
    if not found:
        return None
    try:
        merged = pa.unify_schemas(found, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise RunError(f"its elements don't fit one table: {error}. Say what the columns are, with schema=…") from None
    fields, spark_fields = [], []
    for field in merged:
        column = inherited.get(field.name)
        if column is not None and field.type in (_arrow_type(column), pa.null()):
            fields.append(pa.field(field.name, _arrow_type(column)))
            spark_fields.append(column)
        else:
            fields.append(pa.field(field.name, _wide(field.type, field.name)))
            spark_fields.append(StructField(field.name, from_arrow_type(fields[-1].type), True))
    return bytes(pa.schema(fields).serialize()), StructType(spark_fields)


def _wide(kind: Any, name: str) -> Any:
    """The widest type of the same kind, as values of later runs may not fit the narrower one."""
    import pyarrow as pa

    if pa.types.is_null(kind) or pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_decimal(kind):
        digits, scale = PLAIN_DECIMAL.precision, PLAIN_DECIMAL.scale
        scale = max(scale, kind.scale)
        if kind.precision - kind.scale > digits - scale:
            scale = digits - (kind.precision - kind.scale)  # a smaller scale may leave room for all digits
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
