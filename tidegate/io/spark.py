"""Reading and writing Spark's tables, DataFrames and RDDs; only on the Spark runner.

These connectors let a pipeline run in the middle of a Spark job. The Arrow batches of a DataFrame, or the pickles in an
RDD, go to the pipeline's first steps on the executors, and Spark's own writers write the results. PySpark is imported
only when an RDD is opened.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from tidegate.sdk.connectors.sinks import Delivery
from tidegate.sdk.connectors.sources import Position, Reader, Source, Split
from tidegate.sdk.data.block import BLOCK_SIZE
from tidegate.sdk.data.columns import (
    SCALARS,
    UNKNOWN,
    ArrayType,
    ColumnType,
    Field,
    MapType,
    Schema,
    StructType,
    stored_type,
)
from tidegate.sdk.data.row import Row, row_maker
from tidegate.sdk.data.schema import with_schema
from tidegate.sdk.errors import BuildError, RunError, UnsupportedError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Read, Write
from tidegate.sdk.time import DurationLike, TimestampLike
from tidegate.transforms.rows.dataframes import FrameSink, columns_of

Mode: TypeAlias = Literal["error", "append", "overwrite", "ignore"]
_MODES: Final = ("error", "append", "overwrite", "ignore")
_COMMITTING: Final = frozenset({"avro", "csv", "delta", "hudi", "iceberg", "json", "orc", "parquet", "text"})
"""Formats for which Spark commits output, so that tasks that run again don't write it twice."""


class ReadFromSpark(Read[Any]):
    """Reads the rows of a DataFrame, or of a table by its name, as `tg.Row`s with the columns as fields, or the
    elements of an RDD.

        pipeline | tg.io.ReadFromSpark(spark.table("sales").where("amount > 0"))
        pipeline | tg.io.ReadFromSpark("sales", columns=["customer", "amount"])
        pipeline | tg.io.ReadFromSpark(sc.textFile("sales.csv").map(parsed).persist())

    The executors run the steps on each partition of a DataFrame or an RDD, batch by batch; nothing is collected on the
    driver, and data that Spark has persisted is not computed again. A DataFrame or RDD exists only in the process that
    created it: a pipeline that is compiled to run elsewhere must read a table. For elements whose classes are defined
    in your script, declare the type: `.with_output_types(Visit)`.

    - `columns`: the columns to read, in this order; all of them by default.
    - `as_dicts`: dicts instead of Rows, for columns whose names can't be fields (`_1`).
    - `timestamp`: a function from an element to its event time.

    Structs and maps become dicts, arrays lists, and timestamps aware datetimes. Raises BuildError when applied to
    anything else, or to an RDD with `columns` or `as_dicts`; at run time, for columns that don't exist or can't be
    fields, and for a DataFrame or RDD of another session.
    """

    def __init__(
        self,
        source: Any,
        *,
        columns: Iterable[str] | None = None,
        as_dicts: bool = False,
        timestamp: Callable[[Any], TimestampLike] | None = None,
        out_of_orderness: DurationLike = 0,
        name: str | None = None,
    ) -> None:
        super().__init__(
            _source_of(source, columns, as_dicts), timestamp=timestamp, out_of_orderness=out_of_orderness, name=name
        )

    def default_label(self) -> str:
        match self.source:
            case SparkSource(table=str() as table):
                return f"ReadFromSpark({table})"
            case _:
                return "ReadFromSpark"


def _source_of(data: Any, columns: Iterable[str] | None, as_dicts: bool) -> SparkSource | RddSource:
    frame: _Handle | None = None
    table: str | None = None
    if isinstance(data, str):
        table = data
    elif all(hasattr(data, part) for part in ("mapInArrow", "schema", "sparkSession")):
        frame = _Handle(data)
    elif all(hasattr(data, part) for part in ("mapPartitions", "_jrdd_deserializer", "ctx")):
        if columns is not None or as_dicts:
            raise BuildError("ReadFromSpark: columns and as_dicts are for DataFrames and tables, not for an RDD")
        return RddSource(_Handle(data))
    else:
        raise BuildError(f"ReadFromSpark takes a Spark DataFrame or RDD, or a table's name, not {shorten(data)}")
    if isinstance(columns, str):
        raise BuildError(f"ReadFromSpark: columns is a list of names, not one {columns!r}")
    return SparkSource(frame, table, None if columns is None else tuple(columns), as_dicts)


