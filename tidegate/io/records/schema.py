"""The columns of records: their names, their Arrow types, and whether they may be null.

A schema comes from an author, as `{name: Python type}`, as a `pyarrow.Schema`, or as a class with annotations (a
dataclass, a NamedTuple or a pydantic model), or it comes from a file. A Python type only determines the kind of a
column: `int` fits any width of integer in a file. The types of a `pyarrow.Schema` are exact, and so are decimals that
are annotated with their digits.

>>> schema = schema_of({"city": str, "people": int | None}, "ReadFromCsv")
>>> [(field.name, str(field.type), field.nullable) for field in schema.fields]
[('city', 'string', False), ('people', 'int64', True)]
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidegate.sdk.data.columns import PLAIN_DECIMAL
from tidegate.sdk.data.schema import declared_decimal
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import Timestamp
from tidegate.sdk.typehints.hints import wrapped_hint

SchemaLike: TypeAlias = Any
"""None, a mapping from names to Python types, a `pyarrow.Schema`, or a class with annotations."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column. `type` is an Arrow type, or None for values of any type.

    Unless it is `exact`, any type of the same kind fits it. `required`: a record can't be made without the column.
    """

    name: str
    type: Any = None
    nullable: bool = True
    exact: bool = False
    required: bool = True


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The columns of records, in order."""

    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(field.name for field in self.fields)

    def field(self, name: str) -> Field | None:
        """The column of this name, if there is one."""
        return next((field for field in self.fields if field.name == name), None)

    def select(self, names: Iterable[str]) -> RecordSchema:
        """The columns of these names, in their order. Raises KeyError for a name that is missing."""
        by_name = {field.name: field for field in self.fields}
        return RecordSchema(tuple(by_name[name] for name in names))

    def __str__(self) -> str:
        return ", ".join(f"{field.name}: {field.type}" for field in self.fields)


def schema_of(given: SchemaLike, of: str) -> RecordSchema | None:
    """The schema that an author gave to the transform `of`; None for None. Raises BuildError for anything else."""
    if given is None:
        return None
    if isinstance(given, RecordSchema):
        return given
    if isinstance(given, type):
        return _schema_of_class(given, of)
    if isinstance(given, Mapping):
        hints: dict[str, Any] = dict(given)
        bad = [name for name in hints if not isinstance(name, str)]
        if bad:
            raise BuildError(f"{of}: the names of a schema are strings, not {shorten(bad[0])}")
        return RecordSchema(tuple(field_of_hint(name, hint, of) for name, hint in hints.items()))
    if all(hasattr(given, part) for part in ("names", "types", "metadata", "field")):
        return of_arrow(given, exact=True)
    raise BuildError(
        f"{of}: schema is a dict of names and Python types, a pyarrow.Schema, or a class with annotations, not "
        f"{shorten(given)}"
    )


def of_arrow(schema: Any, *, exact: bool = False) -> RecordSchema:
    """The columns of a `pyarrow.Schema`."""
    return RecordSchema(tuple(Field(field.name, field.type, field.nullable, exact) for field in schema))


def to_arrow(schema: RecordSchema) -> Any:
    """The `pyarrow.Schema` of columns whose types are all known; those of unknown type become strings."""
    import pyarrow as pa

    return pa.schema([pa.field(field.name, field.type or pa.string(), field.nullable) for field in schema.fields])


def to_json(schema: RecordSchema) -> list[list[Any]]:
    """The columns of a file as a value that survives JSON: name, type, and whether they may be null.

    A type is the serialized schema of Arrow, in base64, of a column of it.
    """
    import pyarrow as pa

    def encoded(type: Any) -> str:
        return base64.b64encode(pa.schema([pa.field("", type)]).serialize()).decode()

    return [
        [field.name, None if field.type is None else encoded(field.type), field.nullable] for field in schema.fields
    ]


def from_json(columns: Iterable[Sequence[Any]]) -> RecordSchema:
    """The columns that `to_json` has encoded."""
    import pyarrow as pa

    def decoded(type: str) -> Any:
        return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(type))).field(0).type

    return RecordSchema(
        tuple(Field(name, None if type is None else decoded(type), nullable) for name, type, nullable in columns)
    )


def field_of_hint(name: str, hint: Any, of: str, *, required: bool = True) -> Field:
    """The column of this name whose values have an annotated type. Raises BuildError for a type that no column has."""
    _, nullable = without_none(hint)
    exact = declared_decimal(hint) is not None
    return Field(name, arrow_type(hint, name, of), nullable, exact, required)


def without_none(hint: Any) -> tuple[Any, bool]:
    """A hint without `None`, and whether it allowed None: `(int, True)` for `int | None`. Any allows None."""
    for _ in range(20):  # an alias may be one of itself
        inner = wrapped_hint(hint)
        hint = hint if inner is None else inner
    if hint is Any or hint is None or hint is type(None):
        return Any, True
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    kinds = [part for part in typing.get_args(hint) if part is not type(None)]
    nullable = len(kinds) < len(typing.get_args(hint))
    return (without_none(kinds[0])[0] if len(kinds) == 1 else typing.Union[tuple(kinds)]), nullable  # noqa: UP007


