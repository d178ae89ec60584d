"""Folders by the values of columns, as Hive names them: `country=DE/day=2013-01-01`.

>>> Partitioning(("country", "day"))({"country": "DE/AT", "day": None, "n": 1})
'country=DE%2FAT/day=__HIVE_DEFAULT_PARTITION__'
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from tidegate.sdk.errors import shorten
from tidegate.sdk.time import Timestamp

DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value of a partition whose elements have None in the column."""

_ESCAPED: Final = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^]")


@dataclass(frozen=True, slots=True)
class Partitioning:
    """A function from an element to the folders of its partition. `timezone` is that of naive datetimes.

    Raises ValueError or TypeError for an element that lacks a column, or whose value can't name a folder.
    """

    columns: tuple[str, ...]
    timezone: str | None = None

    def __call__(self, element: Any) -> str:
        if isinstance(element, Mapping):
            return "/".join([self._folder(column, element.get(column, _MISSING), element) for column in self.columns])
        return "/".join([self._folder(column, getattr(element, column, _MISSING), element) for column in self.columns])

    def _folder(self, column: str, value: Any, element: Any) -> str:
        if type(value) is str and value.isalnum():
            return f"{column}={value}"
        if value is _MISSING:
            raise ValueError(f"{shorten(element, 60)} has no field {column!r} to partition by")
        return f"{escaped(column)}={self._text(value)}"

    def _text(self, value: Any) -> str:
        match value:
            case None:
                return DEFAULT_PARTITION
            case "":
                raise ValueError("an empty text can't name a partition: Hive has no name for it but that of None")
            case str() if value == DEFAULT_PARTITION:
                raise ValueError(f"the text {value!r} can't name a partition: Hive names the partition of None so")
            case str():
                return escaped(value)
            case bool():
                return "true" if value else "false"
            case float() if not math.isfinite(value):
                raise ValueError(f"{value} can't name a partition")
            case int() | float() | Decimal() | UUID():
                return escaped(str(value))
            case Timestamp():
                return escaped(_instant(value.to_utc_datetime()))
            case datetime.datetime():
                return escaped(_instant(self._aware(value)))
            case datetime.date():
                return value.isoformat()
        raise TypeError(f"{shorten(value, 60)}, a {type(value).__name__}, can't name a partition: make it a str")

    def _aware(self, value: datetime.datetime) -> datetime.datetime:
        if value.tzinfo is not None:
            return value
        if self.timezone is None:
            raise ValueError(
                f"{shorten(value, 60)} has no time zone: say which zone such times are in, as in timezone='UTC'"
            )
        from zoneinfo import ZoneInfo

        return value.replace(tzinfo=ZoneInfo(self.timezone))


def escaped(text: str) -> str:
    """A text as (part of) a folder's name, with Hive's escapes: `%` and two hexadecimal digits."""
    return _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", text)


def _instant(at: datetime.datetime) -> str:
    """An instant in UTC, as Spark and pyarrow read it."""
    return at.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(" ")


_MISSING: Final = object()
