"""Edges and vertices as authors give them, and as the steps of a graph hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from tidegate.sdk.authoring.dofn import refuse_injection
from tidegate.sdk.errors import BuildError, shorten

K = TypeVar("K")
E = TypeVar("E")


class Edge(NamedTuple, Generic[K, E]):
    """An edge from the vertex `source` to the vertex `target`, with a `value`, such as a weight, or None.

    Functions of vertex programs over arrays get one Edge for many edges, whose fields are NumPy arrays.
    """

    source: K
    target: K
    value: E


def edge_of(element: Any) -> Edge[Any, Any]:
    """An element of a collection of edges as an Edge; ValueError if it is neither a pair nor a triple."""
    match element:
        case Edge():
            return element
        case (source, target):
            return Edge(source, target, None)
        case (source, target, value):
            return Edge(source, target, value)
    raise ValueError(f"an edge is (source, target) or (source, target, value), not {shorten(element, 60)}")


def turned(edge: Edge[K, E]) -> Edge[K, E]:
    """The edge in the other direction."""
    return Edge(edge.target, edge.source, edge.value)


def both_ways(edge: Edge[K, E]) -> Iterator[Edge[K, E]]:
    """The edge in both directions; a loop has only one."""
    yield edge
    if edge.source != edge.target:
        yield turned(edge)


def ends_of(edge: Edge[K, E]) -> tuple[K, K]:
    """Both vertices of an edge."""
    return edge.source, edge.target


def source_of(edge: Edge[K, E]) -> tuple[K]:
    """The vertex that an edge leaves."""
    return (edge.source,)


def target_of(edge: Edge[K, E]) -> tuple[K]:
    """The vertex that an edge enters."""
    return (edge.target,)


def different_ends_of(edge: Edge[K, E]) -> tuple[K, ...]:
    """Both vertices of an edge; that of a loop once."""
    return (edge.source,) if edge.source == edge.target else (edge.source, edge.target)


def without_value(id: K) -> tuple[K, None]:
    """A vertex that no value was given for."""
    return id, None


def by_source(edge: Edge[K, E]) -> tuple[K, Edge[K, E]]:
    """The edge under the key of the vertex that it leaves."""
    return edge.source, edge


def by_target(edge: Edge[K, E]) -> tuple[K, Edge[K, E]]:
    """The edge under the key of the vertex that it enters."""
    return edge.target, edge


def one_vertex(group: tuple[Any, tuple[list[Any], list[Any]]]) -> tuple[Any, Any]:
    """A vertex, from the values given for it and its mentions by edges; ValueError if two values were given."""
    id, (values, _) = group
    if len(values) > 1:
        raise ValueError(f"the vertex {shorten(id, 40)} is given twice, with the values {shorten(values, 80)}")
    return id, values[0] if values else None


def vertex_of_joined(joined: tuple[Any, tuple[Any, Any]]) -> tuple[Any, Any]:
    """A vertex, from its join with something else."""
    id, (value, _) = joined
    return id, value


@dataclass(frozen=True, slots=True)
class WithVertexValue:
    """A vertex with another value."""

    fn: Callable[[Any, Any], Any]

    def __call__(self, id: Any, value: Any) -> tuple[Any, Any]:
        return id, self.fn(id, value)


@dataclass(frozen=True, slots=True)
class WithEdgeValue:
    """An edge with another value."""

    fn: Callable[[Edge[Any, Any]], Any]

    def __call__(self, edge: Edge[Any, Any]) -> Edge[Any, Any]:
        return Edge(edge.source, edge.target, self.fn(edge))


@dataclass(frozen=True, slots=True)
class KeptVertex:
    """Whether a condition holds for a vertex."""

    condition: Callable[[Any, Any], object]

    def __call__(self, vertex: tuple[Any, Any]) -> object:
        return self.condition(*vertex)


@dataclass(frozen=True, slots=True)
class InCore:
    """Whether a vertex, with its core number, is in the k-core."""

    k: int

    def __call__(self, vertex: tuple[Any, int]) -> bool:
        return vertex[1] >= self.k


def check_function(of: str, name: str, value: object) -> None:
    """Raise BuildError unless the argument `name` of `of` is a function."""
    if not callable(value):
        raise BuildError(f"{of} takes a function as {name}, not {shorten(value)}")
    refuse_injection(value, f"functions of {of} are called with vertices and edges only")
