"""ToDataFrame, which passes a collection to the author's own Spark code, and the conversion of elements to columns.

The columns come from a given schema, else from the element type if it declares its fields and their types (a
NamedTuple, a dataclass, a TypedDict), else from the values. Only the Spark runner makes DataFrames.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn, get_args

from tidegate.sdk.connectors.sinks import Attempt, Sink
from tidegate.sdk.data.columns import PLAIN_DECIMAL
from tidegate.sdk.errors import BuildError, RunError, UnsupportedError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Write
from tidegate.sdk.time import Duration, Timestamp
from tidegate.sdk.typehints.hints import class_of, field_types, is_typed_dict, is_union, plain_hint, type_name


class ToDataFrame(Write):
    """Convert the elements to a Spark DataFrame, which `result.dataframe(label)` returns for this step's label.

        with tg.Pipeline(options=["--runner", "spark"]) as p:
            p | tg.Create([1, 2]) | tg.Select(n=lambda x: x, square=lambda x: x * x) | "squares" >> tg.ToDataFrame()
        p.result.dataframe("squares").show()

    Elements are Rows, NamedTuples, dataclasses or dicts. `schema` is in Spark's DDL, such as `"word string, n bigint"`;
    with it elements may also be plain tuples. Without it the columns come from the element type if it declares its
    fields' types, else from the values. The DataFrame is computed once, by one Spark action, and cached until it is
    unpersisted. Timestamps and windows are not among its columns: add them with `tg.Reify`.

    Raises BuildError if the elements have no named fields, or a field of a type that no column can hold.
    """

    def __init__(self, schema: str | None = None, *, name: str | None = None) -> None:
        super().__init__(FrameSink(schema), name=name)
        self.schema = schema

    def default_label(self) -> str:
        return "ToDataFrame"

    def expand(self, input: PCollection[Any]) -> None:
        self.sink = FrameSink(self.schema or columns_of(input.element_type, "ToDataFrame"))
        super().expand(input)


@dataclass(frozen=True, slots=True)
class FrameSink(Sink[Any]):
    """Collects elements for a DataFrame. `columns` is its schema in Spark's DDL; None infers it from the values."""

    columns: str | None = None

    @property
    def name(self) -> str:
        return "DataFrame"

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        raise UnsupportedError(
            f"only the spark runner writes to a {self.name}: run the pipeline with --runner spark, or test its "
            "elements without this step"
        )

    def abort(self, run: str) -> None:
        """Do nothing: Spark removes what it has written itself."""

    def record_batch(self, values: Sequence[Any], schema: Any, preferred: Any = None) -> Any:
        """Convert elements to an Arrow record batch with the given schema; None infers it from the elements.

        An inferred column gets its type from the schema `preferred`, if that has the column and the type holds all its
        values without loss. Raises RunError, naming the field and the value, for a value that doesn't fit.
        """
        import pyarrow as pa

        columns = fields_of(values, None if schema is None else schema.names)
        types = {} if schema is None else {field.name: field.type for field in schema}
        preferences = {} if preferred is None else {field.name: field for field in preferred}
        arrays = [
            _preferred_array(name, column, preferences[name])
            if name in preferences
            else _array(name, column, types.get(name))
            for name, column in columns.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    @property
    def returned(self) -> bool:
        """True if the author gets the DataFrame; false if `save_dataframe` writes it somewhere."""
        return True

    def save_dataframe(self, frame: Any) -> None:
        raise AssertionError("the author gets this DataFrame; it isn't saved")


# -- from an element type to columns

_COLUMNS: Final[dict[Any, str]] = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    datetime.datetime: "timestamp",
    datetime.date: "date",
    datetime.timedelta: "interval day to second",
    decimal.Decimal: str(PLAIN_DECIMAL),
    uuid.UUID: "string",
    Timestamp: "timestamp",
    Duration: "interval day to second",
}


class _Unknown(Exception):
    """A type doesn't determine its columns."""


