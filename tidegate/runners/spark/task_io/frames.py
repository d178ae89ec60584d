"""DataFrames (and RDDs) as sources and sinks: steps read and write Arrow batches directly.

Sources and sinks that only the Spark runner supports implement the protocols below. Tasks read the partitions of a
source's DataFrame. The elements for a sink's DataFrame leave the last level as rows, each with an Arrow stream, which a
further pass turns into columns.
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
from tidegate.sdk.data.block import BLOCK_SIZE, Block, Each
from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.portable.model import Read, Write
from tidegate.sdk.windowing.window import GLOBAL_WINDOW, IntervalWindow, window_end

_ROW_ELEMENTS: Final = 16_384
"""The maximum number of elements in one row for a DataFrame sink."""


_STEP_COLUMN: Final = "tidegate: which DataFrame"
"""The column with the step that reads a row, where several DataFrames are read as one."""


class DataFrameSource(Protocol):
    """A source that is a DataFrame. `session` is the session it belongs to, which must run the pipeline; None: any.

    If it has an attribute `grouped` that is true, its rows are results of a grouping: in the global window, or, with
    an attribute `windowed` that is true, in windows whose bounds are the last two columns. With an attribute `timed`
    that is true, the last column is the rows' timestamp.
    """

    @property
    def session(self) -> Any: ...

    def open_dataframe(self, session: Any) -> Any:
        """The DataFrame, on the driver. Raises BuildError if it can't be opened or its rows can't be elements."""

    def elements_of(self, batch: Any, loads: Callable[[Any], Any]) -> Iterable[Sequence[Any]]:
        """The elements of one of its Arrow batches, in a worker, in several parts. `loads` reads PySpark's pickles."""


class DataFrameSink(Protocol):
    """A sink that is a DataFrame. `columns` is its schema as Spark DDL; None: inferred from the values. If `returned`,
    the run returns the DataFrame to its author instead of writing it."""

    @property
    def columns(self) -> str | None: ...

    @property
    def returned(self) -> bool: ...

    def record_batch(self, values: Sequence[Any], schema: Any, preferred: Any = None) -> Any:
        """Elements as an Arrow record batch, in a worker. `schema` is the schema of `columns`, if given; else a column
        gets its type in the schema `preferred` if all values can be converted to that without loss."""

    def save_dataframe(self, frame: Any) -> None:
        """Write the DataFrame, on the driver, in one action. Not called if it is `returned`."""


def dataframe_sources(plan: Plan) -> dict[int, DataFrameSource]:
    """The DataFrame sources of a plan, by step."""
    found: dict[int, DataFrameSource] = {}
    for step in plan.steps:
        if isinstance(step.head, Read):
            source = step.head.source.load()
            if _is_dataframe_source(source):
                found[step.id] = source
    return found


def session_of(plan: Plan) -> Any:
    """The session to which the plan's DataFrames belong; None if they belong to none."""
    return next((found for source in dataframe_sources(plan).values() if (found := source.session) is not None), None)


def dataframe_sinks(plan: Plan) -> dict[int, DataFrameSink]:
    """The DataFrame sinks of a plan, by step."""
    found: dict[int, DataFrameSink] = {}
    for step in plan.steps:
        if isinstance(step.tail, Write):
            sink = step.tail.sink.load()
            if _is_dataframe_sink(sink):
                found[step.id] = sink
    return found


def _is_dataframe_source(source: object) -> TypeGuard[DataFrameSource]:
    return hasattr(type(source), "open_dataframe")  # `isinstance` would evaluate the property `session`


def _is_dataframe_sink(sink: object) -> TypeGuard[DataFrameSink]:
    return hasattr(type(sink), "save_dataframe")


def dataframe_edge(step: int) -> int:
    """The edge number of rows for the DataFrame sink of a step."""
    return -1_000_000 - step


# -- in a worker


