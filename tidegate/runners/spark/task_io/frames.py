"""DataFrames (RDDs among them) as sources and sinks: Arrow batches go straight into the steps, and come out of them.

A source or a sink that is one of Spark's has the methods below; no other runner knows them. Tasks read a DataFrame's
own partitions. What goes into a DataFrame leaves the last level as rows that hold an Arrow stream each; from these
Spark makes the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final, Protocol, TypeGuard

from tidegate.runners.engine.errors.attribution import located, rethrow, user_error
from tidegate.runners.engine.sources.source_step import SourceStep
from tidegate.runners.engine.sources.split_reader import SplitReader
from tidegate.runners.engine.time.clock import SystemClock
from tidegate.runners.plan import Plan, Step
from tidegate.runners.spark.shuffle.row_codec import OutgoingRows
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split
from tidegate.sdk.data.block import BLOCK_SIZE, Block
from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.portable.model import Read, Write

_ROW_ELEMENTS: Final = 16_384
"""How many elements a row of a DataFrame's future rows holds, at most."""


_FEED: Final = "tidegate: which DataFrame"
"""The column that says whose the rows of several DataFrames are."""


class DataFrameSource(Protocol):
    """A source that Spark reads. `session`: the one it belongs to, which then runs the pipeline; None: any."""

    @property
    def session(self) -> Any: ...

    def open_dataframe(self, session: Any) -> Any:
        """The DataFrame, on the driver. BuildError if there is none, or its rows can't be elements."""

    def elements_of(self, batch: Any, loads: Callable[[Any], Any]) -> Iterable[Sequence[Any]]:
        """The elements of an Arrow record batch of it, in a worker, some at a time; `loads` reads PySpark's pickles."""


class DataFrameSink(Protocol):
    """A sink that Spark writes. `columns`: what they are, as Spark's DDL; None: as their values are. `kept`: the
    DataFrame is not written but the author's to use."""

    @property
    def columns(self) -> str | None: ...

    @property
    def kept(self) -> bool: ...

    def record_batch(self, values: Sequence[Any], schema: Any, wished: Any = None) -> Any:
        """Elements as an Arrow record batch, in a worker. `schema` is that of `columns`, if there are some; else
        columns become what `wished`, a schema, says of their names, if they can without loss."""

    def save_dataframe(self, frame: Any) -> None:
        """On the driver: write it, in one action, unless it is `kept`."""


def frames_read(plan: Plan) -> dict[int, DataFrameSource]:
    """The sources that Spark reads, by step."""
    found: dict[int, DataFrameSource] = {}
    for step in plan.steps:
        if isinstance(step.head, Read):
            source = step.head.source.load()
            if _is_read(source):
                found[step.id] = source
    return found


def session_of(plan: Plan) -> Any:
    """The session that the plan's DataFrames belong to; None if there are none."""
    return next((found for source in frames_read(plan).values() if (found := source.session) is not None), None)


def frames_made(plan: Plan) -> dict[int, DataFrameSink]:
    """The sinks that Spark writes, by step."""
    found: dict[int, DataFrameSink] = {}
    for step in plan.steps:
        if isinstance(step.tail, Write):
            sink = step.tail.sink.load()
            if _is_made(sink):
                found[step.id] = sink
    return found


def _is_read(source: object) -> TypeGuard[DataFrameSource]:
    return hasattr(type(source), "open_dataframe")  # not `isinstance`, which may ask for `session`


def _is_made(sink: object) -> TypeGuard[DataFrameSink]:
    return hasattr(type(sink), "save_dataframe")


def framed_by(step: int) -> int:
    """The edge, in rows, of what goes into the DataFrame of a step."""
    return -1_000_000 - step


# -- in a worker


def by_feed(feeds: tuple[int, ...], batches: Iterable[Any]) -> Iterator[tuple[int, Iterator[Any]]]:
    """The Arrow batches of the DataFrame that each of these steps reads, as far as this task gets some.

    Those of several DataFrames come one DataFrame after another and say in their last column whose they are.
    """
    if len(feeds) == 1:
        yield feeds[0], iter(batches)
        return
    seen = set()
    for feed, parts in groupby(_runs(batches), key=itemgetter(0)):
        if feed in seen:
            raise RunError("Spark mixes the rows of DataFrames that are read together")
        seen.add(feed)
        yield feed, map(itemgetter(1), parts)


