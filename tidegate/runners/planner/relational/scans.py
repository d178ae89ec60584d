"""Gives readers the columns that the relations behind them read, and conditions without which no row counts.

Between a reader and these relations may be filters, and steps that assign times and windows. A condition goes no
further than the first part of it that may fail: a row that it drops would have been an error otherwise. Filters stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tidegate.sdk.data.columns import BIGINT, BOOLEAN, DATE, DOUBLE, TIMESTAMP, Field, Schema
from tidegate.sdk.portable.model import (
    AssignWindows,
    Collection,
    Node,
    ParDo,
    Pipeline,
    Read,
    Relate,
    side_inputs,
)
from tidegate.sdk.relational.binding import may_fail
from tidegate.sdk.relational.expressions import Call, Column, Tree, walk
from tidegate.sdk.relational.reader_conditions import conjuncts, weakened
from tidegate.sdk.relational.relations import Aggregate, Compute, Join, trees_of
from tidegate.sdk.windowing.assigners import FixedWindows, GlobalWindows, SlidingWindows
from tidegate.sdk.windowing.strategy import WindowingStrategy

_SMALL = (BOOLEAN, BIGINT, DATE, DOUBLE, TIMESTAMP)
"""Types whose values take little to read."""


def read_columns(pipeline: Pipeline, results: frozenset[str]) -> Pipeline:
    """The pipeline whose readers read the columns only that some relation reads, where relations alone read them."""
    changed: dict[str, Node] = {}
    narrowed: dict[str, Collection] = {}
    for node in _readers(pipeline):
        schema = pipeline.collection(node.output()).schema
        if not node.takes_columns or _stamps_by_function(node) or schema is None or len(schema.fields) < 2:
            continue
        uses = _Uses(pipeline, results)
        if not uses.follow(node.output()):
            continue
        kept = tuple(each for each in schema.fields if each.name in uses.columns) or (_smallest(schema),)
        if len(kept) < len(schema.fields):
            changed[node.label] = replace(node, columns=tuple(each.name for each in kept))
            for id in uses.passed:
                own = pipeline.collection(id)
                narrowed[id] = replace(own, schema=Schema(kept), element_type=replace(own.element_type, type=None))
    return _changed(pipeline, changed, narrowed)


def read_rows(pipeline: Pipeline, results: frozenset[str]) -> Pipeline:
    """The pipeline whose bounded readers may leave out rows that the only filters behind them drop."""
    changed: dict[str, Node] = {}
    for node in _readers(pipeline):
        if node.takes_conditions and node.bounded and node.stamping is None and node.rate_limit is None:
            found = tuple(dict.fromkeys(_conditions(pipeline, results, node.output())))
            if found:
                changed[node.label] = replace(node, conditions=found)
    return _changed(pipeline, changed, {})


def _readers(pipeline: Pipeline) -> Iterator[Read]:
    return (node for node in pipeline.nodes if isinstance(node, Read))


def _stamps_by_function(node: Read) -> bool:
    return node.stamping is not None and node.stamping.timestamp is not None


def _changed(pipeline: Pipeline, nodes: dict[str, Node], collections: dict[str, Collection]) -> Pipeline:
    if not nodes:
        return pipeline
    return replace(
        pipeline,
        nodes=tuple(nodes.get(node.label, node) for node in pipeline.nodes),
        collections=tuple(collections.get(each.id, each) for each in pipeline.collections),
    )


def _smallest(schema: Schema) -> Field:
    """A column to read if none is needed but the number of rows."""
    return next((each for each in schema.fields if each.type in _SMALL), schema.fields[0])


@dataclass(slots=True)
class _Uses:
    """The columns of a reader's elements that are read, and the collections that have these elements."""

    pipeline: Pipeline
    results: frozenset[str]
    columns: set[str] = field(default_factory=set)
    passed: list[str] = field(default_factory=list)

    def follow(self, id: str) -> bool:
        """Note what is read of a collection; False if something else may be, or nothing is known to read it."""
        self.passed.append(id)
        if id in self.results or _is_side_input(self.pipeline, id):
            return False
        readers = list(self.pipeline.consumers(id))
        return bool(readers) and all(self._reads(node, id) for node in readers)

    def _reads(self, node: Node, id: str) -> bool:
        match node:
            case Relate(relation=Compute(columns=tuple()) | Aggregate() | Join() as relation, late_tag=None):
                sides = [k for k, used in enumerate(node.inputs) if used == id]
                self._add(trees_of(relation), sides)
                return True
            case Relate(relation=Compute(columns=None, where=where), late_tag=None):
                self._add([] if where is None else [where], [0])
                return self.follow(node.output())
            case ParDo(stamps_by=str(column), dead_letters=None):
                self.columns.add(column)
                return self.follow(node.output())
            case AssignWindows(windowing=windowing) if _ignores_elements(windowing):
                return self.follow(node.output())
            case _:
                return False

    def _add(self, trees: Iterable[Tree], sides: Iterable[int]) -> None:
        for tree in trees:
            for each in walk(tree):
                if isinstance(each, Column) and each.input in sides:
                    self.columns.add(each.name)


