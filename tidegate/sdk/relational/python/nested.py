"""Arrays, maps and structs: reading a part of one, whose value is then one of its type, as a column's value is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NoReturn

from tidegate.sdk.data.columns import ArrayType, ColumnType, DecimalType, MapType, StructType
from tidegate.sdk.errors import shorten
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.python.decimals import as_decimal
from tidegate.sdk.relational.python.numbers import equal
from tidegate.sdk.relational.python.values import CHECKS, field_of, refuse_value


def reader_of_field(type: StructType, name: str) -> Callable[[Any], Any]:
    """A function from a struct, which isn't NULL, to one of its fields."""
    field = next(each for each in type.fields if each.name == name)
    checked = _checked(field.type, field.nullable, name)

    def read(value: Any) -> Any:
        return _refuse(value, type) if value is None else checked(field_of(value, name))

    return read


def reader_of_item(type: ArrayType) -> Callable[[Any, int], Any]:
    """A function from an array and an index, counted from 0, to the item; an error outside the array."""
    checked = _checked(type.element, type.nullable, "item")

    def item(value: Any, index: int) -> Any:
        if not _is_array(value) or not hasattr(value, "__getitem__"):
            _refuse(value, type)
        if not 0 <= index < len(value):
            raise ExpressionError(
                "INVALID_ARRAY_INDEX", f"the index {index} is out of bounds: the array has {len(value)} items"
            )
        return checked(value[index])

    return item


def reader_of_value(type: MapType) -> Callable[[Any, Any], Any]:
    """A function from a map and a key to the value; NULL if the map doesn't have the key."""
    checked = _checked(type.value, True, "value")
    as_key = _checked(type.key, False, "key")

    def value_of(value: Any, key: Any) -> Any:
        if not isinstance(value, Mapping):
            _refuse(value, type)
        if key in value:  # a defaultdict would insert another one
            return checked(value[key])
        if key != key or (value and _is_other(next(iter(value)), key)):
            for each, found in value.items():
                if equal(as_key(each), key):
                    return checked(found)
        return None

    return value_of


def _is_other(given: object, key: object) -> bool:
    """Whether a key is of another class than those of expressions: a `tg.Timestamp`, a UUID."""
    return type(given) is not type(key)


def size(value: Any) -> int:
    """The number of items of an array, or of keys of a map."""
    if not (_is_array(value) or isinstance(value, Mapping)):
        raise ExpressionError("INVALID_COLUMN_VALUE", f"a value of type {type(value).__name__} has no size")
    return len(value)


def containment(type: ArrayType) -> Callable[[Any, Any], bool | None]:
    """A function that says whether an array has an item; NULL if not, and if it has a NULL."""
    checked = _checked(type.element, True, "item")
    same: Callable[[Any, Any], bool] = equal if type.element.kind == "double" else _equal

    def contains(value: Any, item: Any) -> bool | None:
        if not _is_array(value):
            _refuse(value, type)
        unknown = False
        for each in map(checked, value):
            if each is None:
                unknown = True
            elif same(each, item):
                return True
        return None if unknown else False

    return contains


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other)


def _is_array(value: object) -> bool:
    return isinstance(value, Collection) and not isinstance(value, _NO_ARRAYS)


_NO_ARRAYS: Final = (str, bytes, bytearray, Mapping)


def _refuse(value: object, type: ColumnType) -> NoReturn:
    raise ExpressionError("INVALID_COLUMN_VALUE", f"{type} is no type of {shorten(value)}")


def _checked(type: ColumnType, nullable: bool, name: str) -> Callable[[Any], Any]:
    """A function that takes a part of a value as one of its type. Parts with parts of their own stay as they are."""
    convert: Callable[[Any, str], Any]
    if isinstance(type, DecimalType):
        convert = as_decimal(type)
    elif type.kind in CHECKS:
        convert = CHECKS[type.kind][1]
    else:

        def convert(value: Any, name: str) -> Any:
            return refuse_value(None, name, str(type)) if value is None else value

    def checked(value: Any) -> Any:
        return None if value is None and nullable else convert(value, name)

    return checked