def arrow_type(hint: Any, column: str, of: str) -> Any:
    """The Arrow type for an annotation; None for Any. Raises BuildError, naming the column, if there is none."""
    import pyarrow as pa

    declared = declared_decimal(hint)
    if declared is not None:
        return pa.decimal128(declared.precision, declared.scale)
    hint, _ = without_none(hint)
    if hint is Any or hint is object:
        return None
    simple = {
        bool: pa.bool_(),
        int: pa.int64(),
        float: pa.float64(),
        str: pa.string(),
        bytes: pa.binary(),
        datetime.datetime: pa.timestamp("us", "UTC"),
        Timestamp: pa.timestamp("us", "UTC"),
        datetime.date: pa.date32(),
        datetime.time: pa.time64("us"),
        datetime.timedelta: pa.duration("us"),
        decimal.Decimal: pa.decimal128(PLAIN_DECIMAL.precision, PLAIN_DECIMAL.scale),
    }
    if isinstance(hint, type) and hint in simple:
        return simple[hint]
    if isinstance(hint, pa.DataType):
        return hint
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (list, set, frozenset, Sequence, Iterable) or (origin is tuple and args[1:] == (...,)):
        return pa.list_(arrow_type(args[0] if args else str, column, of) or pa.string())
    if origin in (dict, Mapping) and len(args) == 2:
        key, value = (arrow_type(arg, column, of) or pa.string() for arg in args)
        return pa.map_(key, value)
    if origin is typing.Literal and all(isinstance(arg, str) for arg in args):
        return pa.string()
    if isinstance(hint, type) and (nested := class_fields(hint)) is not None:
        fields = [field_of_hint(f"{column}.{name}", inner, of) for name, (inner, _) in nested.items()]
        return pa.struct(
            [pa.field(name, field.type or pa.string(), field.nullable) for name, field in zip(nested, fields)]
        )
    raise BuildError(
        f"{of}: the column {column!r} can't be a {hint if isinstance(hint, str) else getattr(hint, '__name__', hint)}: "
        "a column is one of bool, int, float, str, bytes, Decimal, datetime, date, time, timedelta, a list or dict of "
        "these, a dataclass, a NamedTuple, or Any; each may also be None (`int | None`)"
    )


def class_fields(cls: type) -> dict[str, tuple[Any, bool]] | None:
    """The fields of a dataclass, a NamedTuple, a TypedDict or a pydantic model, by name: the annotation, and whether a
    value is required. None for any other class."""
    if is_pydantic(cls):
        model: Any = cls
        return {name: (_annotated(field), field.is_required()) for name, field in model.model_fields.items()}
    if dataclasses.is_dataclass(cls):
        hints = typing.get_type_hints(cls, include_extras=True)
        return {
            field.name: (hints[field.name], is_missing(field.default) and is_missing(field.default_factory))
            for field in dataclasses.fields(cls)
            if field.init
        }
    if is_named_tuple(cls):
        hints, named = typing.get_type_hints(cls, include_extras=True), typing.cast(Any, cls)
        return {name: (hints.get(name, Any), name not in named._field_defaults) for name in named._fields}
    if typing.is_typeddict(cls):
        return {name: (hint, True) for name, hint in typing.get_type_hints(cls).items()}
    return None


def _annotated(field: Any) -> Any:
    """The annotation of a pydantic model's field, with what pydantic has taken from it."""
    if field.annotation is None:
        return Any
    return typing.Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def is_missing(default: object) -> bool:
    """Whether a dataclass's field has no default. A class that was pickled with its code has a copy of `MISSING`."""
    return isinstance(default, type(dataclasses.MISSING))


def is_named_tuple(cls: type) -> bool:
    """Whether a class is a NamedTuple, with fields of its own (`tg.Row` has none)."""
    return issubclass(cls, tuple) and bool(getattr(cls, "_fields", ())) and hasattr(cls, "_field_defaults")


def is_pydantic(cls: type) -> bool:
    """Whether a class is a pydantic model. Does not import pydantic."""
    return hasattr(cls, "model_validate") and hasattr(cls, "model_fields")


_TAKES: Final = "a dataclass, a NamedTuple or a pydantic model"


def _schema_of_class(cls: type, of: str) -> RecordSchema:
    try:
        fields = class_fields(cls)
    except NameError as error:
        raise BuildError(f"{of}: the annotations of {cls.__name__} can't be evaluated: {error}") from error
    if not fields:
        raise BuildError(f"{of}: {cls.__name__} has no annotated fields: give {_TAKES}")
    return RecordSchema(tuple(_field_of_class(cls, name, *annotated, of) for name, annotated in fields.items()))


def _field_of_class(cls: type, name: str, hint: Any, required: bool, of: str) -> Field:
    try:
        return field_of_hint(name, hint, of, required=required)
    except BuildError:
        if is_pydantic(cls):  # its validators decide
            return Field(name, None, required=required)
        raise