def _ignores_elements(windowing: WindowingStrategy) -> bool:
    """Whether windows and firings depend on the times of elements alone, as far as is known."""
    default = WindowingStrategy()
    known = isinstance(windowing.assigner, FixedWindows | SlidingWindows | GlobalWindows)
    return known and windowing.trigger == default.trigger and windowing.evictor is None


def _is_side_input(pipeline: Pipeline, id: str) -> bool:
    return any(ref.collection == id for node in pipeline.nodes for ref in side_inputs(node))


def _conditions(pipeline: Pipeline, results: frozenset[str], used: str) -> Iterator[Tree]:
    """The conditions that each element of a collection has to meet, or no step uses it; by the names of its columns.

    Of an element whose time is missing, the step that assigns times makes an error, so it stays.
    """
    missing: list[Tree] = []
    names: dict[str, Column] | None = None
    while used not in results and not _is_side_input(pipeline, used):
        readers = list(pipeline.consumers(used))
        if len(readers) != 1:
            return
        (node,) = readers
        match node:
            case Relate(relation=Compute(columns=columns, where=where), late_tag=None):
                for part in () if where is None else conjuncts(where):
                    if may_fail(part):
                        return
                    condition = weakened(part)
                    renamed = None if condition is None else _renamed(condition, names)
                    if renamed is not None:
                        yield _any((renamed, *missing))
                if columns is not None:
                    if any(may_fail(each.tree) for each in columns):
                        return
                    copies = {each.name: each.tree for each in columns if isinstance(each.tree, Column)}
                    names = {
                        name: tree if names is None else names[tree.name]
                        for name, tree in copies.items()
                        if names is None or tree.name in names
                    }
            case ParDo(stamps_by=str(column), dead_letters=None):
                if names is not None and column not in names:
                    return
                schema = pipeline.collection(used).schema
                declared = None if schema is None else schema.field(column)
                if declared is None:
                    return
                if declared.nullable:
                    time = Column(column, declared.type) if names is None else names[column]
                    missing.append(Call("is_null", (time,), BOOLEAN, nullable=False))
            case AssignWindows(windowing=windowing) if _ignores_elements(windowing):
                pass
            case _:
                return
        used = node.output()


def _renamed(condition: Tree, names: dict[str, Column] | None) -> Tree | None:
    """A condition with the names that columns have in the reader; None if one of them is not the reader's."""
    if names is None:
        return condition
    match condition:
        case Column(name=name):
            return names.get(name)
        case Call(arguments=arguments):
            found = [_renamed(each, names) for each in arguments]
            kept = tuple(each for each in found if each is not None)
            return replace(condition, arguments=kept) if len(kept) == len(arguments) else None
        case _:
            return condition


def _any(conditions: tuple[Tree, ...]) -> Tree:
    first, *others = conditions
    for each in others:
        first = Call("or", (first, each), BOOLEAN)
    return first
