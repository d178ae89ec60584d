"""The partition values and the column statistics of a written data file, in the form that the log has.

Statistics must never rule out a row that the file has. What JSON can't represent so that every reader orders it in the
same way is left out.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Collection
from decimal import Decimal
from typing import Any, Final

from tidegate.io.records.types import kind_of
from tidegate.sdk.errors import BuildError

INDEXED_COLUMNS: Final = 32
"""The number of columns that get statistics: the default of `delta.dataSkippingNumIndexedCols`."""

_LONGEST_TEXT: Final = 64
_PARTITIONING: Final = frozenset({"string", "integer", "float", "boolean", "date", "timestamp", "decimal"})
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


class UnfitPartition(Exception):
    """A value that no partition can have."""


def check_partition_type(name: str, type: Any, of: str) -> None:
    """BuildError for a column by which tables can't be partitioned."""
    if kind_of(type) not in _PARTITIONING:
        raise BuildError(f"{of}: partition_by names {name!r}, which is {type}: partitions are named by single values")


def partition_text(value: Any) -> str | None:
    """The value of a partition's column as the log has it. UnfitPartition for one that would be read as another."""
    match value:
        case None:
            return None
        case "":
            raise UnfitPartition("an empty text can't name a partition: Delta reads it as null")
        case bool():
            return "true" if value else "false"
        case float() if not math.isfinite(value):
            raise UnfitPartition(f"{value} can't name a partition")
        case datetime.datetime() if value.tzinfo is not None:
            return f"{value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
        case datetime.datetime():
            return value.isoformat(" ", timespec="microseconds")
        case Decimal():
            return f"{value:f}"
    return str(value)


def statistics_of(metadata: Any, schema: Any, with_nan: Collection[str]) -> str:
    """The statistics of a Parquet file as the log has them, in JSON. `metadata` is the file's, `schema` that of its
    columns; `with_nan` names the columns that have a NaN, which has no place in an order."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    leaves = {metadata.schema.column(at).path: at for at in range(len(metadata.schema))}
    for field in list(schema)[:INDEXED_COLUMNS]:
        leaf = leaves.get(field.name)
        if leaf is None:
            continue
        found = [metadata.row_group(group).column(leaf).statistics for group in range(metadata.num_row_groups)]
        if any(each is None or not each.has_null_count for each in found):
            continue
        nulls[field.name] = sum(each.null_count for each in found)
        valued = [each for each in found if each.num_values]
        if field.name in with_nan or not valued or not all(each.has_min_max for each in valued):
            continue
        ends = _ends(min(each.min for each in valued), max(each.max for each in valued))
        if ends is not None:
            least[field.name], greatest[field.name] = ends
    return json.dumps(
        {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls},
        separators=(",", ":"),
        ensure_ascii=False,  # readers of logs have trouble with escapes of characters beyond 16 bits
    )


def _ends(least: Any, greatest: Any) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column, in JSON; None for those that it can't represent."""
    match least:
        case bool() | int():
            return least, greatest
        case float():
            return (least, greatest) if math.isfinite(least) and math.isfinite(greatest) else None
        case str():
            return (least, greatest) if max(len(least), len(greatest)) <= _LONGEST_TEXT else None
        case datetime.datetime():
            # Logs have whole milliseconds: the interval may grow, and must not shrink.
            rounded = greatest - datetime.timedelta(microseconds=greatest.microsecond % 1000)
            try:
                return _time_text(least), _time_text(greatest if rounded == greatest else rounded + _MILLISECOND)
            except OverflowError:
                return None
        case datetime.date():
            return least.isoformat(), greatest.isoformat()
        case Decimal():
            numbers = float(least), float(greatest)
            return numbers if all(Decimal(repr(each)) == of for each, of in zip(numbers, (least, greatest))) else None
    return None


def _time_text(at: datetime.datetime) -> str:
    if at.tzinfo is None:
        return at.isoformat(" ", timespec="milliseconds")
    return f"{at.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
