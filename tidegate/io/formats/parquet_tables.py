"""Parquet files as a table that other engines read: only if these are sure to read the same rows from them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Final

from tidegate.io.records.column_types import column_type_of_arrow
from tidegate.io.records.projection import Projection, Selection, project
from tidegate.io.records.schema import of_arrow
from tidegate.sdk.connectors.stored_tables import StoredTable
from tidegate.sdk.data.columns import Field, Schema
from tidegate.sdk.errors import ReadError

MOST_FILES: Final = 1000
"""How many footers are read before a run, to compare the columns."""

_PLAIN_PATH: Final = re.compile(r"/(?:[\w=+@~ -][\w.=+@~ -]*/)*[A-Za-z0-9=+@~-][\w.=+@~ -]*", re.ASCII)
"""Paths without characters that patterns are made of, and whose last part no engine takes for a hidden file."""

_CODECS: Final = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})


def parquet_table(paths: Iterable[str], selection: Selection) -> StoredTable | str:
    """The table that local files are, or the reason why only the source's own readers can read them."""
    found = tuple(map(os.path.abspath, paths))
    if reason := _reason(found, selection):
        return reason
    columns: Projection | None = None
    for path in found:
        try:
            own = _columns(path, selection)
        except (ReadError, OSError, ValueError) as error:
            return f"{path} can't be read: {error}"
        if isinstance(own, str):
            return f"{path}: {own}"
        if columns is not None and own != columns:
            return f"{path} has other columns than {found[0]}"
        columns = own
    assert columns is not None
    schema = Schema(tuple(Field(each.name, column_type_of_arrow(each.type), each.nullable) for each in columns.columns))
    kind = selection.shape.kind
    return StoredTable("parquet", found, schema, kind if kind in ("row", "dict") else None)


def _reason(paths: tuple[str, ...], selection: Selection) -> str:
    if not 0 < len(paths) <= MOST_FILES:
        return f"there are {len(paths):,} files"
    if not all(map(_PLAIN_PATH.fullmatch, paths)):
        return "the path of a file has unusual characters"
    if selection.where or selection.evolution != "refuse" or selection.bad_records != "fail" or selection.timezone:
        return "the reader has options (where, schema_evolution, bad_records, timezone)"
    if selection.shape.has_code:
        return f"code of {selection.shape.cls.__name__} makes the elements"
    return ""


def _columns(path: str, selection: Selection) -> Projection | str:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        metadata, schema = file.metadata, file.schema_arrow
        groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
        leaves = {metadata.schema.column(at).path: at for at in range(metadata.num_columns)}
        codecs = {group.column(at).compression for group in groups for at in leaves.values()}
        own = of_arrow(schema)
        columns = project(own, selection, own, path)
        for each in columns.columns:
            if not each.in_file or not _is_same(schema.field(each.name).type, each.type):
                return f"the column {each.name!r} is converted"
            leaf = leaves.get(each.name)  # none of a list, a map or a struct
            if not each.nullable and (leaf is None or not all(_has_no_nulls(group.column(leaf)) for group in groups)):
                return f"the column {each.name!r} may have nulls, which its type doesn't"
    names = [name.lower() for name in schema.names]
    if len(set(names)) < len(names):
        return "names of columns differ in their case only"
    return columns if codecs <= _CODECS else f"it is compressed by {', '.join(sorted(codecs - _CODECS))}"


def _has_no_nulls(column: Any) -> bool:
    statistics = column.statistics
    return statistics is not None and statistics.has_null_count and statistics.null_count == 0


def _is_same(given: Any, type: Any) -> bool:
    """Whether values of a file's type are those of a column's type, for every engine."""
    import pyarrow.types as kinds

    if kinds.is_timestamp(given):
        return given.tz == "UTC" and given.unit in ("us", "ms") and kinds.is_timestamp(type) and type.tz == "UTC"
    if kinds.is_list(given) and kinds.is_list(type):
        return _is_same(given.value_type, type.value_type)
    if kinds.is_map(given) and kinds.is_map(type):
        return _is_same(given.key_type, type.key_type) and _is_same(given.item_type, type.item_type)
    if kinds.is_struct(given) and kinds.is_struct(type):
        names = [each.name.lower() for each in given]
        alike = len({*names}) == len(names) > 0 and [each.name for each in given] == [each.name for each in type]
        return alike and all(_is_same(one.type, other.type) for one, other in zip(given, type))
    if kinds.is_decimal(given):
        return bool(kinds.is_decimal128(given) and given == type)
    return any(
        fits(given) and fits(type)
        for fits in (
            kinds.is_signed_integer,
            lambda each: kinds.is_float32(each) or kinds.is_float64(each),  # Spark has no halves
            kinds.is_string,
            kinds.is_large_string,
            kinds.is_boolean,
            kinds.is_date32,
        )
    )
