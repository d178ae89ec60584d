"""Where relations that Spark computes begin and end: the sources that it reads, and the rows that other steps read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from tidegate.runners.spark.catalyst.event_times import time_of_read
from tidegate.sdk.connectors.sources import Position, Reader, Source, Split
from tidegate.sdk.connectors.stored_tables import StoredTable
from tidegate.sdk.data.columns import Schema
from tidegate.sdk.data.row import row_maker
from tidegate.sdk.data.values import TimestampedValue
from tidegate.sdk.portable.model import Create, Node, Pipeline, Read
from tidegate.sdk.relational.expressions import Tree

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Elements: TypeAlias = Literal["row", "dict"]
"""The kind of elements that can be made of a DataFrame's rows."""


@dataclass(frozen=True, slots=True)
class NativeInput:
    """A source that Spark reads itself. `elements`: what kind of elements the source has, if they are of a known one.

    `stored`: the data are with Spark or in files, so that nothing has to be sent to it. `time`: the column with the
    elements' timestamps, if they have any.
    """

    node: Create | Read
    schema: Schema
    elements: Elements | None
    table: StoredTable | None = None
    stored: bool = True
    time: Tree | None = None


def native_input(node: Node, schema: Schema | None) -> NativeInput | str:
    """The source that a node reads, with the schema of its elements; or the reason why Spark can't read it itself."""
    if schema is None:
        return "its elements have no columns that are known"
    match node:
        case Create(values=values):
            if any(type(each) is TimestampedValue for each in values.load()):
                return "its elements have timestamps"
            if not _is_unicode(values.load(), schema):
                return "its strings have lone surrogates, which Spark hasn't"
            return NativeInput(node, schema, None, stored=False)
        case Read(bounded=True, rate_limit=None, source=payload, stamping=stamping):
            source: Any = payload.load()
            time = None if stamping is None else time_of_read(node, schema)
            if stamping is not None and time is None:
                return "only a worker calls the function of its timestamps"
            if hasattr(type(source), "rows_of_dataframe"):
                known = source.schema_of_dataframe()
                if known is None:  # a table, which only a session can look up: its rows may have more columns
                    return NativeInput(node, schema, None, time=time)
                if known != schema:
                    return "its elements are declared to have other columns"
                kind: Elements | None = source.rows_of_dataframe
                if kind == "dict" and time is not None:
                    return "its elements have no attributes"
                return "its elements are no rows" if kind is None else NativeInput(node, schema, kind, time=time)
            if hasattr(type(source), "stored_table"):
                table: StoredTable | str = source.stored_table()
                if isinstance(table, str):
                    return table
                if table.schema != schema:
                    return "its elements are declared to have other columns"
                if table.elements == "dict" and time is not None:
                    return "its elements have no attributes"
                return NativeInput(node, schema, table.elements, table, time=time)
            return f"only a worker reads {node.name}"
        case Read():
            return "its elements are read at a limited rate"
    return "it is no source"


def _is_unicode(elements: Iterable[Any], schema: Schema) -> bool:
    """Whether UTF-8 has all strings of the elements' columns."""
    names = [each.name for each in schema.fields if str(each.type) == "string"]
    for element in elements:
        for name in names:
            value = element.get(name) if isinstance(element, dict) else getattr(element, name, None)
            if isinstance(value, str) and not value.isascii() and any("\ud800" <= each <= "\udfff" for each in value):
                return False
    return True


@dataclass(frozen=True, slots=True)
class NativeRows(Source[Any]):
    """The rows of a collection that Spark computes, as a source of the steps that read them.

    `region` has the nodes that compute it; None in workers. `grouped`: the rows are results of a grouping, whose
    timestamps and panes they have. `windowed`: the two columns after those of `names` are the bounds of its windows;
    `timed`: the column after them is the row's timestamp.
    """

    collection: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    elements: Elements
    grouped: bool
    region: Pipeline | None
    windowed: bool = False
    timed: bool = False

    @property
    def name(self) -> str:
        return "DataFrame of Spark"

    @property
    def session(self) -> Any:
        """The session of the DataFrames that are read, if any."""
        return next(iter(self.sessions), None)

    @property
    def sessions(self) -> list[Any]:
        """The sessions of all DataFrames that are read."""
        return [found for each in self._sources() if (found := getattr(each, "session", None)) is not None]

    def _sources(self) -> Iterator[Any]:
        nodes = () if self.region is None else self.region.nodes
        return (node.source.load() for node in nodes if isinstance(node, Read))

    def local_files(self) -> list[str]:
        """The files that Spark reads, which workers of a cluster have to share, too."""
        return [path for each in self._sources() for path in each.local_files()]

    def open_dataframe(self, session: Any) -> Any:
        """Not called: the run computes the DataFrames of all regions together."""
        raise AssertionError("the driver has this DataFrame")

    def splits(self, desired: int) -> list[Split]:
        raise AssertionError("Spark computes it")

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        raise AssertionError("Spark computes it")

    def elements_of(self, batch: Any, loads: Callable[[Any], Any]) -> Iterator[Sequence[Any]]:
        """The elements of an Arrow record batch."""
        columns = [values_of(column, type) for column, type in zip(batch.columns, self.types, strict=True)]
        rows: Iterable[Any] = zip(*columns, strict=True)
        if self.elements == "dict":
            yield [dict(zip(self.names, row, strict=True)) for row in rows]
        else:
            yield list(map(row_maker(self.names), rows))


def values_of(column: Any, type: str) -> list[Any]:
    """An Arrow column as the Python values of a type."""
    import pyarrow as pa

    match type:
        case "timestamp":
            micros = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
            return [each if each is None else _EPOCH + timedelta(microseconds=each) for each in micros]
        case "bigint" | "double" if column.null_count == 0:
            numbers: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
            return numbers
    values: list[Any] = column.to_pylist()
    return values
