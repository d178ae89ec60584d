"""Values entering columns: what an element holds, as a value of its column's type.

A value of another type is refused, since nothing promised for expressions holds for it. What Python considers a value
of the type is converted: an int in a field of type float, an instant in another time zone, a `tg.Timestamp`.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn
from uuid import UUID

from tidegate.sdk.errors import shorten
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.time import Duration, Timestamp

LEAST: Final = -(2**63)
GREATEST: Final = 2**63 - 1
LEAST_INTERVAL: Final = datetime.timedelta(microseconds=LEAST)
GREATEST_INTERVAL: Final = datetime.timedelta(microseconds=GREATEST)
UTC: Final = datetime.UTC


def refuse_value(value: Any, name: str, type: str, why: str = "") -> NoReturn:
    """Raise the ExpressionError of a value that is not of its column's type."""
    if value is None:
        raise ExpressionError(
            "INVALID_COLUMN_VALUE",
            f"the column {name!r} is NULL, and its type says that it never is: declare it as `| None`",
        )
    raise ExpressionError(
        "INVALID_COLUMN_VALUE", f"the column {name!r} is of type {type}, and {shorten(value)} is not{why}"
    )


def as_boolean(value: Any, name: str) -> bool:
    """A bool, also one of numpy."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    refuse_value(value, name, "boolean")


def as_bigint(value: Any, name: str) -> int:
    """An int of 64 bits."""
    if isinstance(value, (bool, float)):
        refuse_value(value, name, "bigint")
    try:
        found = operator.index(value)
    except TypeError:
        refuse_value(value, name, "bigint")
    if not LEAST <= found <= GREATEST:
        refuse_value(value, name, "bigint", ": it has more than 64 bits")
    return found


def as_double(value: Any, name: str) -> float:
    """A float; ints are converted."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            refuse_value(value, name, "double", ": it is too large")
    refuse_value(value, name, "double")


def as_string(value: Any, name: str) -> str:
    """A plain str."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, UUID):
        return str(value)
    refuse_value(value, name, "string")


def as_binary(value: Any, name: str) -> bytes:
    """Plain bytes."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    refuse_value(value, name, "binary")


def as_timestamp(value: Any, name: str) -> datetime.datetime:
    """An aware datetime in UTC."""
    if isinstance(value, Timestamp):
        try:
            return value.to_utc_datetime()
        except OverflowError:
            refuse_value(value, name, "timestamp", ": it is outside the years 1 to 9999")
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            refuse_value(value, name, "timestamp", ": it has no time zone")
        return value.astimezone(UTC)
    refuse_value(value, name, "timestamp")


def as_date(value: Any, name: str) -> datetime.date:
    """A date without a time."""
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    refuse_value(value, name, "date")


def as_interval(value: Any, name: str) -> datetime.timedelta:
    """A length of time of at most 64 bits of microseconds."""
    if isinstance(value, Duration):
        value = datetime.timedelta(microseconds=value.micros)
    if isinstance(value, datetime.timedelta):
        if not LEAST_INTERVAL <= value <= GREATEST_INTERVAL:
            refuse_value(value, name, "interval", ": it has more than 64 bits of microseconds")
        return value
    refuse_value(value, name, "interval")


def field_of(element: Any, name: str) -> Any:
    """A field of an element whose type is not known: an item of a mapping, else an attribute.

    Dataclasses have attributes even if they are mappings, and other mappings those that no dict has.
    """
    if not isinstance(element, Mapping) or hasattr(type(element), "__dataclass_fields__"):
        return getattr(element, name)
    if name in element:  # a defaultdict would insert another one
        return element[name]
    if hasattr(type(element), name) and not hasattr(dict, name):
        return getattr(element, name)
    raise KeyError(name)


def fits_bigint(first: str, again: str) -> str:
    """Python that says whether an int has 64 bits, which is written `first`, and `again` where it has been evaluated.

    Python compares small ints with each other in a third of the time that larger ones take.
    """
    return f"{-_SMALL} <= {first} <= {_SMALL} or {LEAST} <= {again} <= {GREATEST}"


_SMALL: Final = 2**30 - 1
"""The greatest int of one digit in CPython."""

CHECKS: Final[dict[str, tuple[str, Callable[[Any, str], Any]]]] = {
    "boolean": ("type({0}) is not bool", as_boolean),
    "bigint": (f"type({{0}}) is not int or not ({fits_bigint('{0}', '{0}')})", as_bigint),
    "double": ("type({0}) is not float", as_double),
    "string": ("type({0}) is not str", as_string),
    "binary": ("type({0}) is not bytes", as_binary),
    "timestamp": ("type({0}) is not datetime or {0}.tzinfo is not UTC", as_timestamp),
    "date": ("type({0}) is not date", as_date),
    "interval": ("True", as_interval),
}
"""By type, a test in Python that is true for values that need the function: it converts or refuses them."""
