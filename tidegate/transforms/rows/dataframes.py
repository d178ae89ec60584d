"""Elements with named fields as columns, and ToDataFrame, which hands them to the author's own Spark code.

What the columns are follows from the element type where that names its fields and their types (a NamedTuple, a
dataclass, a TypedDict), from a schema that is given, or else from the values. Only the Spark runner makes DataFrames.
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
from tidegate.sdk.errors import BuildError, RunError, UnsupportedError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Write
from tidegate.sdk.time import Duration, Timestamp
from tidegate.sdk.typehints.hints import class_of, field_types, is_typed_dict, is_union, plain_hint, type_name


class ToDataFrame(Write):
    """The elements as a DataFrame of Spark's: `result.dataframe(label)`, `label` being this step's.

        with tg.Pipeline(options=["--runner", "spark"]) as p:
            p | tg.Create([1, 2]) | tg.Select(n=lambda x: x, square=lambda x: x * x) | "squares" >> tg.ToDataFrame()
        p.result.dataframe("squares").show()

    Elements are Rows, NamedTuples, dataclasses or dicts. `schema` is Spark's DDL, such as `"word string, n bigint"`;
    with it elements may also be plain tuples. Without it the element type says what the columns are, if it names the
    types of its fields, else the values do. The DataFrame is made once, by one Spark action, and cached until it is
    unpersisted. Timestamps and windows are no columns: bring them in with `tg.Reify`.

    Raises BuildError when applied to elements without named fields, or with a field that no column can hold.
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
    """Elements for a DataFrame. `columns`: what they are, as Spark's DDL; None: as their values are."""

    columns: str | None = None

    @property
    def name(self) -> str:
        return "DataFrame"

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        raise UnsupportedError(
            f"only the spark runner writes to a {self.name}: say --runner spark, or look at the elements themselves in "
            "a test"
        )

    def abort(self, run: str) -> None:
        """There is nothing: what Spark writes, Spark removes."""

    def record_batch(self, values: Sequence[Any], schema: Any, wished: Any = None) -> Any:
        """Elements as an Arrow record batch, of a schema or, None, of what they are: of what `wished`, a schema, says
        of a column's name, if it holds all its values without loss.

        RunError, naming field and value, for one that does not fit.
        """
        import pyarrow as pa

        columns = fields_of(values, None if schema is None else schema.names)
        types = {} if schema is None else {field.name: field.type for field in schema}
        kept = {} if wished is None else {field.name: field for field in wished}
        arrays = [
            _kept(name, column, kept[name]) if name in kept else _array(name, column, types.get(name))
            for name, column in columns.items()
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    @property
    def kept(self) -> bool:
        """Whether the author keeps it."""
        return True

    def save_dataframe(self, frame: Any) -> None:
        raise AssertionError("it is kept")


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
    decimal.Decimal: "decimal(38,18)",
    uuid.UUID: "string",
    Timestamp: "timestamp",
    Duration: "interval day to second",
}


class _Unknown(Exception):
    """A type does not say what its columns are."""


def columns_of(hint: Any, step: str) -> str | None:
    """The columns of elements of a type, as Spark's DDL; None if it does not say.

    BuildError, in the name of `step`, for a type without named fields, or with one that no column holds.
    """
    hint = plain_hint(hint)
    if hint is Any or is_union(hint):
        return None
    cls, _ = class_of(hint)
    if not (hasattr(cls, "_fields") or dataclasses.is_dataclass(cls) or issubclass(cls, Mapping) or is_typed_dict(cls)):
        raise BuildError(
            f"{step} takes elements with named fields (Row, NamedTuple, dataclass, dict), not {type_name(hint)}: "
            "make rows of them with tg.Select, or give schema=…"
        )
    try:
        return ", ".join(
            f"`{name}` {_column(each, f'{name!r} of {cls.__name__}', step)}" for name, each in _typed(hint)
        )
    except _Unknown:
        return None


def _typed(hint: Any) -> list[tuple[str, Any]]:
    """The fields of a type, with their types; _Unknown if it does not say."""
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
    """The type of a column of values of a type."""
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
    """Elements, column by column. `names`: what the columns are; None: what the elements have.

    RunError for one without named fields, or with a field that is no column.
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
            _stranger(value, min(row.keys() - known, key=str), names)
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
            _stranger(values[0], field, names)
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
        f"{shorten(value)} has no named fields: a DataFrame is made of Rows, NamedTuples, dataclasses or dicts"
        + ("" if names is None else f", or of tuples of {len(names)}")
    )


def _stranger(value: Any, field: str, names: Sequence[str]) -> NoReturn:
    raise RunError(f"{shorten(value)} has the field {field!r}, and the columns are {', '.join(names)}")


def _array(name: str, column: list[Any], type: Any) -> Any:
    import pyarrow as pa

    fit = _fitting(column)
    try:
        return pa.array([fit(value) for value in column] if fit else column, type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError) as error:
        raise RunError(_misfit(name, column, type, fit, str(error))) from None


def _kept(name: str, column: list[Any], wished: Any) -> Any:
    """A column as a field is wished to be, or else as its values are."""
    import pyarrow as pa

    kind = wished.type
    fit = _fitting(column)
    plain = [fit(value) for value in column] if fit else column
    try:
        array = pa.array(plain, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError):
        return _array(name, column, None)
    if pa.types.is_string(kind):
        longest = int((wished.metadata or {}).get(b"length", 0))
        fits = not longest or all(value is None or len(value) <= longest for value in plain)
        return array if fits else array.cast(pa.large_string())  # a string, but not of the wished kind
    exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_float64(kind)
    return array if exact or _same_again(array, plain) else _array(name, column, None)


def _same_again(array: Any, values: list[Any]) -> bool:
    """Whether an Arrow array returns the values that it was made from, times with or without a zone unchanged."""
    import pyarrow as pa

    if pa.types.is_nested(array.type):
        return _alike(array.to_pylist(maps_as_pydicts="strict"), values)
    return _alike(array.to_pylist(), values)


def _alike(found: Any, value: Any) -> bool:
    match value:
        case list() | tuple() if isinstance(found, list):
            return len(found) == len(value) and all(map(_alike, found, value))
        case Mapping() if isinstance(found, Mapping):
            # A struct gives None for what a dict does not have.
            there = {key: part for key, part in found.items() if part is not None or key in value}
            return there.keys() == value.keys() and all(_alike(there[key], part) for key, part in value.items())
        case float() if value != value:
            return isinstance(found, float) and found != found
        case datetime.date():
            return type(found) is type(value) and found == value
    return bool(found == value)


def _misfit(name: str, column: list[Any], type: Any, fit: Callable[[Any], Any] | None, said: str) -> str:
    """Which value is at fault, in words."""
    import pyarrow as pa

    for value in column:
        try:
            pa.array([fit(value) if fit else value], type)
        except Exception:
            return f"field {name!r}: {shorten(value)} is no {type or 'value that a column can hold'} ({said})"
    return f"field {name!r}: its values don't fit one column ({said}); convert them, or give schema=…"


_AS_THEY_ARE: Final = frozenset(
    {str, int, float, bool, bytes, type(None), datetime.date, datetime.datetime, datetime.timedelta, decimal.Decimal}
)


def _fitting(column: list[Any]) -> Callable[[Any], Any] | None:
    """A function that converts these values to Arrow's; None if none is needed."""
    return None if set(map(type, column)) <= _AS_THEY_ARE else _plain


def _plain(value: Any) -> Any:
    """A value as Arrow takes it: dicts for whatever has fields, lists for sequences, datetimes for Timestamps."""
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
