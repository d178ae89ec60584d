"""The DataFrames of regions, on the driver: one for each collection that other steps read.

A collection that several steps read is a DataFrame, too, unless its query is a short one. It is persisted if a grouping
or a join is among what it is computed from, so that it is computed once, and all of them read the same values: sums of
doubles differ in their last digits from run to run.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.runners.engine.errors.attribution import located, rethrow, user_error
from tidegate.runners.spark.catalyst.errors import expression_error
from tidegate.runners.spark.catalyst.event_times import time_of, time_of_read
from tidegate.runners.spark.catalyst.expressions import has_spark_type, literal, quoted, spark_type
from tidegate.runners.spark.catalyst.queries import Made, dataframe, named, place, query
from tidegate.runners.spark.catalyst.relations import made, united
from tidegate.runners.spark.catalyst.windows import in_windows, stamped
from tidegate.runners.spark.plan.failures import message_of, translated_errors
from tidegate.sdk.connectors.stored_tables import StoredTable
from tidegate.sdk.data.columns import (
    DOUBLE,
    STRING,
    ColumnType,
    DecimalType,
    Field,
    Schema,
    is_scalar,
    stored_type,
)
from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.portable.model import AssignWindows, Create, Flatten, Node, ParDo, Pipeline, Read, Relate
from tidegate.sdk.relational.decimal_types import decimal_cast_fails
from tidegate.sdk.relational.expressions import Column, Literal, column_names
from tidegate.sdk.relational.failures import ExpressionError
from tidegate.sdk.relational.relations import Compute, Rank, SortLimit, trees_of

_LONGEST: Final = 1000
"""How many characters a query has that several others may contain. A DataFrame of its own takes longer to analyze."""
_DEEPEST: Final = 50
"""How many queries are inside each other before they become a DataFrame. Spark's parser goes down with each of them."""


