"""Rows to columns: records become Arrow record batches, with a given schema or one inferred from the first records.

No value is changed silently: one that its column can't represent exactly is a WriteError that names the column and the
element. Instants need a time zone; a naive datetime is an instant only if the author names its zone.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

from tidegate.io.records.row_access import ColumnReader, NoRecord, UnknownField, as_mapping, union_of_names
from tidegate.io.records.schema import arrow_type, class_fields
from tidegate.io.records.types import kind_of
from tidegate.sdk.data.columns import MAX_PRECISION
from tidegate.sdk.errors import BuildError, WriteError, shorten
from tidegate.sdk.time import Duration, Timestamp

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class UnfitValue(Exception):
    """A value that a column can't represent; the message says why."""


class NaiveTime(UnfitValue):
    """A time without a time zone, and the author has not named one."""


Convert: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
"""Prepares the values of a column for Arrow, and refuses those that Arrow would change."""


class RowConverter:
    """Makes record batches from records. `schema`: a `pyarrow.Schema`, or None to infer it from the first records.

    `without` names fields that are left out of the batches. `timezone` is the zone of naive datetimes. `sink` names the
    output in errors.
    """

    def __init__(self, sink: str, schema: Any = None, without: Sequence[str] = (), timezone: str | None = None) -> None:
        self.schema = schema
        self.sink = sink
        self._without = tuple(without)
        self._zone = None if timezone is None else ZoneInfo(timezone)
        self._inferred = schema is None
        self._reader: ColumnReader | None = None
        self._converters: list[Convert | None] = []
        self._inferable: list[bool] = []
        if schema is not None:
            self._use(schema)

    def batch(self, records: Sequence[Any]) -> Any:
        """A batch of these records. Raises WriteError, naming column and element, for a value that doesn't fit."""
        import pyarrow as pa

        try:
            if self._reader is None:
                self._use(self._infer(records))
            assert self._reader is not None
            columns = self._reader.columns(records)
        except NoRecord as error:
            raise no_record(self.sink, error, inferred=self._inferred) from None
        arrays = [
            self._array(at, field, values, records) for at, (field, values) in enumerate(zip(self.schema, columns))
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _use(self, schema: Any) -> None:
        self.schema = schema
        self._reader = ColumnReader(schema.names, self._without)
        self._converters = [column_converter(field.type, self._zone) for field in schema]
        self._inferable = [kind_of(field.type) in _INFERRED for field in schema]

    def _array(self, at: int, field: Any, values: Sequence[Any], records: Sequence[Any]) -> Any:
        if self._inferable[at] and (array := _inferred_array(values, field)) is not None:
            return array
        try:
            return _array_of(values, field, self._converters[at])
        except _errors():
            if self._widen(at, field, values):
                return _array_of(values, self.schema.field(at), self._converters[at])
        for value, record in zip(values, records):
            try:
                _array_of([value], field, self._converters[at])
            except _errors() as error:
                raise self._unfit(field, value, record, error) from None
        raise WriteError(f"{self.sink}: column {field.name!r} can't be written as {field.type}")

    def _widen(self, at: int, field: Any, values: Sequence[Any]) -> bool:
        """Infer the type of a column anew if the first elements had nothing but None in it; false if that fails."""
        if not self._inferred or kind_of(field.type) != "null":
            return False
        try:
            found = field.with_type(inferred_type(values, field.name, self._zone))
        except _errors():
            return False
        self.schema = self.schema.set(at, found)
        self._converters[at] = column_converter(found.type, self._zone)
        self._inferable[at] = kind_of(found.type) in _INFERRED
        return True

    def _unfit(self, field: Any, value: Any, record: Any, error: Exception) -> WriteError:
        advice = ""
        if isinstance(error, UnfitValue):
            reason = str(error)
        elif value is None:
            reason = "None, and the column is not nullable"
        else:
            reason = f"{shorten(value, 60)} doesn't fit {field.type}"
        if self._inferred and not isinstance(error, NaiveTime):
            advice = ". The types of the columns were inferred from the first elements: give them with schema="
        return WriteError(f"{self.sink}: column {field.name!r} of {shorten(record)}: {reason}{advice}")

    def _infer(self, records: Sequence[Any]) -> Any:
        import pyarrow as pa

        names = [name for name in union_of_names(records) if name not in self._without]
        if not names:
            raise NoRecord("it has no field that is a column", records[0])
        columns = ColumnReader(names, self._without).columns(records)
        fields = []
        for name, values in zip(names, columns):
            try:
                fields.append(pa.field(name, inferred_type(values, name, self._zone)))
            except _errors() as error:
                record = records[_odd_one(values)]
                raise WriteError(
                    f"{self.sink}: column {name!r} of {shorten(record)} has no type that can be inferred from the "
                    f"first elements: {error}. Give the types with schema="
                ) from None
        return pa.schema(fields)


def no_record(sink: str, error: NoRecord, *, inferred: bool) -> WriteError:
    """The error for an element that can't be a row. `inferred`: the columns are those of the first elements."""
    advice = ". The columns are those of the first elements: give all of them with schema="
    return WriteError(
        f"{sink}: {shorten(error.element)} can't be written: {error.reason}"
        f"{advice if inferred and isinstance(error, UnknownField) else ''}"
    )


def _odd_one(values: Sequence[Any]) -> int:
    """The index of the first value of another class than the values before it; of the first value, if there is none."""
    classes: set[type] = set()
    for at, value in enumerate(values):
        if value is not None:
            if classes and type(value) not in classes:
                return at
            classes.add(type(value))
    return next((at for at, value in enumerate(values) if value is not None), 0)


def inferred_type(values: Sequence[Any], column: str, zone: ZoneInfo | None) -> Any:
    """The Arrow type of these values. Raises UnfitValue for naive datetimes without a zone."""
    import pyarrow as pa

    first = next((value for value in values if value is not None), None)
    match first:
        case Timestamp() | datetime.datetime():
            return pa.timestamp("us", "UTC")
        case UUID():
            return pa.string()
        case Duration():
            return pa.duration("us")
    if first is not None and (isinstance(first, tuple) or class_fields(type(first)) is not None):
        if getattr(type(first), "_fields", None) is None and isinstance(first, tuple):
            return pa.array([list(value) for value in values if value is not None]).type
        if class_fields(type(first)) is not None:
            return arrow_type(type(first), column, "schema")
        values = [None if value is None else as_mapping(value) for value in values]
    found = pa.array(values).type
    if _has_naive_times(found) and zone is None:
        raise NaiveTime(NAIVE)
    return _settled(found)


def column_converter(type: Any, zone: ZoneInfo | None) -> Callable[[Sequence[Any]], Sequence[Any]] | None:
    """A function that prepares a column's values for Arrow; None if Arrow converts them itself, and exactly."""
    kind = kind_of(type)
    match kind:
        case "timestamp":
            return lambda values: _instants(values, type, zone)
        case "time":
            return _local_times
        case "duration":
            return lambda values: _checked([_timedelta(value) for value in values], kind, type)
        case "string":
            return lambda values: _texts(values, type)
        case "list" | "struct" | "map":
            one = value_converter(type, zone)
            return lambda values: [None if value is None else one(value) for value in values]
        case _ if kind in _FITTING:
            return lambda values: _checked(values, kind, type)
    return None


def _fitting(*classes: type, but: tuple[type, ...] = ()) -> Callable[[type], bool]:
    return lambda cls: issubclass(cls, classes) and not issubclass(cls, but)


_FITTING: Final[dict[str, Callable[[type], bool]]] = {
    "integer": lambda cls: hasattr(cls, "__index__") and not issubclass(cls, bool),
    "float": lambda cls: not issubclass(cls, bool),
    "decimal": lambda cls: not issubclass(cls, bool),
    "string": _fitting(str),
    "binary": _fitting(bytes, bytearray, memoryview),
    "date": _fitting(datetime.date, but=(datetime.datetime,)),
    "time": _fitting(datetime.time),
    "duration": _fitting(datetime.timedelta),
}
"""The classes, by the kind of a column, whose values Arrow stores unchanged: it would truncate 1.5 to 1, and a datetime
to its date."""

_USUAL: Final[dict[str, type]] = {
    "integer": int,
    "float": float,
    "decimal": Decimal,
    "string": str,
    "binary": bytes,
    "date": datetime.date,
    "time": datetime.time,
    "duration": datetime.timedelta,
}
"""The class that the values of each of these kinds usually have."""

NAIVE: Final = (
    "a time without a time zone is no instant: make it aware, or say which zone such times are in, as in timezone='UTC'"
)
_class: Final = type


def _errors() -> tuple[type[Exception], ...]:
    import pyarrow as pa

    return (UnfitValue, BuildError, pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, NoRecord)


def _array_of(values: Sequence[Any], field: Any, convert: Convert | None) -> Any:
    import pyarrow as pa

    prepared = values if convert is None else convert(values)
    array = prepared if isinstance(prepared, pa.Array) else pa.array(prepared, field.type)
    if array.null_count and not field.nullable:
        raise TypeError
    return array


def _inferred_array(values: Sequence[Any], field: Any) -> Any:
    """The array of values for a column, if pyarrow infers the column's type for them; else None. This is faster than to
    look at the class of each value before the conversion."""
    import pyarrow as pa

    try:
        array = pa.array(values)
    except _errors():
        return None
    if not array.type.equals(field.type) or (array.null_count and not field.nullable):
        return None
    return array


_INFERRED: Final = frozenset({"integer", "string"})
"""The kinds of columns that pyarrow infers only for values which it stores unchanged. It takes True for a float."""


def _checked(values: Sequence[Any], kind: str, type: Any) -> Sequence[Any]:
    """The values, which are all None or of a class that fits the kind of column. Raises UnfitValue for others."""
    classes = list(map(_class, values))
    if _are_all(classes, _USUAL[kind]):
        return values
    fits = _FITTING[kind]
    for cls in set(classes):
        if cls is not _NONE and not fits(cls):
            odd = next(value for value in values if _class(value) is cls)
            raise UnfitValue(f"{shorten(odd, 60)}, a {cls.__name__}, doesn't fit {type}")
    return values


def _are_all(classes: list[Any], usual: Any) -> bool:
    """Whether the classes of values are this one or None's. Counting takes two thirds of the time of a set."""
    count = classes.count(usual)
    return count == len(classes) or count + classes.count(_NONE) == len(classes)


def _texts(values: Sequence[Any], type: Any) -> Sequence[Any]:
    """Text unchanged, and UUIDs as text. Raises UnfitValue for anything else."""
    classes = list(map(_class, values))
    if _are_all(classes, str):
        return values
    if UUID in classes:
        values = [str(value) if isinstance(value, UUID) else value for value in values]
    return _checked(values, "string", type)


def _local_times(values: Sequence[Any]) -> Sequence[Any]:
    _checked(values, "time", "a time of day")
    if any([value is not None and value.tzinfo is not None for value in values]):  # noqa: C419
        raise UnfitValue("a time of day with a time zone can't be written: no column has a place for the zone")
    return values


def _timedelta(value: Any) -> Any:
    return datetime.timedelta(microseconds=value.micros) if isinstance(value, Duration) else value


def _instants(values: Sequence[Any], type: Any, zone: ZoneInfo | None) -> Any:
    """An Arrow array of instants; of local times, if the type has no zone."""
    import pyarrow as pa

    if type.tz is None:
        if zone is None:
            raise NaiveTime(NAIVE)
        local = [None if v is None else instant_of(v, zone).astimezone(zone).replace(tzinfo=None) for v in values]
        return pa.array(local, pa.timestamp("us")).cast(type)
    classes = set(map(_class, values)) - {_NONE}
    if classes == {Timestamp}:
        micros = [None if value is None else value.micros for value in values]
        return pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC")).cast(type)
    if classes - {datetime.datetime} or any([v.tzinfo is None for v in values if v is not None]):  # noqa: C419
        values = [None if value is None else instant_of(value, zone) for value in values]
    return pa.array(values, pa.timestamp("us", "UTC")).cast(type)


_NONE: Final = type(None)


def instant_of(value: Any, zone: ZoneInfo | None) -> datetime.datetime:
    """The aware datetime of an instant. Raises UnfitValue for a naive one without a zone, and for any other value."""
    if isinstance(value, Timestamp):
        return _EPOCH + datetime.timedelta(microseconds=value.micros)
    if not isinstance(value, datetime.datetime):
        raise UnfitValue(f"{shorten(value, 60)} is no instant: a datetime or a tg.Timestamp is")
    if getattr(value, "nanosecond", 0):
        raise UnfitValue(f"{value} has nanoseconds, and instants are whole microseconds")
    if value.tzinfo is not None:
        return value
    if zone is None:
        raise NaiveTime(f"{shorten(value, 60)}: {NAIVE}")
    return value.replace(tzinfo=zone)


def value_converter(type: Any, zone: ZoneInfo | None, pairs: Callable[[Any], Any] = list) -> Callable[[Any], Any]:
    """A function that prepares one value of a type, other than None. It raises UnfitValue, or what the value's own
    methods raise. `pairs` makes the value of a map from its items."""
    match kind_of(type):
        case "list":
            inner = _optional(value_converter(type.value_type, zone, pairs))
            return lambda value: [inner(each) for each in _items(value)]
        case "map":
            key, item = value_converter(type.key_type, zone), _optional(value_converter(type.item_type, zone, pairs))
            return lambda value: pairs((key(k), item(v)) for k, v in as_mapping(value).items())
        case "struct":
            parts = {field.name: _optional(value_converter(field.type, zone, pairs)) for field in type}
            return lambda value: _struct(value, parts)
        case "timestamp" if type.tz is not None:
            return lambda value: instant_of(value, zone)
        case "timestamp":
            return lambda value: _instants([value], type, zone)[0].as_py()
        case _ if (convert := column_converter(type, zone)) is not None:
            check = convert
            return lambda value: check([value])[0]
    return lambda value: value


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _items(value: Any) -> Any:
    if isinstance(value, (str, bytes, dict)):
        raise UnfitValue(f"{shorten(value, 60)} is no list")
    return value


def _struct(value: Any, parts: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    found = as_mapping(value)
    if extra := found.keys() - parts.keys():
        raise UnfitValue(f"{shorten(value, 60)} has a field {min(extra)!r}, and the column has {', '.join(parts)}")
    return {name: convert(found.get(name)) for name, convert in parts.items()}


def _has_naive_times(type: Any) -> bool:
    match kind_of(type):
        case "timestamp":
            return type.tz is None
        case "list":
            return _has_naive_times(type.value_type)
        case "map":
            return _has_naive_times(type.key_type) or _has_naive_times(type.item_type)
        case "struct":
            return any(_has_naive_times(field.type) for field in type)
    return False


def _settled(type: Any) -> Any:
    """The type with UTC as the zone of its instants, and decimals of all the digits that later ones may need."""
    import pyarrow as pa

    match kind_of(type):
        case "decimal" if type.precision <= MAX_PRECISION and 0 <= type.scale <= MAX_PRECISION:
            return pa.decimal128(MAX_PRECISION, type.scale)
        case "timestamp":
            return pa.timestamp("us", "UTC")
        case "list":
            return pa.list_(_settled(type.value_type))
        case "struct":
            return pa.struct([pa.field(field.name, _settled(field.type)) for field in type])
    return type
