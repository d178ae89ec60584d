"""The collections of a graph, from what authors give: edges, vertices, and both of them as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from tidegate.graph.array_loop import need_numpy
from tidegate.graph.edges import Edge, by_source, by_target, edge_of, ends_of, one_vertex, without_value
from tidegate.sdk.authoring.side_inputs import AsList
from tidegate.sdk.errors import BuildError, TypeCheckError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import CombinePerKey, FlatMap, Flatten, Map, pair_type
from tidegate.sdk.primitives.elementwise import require_pairs
from tidegate.sdk.steps.purity import pure_steps
from tidegate.sdk.steps.transform import Transform
from tidegate.sdk.typehints import compatibility, hints
from tidegate.sdk.windowing.assigners import GlobalWindows
from tidegate.sdk.windowing.strategy import can_fire_twice
from tidegate.transforms.elementwise import Impulse, Keys
from tidegate.transforms.flow import BatchElements, Distinct
from tidegate.transforms.grouping.cogroup import CoGroupByKey
from tidegate.transforms.grouping.join import Join

Derive: TypeAlias = Callable[..., tuple[PCollection[Any], PCollection[Any]]]
"""Makes edges and vertices from others, and perhaps from further collections."""

BLOCK = 10_000
"""How many edges or vertices go into one array before all of them are joined."""


class Parts(NamedTuple):
    """The collections of a graph; `arrays` holds one element, the whole graph."""

    edges: PCollection[Any]
    vertices: PCollection[Any]
    arrays: PCollection[Any]


class GivenGraph(Transform):
    """A graph of a collection of edges, and perhaps one of vertices."""

    def __init__(self, directed: bool, name: str | None) -> None:
        self.directed = directed
        self.label = name

    def default_label(self) -> str:
        return "Graph"

    def expand(self, input: Sequence[PCollection[Any]]) -> Parts:
        with pure_steps():
            return self._parts(*input)

    def _parts(self, given: PCollection[Any], *vertices: PCollection[Any]) -> Parts:
        check_collection("edges", given)
        key = _check_edges(given)
        edges = given | Map(edge_of, name="edges").with_output_types(Edge)
        if not vertices:
            return Parts(edges, _mentioned(edges, key), _arrays(edges, None, self.directed))
        check_collection("vertices", vertices[0])
        require_pairs(vertices[0], "Graph")
        known = _known_vertices(vertices[0], _mentioned(edges, hints.union((key, key_type(vertices[0])))))
        return Parts(edges, known, _arrays(edges, vertices[0], self.directed))


class GivenArrays(Transform):
    """A graph of a collection of blocks of edges, and perhaps one of blocks of vertices."""

    def __init__(self, directed: bool, name: str | None) -> None:
        self.directed = directed
        self.label = name

    def default_label(self) -> str:
        return "Graph.from_arrays"

    def expand(self, input: Sequence[PCollection[Any]]) -> Parts:
        need_numpy("Graph.from_arrays")
        with pure_steps():
            return self._parts(*input)

    def _parts(self, given: PCollection[Any], *more: PCollection[Any]) -> Parts:
        from tidegate.graph import arrays

        check_collection("edges", given)
        blocks = given | Map(arrays.given_edges, name="edge blocks").with_output_types(tuple)
        edges = blocks | FlatMap(arrays.edges_of, name="edges").with_output_types(Edge)
        vertices, vertex_blocks = _mentioned(edges, Any), None
        if more:
            check_collection("vertices", more[0])
            vertex_blocks = more[0] | Map(arrays.given_vertices, name="vertex blocks").with_output_types(tuple)
            each: Any = FlatMap(arrays.vertices_of, name="given vertices")
            vertices = _known_vertices(vertex_blocks | each.with_output_types(pair_type(Any, Any)), vertices)
        return Parts(edges, vertices, _joined(blocks, vertex_blocks, self.directed))


class DerivedGraph(Transform):
    """A graph made from another one's edges and vertices."""

    def __init__(self, derive: Derive, directed: bool, title: str, name: str | None) -> None:
        self.derive = derive
        self.directed = directed
        self.title = title
        self.label = name

    def default_label(self) -> str:
        return self.title

    def expand(self, input: Sequence[PCollection[Any]]) -> Parts:
        edges, vertices = self.derive(*input)
        with pure_steps():
            return Parts(edges, vertices, _arrays(edges, vertices, self.directed))


class CountedEdges(Transform):
    """How many edges each vertex has, if an edge counts for the vertices `of` it."""

    def __init__(self, of: Callable[[Edge[Any, Any]], Any], title: str, name: str | None) -> None:
        self.of = of
        self.title = title
        self.label = name

    def default_label(self) -> str:
        return self.title

    def expand(self, input: Sequence[PCollection[Any]]) -> PCollection[tuple[Any, int]]:
        edges, vertices = input
        with pure_steps():
            return self._counts(edges, vertices)

    def _counts(self, edges: PCollection[Any], vertices: PCollection[Any]) -> PCollection[tuple[Any, int]]:
        key = key_type(vertices)
        none = vertices | Keys() | Map(_no_edge, name="none").with_output_types(pair_type(key, int))
        ends = edges | FlatMap(self.of, name="ends").with_output_types(key)
        both: Any = (none, ends | Map(_an_edge, name="one").with_output_types(pair_type(key, int)))
        result: PCollection[tuple[Any, int]] = both | Flatten() | CombinePerKey(sum)
        return result