@dataclass(slots=True)
class NativeFrames:
    """The DataFrames of the regions of one run, whose nodes are those of `pipeline`; `outputs` are read by other
    steps. `_frames` are those that queries name by their numbers."""

    session: Any
    pipeline: Pipeline
    outputs: Sequence[str]
    _made: dict[str, Made] = field(default_factory=dict)
    _opened: dict[str, Any] = field(default_factory=dict)
    _frames: list[Any] = field(default_factory=list)
    _persisted: list[Any] = field(default_factory=list)

    def frame(self, collection: str) -> Any:
        """The DataFrame of a collection: the columns of its schema, and those of its windows or timestamps."""
        found = self._opened.get(collection)
        if found is None:
            made = replace(self._of(collection), columns=self._schema(collection).names)
            found = self._opened[collection] = dataframe(self.session, made, self._frames)
        return found

    def close(self) -> None:
        """Unpersist what was persisted."""
        for frame in self._persisted:
            with contextlib.suppress(Exception):  # the session may have been stopped
                frame.unpersist()

    @contextlib.contextmanager
    def attributed_errors(self) -> Iterator[None]:
        """Attribute errors of expressions to the step that has the expression. Others are raised unchanged."""
        try:
            yield
        except TidegateError:
            raise
        except Exception as error:
            found = expression_error(message_of(error))
            culprit = None if found is None else self._culprit(self.outputs)
            if found is None or culprit is None:
                raise
            node, own = culprit
            rethrow(user_error(own, step=node.label, where=node.where))

    def _culprit(self, collections: Sequence[str]) -> tuple[Node, ExpressionError] | None:
        """The first step on the way to some collections whose rows can't be computed, and the error."""
        for id in collections:
            error = self._error_of(id)
            if error is not None:
                node = self.pipeline.producer(id)
                return self._culprit(node.inputs) or (node, error)
        return None

    def _error_of(self, id: str) -> ExpressionError | None:
        try:
            dataframe(self.session, self._of(id), self._frames).write.format("noop").mode("overwrite").save()
        except Exception as error:
            return expression_error(message_of(error))
        return None

    # -- queries

    def _of(self, id: str) -> Made:
        found = self._made.get(id)
        if found is None:
            node = self.pipeline.producer(id)
            try:
                with translated_errors():
                    found = self._new(node)
                    if self._is_shared(id, found) or found.depth > _DEEPEST:
                        found = self._as_dataframe(found, node)
            except TidegateError as error:
                rethrow(located(error, node.label, node.where))
            self._made[id] = found
        return found

    def _new(self, node: Node) -> Made:
        inputs = [self._of(used) for used in node.inputs]
        match node:
            case Relate(relation=relation):
                return made(relation, inputs, [self._schema(used) for used in node.inputs])
            case Flatten():
                return united(inputs)
            case ParDo():
                time = time_of(node, self._schema(node.inputs[0]))
                assert time is not None
                return stamped(inputs[0], time)
            case AssignWindows(windowing=windowing):
                return in_windows(inputs[0], windowing)
            case Create():
                return self._created(node)
            case Read():
                read, time = self._read(node), time_of_read(node, self._schema(node.output()))
                return read if time is None else stamped(read, time)
        raise AssertionError(f"{node.label!r} is no part of a region")

    def _is_shared(self, id: str, made: Made) -> bool:
        """Whether the queries of several steps read a collection as a DataFrame: it is computed once, or has a long
        text."""
        node = self.pipeline.producer(id)
        if self._readers()[id] < 2 or isinstance(node, (Create, Read)):
            return False
        return self._is_costly(node) or len(made.table) > _LONGEST

    def _as_dataframe(self, made: Made, node: Node) -> Made:
        """What a node has made, as a DataFrame that others read."""
        frame = dataframe(self.session, made, self._frames)
        if self._is_costly(node):
            frame = frame.persist()
            self._persisted.append(frame)
        return replace(made, table=self._table(frame))

    def _table(self, frame: Any) -> str:
        """The place of a DataFrame in queries.

        It gets a column that nothing reads. PySpark names DataFrames in a query by views, and dropping a view
        unpersists whatever has the same plan, which then is none that the author has persisted.
        """
        self._frames.append(frame.selectExpr("*", named("1", "tidegate: row")))
        return place(len(self._frames) - 1)

    def _schema(self, id: str) -> Schema:
        schema = self.pipeline.collection(id).schema
        assert schema is not None
        return schema

    def _fields_of(self, id: str) -> list[Field]:
        """The fields of a source that the region reads."""
        node, schema = self.pipeline.producer(id), self._schema(id)
        known = [
            each for each in schema.fields if (is_scalar if isinstance(node, Create) else has_spark_type)(each.type)
        ]
        fields = _read_fields(known, [each for each in self.pipeline.nodes if id in each.inputs])
        time = time_of_read(node, schema) if isinstance(node, Read) else None
        names = {each.name for each in fields} | set(() if time is None else column_names(time))
        return [each for each in schema.fields if each.name in names]

    def _readers(self) -> Counter[str]:
        return Counter([*self.outputs, *(used for node in self.pipeline.nodes for used in node.inputs)])

    def _is_costly(self, node: Node) -> bool:
        """Whether a grouping or a join is among the steps that lead to a node's output."""
        if isinstance(node, Relate) and not isinstance(node.relation, Compute):
            return True
        return any(self._is_costly(self.pipeline.producer(used)) for used in node.inputs)

    # -- sources

    def _read(self, node: Read) -> Made:
        source: Any = node.source.load()
        if hasattr(type(source), "rows_of_dataframe"):
            frame, fields = source.open_dataframe(self.session), self._fields_of(node.output())
            columns = _typed(frame, fields)
            return Made(query(columns, self._table(frame)), tuple(each.name for each in fields))
        table = source.stored_table()
        if isinstance(table, str):
            raise RunError(f"the files have changed since the run was planned: {table}")
        fields = [each for each in table.schema.fields if has_spark_type(each.type)]
        return Made(self._table(_stored(self.session, table, fields)), tuple(each.name for each in fields))

    def _created(self, node: Create) -> Made:
        """The author's elements: the columns that relations read."""
        import pyarrow as pa

        from tidegate.sdk.relational.python.row_function import RowCode, row_function

        id = node.output()
        readers = [each for each in self.pipeline.nodes if id in each.inputs]
        fields = self._fields_of(id)
        reader = next((each for each in readers if isinstance(each, Relate)), readers[0])
        access = reader.reads[reader.inputs.index(id)] if isinstance(reader, Relate) else "either"
        values_of = row_function(RowCode(tuple(Column(each.name, each.type, each.nullable) for each in fields), access))
        rows = []
        for element in node.values.load():
            try:
                rows.append(values_of(element))
            except Exception as error:
                rethrow(user_error(error, step=reader.label, where=reader.where, element=element))
        schema = pa.schema([pa.field(each.name, _arrow_type(each.type), each.nullable) for each in fields])
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in fields]
        arrays = [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
        frame = self.session.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))
        return Made(self._table(frame), tuple(each.name for each in fields))


