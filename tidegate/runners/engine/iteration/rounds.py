"""One round of a loop: a graph of the body's operators, made anew, so that no state of the round before is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias

from tidegate.runners.engine.grouping.batch_table import Grouping
from tidegate.runners.engine.grouping.kept_tables import kept_tables
from tidegate.runners.engine.grouping.operator import TableOperator
from tidegate.runners.engine.keyed_batch import KeyedBatch
from tidegate.runners.engine.loop_tables import Kept, LoopTables, Prepared
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.runners.plan import Edge, Loop, Plan, Step, step_in_round
from tidegate.sdk.data.block import Block
from tidegate.sdk.portable.model import CombinePerKey


class BodyGraph(Protocol):
    """The part of `operator_graph.Graph` that a round uses."""

    def open(self) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...
    def pushing(self, collection: str, block: Block) -> Iterator[None]: ...
    def updating(self, collection: str, status: CollectionStatus) -> Iterator[None]: ...


MakeGraph: TypeAlias = Callable[
    [Plan, Iterable[Step], Iterable[Edge], Context, Mapping[str, list[Callable[[Block], None]]]], BodyGraph
]

Receivers: TypeAlias = Mapping[str, list[Callable[[Block], None]]]
"""The functions that receive the blocks of each collection of the body that is read outside it."""


class Rounds:
    """Makes the graphs of a loop's rounds."""

    def __init__(self, loop: Loop, make_graph: MakeGraph) -> None:
        self.loop = loop
        self._make_graph = make_graph
        plan = loop.plan
        self._steps = [step for step in plan.steps if not step.is_source]
        ids = {step.id for step in self._steps}
        self._edges = [edge for edge in plan.edges if edge.target in ids]
        self._read = {edge.collection for edge in self._edges}
        """The collections of which a round reads elements."""
        self.inputs = [
            step.head.output() for region in plan.regions for step in plan.steps_of(region) if step.is_source
        ]
        """The collections that the body reads, in the order in which they have to end: side inputs first."""

    def keep_tables(self, inputs: Mapping[str, Iterable[Block]], context: Context) -> LoopTables:
        """The tables of the inputs that are grouped once for all rounds. Those that exceed their share of a quarter of
        the memory budget are not kept, and their inputs are grouped in each round."""
        steps = [step for step in self._steps if step.kept]
        kept = {}
        for step in steps:
            share = replace(context, memory_budget=max(1, context.memory_budget // (4 * len(steps))))
            tables = group_once(step, inputs, share)
            if tables is not None:
                kept[step.label] = tables
        self._edges = [
            edge
            for edge in self._edges
            if (step := self.loop.plan.steps[edge.target]).label not in kept or edge.collection not in step.kept
        ]
        self._read = {edge.collection for edge in self._edges}
        return LoopTables(kept, prepared=Prepared(keeps=True))

    def graph(self, number: int, context: Context, receivers: Receivers) -> BodyGraph:
        """The graph of round `number`, which emits what leaves the body to `receivers`."""
        outlets: dict[str, list[Callable[[Block], None]]] = {}
        for result, parts in self.loop.results.items():
            for part in parts:  # several, or one several times, if the result is that of a Flatten
                outlets.setdefault(part, []).extend(receivers.get(result, ()))
        steps = [step_in_round(step, number) for step in self._steps]
        return self._make_graph(self.loop.plan, steps, self._edges, context, outlets)

    def run(self, graph: BodyGraph, elements: Mapping[str, Iterable[Block]]) -> Iterator[None]:
        """Run a round to its end over the elements of the collections that the body reads."""
        for collection in self.inputs:
            for block in elements[collection] if self._is_read(collection) else ():
                yield
                yield from graph.pushing(collection, block)
            yield from graph.updating(collection, CollectionStatus(ended=True))

    def _is_read(self, collection: str) -> bool:
        """Whether a step of a round, or what receives the loop's results, reads the elements of a collection."""
        return collection in self._read or any(collection in parts for parts in self.loop.results.values())


def group_once(step: Step, inputs: Mapping[str, Iterable[Block | KeyedBatch]], context: Context) -> Kept | None:
    """The tables of those inputs of a step that are the same in all rounds; None if they exceed the memory budget."""
    assert isinstance(step.tail, CombinePerKey)
    grouping = Grouping(step.tail, "whole", context, step.outputs[0])
    operator = TableOperator((), grouping, sides=None)
    for collection in step.kept:
        for some in inputs[collection]:
            if isinstance(some, KeyedBatch):
                emitted = operator.process_keyed(some, collection)
            else:
                emitted = operator.process(some, collection)
            for _ in emitted:
                pass
    for _ in operator.finish_bundle():
        pass
    return kept_tables(grouping, len(step.kept))
