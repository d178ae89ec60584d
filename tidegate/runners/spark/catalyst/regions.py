"""Finds the relations of a pipeline that Spark computes itself, and puts sources of their rows in their place.

A region is all that leads to one collection from sources that Spark reads, through relations. Steps of a region whose
output other steps read become `Read` nodes of `NativeRows`. A step is left to the workers if Spark might compute
another result; the reason is a decision of the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from tidegate.runners.plan import Decision
from tidegate.runners.planner.rewrite import drop_dead
from tidegate.runners.spark.catalyst.event_times import time_of
from tidegate.runners.spark.catalyst.expressions import fits, has_spark_type
from tidegate.runners.spark.catalyst.hidden_errors import hides_errors, merges_zeros
from tidegate.runners.spark.catalyst.queries import HIDDEN
from tidegate.runners.spark.catalyst.relations import raises_for_one_side
from tidegate.runners.spark.catalyst.sources import Elements, NativeInput, NativeRows, native_input
from tidegate.runners.spark.catalyst.windows import (
    LONGEST,
    has_native_windows,
    is_windowed,
    still_merge,
)
from tidegate.sdk.data.columns import Schema, is_scalar
from tidegate.sdk.portable.model import (
    MAIN,
    AssignWindows,
    Create,
    Flatten,
    Node,
    Output,
    ParDo,
    Pipeline,
    Read,
    Relate,
    side_inputs,
)
from tidegate.sdk.relational.binding import is_of_window, split_aggregates
from tidegate.sdk.relational.expressions import Column, Tree, text, walk
from tidegate.sdk.relational.expressions import Literal as Constant
from tidegate.sdk.relational.relations import Aggregate, Compute, Join, Rank, Relation, SortLimit, trees_of
from tidegate.sdk.user_code.user_fn import UserFn

Stamps: TypeAlias = Literal["source", "grouped", "own", "mixed"]
"""The timestamps and panes of a collection: those that sources give, those of a grouping's results, those that a step
has given, or several of them."""

Member: TypeAlias = Relate | Flatten | ParDo | AssignWindows
"""The nodes that Spark can compute."""


@dataclass(frozen=True, slots=True)
class Regions:
    """A pipeline with sources in place of regions, and for each relational step whether and why Spark computes it."""

    pipeline: Pipeline
    decisions: tuple[Decision, ...] = ()


def with_regions(pipeline: Pipeline) -> Regions:
    """The pipeline whose relations Spark computes where it can."""
    if not any(isinstance(node, Relate) for node in pipeline.nodes):
        return Regions(pipeline)
    live, _ = drop_dead(pipeline)
    found = _Search(live)
    found.run()
    return Regions(found.rewritten() if found.native else pipeline, tuple(found.decisions()))


@dataclass(slots=True)
class _Search:
    """`native` has the nodes that Spark computes, `inputs` the sources that it reads, by output collection."""

    pipeline: Pipeline
    inputs: dict[str, NativeInput] = field(default_factory=dict)
    native: dict[str, Member] = field(default_factory=dict)
    stamps: dict[str, Stamps] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        for node in self.pipeline.nodes:
            match node:
                case Relate() | Flatten() | AssignWindows():
                    self._consider(node)
                case ParDo() if time_of(node, self._schema(node.inputs[0])) is not None:
                    self._consider(node)
                case Read() | Create():
                    found = native_input(node, self._schema(node.output()))
                    if isinstance(found, NativeInput):
                        self.inputs[node.output()] = found
                        self.stamps[node.output()] = "source" if found.time is None else "own"
                    else:
                        self.reasons[node.label] = found
        while refused := {id: reason for id in self.native if (reason := self._unreadable(id) or self._unworthy(id))}:
            for id, reason in refused.items():
                if id in self.native:
                    self._refuse(id, reason)
                    self._remove_with_readers(id)

    def _schema(self, id: str) -> Schema | None:
        return self.pipeline.collection(id).schema

    # -- which nodes

    def _consider(self, node: Member) -> None:
        reason = self._reason(node)
        if reason:
            self.reasons[node.label] = reason
            return
        self.native[node.output()] = node
        self.stamps[node.output()] = self._stamps(node)

    def _stamps(self, node: Member) -> Stamps:
        kinds = {self.stamps[each] for each in (node.inputs[:1] if isinstance(node, Relate) else node.inputs)}
        match node:
            case ParDo():
                return "own"
            case AssignWindows() if self._is_windowed(node.inputs[0]):
                return "mixed"  # the ends of windows
            case Relate(relation=Join(within=tuple())):
                return "own"
            case Relate(relation=relation) if not isinstance(relation, Compute):
                if self._is_windowed(node.output()) or not _is_product(relation):
                    return "grouped"
                return "mixed" if kinds == {"own"} else kinds.pop()
        return kinds.pop() if len(kinds) == 1 else "mixed"

    def _is_windowed(self, id: str) -> bool:
        return is_windowed(self.pipeline.collection(id).windowing)

    def _still_merge(self, id: str) -> bool:
        return still_merge(self.pipeline.collection(id).windowing)

    def _reason(self, node: Member) -> str:
        """Why Spark doesn't compute a node; "" if it does."""
        for used in node.inputs:
            if used not in self.native and used not in self.inputs:
                return self._behind(used)
        ids = (*node.inputs, *(output.collection for output in node.outputs))
        for id in ids:
            collection = self.pipeline.collection(id)
            if not collection.bounded or not has_native_windows(collection.windowing):
                return f"{id!r} has windows with a trigger, or of another kind than those of SQL"
        schemas = [self._schema(used) for used in node.inputs]
        for schema in schemas:
            if schema is not None and not any(has_spark_type(each.type) for each in schema.fields):
                return "its input has no column of a type that Spark has"
            if schema is None or len({name.lower() for name in schema.names}) < len(schema.names):
                return "names of columns differ in their case only"
        if isinstance(node, Flatten):
            alike = [[(each.name, each.type) for each in schema.fields] for schema in schemas if schema is not None]
            same = all(each == alike[0] for each in alike) and all(map(_all_scalar, schemas))
            if not same or len(set(map(self._elements, node.inputs))) > 1:
                return "its inputs have other columns"
            stamps = {self.stamps[used] for used in node.inputs}
            return "its inputs have different timestamps" if "own" in stamps and len(stamps) > 1 else ""
        if any(name in HIDDEN for schema in schemas if schema is not None for name in schema.names):
            return "it has columns that are named as Spark names windows"
        match node:
            case AssignWindows(windowing=windowing):
                stamped = self.stamps[node.inputs[0]] == "own" and not self._is_windowed(node.inputs[0])
                return "" if stamped or not is_windowed(windowing) else "its input has no timestamps that Spark has"
            case ParDo(fn=fn):
                if self._is_windowed(node.inputs[0]):
                    return "its elements are in windows"
                time = time_of(node, schemas[0])
                if self._schema(node.output()) != schemas[0]:
                    return "its elements are declared to have other columns"
                return "" if time is not None and fits(time) else f"only a worker calls {fn.name}"
        if node.late_tag is not None:
            return "it emits late data"
        for number, used in enumerate(node.inputs):
            if not self._has_nested(used) and any(_reads_nested(tree, number) for tree in trees_of(node.relation)):
                return "the arrays, maps and records of its input are objects of Python"
        if self._is_windowed(node.output()):
            if isinstance(node.relation, SortLimit):
                return "it sorts elements in windows"
            if isinstance(node.relation, Join) and any(map(_reads_window, trees_of(node.relation))):
                return "it reads the windows of what it joins"
            if len({self.pipeline.collection(used).windowing for used in node.inputs}) > 1:
                return "its inputs are in different windows"
            if not isinstance(node.relation, (Compute, Aggregate)) and self._still_merge(node.inputs[0]):
                return "it ranks or joins elements in sessions that merge"
        if isinstance(node.relation, Join) and node.relation.within is not None:
            if any(self.stamps[used] != "own" for used in node.inputs):
                return "it joins by timestamps that Spark hasn't"
            if max(map(abs, node.relation.within)) >= LONGEST:
                return "it joins by timestamps that are too far apart"
        return _unfit(node.relation, schemas)

    def _has_nested(self, id: str) -> bool:
        """Whether Spark has the arrays, maps and records of a native collection, which it has not of `Create`."""
        if id in self.inputs:
            return not isinstance(self.inputs[id].node, Create)
        match node := self.native[id]:
            case Relate(relation=Compute(columns=tuple()) | Aggregate() | Join()):
                return True
            case _:
                return all(map(self._has_nested, node.inputs))

    def _behind(self, id: str) -> str:
        """Why Spark doesn't compute what reads a collection of a worker."""
        producer = self.pipeline.producer(id)
        own = "" if isinstance(producer, Relate) else self.reasons.get(producer.label, "")
        return f"a worker computes its input {id!r}" + (f": {own}" if own else "")

    def _elements(self, id: str) -> Elements | None:
        """The kind of a native collection's elements, if elements of the kind can be made of Spark's rows."""
        if id in self.inputs:
            return self.inputs[id].elements
        match node := self.native[id]:
            case Relate(relation=Compute(columns=tuple()) | Aggregate() | Join() | Rank(number=str())):
                return "row"
            case _:
                return self._elements(node.inputs[0])

    def _unreadable(self, id: str) -> str:
        """Why other steps couldn't read a collection of Spark's; "" if they can, or none does."""
        if not self._is_read(id):
            return ""
        if self._elements(id) is None:
            return "the steps after it take elements of the author's class"
        if self.stamps[id] == "mixed":
            return "its elements have timestamps of several kinds"
        if self.stamps[id] == "own" and self._is_windowed(id):
            return "its elements have timestamps of their own in windows"
        schema = self._schema(id)
        if schema is None or not schema.fields:
            return "its rows have no columns"
        return "" if _all_scalar(schema) else "it emits columns of types that only Python has"

    def _is_read(self, id: str) -> bool:
        """Whether a node that Spark doesn't compute reads a collection."""
        return any(id in _read_by(node) for node in self.pipeline.nodes if not self._is_native(node))

    def _is_native(self, node: Node) -> bool:
        return bool(node.outputs) and node.outputs[0].collection in self.native

    def _refuse(self, id: str, reason: str) -> None:
        self.reasons[self.native[id].label] = reason

    def _remove_with_readers(self, id: str) -> None:
        removed = self.native.pop(id, None)
        if removed is None:
            return
        for other, node in list(self.native.items()):
            if id in node.inputs and other in self.native:
                self._refuse(other, self._behind(id))
                self._remove_with_readers(other)

    def _unworthy(self, id: str) -> str:
        """Why Spark computes a collection no sooner; "" if it has the data anyway, or reduces, joins or sorts them."""
        members = self._upstream(id)
        worth_it = any(each in self.inputs and self.inputs[each].stored for each in members) or any(
            isinstance(node, Relate) and not isinstance(node.relation, Compute)
            for each in (*members, *self._downstream(id))
            if (node := self.native.get(each)) is not None
        )
        return "" if worth_it else "sending rows to Spark only to filter or compute them takes longer than doing so"

    def _upstream(self, id: str) -> dict[str, None]:
        """A collection and those of its region that it is computed from, in the order of the pipeline."""
        found = {id}
        waiting = [id]
        while waiting:
            node = self.native.get(waiting.pop())
            for used in () if node is None else node.inputs:
                if used not in found:
                    found.add(used)
                    waiting.append(used)
        return {each: None for node in self.pipeline.nodes for out in node.outputs if (each := out.collection) in found}

    def _downstream(self, id: str) -> Iterator[str]:
        return (other for other in self.native if other != id and id in self._upstream(other))

    # -- the result

    def rewritten(self) -> Pipeline:
        """The pipeline with a source for each collection that other steps read."""
        outputs = [id for id in self.native if self._is_read(id)]
        sources = {id: self._source(id, self.native[id]) for id in outputs}
        needed = {used for node in self.pipeline.nodes if not self._is_native(node) for used in _read_by(node)}
        nodes: list[Node] = []
        for node in self.pipeline.nodes:
            if self._is_native(node):
                nodes += [source for id, source in sources.items() if id == node.output()]
            elif not isinstance(node, (Read, Create)) or node.output() in needed:
                nodes.append(node)
        kept = {out.collection for node in nodes for out in node.outputs}
        collections = tuple(each for each in self.pipeline.collections if each.id in kept)
        return replace(self.pipeline, nodes=tuple(nodes), collections=collections)

    def _source(self, id: str, node: Member) -> Read:
        members, windowed = self._upstream(id), self._is_windowed(id)
        nodes = tuple(each for each in self.pipeline.nodes if each.outputs and each.outputs[0].collection in members)
        collections = tuple(each for each in self.pipeline.collections if each.id in members)
        schema, elements = self._schema(id), self._elements(id)
        assert schema is not None
        assert elements is not None
        rows = NativeRows(
            id,
            schema.names,
            tuple(str(each.type) for each in schema.fields),
            elements,
            self.stamps[id] == "grouped",
            replace(self.pipeline, nodes=nodes, collections=collections),
            windowed,
            timed=self.stamps[id] == "own",
        )
        return Read(
            label=node.label,
            where=node.where,
            composite=node.composite,
            numbered=node.numbered,
            hints=node.hints,
            outputs=(Output(MAIN, id),),
            source=UserFn.of(rows, "DataFrame"),
            name=rows.name,
            bounded=True,
        )

    def decisions(self) -> Iterator[Decision]:
        for node in self.pipeline.nodes:
            if self._is_native(node):
                yield Decision(node.label, "native", "Catalyst")
            elif isinstance(node, Relate):
                yield Decision(node.label, "workers", self.reasons.get(node.label, ""))


