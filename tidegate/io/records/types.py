"""Which Arrow type a file's column becomes: by its own type, by the schema, and by the types of other files.

Python has no nanoseconds, and an instant needs a time zone: instants become `timestamp[us, UTC]`, whatever they were,
and those without a zone are refused unless the author names one. A column fits a schema if it is of the same kind, or
if it can be widened: integers fit `float` and `Decimal`, and a column of nulls fits anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from tidegate.io.records.problems import SchemaMismatch
from tidegate.io.records.schema import Field, RecordSchema

LONG_INTEGER: Final = re.compile(rb"\d{16}")
"""Is in every text with an integer that a float can't represent."""


def is_rounded(integer: Decimal) -> bool:
    """Whether an integer is one that a float can't represent."""
    try:
        return int(float(integer)) != integer
    except OverflowError:  # the float is infinite
        return True


@lru_cache(maxsize=1024)
def kind_of(type: Any) -> str:
    """The kind of an Arrow type: types of one kind have the same Python values."""
    import pyarrow.types as t

    if t.is_dictionary(type) or t.is_run_end_encoded(type):
        return kind_of(type.value_type)
    tests = (
        ("null", t.is_null),
        ("boolean", t.is_boolean),
        ("integer", t.is_integer),
        ("float", t.is_floating),
        ("decimal", t.is_decimal),
        ("string", lambda type: t.is_string(type) or t.is_large_string(type) or t.is_string_view(type)),
        ("binary", lambda type: t.is_binary(type) or t.is_large_binary(type) or t.is_binary_view(type)),
        ("binary", t.is_fixed_size_binary),
        ("timestamp", t.is_timestamp),
        ("date", t.is_date),
        ("time", t.is_time),
        ("duration", t.is_duration),
        ("list", lambda type: t.is_list(type) or t.is_large_list(type) or t.is_fixed_size_list(type)),
        ("struct", t.is_struct),
        ("map", t.is_map),
    )
    return next((kind for kind, test in tests if test(type)), str(type))


def fit_for_python(type: Any, column: str, timezone: str | None) -> Any:
    """The type to cast a column to before it is converted to Python values. Raises SchemaMismatch for naive timestamps
    without a `timezone`."""
    import pyarrow as pa

    def inner(nested: Any) -> Any:
        return fit_for_python(nested, column, timezone)

    match kind_of(type):
        case "timestamp":
            if zone_of_type(type) is None and timezone is None:
                raise SchemaMismatch(
                    column,
                    "its times have no time zone, so they aren't instants: say which zone they are in, as in "
                    "timezone='UTC'",
                )
            return pa.timestamp("us", "UTC")
        case "time":
            return pa.time64("us")
        case "duration":
            return pa.duration("us")
        case "date":
            return pa.date32()
        case "list":
            if pa.types.is_large_list(type):
                return pa.large_list(inner(type.value_type))
            if pa.types.is_fixed_size_list(type):
                return pa.list_(inner(type.value_type), type.list_size)
            return pa.list_(inner(type.value_type))
        case "struct":
            return pa.struct([pa.field(field.name, inner(field.type), field.nullable) for field in type])
        case "map":
            return pa.map_(inner(type.key_type), inner(type.item_type))
        case _ if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
            return type.value_type
        case _ if pa.types.is_float16(type):
            return pa.float32()
        case _:
            return type


def zone_of_type(type: Any) -> str | None:
    """The time zone of a type of timestamps; None for naive ones."""
    import pyarrow as pa

    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        type = type.value_type
    zone: str | None = type.tz
    return zone


def resolve(found: Any, field: Field, timezone: str | None) -> Any:
    """The type that a column of type `found` is cast to for a field. Raises SchemaMismatch if it doesn't fit."""
    own = fit_for_python(found, field.name, timezone)
    if field.type is None:
        return own
    wanted = fit_for_python(field.type, field.name, timezone or "UTC")
    return _resolved(own, wanted, field.exact, field.name)


