"""Tables, DataFrames and RDDs of Spark's: `ReadFromSpark` and `WriteToSpark`, for the Spark runner alone.

A pipeline can so stand in the middle of a Spark job: Arrow batches of a DataFrame, or the pickles that an RDD is made
of, go straight into its first steps, on the executors, and what it gives is written by Spark's own writers. PySpark is
imported only where an RDD is opened.
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
from tidegate.sdk.errors import BuildError, RunError, UnsupportedError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Read, Write
from tidegate.sdk.time import DurationLike, TimestampLike
from tidegate.transforms.rows.dataframes import FrameSink, columns_of
from tidegate.transforms.rows.row import Row, row_maker

Mode: TypeAlias = Literal["error", "append", "overwrite", "ignore"]
_MODES: Final = ("error", "append", "overwrite", "ignore")
_COMMITTING: Final = frozenset({"avro", "csv", "delta", "hudi", "iceberg", "json", "orc", "parquet", "text"})
"""Formats whose output appears once, however often a task is tried."""


class ReadFromSpark(Read[Any]):
    """The rows of a DataFrame, or of a table by its name, as `tg.Row`s with the columns as fields; the elements of an
    RDD as they are.

        pipeline | tg.io.ReadFromSpark(spark.table("sales").where("amount > 0"))
        pipeline | tg.io.ReadFromSpark("sales", columns=["customer", "amount"])
        pipeline | tg.io.ReadFromSpark(sc.textFile("sales.csv").map(parsed).persist())

    Each partition of a DataFrame or an RDD goes to the steps where it is, batch by batch; nothing is collected, and
    what Spark has persisted is not computed again. Both belong to the process that made them: what is compiled to run
    elsewhere has to name a table. Elements of classes of your own script travel on if they are known:
    `.with_output_types(Visit)`.

    - `columns`: which columns, in this order; all of them unless given.
    - `as_dicts`: dicts instead of Rows, for columns whose names can't be fields (`_1`).
    - `timestamp`: from an element to its event time.

    Structs come as dicts, maps as dicts, arrays as lists, timestamps as aware datetimes. Raises BuildError when applied
    to anything else, or to an RDD with `columns` or `as_dicts`; when running, for columns that are not there or can't
    be fields, and for what belongs to another session.
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


def _source_of(given: Any, columns: Iterable[str] | None, as_dicts: bool) -> SparkSource | RddSource:
    held: _Held | None = None
    table: str | None = None
    if isinstance(given, str):
        table = given
    elif all(hasattr(given, part) for part in ("mapInArrow", "schema", "sparkSession")):
        held = _Held(given)
    elif all(hasattr(given, part) for part in ("mapPartitions", "_jrdd_deserializer", "ctx")):
        if columns is not None or as_dicts:
            raise BuildError("ReadFromSpark: columns and as_dicts are for DataFrames and tables, not for an RDD")
        return RddSource(_Held(given))
    else:
        raise BuildError(
            f"ReadFromSpark takes a DataFrame or an RDD of Spark's, or a table's name, not {shorten(given)}"
        )
    if isinstance(columns, str):
        raise BuildError(f"ReadFromSpark: columns is a list of names, not one {columns!r}")
    return SparkSource(held, table, None if columns is None else tuple(columns), as_dicts)


class _Held:
    """A DataFrame or RDD of this process. Pickled, it is a number by which this process finds it again."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self.number = f"{os.getpid()}-{id(self):x}-{os.urandom(4).hex()}"
        _held[self.number] = self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return _found, (self.number,)


_held: Final[weakref.WeakValueDictionary[str, _Held]] = weakref.WeakValueDictionary()


def _found(number: str) -> _Held | str:
    """The object; in another process, such as a task's, its number."""
    return _held.get(number, number)


@dataclass(frozen=True, slots=True)
class SparkSource(Source[Any]):
    """A DataFrame, or a table by its name; see `ReadFromSpark` for what the fields mean."""

    held: _Held | str | None
    table: str | None
    columns: tuple[str, ...] | None
    as_dicts: bool

    @property
    def name(self) -> str:
        return self.table or "DataFrame"

    @property
    def element_type(self) -> Any:
        return dict[str, Any] if self.as_dicts else Row

    def check(self) -> None:
        if self.table is not None and not self.table.strip():
            raise BuildError("ReadFromSpark: there is no table's name")
        if self.columns is not None and (not self.columns or len(set(self.columns)) < len(self.columns)):
            raise BuildError(f"ReadFromSpark: columns are some names, each once, not {list(self.columns)}")
        if isinstance(self.held, _Held):
            self._select(self.held.thing)

    def splits(self, desired: int) -> list[Split]:
        raise UnsupportedError(_ONLY_ON_SPARK)

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        raise AssertionError("Spark reads it")

    @property
    def session(self) -> Any:
        """The Spark session of the DataFrame; None for a table, which any session reads."""
        return self.held.thing.sparkSession if isinstance(self.held, _Held) else None

    def open_dataframe(self, session: Any) -> Any:
        """The DataFrame with the chosen columns."""
        match self.held:
            case _Held(thing=frame):
                if not _same(frame.sparkSession, session):
                    raise BuildError(
                        "the DataFrame belongs to another Spark session than the one that runs the pipeline"
                    )
                return self._select(frame)
            case str():
                raise BuildError(_elsewhere("DataFrame"))
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
        there = frame.columns
        for column in self.columns or ():
            if column not in there:
                raise BuildError(f"ReadFromSpark: {self.name} has no column {column!r}, but {', '.join(there)}")
        names = list(self.columns or there)
        if not names or len(set(names)) < len(names):
            raise BuildError(f"ReadFromSpark: the columns of {self.name} need names of their own, and are {names}")
        unfit = [name for name in names if name.startswith("_")]
        if unfit and not self.as_dicts:
            raise BuildError(
                f"ReadFromSpark: the column {unfit[0]!r} can't be a field of a Row: rename it "
                "(DataFrame.withColumnRenamed), or say as_dicts=True"
            )
        return frame if self.columns is None else frame.select(*[f"`{name}`" for name in names])