def _is_product(relation: Relation) -> bool:
    """Whether each task of the other runners has all right elements of a join, so that left ones keep their times."""
    match relation:
        case Join(join="inner" | "left" | "semi" | "anti", within=None, keys=keys):
            return all(isinstance(key, Constant) for pair in keys for key in pair)
        case _:
            return False


def _reads_window(tree: Tree) -> bool:
    return any(map(is_of_window, walk(tree)))


def _reads_nested(tree: Tree, input: int) -> bool:
    return any(
        isinstance(each, Column) and each.input == input and has_spark_type(each.type) and not is_scalar(each.type)
        for each in walk(tree)
    )


def _read_by(node: Node) -> tuple[str, ...]:
    return (*node.inputs, *(ref.collection for ref in side_inputs(node)))


def _all_scalar(schema: Schema | None) -> bool:
    return schema is not None and all(is_scalar(each.type) for each in schema.fields)


def _unfit(relation: Relation, schemas: Sequence[Schema | None]) -> str:
    """Why Spark might compute another result of a relation; "" if it can't."""
    for tree in trees_of(relation):
        if not fits(tree):
            return f"{text(tree)} has a type or an operation that Spark might compute in another way"
        if hides_errors(tree):
            return f"Spark might not see that an operand in {text(tree)} fails"
        if merges_zeros(tree):
            return f"Spark takes 0.0 and -0.0 in {text(tree)} for one constant"
    names: Sequence[str] = ()
    match relation:
        case Join(join=kind, where=where, columns=columns):
            names = [each.name for each in columns]
            if where is not None and kind != "inner" and raises_for_one_side(where):
                return (
                    f"Spark would evaluate parts of {text(where)} for rows without a partner, where it may be an error"
                )
        case Aggregate(keys=keys, columns=columns):
            names = [each.name for each in (*keys, *columns)]
            if not split_aggregates([each.tree for each in columns])[1]:
                return "it has no aggregates"
        case Compute(columns=tuple(columns)):
            names = [each.name for each in columns]
        case Rank(number=str(number)):
            names = [number, *(() if schemas[0] is None else schemas[0].names)]
        case SortLimit(limit=limit, offset=offset) if max(limit or 0, offset) >= 2**31:
            return "it has a limit that Spark hasn't"
        case Rank() | SortLimit():
            if not all(map(_all_scalar, schemas)):
                return "it orders columns of types that Spark might order in another way"
    if len({name.lower() for name in names}) < len(names):
        return "names of its columns differ in their case only"
    return ""


def regions_of(rows: Mapping[int, NativeRows]) -> Pipeline:
    """The nodes of several regions together, each once."""
    regions = [each.region for each in rows.values() if each.region is not None]
    nodes = {node.label: node for region in regions for node in region.nodes}
    collections = {each.id: each for region in regions for each in region.collections}
    return replace(regions[0], nodes=tuple(nodes.values()), collections=tuple(collections.values()))
