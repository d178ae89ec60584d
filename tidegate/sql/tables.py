"""Tables of scripts: what CREATE TABLE may say, and the files behind it."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Final

from tidegate import io
from tidegate.sdk.data.columns import UNKNOWN, Field, type_named
from tidegate.sdk.data.schema import column_type
from tidegate.sdk.errors import SqlError
from tidegate.sdk.time import Duration
from tidegate.sql.syntax.scripts import TableDefinition

READERS: Final[dict[str, Callable[..., Any]]] = {
    "csv": io.ReadFromCsv,
    "json": io.ReadFromJson,
    "parquet": io.ReadFromParquet,
    "avro": io.ReadFromAvro,
    "arrow": io.ReadFromArrow,
}
_WRITERS: Final[dict[str, Callable[..., Any]]] = {
    "csv": io.WriteToCsv,
    "json": io.WriteToJson,
    "parquet": io.WriteToParquet,
    "avro": io.WriteToAvro,
    "arrow": io.WriteToArrow,
}
SUFFIXES: Final = {"jsonl": "json", "ndjson": "json", "feather": "arrow"}
_READER_OPTIONS: Final = ("timezone", "schema_evolution", "delimiter")
"""Options that are arguments of the readers, with the same values."""
_FLAGS: Final = ("follow", "strings_can_be_null")
"""Options that are arguments of the readers, and 'true' or 'false'."""
_OF_CSV: Final = ("delimiter", "strings_can_be_null")
_OPTIONS: Final = ("connector", "path", "format", *_READER_OPTIONS, *_FLAGS)


def check_definition(definition: TableDefinition) -> None:
    """Raise SqlError for a table whose connector, format, options or types there are not."""
    options = definition.options

    def refuse(message: str, at: int = definition.start) -> SqlError:
        return definition.source.error(f"the table {definition.name}: {message}", at)

    unknown = next((key for key in options if key not in _OPTIONS), None)
    if unknown is not None:
        message = f"there is no option {unknown!r}; there are {', '.join(_OPTIONS)}"
        raise refuse(message, options[unknown].start)
    connector = options.get("connector")
    if connector is not None and connector.value != "filesystem":
        message = f"there is no connector {connector.value!r}: tables are files, 'connector' = 'filesystem'"
        raise refuse(message, connector.value_start)
    if "path" not in options:
        raise refuse("WITH needs a 'path'")
    if format_of(definition) not in READERS:
        message = f"the format {format_of(definition)!r} is none of {', '.join(READERS)}: give 'format' = '…'"
        raise refuse(message, options.get("format", options["path"]).value_start)
    for key, option in options.items():
        if key in _OF_CSV and format_of(definition) != "csv":
            raise refuse(f"{key!r} is for csv, not for {format_of(definition)}", option.start)
        if key in _FLAGS and option.value.lower() not in ("true", "false"):
            raise refuse(f"{key!r} is 'true' or 'false', not {option.value!r}", option.value_start)
    _check_columns(definition, refuse)


def _check_columns(definition: TableDefinition, refuse: Callable[[str, int], SqlError]) -> None:
    types: dict[str, str] = {}
    for column in definition.columns:
        if _hint_of(column.type) is None:
            known = f"types are {', '.join(_TYPES)}, DECIMAL(p, s)"
            raise refuse(f"the column {column.name} has the type {column.type}, and {known}", column.start)
        if column.name in types:
            raise refuse(f"there are two columns {column.name}", column.start)
        types[column.name] = column.type
    time = definition.watermark
    if time is not None and types.get(time.column) != "TIMESTAMP":
        raise refuse(f"WATERMARK FOR {time.column} needs the column {time.column} TIMESTAMP", time.start)


_TYPES: Final[dict[str, Any]] = {
    "BOOLEAN": bool,
    "BIGINT": int,
    "DOUBLE": float,
    "STRING": str,
    "VARCHAR": str,
    "BINARY": bytes,
    "DATE": datetime.date,
    "TIMESTAMP": datetime.datetime,
}


def _hint_of(type: str) -> Any:
    """The type of Python for a column's type; None if there is none."""
    if type.startswith("DECIMAL"):
        try:
            type_named(type)
        except ValueError:
            return None
        return Annotated[decimal.Decimal, type.lower()]
    return _TYPES.get(type)


def why_not_inserted(definition: TableDefinition, found: Sequence[Field]) -> str | None:
    """Why rows of these fields are no rows of a table; None if they are. A table without columns takes all rows."""
    names = [each.name for each in found]
    wanted = [each.name for each in definition.columns]
    if not wanted:
        return None
    if names != wanted:
        return f"the table has the columns {', '.join(wanted)}, and the query {', '.join(names)}"
    for column, each in zip(definition.columns, found, strict=True):
        name, type = column.name, column.type
        if each.type not in (column_type(_hint_of(type)), UNKNOWN):
            return f"the column {name} is {type} in the table and {each.type} in the query: write CAST(… AS {type})"
        if each.nullable and column.required:
            return f"the column {name} is NOT NULL in the table and may be NULL in the query: write COALESCE({name}, …)"
    return None


def format_of(definition: TableDefinition) -> str:
    """The format of a table's files: that given, or that of the path's suffix."""
    given = definition.option("format")
    return format_of_path(definition.path) if given is None else given.lower()


def format_of_path(path: str) -> str:
    """The format that the suffix of a path stands for; the suffix itself, in lower case, if it stands for none."""
    suffix = PurePath(path).suffix.lstrip(".").lower()
    return SUFFIXES.get(suffix, suffix)


def reader_of(definition: TableDefinition) -> Any:
    """The step that reads a table."""
    arguments: dict[str, Any] = {key: definition.option(key) for key in _READER_OPTIONS if key in definition.options}
    if definition.columns:
        types = [(each, _hint_of(each.type)) for each in definition.columns]
        arguments["schema"] = {each.name: hint if each.required else hint | None for each, hint in types}
    arguments |= {key: True for key in _FLAGS if (definition.option(key) or "").lower() == "true"}
    if definition.watermark is not None:
        arguments["timestamp"] = TimeOf(definition.watermark.column)
        arguments["out_of_orderness"] = Duration(micros=definition.watermark.delay)
    reader = READERS[format_of(definition)]
    return reader(definition.path, name=f"Read {definition.name}", **arguments)


def writer_of(definition: TableDefinition, name: str) -> Any:
    """The step that inserts rows into a table."""
    arguments = {"delimiter": definition.option("delimiter")} if "delimiter" in definition.options else {}
    return _WRITERS[format_of(definition)](definition.path, name=name, **arguments)


class TimeOf:
    """A function from a row to the value of its time column."""

    def __init__(self, column: str) -> None:
        self.column = column

    def __call__(self, row: Any) -> Any:
        return getattr(row, self.column)