def columns_of(hint: Any, step: str) -> str | None:
    """The columns for elements of a type, in Spark's DDL; None if the type doesn't determine them.

    Raises BuildError, in the name of `step`, for a type without named fields, or with a field that no column can hold.
    """
    hint = plain_hint(hint)
    if hint is Any or is_union(hint):
        return None
    cls, _ = class_of(hint)
    if not (hasattr(cls, "_fields") or dataclasses.is_dataclass(cls) or issubclass(cls, Mapping) or is_typed_dict(cls)):
        raise BuildError(
            f"{step} takes elements with named fields (Row, NamedTuple, dataclass, dict), not {type_name(hint)}: "
            "convert them to rows with tg.Select, or give schema=…"
        )
    try:
        return ", ".join(
            f"`{name}` {_column(each, f'{name!r} of {cls.__name__}', step)}" for name, each in _typed(hint)
        )
    except _Unknown:
        return None


def _typed(hint: Any) -> list[tuple[str, Any]]:
    """The fields of a type, with their types. Raises _Unknown if it doesn't declare them all."""
    cls, _ = class_of(hint)
    if not isinstance(cls, type) or not (
        hasattr(cls, "_fields") or dataclasses.is_dataclass(cls) or is_typed_dict(cls)
    ):
        raise _Unknown
    known = field_types(hint)
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
    else:
        names = list(getattr(cls, "_fields", known))
    if not names or any(name not in known for name in names):
        raise _Unknown
    return [(name, known[name]) for name in names]


def _column(hint: Any, what: str, step: str) -> str:
    """The DDL type of a column whose values have type `hint`; `what` describes the field in messages."""
    hint = plain_hint(hint)
    if is_union(hint):
        members = [member for member in map(plain_hint, get_args(hint)) if member is not types.NoneType]
        if set(members) == {int, float}:
            return "double"
        if len(members) != 1:
            raise _Unknown
        (hint,) = members
    cls, arguments = class_of(hint)
    if hint is Any or not isinstance(cls, type) or hint is types.NoneType:
        raise _Unknown
    if cls in _COLUMNS:
        return _COLUMNS[cls]
    if issubclass(cls, Mapping) and not is_typed_dict(cls):
        if len(arguments) != 2:
            raise _Unknown
        key, value = (_column(argument, what, step) for argument in arguments)
        return f"map<{key}, {value}>"
    if hasattr(cls, "_fields") or dataclasses.is_dataclass(cls) or is_typed_dict(cls):
        inner = [f"`{name}`: {_column(each, f'{name!r} of {cls.__name__}', step)}" for name, each in _typed(hint)]
        return f"struct<{', '.join(inner)}>"
    if issubclass(cls, (list, tuple, set, frozenset)) or cls is Sequence:
        items = [argument for argument in arguments if argument is not ...]
        if not items or len(set(map(repr, items))) != 1:
            raise _Unknown
        return f"array<{_column(items[0], what, step)}>"
    for base, column in _COLUMNS.items():
        if issubclass(cls, base):
            return column
    raise BuildError(f"{step}: no column can hold the field {what}, which is {type_name(hint)}: convert it before")


# -- from elements to columns


def fields_of(values: Sequence[Any], names: Sequence[str] | None) -> dict[str, list[Any]]:
    """The values of elements by column. `names` are the columns; None uses the fields of the elements.

    Raises RunError for an element without named fields, or with a field that is not a column.
    """
    kinds = set(map(type, values))
    if len(kinds) == 1:
        (kind,) = kinds
        fields: Sequence[str] | None = getattr(kind, "_fields", None)
        if fields is None and kind is tuple and names is not None:
            fields = names
        if fields is not None and issubclass(kind, tuple):
            return _by_name(fields, _transposed(values, fields), names, values)
    rows = [_as_dict(value, names) for value in values]
    if names is None:
        names = list(dict.fromkeys(name for row in rows for name in row))
    known = set(names)
    for value, row in zip(values, rows, strict=True):
        if not row.keys() <= known:
            _refuse_field(value, min(row.keys() - known, key=str), names)
    return {name: [row.get(name) for row in rows] for name in names}


def _transposed(values: Sequence[Any], fields: Sequence[str]) -> list[list[Any]]:
    for value in values:
        if len(value) != len(fields):
            raise RunError(f"{shorten(value)} has {len(value)} parts, and there are {len(fields)} columns")
    return [list(column) for column in zip(*values, strict=True)]


def _by_name(
    fields: Sequence[str], columns: list[list[Any]], names: Sequence[str] | None, values: Sequence[Any]
) -> dict[str, list[Any]]:
    named = dict(zip(fields, columns, strict=True))
    if names is None or list(fields) == list(names):
        return named
    for field in fields:
        if field not in names:
            _refuse_field(values[0], field, names)
    return {name: named.get(name) or [None] * len(values) for name in names}