@dataclass(frozen=True, slots=True)
class RddSource(Source[Any]):
    """An RDD of Python objects, read as Spark has it: pickles of many elements each, a row of bytes for each pickle."""

    held: _Held | str

    @property
    def name(self) -> str:
        return "RDD"

    def splits(self, desired: int) -> list[Split]:
        raise UnsupportedError(_ONLY_ON_SPARK)

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        raise AssertionError("Spark reads it")

    @property
    def session(self) -> Any:
        """A session of the RDD's SparkContext; None where there is no RDD. BuildError if its SparkContext is over."""
        if not isinstance(self.held, _Held):
            return None
        context = self.held.thing.ctx
        if context._jsc is None:
            raise BuildError("the SparkContext of the RDD has been stopped")
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate()

    def open_dataframe(self, session: Any) -> Any:
        """Its pickles, as the only column of a DataFrame."""
        if not isinstance(self.held, _Held):
            raise BuildError(_elsewhere("RDD"))
        rdd = self.held.thing
        if getattr(session, "_sc", None) is not rdd.ctx:
            raise BuildError(
                "the RDD belongs to another SparkContext than the session that runs the pipeline; over Spark Connect "
                "there are none"
            )
        from pyspark.sql import DataFrame

        rdd = rdd if _in_pickled_lists(rdd) else rdd._pickled()
        binary = session._jvm.org.apache.spark.sql.Encoders.BINARY()
        return DataFrame(session._jsparkSession.createDataset(rdd._jrdd.rdd(), binary).toDF(), session)

    def elements_of(self, batch: Any, loads: Callable[[Any], Any]) -> Iterator[Sequence[Any]]:
        """The elements of an Arrow record batch of pickles."""
        some: list[Any] = []
        for data in batch.column(0):
            some += loads(data.as_buffer())
            if len(some) >= BLOCK_SIZE:
                yield some
                some = []
        if some:
            yield some


def _in_pickled_lists(rdd: Any) -> bool:
    """Whether an RDD, as it is in the JVM, consists of pickles of several elements each, as most do."""
    from pyspark.serializers import AutoBatchedSerializer, BatchedSerializer, CPickleSerializer

    form = rdd._jrdd_deserializer
    return type(form) in (AutoBatchedSerializer, BatchedSerializer) and type(form.serializer) is CPickleSerializer


_ONLY_ON_SPARK: Final = (
    "only the spark runner reads DataFrames, tables and RDDs: say --runner spark; in a test, put elements into a Create"
)


def _elsewhere(what: str) -> str:
    return (
        f"the {what} belongs to the process in which the pipeline was written: to run it elsewhere, read a table by "
        "its name"
    )


def _same(one: Any, other: Any) -> bool:
    """Whether sessions can share a query: those of one SparkContext do, those of Connect only with themselves."""
    return one is other or (hasattr(one, "_sc") and hasattr(other, "_sc") and one._sc is other._sc)


def _values(column: Any) -> list[Any]:
    """A column of Arrow's as Python values; numbers by way of numpy, which is several times as fast."""
    import pyarrow as pa

    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        column = column.to_numpy(zero_copy_only=False)
        found: list[Any] = column.tolist()
    else:
        found = column.to_pylist(maps_as_pydicts="strict") if pa.types.is_nested(kind) else column.to_pylist()
    return found


class WriteToSpark(Write):
    """Elements with named fields into a table, or into files, by Spark's own writers, in one Spark action.

        totals | tg.io.WriteToSpark("reports.daily", mode="overwrite")
        totals | tg.io.WriteToSpark("s3a://bucket/daily", format="parquet", partition_by=["day"])

    `target` is a table's name; with a `format` (`"parquet"`, `"orc"`, `"json"`, `"csv"`, `"jdbc"`…) it is a path, or
    None for formats that have none. `table=True` with a format makes a table of that format.

    - `mode`, if something is there: `"error"`, `"append"`, `"overwrite"` or `"ignore"`, as Spark's.
    - `partition_by`: columns by which files are laid out. `options`: those of the format.
    - `schema`: what the columns are, as Spark's DDL; else as in `tg.ToDataFrame`.

    It is written when all steps have succeeded, before the run's other sinks are committed. Raises BuildError when
    applied to elements without named fields, or for an unknown mode; when running, what Spark's writer raises.
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
        self._made = SparkSink(
            schema,
            None if target is None else os.fspath(target),
            format,
            mode,
            table or format is None,
            tuple(partition_by),
            tuple(sorted((str(key), value) for key, value in (options or {}).items())),
        )
        super().__init__(self._made, name=name)

    def default_label(self) -> str:
        return f"WriteToSpark({self.sink.name})"

    def expand(self, input: PCollection[Any]) -> None:
        from dataclasses import replace

        self.sink = replace(self._made, columns=self._made.columns or columns_of(input.element_type, "WriteToSpark"))
        super().expand(input)


@dataclass(frozen=True, slots=True)
class SparkSink(FrameSink):
    """What Spark's writers write; see `WriteToSpark` for what the fields mean."""

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
            raise BuildError("WriteToSpark: there is no table's name; for files, give a path and a format")

    def writes(self) -> Hashable | None:
        """The table or path, unless its rows are added to those of others."""
        return None if self.mode == "append" or self.target is None else (self.table, self.target)

    @property
    def kept(self) -> bool:
        """It is written."""
        return False

    def save_dataframe(self, frame: Any) -> None:
        """Write it."""
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