def _resolved(found: Any, wanted: Any, exact: bool, column: str) -> Any:
    import pyarrow as pa

    kinds = kind_of(found), kind_of(wanted)
    if found.equals(wanted):
        return wanted
    match kinds:
        case ("list", "list"):
            inner = _resolved(found.value_type, wanted.value_type, exact, column)
            return pa.large_list(inner) if pa.types.is_large_list(found) else pa.list_(inner)
        case ("map", "map"):
            return pa.map_(
                _resolved(found.key_type, wanted.key_type, exact, column),
                _resolved(found.item_type, wanted.item_type, exact, column),
            )
        case ("struct", "struct"):
            by_name = {field.name: field for field in wanted}
            return pa.struct(
                [
                    pa.field(field.name, _resolved(field.type, by_name[field.name].type, exact, column), field.nullable)
                    if field.name in by_name
                    else field
                    for field in found
                ]
            )
        case ("null", _) | ("integer", "float" | "decimal"):
            return wanted
        case ("binary", "string") if exact:
            return wanted
        case (one, other) if one == other:
            return wanted if exact else found
    raise SchemaMismatch(column, f"it is {found} in the file, and the schema says {wanted}")


def unify(schemas: Sequence[RecordSchema], names: Sequence[str]) -> RecordSchema:
    """The columns of files together: by name, each type widened to what fits all of them, nullable where a file lacks
    it. Raises SchemaMismatch for types without a common one. `names` are those of the files, for messages."""
    merged: dict[str, Field] = {}
    for schema, name in zip(schemas, names):
        for field in schema.fields:
            known = merged.get(field.name)
            merged[field.name] = field if known is None else _wider(known, field, name)
    complete = [{field.name for field in schema.fields} for schema in schemas]
    fields = [
        field if all(field.name in there for there in complete) else Field(field.name, field.type, True, field.exact)
        for field in merged.values()
    ]
    return RecordSchema(tuple(fields))


def _wider(known: Field, other: Field, file: str) -> Field:
    nullable = known.nullable or other.nullable
    if known.type is None or other.type is None:
        return Field(known.name, None, nullable)
    if known.type.equals(other.type):
        return Field(known.name, known.type, nullable)
    import pyarrow as pa

    pair = [pa.schema([pa.field("it", _plain(field.type))]) for field in (known, other)]
    try:
        if {kind_of(known.type), kind_of(other.type)} == {"timestamp"}:
            return Field(known.name, _wider_timestamp(known, other), nullable)
        type = pa.unify_schemas(pair, promote_options="permissive").field("it").type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise SchemaMismatch(
            known.name, f"it is {other.type} in {file} and {known.type} in another file, which have no common type"
        ) from None
    return Field(known.name, type, nullable)


def _wider_timestamp(known: Field, other: Field) -> Any:
    """Instants need no common zone; naive times and instants have nothing in common."""
    import pyarrow as pa

    zones = zone_of_type(known.type), zone_of_type(other.type)
    if (zones[0] is None) != (zones[1] is None):
        raise pa.ArrowInvalid("naive times and instants")
    return pa.timestamp("us", zones[0])


def _plain(type: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(type) or pa.types.is_run_end_encoded(type):
        return type.value_type
    return type


def check_same(found: RecordSchema, reference: RecordSchema, of_file: str) -> None:
    """Raise SchemaMismatch if the columns of a file are not those of the first one, by name and kind."""
    for field in found.fields:
        known = reference.field(field.name)
        if known is None:
            raise SchemaMismatch(field.name, f"{of_file} doesn't have it; {_UNION}")
        if known.type is None or field.type is None or "null" in (kind_of(known.type), kind_of(field.type)):
            continue
        if kind_of(field.type) != kind_of(known.type) or (
            kind_of(field.type) == "timestamp"
            and (zone_of_type(field.type) is None) != (zone_of_type(known.type) is None)
        ):
            raise SchemaMismatch(field.name, f"it is {field.type}, and {known.type} in {of_file}")
    for known in reference.fields:
        if found.field(known.name) is None:
            raise SchemaMismatch(known.name, f"it is missing, and {of_file} has it; {_UNION}")


_UNION: Final = "schema_evolution='union' reads the columns of all files, with None where one lacks them"