def _no_edge(id: Any) -> tuple[Any, int]:
    return id, 0


def _an_edge(id: Any) -> tuple[Any, int]:
    return id, 1


def keyed_edges(edges: PCollection[Any], by: Callable[[Edge[Any, Any]], Any], name: str) -> PCollection[Any]:
    """Edges as pairs, whose key is one of their ends."""
    return edges | Map(by, name=name).with_output_types(pair_type(Any, Edge))


def key_type(pairs: PCollection[Any]) -> Any:
    """The type of the ids of vertices."""
    return compatibility.kv_of(pairs.element_type)[0]


def induced(edges: PCollection[Any], kept: PCollection[Any]) -> PCollection[Any]:
    """The edges between vertices that are kept."""
    with pure_steps():
        leaving = keyed_edges(edges, by_source, "by source") | Join.inner(kept, name="source is kept")
        entering = leaving | Map(_by_target_again, name="by target").with_output_types(pair_type(Any, Edge))
        both = entering | Join.inner(kept, name="target is kept")
        return both | Map(_edge_of_joined, name="kept edges").with_output_types(Edge)


def _by_target_again(joined: tuple[Any, tuple[Edge[Any, Any], Any]]) -> tuple[Any, Edge[Any, Any]]:
    return by_target(joined[1][0])


def _edge_of_joined(joined: tuple[Any, tuple[Edge[Any, Any], Any]]) -> Edge[Any, Any]:
    return joined[1][0]


def _mentioned(edges: PCollection[Any], key: Any) -> PCollection[Any]:
    """The vertices of edges, each once, with the value None."""
    ends = edges | FlatMap(ends_of, name="ends").with_output_types(key) | Distinct()
    return ends | Map(without_value, name="without value").with_output_types(pair_type(key, Any))


def _known_vertices(given: PCollection[Any], mentioned: PCollection[Any]) -> PCollection[Any]:
    """All vertices: those given, and those that only edges mention, whose type of ids is that of all."""
    both: Any = (given, mentioned)
    one: Any = Map(one_vertex, name="vertices")
    known: PCollection[Any] = both | CoGroupByKey() | one.with_output_types(pair_type(key_type(mentioned), Any))
    return known


def _arrays(edges: PCollection[Any], vertices: PCollection[Any] | None, directed: bool) -> PCollection[Any]:
    """The graph as arrays, which are made only if something reads them."""
    blocks = edges | BatchElements(max_batch_size=BLOCK, name="edge batches")
    edge_blocks = blocks | Map(_edge_block, name="edge blocks").with_output_types(tuple)
    if vertices is None:
        return _joined(edge_blocks, None, directed)
    batches = vertices | BatchElements(max_batch_size=BLOCK, name="vertex batches")
    return _joined(edge_blocks, batches | Map(_vertex_block, name="vertex blocks").with_output_types(tuple), directed)


def _joined(edges: PCollection[Any], vertices: PCollection[Any] | None, directed: bool) -> PCollection[Any]:
    listed = [] if vertices is None else AsList(vertices)
    join = Map(_graph_arrays, AsList(edges), listed, directed, name="arrays")
    return edges.pipeline | Impulse() | join.with_output_types(Any)


def _edge_block(edges: Any) -> Any:  # these import NumPy where they run, which they do only if arrays are read
    from tidegate.graph.arrays import edge_block

    return edge_block(edges)


def _vertex_block(vertices: Any) -> Any:
    from tidegate.graph.arrays import vertex_block

    return vertex_block(vertices)


def _graph_arrays(impulse: Any, edges: Any, vertices: Any, directed: bool) -> Any:
    from tidegate.graph.arrays import graph_arrays

    return graph_arrays(impulse, edges, vertices, directed)


def check_collection(what: str, pcoll: PCollection[Any]) -> None:
    """Raise BuildError unless a collection is bounded, and in the global window, which fires once."""
    if not pcoll.is_bounded:
        raise BuildError(f"a Graph needs bounded {what}: on unbounded input it never has all of them")
    if not isinstance(pcoll.windowing.assigner, GlobalWindows):
        raise BuildError(
            f"the {what} of a Graph are in the global window, not in {pcoll.windowing.assigner!r}: apply "
            "tg.WindowInto(tg.GlobalWindows())"
        )
    if can_fire_twice(pcoll.windowing):
        raise BuildError(
            f"the {what} of a Graph have the trigger {pcoll.windowing.trigger!r}, which can fire more than once, so a "
            "vertex would have several values: apply tg.WindowInto(tg.GlobalWindows())"
        )


def _check_edges(edges: PCollection[Any]) -> Any:
    """The type of the ids of vertices; TypeCheckError if elements can be no edges."""
    actual = edges.element_type
    pairs, triples = pair_type(Any, Any), tuple.__class_getitem__((Any, Any, Any))
    reason = compatibility.clash(actual, pairs)
    if reason and compatibility.clash(actual, triples) and edges.pipeline.checks_types:
        raise TypeCheckError(
            f"an edge is (source, target) or (source, target, value), and these edges are {hints.type_name(actual)}"
        )
    items = hints.items_of(actual)[0] if hints.class_of(actual)[0] is tuple else None
    return hints.union(items[:2]) if items else Any
