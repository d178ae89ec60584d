"""Schemas of element types: the columns that dataclasses, NamedTuples, TypedDicts, pydantic models and Rows declare.

>>> from dataclasses import dataclass
>>> @dataclass
... class Order:
...     user: str
...     price: float | None
>>> print(schema_of(Order))
user string not null, price double
"""

from __future__ import annotations

import dataclasses
import datetime
import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, get_args

from tidegate.sdk.data.columns import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    MAX_PRECISION,
    PLAIN_DECIMAL,
    SCALARS,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    VOID,
    Access,
    ArrayType,
    ColumnType,
    DecimalType,
    Field,
    MapType,
    Schema,
    StructType,
    type_named,
)
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import Duration, Timestamp
from tidegate.sdk.typehints.hints import (
    class_of,
    field_types,
    is_typed_dict,
    is_union,
    origin_of,
    plain_hint,
    wrapped_hint,
)


def schema_of(hint: Any) -> Schema | None:
    """The schema of elements of a type; None if the type doesn't name its fields. Never raises.

    A field of a type that no column has is of type `unknown`.
    """
    if origin_of(hint) is Annotated:
        for each in get_args(hint)[1:]:
            if isinstance(each, Schema):
                return each
    plain = plain_hint(hint)
    if plain is Any or is_union(plain):
        return None
    cls, _ = class_of(plain)
    names = _field_names(cls)
    if names is None:
        return None
    known = _with_notes(cls, field_types(plain))
    return Schema(tuple(Field(name, *column_of(known.get(name, Any))) for name in names))


def with_schema(hint: Any, schema: Schema) -> Any:
    """A hint whose elements have this schema, and are otherwise of the type `hint`."""
    return Annotated[hint, schema]


def access_of(hint: Any) -> Access:
    """How fields of elements of this type are read."""
    plain = plain_hint(hint)
    if plain is Any or is_union(plain):
        return "either"
    cls, _ = class_of(plain)
    if not isinstance(cls, type):
        return "either"
    if not is_typed_dict(cls) and (_field_names(cls) is not None or hasattr(cls, "_fields")):
        return "attribute"
    return "item" if issubclass(cls, Mapping) else "either"


def column_of(hint: Any) -> tuple[ColumnType, bool]:
    """The type of a column whose values have type `hint`, and whether they may be NULL."""
    plain = plain_hint(hint)
    if plain is Any or plain is object:
        return UNKNOWN, True
    if plain is types.NoneType:
        return UNKNOWN, True
    if is_union(plain):
        members = [plain_hint(member) for member in get_args(plain)]
        others = [member for member in members if member is not types.NoneType]
        nullable = len(others) < len(members)
        if set(others) == {int, float}:
            return DOUBLE, nullable
        if len(others) != 1:
            return UNKNOWN, True
        declared = declared_decimal(hint)
        return (column_of(others[0])[0] if declared is None else declared), nullable
    if origin_of(plain) is Literal:
        kinds = {type(value) for value in get_args(plain)}
        return (column_of(kinds.pop())[0] if len(kinds) == 1 else UNKNOWN), False
    cls, arguments = class_of(plain)
    found = _column_of_class(plain, cls, arguments)
    return (declared_decimal(hint) or found) if isinstance(found, DecimalType) else found, False


def declared_decimal(hint: Any, depth: int = 20) -> DecimalType | None:
    """The decimal of an annotation, also of one that allows None or has a name: `Annotated[Decimal, "decimal(12,2)"]`,
    or pydantic's `Field(max_digits=12, …)`. None for others; names are looked up `depth` times."""
    if not depth:
        return None
    if is_union(hint):
        members = (declared_decimal(each, depth - 1) for each in get_args(hint))
        return next((found for found in members if found is not None), None)
    inner = wrapped_hint(hint)
    if inner is None:
        return None
    for note in get_args(hint)[1:] if origin_of(hint) is Annotated else ():
        for each in (note, *(getattr(note, "metadata", None) or ())):
            if isinstance(each, str):
                try:
                    type = type_named(each)
                except ValueError:
                    continue
                if isinstance(type, DecimalType):
                    return type
            digits, places = getattr(each, "max_digits", None), getattr(each, "decimal_places", None)
            if isinstance(digits, int) and isinstance(places, int) and 0 <= places <= digits <= MAX_PRECISION:
                return DecimalType(digits, places)
    return declared_decimal(inner, depth - 1)


@cache
def _scalars() -> dict[type, ColumnType]:
    """The column types of Python types. A subclass is listed before its base: every bool is an int."""
    from decimal import Decimal  # these two are slow to import, and few pipelines have schemas
    from uuid import UUID

    return {
        bool: BOOLEAN,
        int: BIGINT,
        float: DOUBLE,
        str: STRING,
        UUID: STRING,
        bytes: BINARY,
        datetime.datetime: TIMESTAMP,
        Timestamp: TIMESTAMP,
        datetime.date: DATE,
        datetime.timedelta: INTERVAL,
        Duration: INTERVAL,
        Decimal: PLAIN_DECIMAL,
    }


def _column_of_class(hint: Any, cls: Any, arguments: tuple[Any, ...]) -> ColumnType:
    if not isinstance(cls, type):
        return UNKNOWN
    for base, column in _scalars().items():
        if issubclass(cls, base):
            return column
    if _field_names(cls) is not None:
        schema = schema_of(hint)
        return UNKNOWN if schema is None else StructType(schema.fields)
    if issubclass(cls, Mapping) and len(arguments) == 2:
        return MapType(column_of(arguments[0])[0], column_of(arguments[1])[0])
    items = [argument for argument in arguments if argument is not ...]
    if len(items) == 1 and (issubclass(cls, (list, tuple, set, frozenset)) or cls in (Sequence, Iterable)):
        return ArrayType(*column_of(items[0]))
    return UNKNOWN


def _with_notes(cls: Any, hints: Mapping[str, Any]) -> Mapping[str, Any]:
    """The hints of fields with what pydantic has taken from their defaults, such as `Field(None, max_digits=12, …)`."""
    models = getattr(cls, "model_fields", None)
    if not isinstance(models, Mapping):
        return hints
    notes = {name: tuple(getattr(field, "metadata", ())) for name, field in models.items()}
    return {name: Annotated[hint, *notes[name]] if notes.get(name) else hint for name, hint in hints.items()}


def _field_names(cls: Any) -> list[str] | None:
    """The names of the fields that a class declares; None for a class without fields."""
    if not isinstance(cls, type):
        return None
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    if issubclass(cls, tuple):
        return list(getattr(cls, "_fields", ())) or None
    if is_typed_dict(cls):
        return list(field_types(cls))
    models = getattr(cls, "model_fields", None)  # pydantic, which is not imported for this
    return list(models) if isinstance(models, Mapping) else None


def column_type(given: Any) -> ColumnType:
    """A type given by an author: a name in SQL (`"bigint"`), or a Python type (`int`). Raises BuildError."""
    if isinstance(given, ColumnType):
        return given
    try:
        found = type_named(given.lower()) if isinstance(given, str) else column_of(given)[0]
    except ValueError:
        found = UNKNOWN
    if found in (UNKNOWN, VOID):
        raise BuildError(
            f"{shorten(given)} is not the type of a column: the types are {', '.join(SCALARS)}, decimal(p,s) with up "
            f"to {MAX_PRECISION} digits, or Python types such as int, float, Decimal, str, bool, datetime and date"
        )
    return found
