"""Vertex programs of Python functions: what vertices send along their edges, and what they make of what they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.graph.array_loop import check_rounds
from tidegate.graph.building import key_type, keyed_edges
from tidegate.graph.edges import Edge, WithVertexValue, both_ways, by_source, check_function
from tidegate.sdk.authoring.combine import as_combine_fn
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import CombinePerKey, FlatMap, Map, MapTuple, pair_type
from tidegate.sdk.primitives.grouping import check_takes_list
from tidegate.sdk.primitives.iteration import Iterate
from tidegate.sdk.primitives.iteration_delta import IterateDelta, Solution
from tidegate.sdk.steps.transform import Transform
from tidegate.transforms.grouping.cogroup import CoGroupByKey
from tidegate.transforms.grouping.join import Join


class VertexProgram(Transform):
    """A program with the state that each vertex starts with; it applies to vertices and edges."""

    title: str
    directed: bool = True

    def __init__(self, start: Any, rounds: int | None, strict: bool, name: str | None) -> None:
        self.start = start
        self.rounds = rounds
        self.strict = strict
        self.label = name

    def default_label(self) -> str:
        return self.title

    def started(self, vertices: PCollection[Any]) -> PCollection[Any]:
        """The vertices with their states before round 1."""
        check_rounds(self.rounds)
        if self.start is None:
            return vertices
        check_function(self.title, "start", self.start)
        return vertices | MapTuple(WithVertexValue(self.start), name="start").with_output_types(
            pair_type(key_type(vertices), Any)
        )

    def leaving(self, edges: PCollection[Any]) -> PCollection[Any]:
        """The ways along edges, under the vertices that they leave."""
        if not self.directed:
            edges = edges | FlatMap(both_ways, name="both ways").with_output_types(Edge)
        return keyed_edges(edges, by_source, "by source")


class Pregel(VertexProgram):
    """Vertices whose state has changed send messages; those that get some are updated: see `Graph.pregel`."""

    title = "pregel"

    def __init__(
        self,
        send: Any,
        combine: Any,
        update: Any,
        start: Any,
        changed: Any,
        rounds: int | None,
        strict: bool,
        name: str | None,
    ) -> None:
        super().__init__(start, rounds, strict, name)
        self.send = send
        self.combine = combine
        self.update = update
        self.changed = changed

    def expand(self, input: tuple[PCollection[Any], PCollection[Any]]) -> PCollection[tuple[Any, Any]]:
        vertices, edges = input
        check_function(self.title, "send", self.send)
        check_function(self.title, "update", self.update)
        combine = as_combine_fn(self.combine)
        check_takes_list(combine, self.title, "combine={}")
        states = self.started(vertices)
        key = key_type(states)
        leaving = self.leaving(edges)
        send, update = _Sent(self.send), _Updated(self.update)

        def body(known: Solution[Any, Any], active: PCollection[Any]) -> PCollection[Any]:
            sent = active | Join.inner(leaving) | FlatMap(send, name="send").with_output_types(pair_type(key, Any))
            received = sent | CombinePerKey(combine, name="combine")
            return (
                received
                | known.lookup(name="state")
                | Map(update, name="update").with_output_types(pair_type(key, Any))
            )

        result: PCollection[tuple[Any, Any]] = (states, states) | IterateDelta(
            body, rounds=self.rounds, changed=self.changed, strict=self.strict, name="rounds"
        )
        return result


class GatherSumApply(VertexProgram):
    """In each round every vertex gathers from all that have edges to it: see `Graph.gather_sum_apply`."""

    title = "gather_sum_apply"

    def __init__(
        self,
        gather: Any,
        sum: Any,
        apply: Any,
        start: Any,
        rounds: int | None,
        until: Any,
        strict: bool,
        name: str | None,
    ) -> None:
        super().__init__(start, rounds, strict, name)
        self.gather = gather
        self.sum = sum
        self.apply = apply
        self.until = until

    def expand(self, input: tuple[PCollection[Any], PCollection[Any]]) -> PCollection[tuple[Any, Any]]:
        vertices, edges = input
        check_function(self.title, "gather", self.gather)
        check_function(self.title, "apply", self.apply)
        combine = as_combine_fn(self.sum)
        check_takes_list(combine, self.title, "sum={}")
        if self.until is None and self.rounds is None:
            raise BuildError(f"{self.title} would never end: give rounds=…, until=…, or both")
        if self.until is None and self.strict:
            raise BuildError(f"strict fails a run whose condition is not met in time: give {self.title} until=…, too")
        states = self.started(vertices)
        key = key_type(states)
        leaving = self.leaving(edges)
        gather, apply = _Sent(self.gather), _Applied(self.apply)

        def body(states: PCollection[Any]) -> PCollection[Any]:
            gathered = (
                states | Join.inner(leaving) | FlatMap(gather, name="gather").with_output_types(pair_type(key, Any))
            )
            total = gathered | CombinePerKey(combine, name="sum")
            both: Any = (states, total)
            new: PCollection[Any] = (
                both | CoGroupByKey() | Map(apply, name="apply").with_output_types(pair_type(key, Any))
            )
            return new

        result: PCollection[tuple[Any, Any]] = states | Iterate(
            body, rounds=self.rounds, until=self.until, strict=self.strict, name="rounds"
        )
        return result


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message to the other end of an edge, from the state of the vertex that it leaves; None is no message."""

    send: Callable[[Any, Edge[Any, Any]], Any]

    def __call__(self, pair: tuple[Any, tuple[Any, Edge[Any, Any]]]) -> Iterator[tuple[Any, Any]]:
        _, (state, edge) = pair
        message = self.send(state, edge)
        if message is not None:
            yield edge.target, message


@dataclass(frozen=True, slots=True)
class _Updated:
    update: Callable[[Any, Any], Any]

    def __call__(self, found: tuple[Any, tuple[Any, Any]]) -> tuple[Any, Any]:
        id, (message, state) = found
        return id, self.update(state, message)


@dataclass(frozen=True, slots=True)
class _Applied:
    apply: Callable[[Any, Any], Any]

    def __call__(self, group: tuple[Any, tuple[list[Any], list[Any]]]) -> tuple[Any, Any]:
        id, ((state,), totals) = group
        return id, self.apply(state, totals[0] if totals else None)