def _runs(batches: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Each batch, or the parts of it that belong to one DataFrame, without the column that says so."""
    for batch in batches:
        last = batch.num_columns - 1
        feeds = batch.column(last).to_numpy()
        rows = batch.select(range(last))
        start = 0
        while start < len(feeds):
            others = (feeds[start:] != feeds[start]).argmax()  # 0 if there are none
            end = start + int(others) if others else len(feeds)
            yield int(feeds[start]), rows.slice(start, end - start)
            start = end


def read_batches(step: Step, batches: Iterable[Any], loads: Callable[[Any], Any]) -> Iterator[Block]:
    """The elements of a DataFrame's Arrow batches, stamped as the author asked; `loads` reads PySpark's pickles."""
    node = step.head
    assert isinstance(node, Read)
    source: DataFrameSource = node.source.load()
    elements = chain.from_iterable(source.elements_of(batch, loads) for batch in batches)
    handed = SourceStep(node.label, node.where, _Handed(elements), stamping=node.stamping)
    yield from SplitReader(handed, Split("dataframe"), SystemClock()).blocks(BLOCK_SIZE)


class _Handed(Source[Any]):
    """A source of what Spark hands to this task."""

    def __init__(self, elements: Iterator[Sequence[Any]]) -> None:
        self._elements = elements

    def splits(self, desired: int) -> list[Split]:
        return [Split("dataframe")]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _HandedReader(self._elements)


class _HandedReader(Reader[Any]):
    def __init__(self, elements: Iterator[Sequence[Any]]) -> None:
        self._elements = elements

    def read(self, limit: int) -> Batch:
        some = next(self._elements, None)
        return Batch(Block.of(()), end=True) if some is None else Batch(Block(some))

    def position(self) -> Position:
        return None


class FrameWriting:
    """One DataFrame's share of one task: elements become rows with an Arrow stream each."""

    def __init__(
        self, step: Step, schema: bytes | None, wished: bytes | None, out: OutgoingRows, src: int, target: int
    ) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]

        node = step.tail
        assert isinstance(node, Write)
        self.step = step
        self._node = node
        self._sink: DataFrameSink = node.sink.load()
        self._schema = None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema))
        self._wished = None if wished is None else pa.ipc.read_schema(pa.py_buffer(wished))
        self._out = out
        self._src = src
        self._target = target
        self._values: list[Any] = []
        self._seq = 0
        self.schemas: dict[bytes, None] = {}
        """What the columns turned out to be, where that was not said."""

    def write(self, block: Block) -> None:
        """Some elements."""
        self._values += block.values
        while len(self._values) >= _ROW_ELEMENTS:
            values, self._values = self._values[:_ROW_ELEMENTS], self._values[_ROW_ELEMENTS:]
            self._send(values)

    def prepare(self, *, last: bool) -> tuple[()]:
        """The rest; nothing that a commit would ask for."""
        if self._values:
            values, self._values = self._values, []
            self._send(values)
        return ()

    def abandon(self) -> None:
        """The task has failed."""
        self._values = []

    def _send(self, values: list[Any]) -> None:
        import pyarrow as pa

        try:
            batch = self._sink.record_batch(values, self._schema, self._wished)
        except TidegateError as error:
            rethrow(located(error, self._node.label, self._node.where))
        except Exception as error:
            rethrow(user_error(error, step=self._node.label, where=self._node.where, method="to Arrow"))
        if self._schema is None:
            self.schemas[batch.schema.serialize().to_pybytes()] = None
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, batch.schema) as writer:
            writer.write_batch(batch)
        data = stream.getvalue().to_pybytes()
        self._seq = self._out.send(self._target, framed_by(self.step.id), self._src, self._seq, data)


def columns_of(schema: bytes, name: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that makes Arrow batches of one schema from rows that hold streams. It travels by value."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        wanted = pa.ipc.read_schema(pa.py_buffer(schema))
        pieces: list[bytes] = []
        for batch in batches:
            lefts = batch.column("left").to_pylist()
            for left, data in zip(lefts, batch.column("data"), strict=True):
                if left or pieces:
                    pieces.append(data.as_py())
                    if left:
                        continue
                    stream, pieces = pa.py_buffer(b"".join(pieces)), []
                else:
                    stream = data.as_buffer()
                table = pa.ipc.open_stream(stream).read_all()
                there = set(table.column_names)
                columns = [
                    table.column(field.name).cast(field.type)
                    if field.name in there
                    else pa.nulls(len(table), field.type)
                    for field in wanted
                ]
                yield from pa.Table.from_arrays(columns, schema=wanted).to_batches()

    run.__name__ = name
    return run


# -- on the driver


def together(opened: Mapping[int, Any]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """DataFrames, by the step that reads each, with those of one schema as one DataFrame: one stage of Spark's reads
    them all. Its last column is the step's number."""
    alike: dict[str, list[int]] = {}
    for id, frame in opened.items():
        alike.setdefault(frame.schema.json(), []).append(id)
    for ids in alike.values():
        if len(ids) == 1:
            yield (ids[0],), opened[ids[0]]
        else:
            yield tuple(ids), union([opened[id].selectExpr("*", f"{id} AS `{_FEED}`") for id in ids])


def union(frames: Sequence[Any]) -> Any:
    """All rows of some DataFrames with the same columns.

    Halves are put together: Spark looks at a whole plan again whenever it grows.
    """
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return union(frames[:middle]).unionAll(union(frames[middle:]))


def arrow_schema(spark: Any, columns: str) -> bytes:
    """The Arrow schema of Spark's DDL; RunError if that can't be read."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return bytes(to_arrow_schema(spoken_schema(spark, columns), timezone="UTC").serialize())
    except Exception as error:
        said = next((line for line in str(error).splitlines() if line.strip()), "")
        raise RunError(f"{columns!r} is no schema that Spark knows: {said}") from None


def spoken_schema(spark: Any, columns: str) -> Any:
    """Spark's DDL as Spark's schema, which the session reads: without a JVM here, its server does."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(columns) if hasattr(spark, "_sc") else spark.createDataFrame([], columns).schema