def _as_dict(value: Any, names: Sequence[str] | None) -> dict[str, Any]:
    match value:
        case Mapping():
            return dict(value)
        case tuple() if hasattr(value, "_fields"):
            return dict(zip(value._fields, value, strict=True))
        case tuple() if names is not None and len(value) == len(names):
            return dict(zip(names, value, strict=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise RunError(
        f"{shorten(value)} has no named fields: a DataFrame takes Rows, NamedTuples, dataclasses or dicts"
        + ("" if names is None else f", or of tuples of {len(names)}")
    )


def _refuse_field(value: Any, field: str, names: Sequence[str]) -> NoReturn:
    raise RunError(f"{shorten(value)} has the field {field!r}, and the columns are {', '.join(names)}")


def _array(name: str, column: list[Any], type: Any) -> Any:
    import pyarrow as pa

    convert = _converter(column)
    try:
        return pa.array([convert(value) for value in column] if convert else column, type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError) as error:
        raise RunError(_conversion_error(name, column, type, convert, str(error))) from None


def _preferred_array(name: str, column: list[Any], preferred: Any) -> Any:
    """A column of the preferred field's type if that represents its values without loss, else of an inferred type."""
    import pyarrow as pa

    kind = preferred.type
    convert = _converter(column)
    plain = [convert(value) for value in column] if convert else column
    try:
        array = pa.array(plain, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError):
        return _array(name, column, None)
    if pa.types.is_string(kind):
        longest = int((preferred.metadata or {}).get(b"length", 0))
        fits = not longest or all(value is None or len(value) <= longest for value in plain)
        return array if fits else array.cast(pa.large_string())  # a string type other than the preferred one
    exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_float64(kind)
    return array if exact or _round_trips(array, plain) else _array(name, column, None)


def _round_trips(array: Any, values: list[Any]) -> bool:
    """True if an Arrow array returns the very values it was made from, including the time zones of datetimes."""
    import pyarrow as pa

    if pa.types.is_nested(array.type):
        return _equal_values(array.to_pylist(maps_as_pydicts="strict"), values)
    return _equal_values(array.to_pylist(), values)


def _equal_values(found: Any, value: Any) -> bool:
    match value:
        case list() | tuple() if isinstance(found, list):
            return len(found) == len(value) and all(map(_equal_values, found, value))
        case Mapping() if isinstance(found, Mapping):
            # A struct has None for a key that is not in the dict.
            present = {key: part for key, part in found.items() if part is not None or key in value}
            return present.keys() == value.keys() and all(
                _equal_values(present[key], part) for key, part in value.items()
            )
        case float() if value != value:
            return isinstance(found, float) and found != found
        case datetime.date():
            return type(found) is type(value) and found == value
    return bool(found == value)


def _conversion_error(
    name: str, column: list[Any], type: Any, convert: Callable[[Any], Any] | None, reason: str
) -> str:
    """A message that names the first value that Arrow can't convert."""
    import pyarrow as pa

    for value in column:
        try:
            pa.array([convert(value) if convert else value], type)
        except Exception:
            problem = "is not a value that a column can hold" if type is None else f"is not of type {type}"
            return f"field {name!r}: {shorten(value)} {problem} ({reason})"
    return f"field {name!r}: its values don't fit one column ({reason}); convert them, or give schema=…"


_ARROW_VALUES: Final = frozenset(
    {str, int, float, bool, bytes, type(None), datetime.date, datetime.datetime, datetime.timedelta, decimal.Decimal}
)
"""Types whose values Arrow converts itself."""


def _converter(column: list[Any]) -> Callable[[Any], Any] | None:
    """A function that converts these values to values that Arrow accepts; None if they need no conversion."""
    return None if set(map(type, column)) <= _ARROW_VALUES else _plain


def _plain(value: Any) -> Any:
    """Convert a value to one that Arrow accepts: records to dicts, sequences to lists, Timestamps to datetimes."""
    match value:
        case Timestamp():
            return value.to_utc_datetime()
        case Duration():
            return datetime.timedelta(microseconds=value.micros)
        case uuid.UUID():
            return str(value)
        case tuple() if hasattr(value, "_fields"):
            return {name: _plain(part) for name, part in zip(value._fields, value, strict=True)}
        case Mapping():
            return {key: _plain(part) for key, part in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(part) for part in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value