class _Handle:
    """A reference to a DataFrame or RDD of this process. Unpickled in this process, it is the same handle; in another
    one, where the object doesn't exist, it is only the handle's id."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.id = f"{os.getpid()}-{id(self):x}-{os.urandom(4).hex()}"
        _handles[self.id] = self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return _resolve, (self.id,)


_handles: Final[weakref.WeakValueDictionary[str, _Handle]] = weakref.WeakValueDictionary()


def _resolve(handle_id: str) -> _Handle | str:
    return _handles.get(handle_id, handle_id)


@dataclass(frozen=True, slots=True)
class SparkSource(Source[Any]):
    """A DataFrame, or a table by its name; the fields are explained at `ReadFromSpark`."""

    frame: _Handle | str | None
    table: str | None
    columns: tuple[str, ...] | None
    as_dicts: bool

    @property
    def name(self) -> str:
        return self.table or "DataFrame"

    @property
    def element_type(self) -> Any:
        hint = dict[str, Any] if self.as_dicts else Row
        schema = self.schema_of_dataframe()
        return hint if schema is None else with_schema(hint, schema)

    def schema_of_dataframe(self) -> Schema | None:
        """The columns of a DataFrame of this process; None for a table, which only a session can look up."""
        if not isinstance(self.frame, _Handle):
            return None
        fields = self.frame.value.schema
        named = {field.name: field for field in fields}
        chosen = [named[name] for name in self.columns or named if name in named]
        return Schema(tuple(Field(each.name, _column_type(each.dataType), each.nullable) for each in chosen))

    @property
    def rows_of_dataframe(self) -> Literal["row", "dict"]:
        """The kind of element that it makes of each row of its DataFrame, whose columns are the elements' fields."""
        return "dict" if self.as_dicts else "row"

    def check(self) -> None:
        if self.table is not None and not self.table.strip():
            raise BuildError("ReadFromSpark: the table's name is empty")
        if self.columns is not None and (not self.columns or len(set(self.columns)) < len(self.columns)):
            raise BuildError(f"ReadFromSpark: columns must be one or more different names, not {list(self.columns)}")
        if isinstance(self.frame, _Handle):
            self._select(self.frame.value)

    def splits(self, desired: int) -> list[Split]:
        raise UnsupportedError(_ONLY_ON_SPARK)

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        raise AssertionError("Spark reads it")

    @property
    def session(self) -> Any:
        """The Spark session of the DataFrame; None for a table, which any session can read."""
        return self.frame.value.sparkSession if isinstance(self.frame, _Handle) else None

    def open_dataframe(self, session: Any) -> Any:
        """The DataFrame with the chosen columns."""
        match self.frame:
            case _Handle(value=frame):
                if not _can_share_query(frame.sparkSession, session):
                    raise BuildError(
                        "the DataFrame belongs to another Spark session than the one that runs the pipeline"
                    )
                return self._select(frame)
            case str():
                raise BuildError(_in_another_process("DataFrame"))
        return self._select(session.table(self.table))

    def elements_of(self, batch: Any, loads: Callable[[Any], Any]) -> Iterator[Sequence[Any]]:
        """The rows of an Arrow record batch."""
        columns = [_values(column) for column in batch.columns]
        names = tuple(batch.schema.names)
        if self.as_dicts:
            yield [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        else:
            yield list(map(row_maker(names), zip(*columns, strict=True)))

    def _select(self, frame: Any) -> Any:
        existing = frame.columns
        for column in self.columns or ():
            if column not in existing:
                raise BuildError(f"ReadFromSpark: {self.name} has no column {column!r}, but {', '.join(existing)}")
        names = list(self.columns or existing)
        if not names or len(set(names)) < len(names):
            raise BuildError(f"ReadFromSpark: the columns of {self.name} must have different names, and are {names}")
        no_fields = [name for name in names if name.startswith("_")]
        if no_fields and not self.as_dicts:
            raise BuildError(
                f"ReadFromSpark: the column {no_fields[0]!r} can't be a field of a Row: rename it "
                "(DataFrame.withColumnRenamed), or set as_dicts=True"
            )
        return frame if self.columns is None else frame.select(*[f"`{name}`" for name in names])


_LIKE: Final = {
    "tinyint": "bigint",
    "smallint": "bigint",
    "int": "bigint",
    "float": "double",
    "interval day to second": "interval",
}
"""The types of columns that hold the values of Spark's types of other names."""


def _column_type(type: Any) -> ColumnType:
    """The type of a column of Spark's, of those that expressions know; else `unknown`."""
    from pyspark.sql import types

    match type:
        case types.ArrayType():
            return ArrayType(_column_type(type.elementType), type.containsNull)
        case types.MapType():
            return MapType(_column_type(type.keyType), _column_type(type.valueType))
        case types.StructType():
            return StructType(tuple(Field(each.name, _column_type(each.dataType), each.nullable) for each in type))
    name = type.simpleString()
    return stored_type(name) if name.startswith("decimal(") else SCALARS.get(_LIKE.get(name, name), UNKNOWN)


@dataclass(frozen=True, slots=True)
class RddSource(Source[Any]):
    """An RDD of Python objects, read as a DataFrame of Spark's pickles, each of which contains many elements."""

    rdd: _Handle | str

    @property
    def name(self) -> str:
        return "RDD"

    def splits(self, desired: int) -> list[Split]:
        raise UnsupportedError(_ONLY_ON_SPARK)

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        raise AssertionError("Spark reads it")

    @property
    def session(self) -> Any:
        """A session of the RDD's SparkContext; None in another process. Raises BuildError if the SparkContext has been
        stopped."""
        if not isinstance(self.rdd, _Handle):
            return None
        context = self.rdd.value.ctx
        if context._jsc is None:
            raise BuildError("the SparkContext of the RDD has been stopped")
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate()

    def open_dataframe(self, session: Any) -> Any:
        """The DataFrame whose only column contains the RDD's pickles."""
        if not isinstance(self.rdd, _Handle):
            raise BuildError(_in_another_process("RDD"))
        rdd = self.rdd.value
        if getattr(session, "_sc", None) is not rdd.ctx:
            raise BuildError(
                "the RDD belongs to another SparkContext than the session that runs the pipeline; Spark Connect does "
                "not support RDDs"
            )
        from pyspark.sql import DataFrame

        rdd = rdd if _in_pickled_lists(rdd) else rdd._pickled()
        binary = session._jvm.org.apache.spark.sql.Encoders.BINARY()
        return DataFrame(session._jsparkSession.createDataset(rdd._jrdd.rdd(), binary).toDF(), session)

    def elements_of(self, batch: Any, loads: Callable[[Any], Any]) -> Iterator[Sequence[Any]]:
        """The elements of an Arrow record batch of pickles."""
        elements: list[Any] = []
        for data in batch.column(0):
            elements += loads(data.as_buffer())
            if len(elements) >= BLOCK_SIZE:
                yield elements
                elements = []
        if elements:
            yield elements


def _in_pickled_lists(rdd: Any) -> bool:
    """Whether the RDD is stored in the JVM as pickled lists of elements, as most are."""
    from pyspark.serializers import AutoBatchedSerializer, BatchedSerializer, CPickleSerializer

    serializer = rdd._jrdd_deserializer
    return (
        type(serializer) in (AutoBatchedSerializer, BatchedSerializer)
        and type(serializer.serializer) is CPickleSerializer
    )


_ONLY_ON_SPARK: Final = (
    "only the spark runner reads DataFrames, tables and RDDs: use --runner spark, or, in a test, tg.Create instead"
)


def _in_another_process(what: str) -> str:
    return (
        f"the {what} exists only in the process in which the pipeline was built: to run it in another one, read a "
        "table by its name"
    )


def _can_share_query(one: Any, other: Any) -> bool:
    """Whether two sessions can use each other's DataFrames: they need the same SparkContext; with Spark Connect, they
    have to be the same session."""
    return one is other or (hasattr(one, "_sc") and hasattr(other, "_sc") and one._sc is other._sc)


def _values(column: Any) -> list[Any]:
    """An Arrow column as Python values. Numbers are converted with numpy, which is several times as fast."""
    import pyarrow as pa

    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        column = column.to_numpy(zero_copy_only=False)
        values: list[Any] = column.tolist()
    else:
        values = column.to_pylist(maps_as_pydicts="strict") if pa.types.is_nested(kind) else column.to_pylist()
    return values


class WriteToSpark(Write):
    """Writes elements with named fields to a table or to files, with Spark's own writers, in one Spark action.

        totals | tg.io.WriteToSpark("reports.daily", mode="overwrite")
        totals | tg.io.WriteToSpark("s3a://bucket/daily", format="parquet", partition_by=["day"])

    `target` is a table's name; with a `format` (`"parquet"`, `"orc"`, `"json"`, `"csv"`, `"jdbc"`…), it is a path, or
    None for formats without one. `table=True` and a format write a table of that format.

    - `mode`: what to do if the target exists: `"error"`, `"append"`, `"overwrite"` or `"ignore"`, as in Spark.
    - `partition_by`: the columns to partition the files by. `options`: the format's options.
    - `schema`: the columns in Spark's DDL; inferred as in `tg.ToDataFrame` by default.

    The output is written after all steps have succeeded, and before the run's other sinks are committed. Raises
    BuildError when applied to elements without named fields, or for an unknown mode; at run time, the errors of Spark's
    writer.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | None,
        *,
        format: str | None = None,
        mode: Mode = "error",
        table: bool = False,
        partition_by: Iterable[str] = (),
        options: Mapping[str, Any] | None = None,
        schema: str | None = None,
        name: str | None = None,
    ) -> None:
        if target is not None and not isinstance(target, (str, os.PathLike)):
            raise BuildError(f"WriteToSpark takes a table's name or a path, not {shorten(target)}")
        if isinstance(partition_by, str):
            raise BuildError(f"WriteToSpark: partition_by is a list of columns, not one {partition_by!r}")
        self._declared = SparkSink(
            schema,
            None if target is None else os.fspath(target),
            format,
            mode,
            table or format is None,
            tuple(partition_by),
            tuple(sorted((str(key), value) for key, value in (options or {}).items())),
        )
        super().__init__(self._declared, name=name)

    def default_label(self) -> str:
        return f"WriteToSpark({self.sink.name})"

    def expand(self, input: PCollection[Any]) -> None:
        from dataclasses import replace

        self.sink = replace(
            self._declared, columns=self._declared.columns or columns_of(input.element_type, "WriteToSpark")
        )
        super().expand(input)


@dataclass(frozen=True, slots=True)
class SparkSink(FrameSink):
    """A target of Spark's writers; the fields are explained at `WriteToSpark`."""

    target: str | None = None
    format: str | None = None
    mode: str = "error"
    table: bool = True
    partition_by: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        return self.target or self.format or "table"

    @property
    def delivery(self) -> Delivery:  # type: ignore[override]  # computed, so it can't be set
        known = self.format is None or self.format.lower() in _COMMITTING
        return "exactly_once" if known else "at_least_once"

    def check(self) -> None:
        if self.mode not in _MODES:
            raise BuildError(f"WriteToSpark: mode is one of {', '.join(map(repr, _MODES))}, not {self.mode!r}")
        if self.table and not (self.target or "").strip():
            raise BuildError("WriteToSpark: the table's name is empty; to write files, pass a path and a format")

    def writes(self) -> Hashable | None:
        """The table or path, unless rows are appended to it, which several sinks may do."""
        return None if self.mode == "append" or self.target is None else (self.table, self.target)

    @property
    def returned(self) -> bool:
        """False: the DataFrame is written, not returned to the author."""
        return False

    def save_dataframe(self, frame: Any) -> None:
        """Write the DataFrame to the target."""
        missing = [column for column in self.partition_by if column not in frame.columns]
        if missing:
            raise RunError(
                f"WriteToSpark can't partition by {missing[0]!r}: the columns are {', '.join(frame.columns)}"
            )
        writer = frame.write.mode(self.mode).options(**dict(self.options))
        if self.format is not None:
            writer = writer.format(self.format)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        if self.table:
            writer.saveAsTable(self.target)
        else:
            writer.save(self.target)