def batches_by_step(frame_steps: tuple[int, ...], batches: Iterable[Any]) -> Iterator[tuple[int, Iterator[Any]]]:
    """Group this task's Arrow batches by the step that reads them.

    If there are several steps, the batches of their DataFrames follow one another, and the last column has the step.
    """
    if len(frame_steps) == 1:
        yield frame_steps[0], iter(batches)
        return
    seen = set()
    for frame_step, parts in groupby(_split_by_step(batches), key=itemgetter(0)):
        if frame_step in seen:
            raise RunError("Spark mixes the rows of DataFrames that are read together")
        seen.add(frame_step)
        yield frame_step, map(itemgetter(1), parts)


def _split_by_step(batches: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Split each batch into parts of one step, without the last column."""
    for batch in batches:
        last = batch.num_columns - 1
        frame_steps = batch.column(last).to_numpy()
        rows = batch.select(range(last))
        start = 0
        while start < len(frame_steps):
            others = (frame_steps[start:] != frame_steps[start]).argmax()  # 0 if there are none
            end = start + int(others) if others else len(frame_steps)
            yield int(frame_steps[start]), rows.slice(start, end - start)
            start = end


def read_batches(step: Step, batches: Iterable[Any], loads: Callable[[Any], Any], *, inline: bool) -> Iterator[Block]:
    """The elements of a DataFrame's Arrow batches, with the timestamps that the `Read` assigns. `loads` reads PySpark's
    pickles. `inline`: as for SourceStep."""
    node = step.head
    assert isinstance(node, Read)
    source: DataFrameSource = node.source.load()
    blocks: Iterator[Block]
    if getattr(source, "windowed", False):
        blocks = chain.from_iterable(_windowed_blocks(source, batch, loads) for batch in batches)
    elif getattr(source, "timed", False):
        blocks = chain.from_iterable(_timed_blocks(source, batch, loads) for batch in batches)
    else:
        elements = chain.from_iterable(source.elements_of(batch, loads) for batch in batches)
        blocks = map(_grouped_block if getattr(source, "grouped", False) else Block, elements)
    source_of_batches = SourceStep(node.label, node.where, _BatchSource(blocks), stamping=node.stamping, inline=inline)
    yield from SplitReader(source_of_batches, Split("dataframe"), SystemClock()).blocks(BLOCK_SIZE)


def _grouped_block(elements: Sequence[Any]) -> Block:
    """A block of results of a grouping in the global window."""
    from tidegate.runners.engine.grouping.batch_table import ONLY_PANE

    return Block(elements, window_end(GLOBAL_WINDOW) - 1, panes=ONLY_PANE)


def _windowed_blocks(source: DataFrameSource, batch: Any, loads: Callable[[Any], Any]) -> Iterator[Block]:
    """Blocks of results of a grouping in windows."""
    from tidegate.runners.engine.grouping.batch_table import ONLY_PANE

    columns = batch.num_columns - 2
    starts, ends = (batch.column(columns + k).to_numpy().tolist() for k in (0, 1))
    made = {bounds: (IntervalWindow.of_micros(*bounds),) for bounds in zip(starts, ends, strict=True)}
    windows = [made[bounds] for bounds in zip(starts, ends, strict=True)]
    at = 0
    for elements in source.elements_of(batch.select(range(columns)), loads):
        until = at + len(elements)
        yield Block(elements, [end - 1 for end in ends[at:until]], Each(windows[at:until]), ONLY_PANE)
        at = until


def _timed_blocks(source: DataFrameSource, batch: Any, loads: Callable[[Any], Any]) -> Iterator[Block]:
    """Blocks of elements with timestamps of their own, in the global window."""
    columns = batch.num_columns - 1
    times, at = batch.column(columns).to_numpy().tolist(), 0
    for elements in source.elements_of(batch.select(range(columns)), loads):
        yield Block(elements, times[at : at + len(elements)])
        at += len(elements)


class _BatchSource(Source[Any]):
    """A source of the elements that Spark hands to this task."""

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks

    def splits(self, desired: int) -> list[Split]:
        return [Split("dataframe")]

    def reader(self, split: Split, position: Position = None) -> Reader[Any]:
        return _BatchReader(self._blocks)


class _BatchReader(Reader[Any]):
    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks

    def read(self, limit: int) -> Batch:
        block = next(self._blocks, None)
        return Batch(Block.of(()), end=True) if block is None else Batch(block)

    def position(self) -> Position:
        return None


class DataFrameWriter:
    """Writes a task's elements for a DataFrame sink as rows, each with an Arrow stream."""

    def __init__(
        self, step: Step, schema: bytes | None, preferred: bytes | None, out: OutgoingRows, src: int, target: int
    ) -> None:
        import pyarrow as pa

        node = step.tail
        assert isinstance(node, Write)
        self.step = step
        self._node = node
        self._sink: DataFrameSink = node.sink.load()
        self._schema = None if schema is None else pa.ipc.read_schema(pa.py_buffer(schema))
        self._preferred = None if preferred is None else pa.ipc.read_schema(pa.py_buffer(preferred))
        self._out = out
        self._src = src
        self._target = target
        self._values: list[Any] = []
        self._seq = 0
        self.schemas: dict[bytes, None] = {}
        """The inferred schemas, if the sink declares none."""

    def write(self, block: Block) -> None:
        """Add a block, and send full rows."""
        self._values += block.values
        while len(self._values) >= _ROW_ELEMENTS:
            values, self._values = self._values[:_ROW_ELEMENTS], self._values[_ROW_ELEMENTS:]
            self._send(values)

    def prepare(self, *, last: bool) -> tuple[()]:
        """Send the remaining elements. There is nothing to commit."""
        if self._values:
            values, self._values = self._values, []
            self._send(values)
        return ()

    def abandon(self) -> None:
        """Drop the elements of a failed task."""
        self._values = []

    def _send(self, values: list[Any]) -> None:
        import pyarrow as pa

        try:
            batch = self._sink.record_batch(values, self._schema, self._preferred)
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
        self._seq = self._out.send(self._target, dataframe_edge(self.step.id), self._src, self._seq, data)


def typed_batches(schema: bytes, name: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that turns rows with Arrow streams into Arrow batches of one schema. It is pickled by value."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        target = pa.ipc.read_schema(pa.py_buffer(schema))
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
                present = set(table.column_names)
                columns = [
                    table.column(field.name).cast(field.type)
                    if field.name in present
                    else pa.nulls(len(table), field.type)
                    for field in target
                ]
                yield from pa.Table.from_arrays(columns, schema=target).to_batches()

    run.__name__ = name
    return run


# -- on the driver


def grouped_by_schema(opened: Mapping[int, Any]) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Unite DataFrames of equal schema into one each, so that one Spark stage reads them all. Yields each with the
    steps that read it; if there are several, a last column has the number of the step."""
    by_schema: dict[str, list[int]] = {}
    for id, frame in opened.items():
        by_schema.setdefault(frame.schema.json(), []).append(id)
    for ids in by_schema.values():
        if len(ids) == 1:
            yield (ids[0],), opened[ids[0]]
        else:
            yield tuple(ids), union([opened[id].selectExpr("*", f"{id} AS `{_STEP_COLUMN}`") for id in ids])


def union(frames: Sequence[Any]) -> Any:
    """The union of DataFrames with the same columns.

    It is built by halves, because Spark analyses the entire plan of each intermediate DataFrame again.
    """
    if len(frames) == 1:
        return frames[0]
    middle = len(frames) // 2
    return union(frames[:middle]).unionAll(union(frames[middle:]))


def arrow_schema(spark: Any, columns: str) -> bytes:
    """The Arrow schema for Spark DDL; RunError if Spark can't parse it."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return bytes(to_arrow_schema(spark_schema(spark, columns), timezone="UTC").serialize())
    except Exception as error:
        message = next((line for line in str(error).splitlines() if line.strip()), "")
        raise RunError(f"{columns!r} is not a valid Spark schema: {message}") from None


def spark_schema(spark: Any, columns: str) -> Any:
    """The Spark schema for DDL. Only the JVM parses DDL; over Connect the server does."""
    from pyspark.sql.types import StructType

    return StructType.fromDDL(columns) if hasattr(spark, "_sc") else spark.createDataFrame([], columns).schema