def _read_fields(known: Sequence[Field], readers: Sequence[Node]) -> list[Field]:
    """Those of the fields which Spark knows that the nodes of a region read; at least one."""
    names: set[str] = set()
    for node in readers:
        match node:
            case Relate(relation=Compute(columns=None) | Rank() | SortLimit()) | Flatten() | ParDo() | AssignWindows():
                return list(known)
            case Relate(relation=relation):
                names.update(name for tree in trees_of(relation) for name in column_names(tree))
    return [each for each in known if each.name in names] or list(known[:1])


def _arrow_type(type: ColumnType) -> Any:
    import pyarrow as pa

    if isinstance(type, DecimalType):
        return pa.decimal128(type.precision, type.scale)
    return {
        "boolean": pa.bool_(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "interval": pa.duration("us"),
    }[str(type)]


def _stored(session: Any, table: StoredTable, fields: Sequence[Field]) -> Any:
    """The DataFrame of files. Their columns are given, so that Spark starts no job to infer them."""
    ddl = ", ".join(f"{quoted(each.name)} {spark_type(each.type)}" for each in fields)
    reader = session.read.schema(ddl).option("datetimeRebaseMode", "CORRECTED")
    reader = reader.option("ignoreCorruptFiles", "false").option(
        "ignoreMissingFiles", "false"
    )  # whatever a session has
    return reader.format(table.format).load([f"file://{path}" for path in table.paths])


_SAME: Final = {
    "tinyint": "bigint",
    "smallint": "bigint",
    "int": "bigint",
    "float": "double",
    "interval day to second": "interval",
}


_INSIDE: Final = re.compile(r"\b(?:tinyint|smallint|int|float)\b(?!:)")
"""Types within a type, whose fields' names stand before colons."""


def column_type_of_spark(name: str) -> str:
    """The type of a column for one of Spark's, by their names; another name if there is none."""
    return _INSIDE.sub(lambda found: _SAME[found[0]], name) if "<" in name else _SAME.get(name, name)


def _typed(frame: Any, fields: Sequence[Field]) -> list[str]:
    """The columns of these fields in a DataFrame. Raises RunError if it has others, as a table may that is read by its
    name; a NULL in a column that never has one is an error of an expression."""
    given = {each.name: each for each in frame.schema}
    columns = []
    for each in fields:
        found = given.get(each.name)
        type = None if found is None else column_type_of_spark(found.dataType.simpleString())
        if found is None or type is None or not _holds(each.type, type):
            has = "is missing" if type is None else f"is of type {type}"
            raise RunError(f"the column {each.name!r} {has}, and its elements are declared to have {each}")
        text = quoted(each.name)
        if type != found.dataType.simpleString() or str(each.type) != type:
            text = f"CAST({text} AS {spark_type(each.type)})"
        if found.nullable and not each.nullable:
            text = f"coalesce({text}, CAST({_refused(each)} AS {spark_type(each.type)}))"
        columns.append(named(text, each.name))
    return columns


def _holds(type: ColumnType, given: str) -> bool:
    """Whether a column's type has all values of a type of Spark's."""
    if isinstance(type, DecimalType) and given.startswith("decimal("):
        return not decimal_cast_fails(stored_type(given), type)
    if not is_scalar(type):
        return spark_type(type).replace("`", "") == given
    return str(type) == given or (type == DOUBLE and given == "bigint")


def _refused(field: Field) -> str:
    message = (
        f"[INVALID_COLUMN_VALUE] the column {field.name!r} is NULL, and its type says that it never is: declare it as "
        "`| None`"
    )
    return f"raise_error({literal(Literal(message, STRING))})"
