"""The fields of records of every kind: a `Row`, a dict, a NamedTuple, a dataclass, a pydantic model or an object.

Records of one class are taken apart together, by functions in C, as one list of values for each column.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Final, cast
from uuid import UUID

from tidegate.io.records.schema import is_pydantic

_PLAIN: Final = (str, bytes, bool, int, float, type(None), list, set, frozenset, datetime.date, datetime.time, UUID)


RECORDS: Final = "a tg.Row, a dict, a dataclass, a NamedTuple, a pydantic model"
"""What writers take, for messages."""
OF_VALUE: Final = "make records of them, as in tg.Map(lambda x: tg.Row(value=x))"
OF_TUPLE: Final = "make records of them, as in tg.MapTuple(lambda a, b: tg.Row(a=a, b=b))"
OF_DEAD_LETTER: Final = (
    "a dead letter is a pair of an element and its error: make records of them, as in "
    "tg.MapTuple(lambda e, error: {'element': str(e), 'error': error[1]})"
)


class NoRecord(Exception):
    """A value has no named fields."""

    def __init__(self, reason: str, element: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.element = element


class UnknownField(NoRecord):
    """A record has a field that is no column."""


def field_names(record: Any) -> tuple[str, ...] | None:
    """The names of a record's fields, in order; None for a value that is no record."""
    cls = type(record)
    if isinstance(record, Mapping):
        return tuple(record)
    if isinstance(record, tuple):
        return getattr(cls, "_fields", None)
    if isinstance(record, _PLAIN):
        return None
    return names_of_class(cls) or tuple(getattr(record, "__dict__", ())) or None


def names_of_class(cls: Any) -> tuple[str, ...] | None:
    """The names of the fields that all records of a class have; None if they may differ."""
    if isinstance(cls, type) and issubclass(cls, tuple):
        return getattr(cls, "_fields", ()) or None
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return tuple(cast(Any, cls).model_fields) if isinstance(cls, type) and is_pydantic(cls) else None


def as_mapping(record: Any) -> dict[str, Any]:
    """A record's values by the names of its fields. Raises NoRecord for a value that is no record."""
    if isinstance(record, Mapping):
        return dict(record)
    names = field_names(record)
    if names is None:
        raise _without_fields(record)
    if isinstance(record, tuple):
        return dict(zip(names, record))
    return {name: getattr(record, name) for name in names}


def union_of_names(records: Sequence[Any]) -> tuple[str, ...]:
    """The names of the fields of some records, in the order in which they first appear."""
    names: dict[str, None] = {}
    seen: set[type] = set()
    for record in records:
        if type(record) in seen and not isinstance(record, Mapping):
            continue
        seen.add(type(record))
        found = field_names(record)
        if found is None:
            raise _without_fields(record)
        names.update(dict.fromkeys(found))
    return tuple(names)


def _without_fields(value: Any) -> NoRecord:
    match value:
        case (_, (str(), str(), list())):
            advice = OF_DEAD_LETTER
        case tuple():
            advice = OF_TUPLE
        case _:
            advice = OF_VALUE
    return NoRecord(f"it has no named fields; {advice}", value)


class ColumnReader:
    """Takes records apart into the values of the columns `names`. `ignored` are fields that are no columns."""

    def __init__(self, names: Sequence[str], ignored: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self._ignored = frozenset(ignored)
        self._known = frozenset(names) | self._ignored
        self._of_tuples: dict[type, Callable[[Sequence[Any]], list[Sequence[Any]] | None] | None] = {}

    def columns(self, records: Sequence[Any]) -> list[Sequence[Any]]:
        """The values of each column, None where a record lacks it. Raises NoRecord for a value that is no record, or
        has a field that is neither a column nor ignored, since its value would be lost."""
        if not records:
            return [() for _ in self.names]
        cls = type(records[0])
        if issubclass(cls, tuple):
            found = self._of_class(cls, records)  # which looks at the classes itself
        elif set(map(type, records)) != {cls}:
            found = None
        else:
            found = self._of_dicts(records) if cls is dict else self._of_class(cls, records)
        if found is not None:
            return found
        rows = [self._row(record) for record in records]
        return list(zip(*rows))

    def rows(self, records: Sequence[Any], columns: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """The records, whose columns were read, as dicts of all columns."""
        names = self.names
        if not self._ignored and set(map(type, records)) == {dict} and set(map(len, records)) == {len(names)}:
            return list(records)
        return [dict(zip(names, values)) for values in zip(*columns)]

    def _of_dicts(self, records: Sequence[Mapping[str, Any]]) -> list[Sequence[Any]] | None:
        if set(map(len, records)) != {len(self._known)}:
            return None
        try:
            # There are as many fields as columns and ignored ones: if all of those exist, there is no other.
            for name in self._ignored:
                list(map(itemgetter(name), records))
            return [list(map(itemgetter(name), records)) for name in self.names]
        except KeyError:
            return None

    def _of_class(self, cls: type, records: Sequence[Any]) -> list[Sequence[Any]] | None:
        """The values of the columns of records of one class; None if there are others among them."""
        if cls not in self._of_tuples:
            if len(self._of_tuples) > 1000:
                self._of_tuples.clear()
            self._of_tuples[cls] = self._reader_of(cls)
        read = self._of_tuples[cls]
        return None if read is None else read(records)

    def _reader_of(self, cls: type) -> Callable[[Sequence[Any]], list[Sequence[Any]] | None] | None:
        """A function that reads the columns of records of one class, if all of them have the same fields."""
        fields = names_of_class(cls)
        if not fields or frozenset(fields) - self._known or frozenset(self.names) - frozenset(fields):
            return None
        if not issubclass(cls, tuple):
            if not dataclasses.is_dataclass(cls) and getattr(cls, "model_config", {}).get("extra") == "allow":
                return None
            getters = [attrgetter(name) for name in self.names]
            return lambda records: [list(map(get, records)) for get in getters]
        if fields == self.names:
            return partial(_transposed, cls)
        at = [fields.index(name) for name in self.names]

        def chosen(records: Sequence[Any]) -> list[Sequence[Any]] | None:
            columns = _transposed(cls, records)
            return None if columns is None else [columns[i] for i in at]

        return chosen

    def _row(self, record: Any) -> tuple[Any, ...]:
        values = as_mapping(record)
        if not values.keys() <= self._known:
            extra = next(name for name in values if name not in self._known)
            raise UnknownField(f"it has a field {extra!r}, which is no column: {', '.join(self.names)}", record)
        return tuple(map(values.get, self.names))


def _transposed(cls: type, records: Sequence[tuple[Any, ...]]) -> list[Sequence[Any]] | None:
    """The columns of tuples; None if one of them is of another class. They are looked at and taken apart in pieces that
    fit the processor's cache."""
    columns: list[list[Any]] = [[] for _ in records[0]]
    for start in range(0, len(records), _TRANSPOSED_AT_ONCE):
        piece = records[start : start + _TRANSPOSED_AT_ONCE]
        if set(map(type, piece)) != {cls}:
            return None
        for column, values in zip(columns, zip(*piece)):
            column.extend(values)
    return list(columns)


_TRANSPOSED_AT_ONCE: Final = 256
