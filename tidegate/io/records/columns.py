"""Arrow columns as lists of Python values, and the casts before that.

Whole columns are converted, never single cells: numbers and text by Arrow, and times through numpy, which is many times
faster.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tidegate.io.records.types import kind_of, zone_of_type

UTC: Final = datetime.UTC


def values_of(column: Any) -> list[Any]:
    """The values of an array that `fit` has prepared; instants are aware datetimes in UTC."""
    kind = kind_of(column.type)
    found: list[Any]
    match kind:
        case "timestamp":
            found = _instants(column)
        case "list" | "struct" | "map":
            # Arrow converts columns without maps several times faster if it is not told what to make of maps.
            found = column.to_pylist(maps_as_pydicts="strict") if _has_maps(column.type) else column.to_pylist()
            if (localized := _in_utc(column.type)) is not None:
                found = [None if value is None else localized(value) for value in found]
        case "date" | "duration":
            found = _by_numpy(column)
        case _:
            found = column.to_pylist()
    return found


def fit(column: Any, type: Any, timezone: str | None) -> Any:
    """A column cast to a type that `resolve` returned. Raises `pyarrow.ArrowInvalid` for values that the type can't
    represent: nanoseconds that aren't whole microseconds, times that a clock change skips or repeats, numbers out of
    range."""
    import pyarrow as pa
    import pyarrow.compute as pc

    own = column.type
    if own.equals(type):
        if kind_of(type) in _YEARS:
            _check_years(column)
        return column
    if pa.types.is_dictionary(own):
        column = column.dictionary_decode()
    elif pa.types.is_run_end_encoded(own):
        column = pc.run_end_decode(column)
    if kind_of(column.type) == "string" and kind_of(type) == "timestamp":
        column = _parsed_times(column, timezone)
    if kind_of(type) == "timestamp" and kind_of(column.type) == "timestamp":
        if zone_of_type(column.type) is None and timezone is not None:
            column = pc.assume_timezone(column, timezone)
        column = column.cast(type)
        _check_years(column)
        return column
    if kind_of(type) in ("list", "struct", "map"):
        return _fit_nested(column, type, timezone)
    if kind_of(column.type) == "string" and kind_of(type) == "time":
        return pa.array(map(_clock_time, column.to_pylist()), type)
    if kind_of(column.type) == "integer" and kind_of(type) == "decimal":
        return column.cast(pa.decimal128(38, min(type.scale, 18))).cast(type)  # Arrow asks for room for all of 64 bits
    return column.cast(type)


def _clock_time(text: str | None) -> datetime.time | None:
    """A time of day in ISO 8601. Raises ValueError for another text, and for a time with a zone."""
    found = None if text is None else datetime.time.fromisoformat(text)
    if found is not None and found.tzinfo is not None:
        raise ValueError("a time of day has no time zone")
    return found


def _parsed_times(column: Any, timezone: str | None) -> Any:
    import pyarrow as pa

    if timezone is not None:
        try:
            return column.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            pass  # some of them have an offset
    return column.cast(pa.timestamp("us", "UTC"))


def _fit_nested(column: Any, type: Any, timezone: str | None) -> Any:
    import pyarrow as pa

    if timezone is None or not _has_naive_times(column.type):
        return column.cast(type)
    # Arrow's cast takes naive times for UTC; another zone has to be applied to the innermost column.
    match kind_of(type):
        case "struct":
            parts = [fit(part, field.type, timezone) for part, field in zip(column.flatten(), type)]
            mask = column.is_null() if column.null_count else None
            return pa.StructArray.from_arrays(parts, fields=list(type), mask=mask)
        case "list" if not pa.types.is_fixed_size_list(column.type):
            made = pa.LargeListArray if pa.types.is_large_list(type) else pa.ListArray
            mask = column.is_null() if column.null_count else None
            offsets, values = _compact(column)
            return made.from_arrays(offsets, fit(values, type.value_type, timezone), type=type, mask=mask)
        case _:
            raise pa.ArrowInvalid(f"naive times in a {column.type} can't be read: write them with a zone")


def _compact(column: Any) -> tuple[Any, Any]:
    """The offsets and values of a list column: from 0 on, and without the values outside a slice."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    offsets = [0]
    for length in lengths:
        offsets.append(offsets[-1] + length)
    kind = pa.int64() if pa.types.is_large_list(column.type) else pa.int32()
    return pa.array(offsets, kind), column.flatten()


def _has_naive_times(type: Any) -> bool:
    match kind_of(type):
        case "timestamp":
            return zone_of_type(type) is None
        case "list":
            return _has_naive_times(type.value_type)
        case "map":
            return _has_naive_times(type.key_type) or _has_naive_times(type.item_type)
        case "struct":
            return any(_has_naive_times(field.type) for field in type)
    return False


def _has_maps(type: Any) -> bool:
    match kind_of(type):
        case "map":
            return True
        case "list":
            return _has_maps(type.value_type)
        case "struct":
            return any(_has_maps(field.type) for field in type)
    return False


def _instants(column: Any) -> list[Any]:
    import pyarrow as pa

    # As an addition to the epoch, since datetimes that numpy makes lack a zone, and giving them one takes ten times as
    # long.
    since = _by_numpy(column.view(pa.int64()).view(pa.duration("us")))
    if column.null_count:
        return [None if each is None else _EPOCH + each for each in since]
    return list(map(_EPOCH.__add__, since))


def _by_numpy(column: Any) -> list[Any]:
    """The values through numpy, if it is installed."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return list(column.to_pylist())
    return list(column.to_numpy(zero_copy_only=False).tolist())


def _check_years(column: Any) -> None:
    """Raise ArrowInvalid for dates and instants outside of Python's range of years."""
    import pyarrow as pa
    import pyarrow.compute as pc

    least, greatest = _YEARS[kind_of(column.type)]
    ends = pc.min_max(column.view(pa.int32() if kind_of(column.type) == "date" else pa.int64()))
    if ends["min"].is_valid and (ends["min"].as_py() < least or ends["max"].as_py() > greatest):
        raise pa.ArrowInvalid("Python's years go from 1 to 9999")


_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=UTC)
_DAYS: Final = datetime.date.min.toordinal() - _EPOCH.toordinal(), datetime.date.max.toordinal() - _EPOCH.toordinal()
_DAY: Final = 86_400_000_000
_YEARS: Final = {"date": _DAYS, "timestamp": (_DAYS[0] * _DAY, (_DAYS[1] + 1) * _DAY - 1)}


def _in_utc(type: Any) -> Callable[[Any], Any] | None:
    """A function that converts the instants in a nested value to UTC; None if the type has no instants."""
    match kind_of(type):
        case "timestamp":
            return partial(datetime.datetime.astimezone, tz=UTC)
        case "list":
            inner = _in_utc(type.value_type)
            return None if inner is None else lambda value: [None if each is None else inner(each) for each in value]
        case "struct":
            parts = {field.name: each for field in type if (each := _in_utc(field.type)) is not None}
            return partial(_with_parts, parts) if parts else None
        case "map":
            item = _in_utc(type.item_type)
            if item is None:
                return None
            return lambda value: {key: None if each is None else item(each) for key, each in value.items()}
    return None


def _with_parts(parts: dict[str, Callable[[Any], Any]], value: dict[str, Any]) -> dict[str, Any]:
    return {name: parts[name](each) if each is not None and name in parts else each for name, each in value.items()}
