"""Graph: edges and vertices in collections, with the algorithms and vertex programs that run over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tidegate.graph.algorithms import GraphAlgorithms
from tidegate.graph.building import (
    CountedEdges,
    Derive,
    DerivedGraph,
    GivenArrays,
    GivenGraph,
    Parts,
    induced,
    key_type,
)
from tidegate.graph.edges import (
    Edge,
    InCore,
    KeptVertex,
    WithEdgeValue,
    WithVertexValue,
    check_function,
    different_ends_of,
    ends_of,
    source_of,
    target_of,
    turned,
    vertex_of_joined,
)
from tidegate.graph.local import Local
from tidegate.graph.parts import GraphParts
from tidegate.graph.programs import GraphPrograms
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Filter, Map, MapTuple, pair_type
from tidegate.sdk.steps.purity import pure_steps
from tidegate.sdk.steps.transform import pipeline_of
from tidegate.transforms.grouping.join import Join

if TYPE_CHECKING:  # with defaults, a checker asks for no annotation where the collections don't tell the types
    from typing_extensions import TypeVar as TypeVarWithDefault

    K = TypeVarWithDefault("K", default=Any)
    V = TypeVarWithDefault("V", default=Any)
    E = TypeVarWithDefault("E", default=Any)
else:
    K = TypeVar("K")
    V = TypeVar("V")
    E = TypeVar("E")
W = TypeVar("W")


class Graph(GraphAlgorithms[K, V, E], GraphPrograms[K, V, E]):
    """A graph of `edges`, pairs `(source, target)` or triples `(source, target, value)`, and of `vertices`, pairs
    `(id, value)`.

    Vertices that only edges mention have the value None. There may be several edges from one vertex to another, and
    loops. An edge of an undirected graph (`directed=False`) leads both ways. Both collections are bounded and in the
    global window. Raises TypeCheckError or BuildError for other collections; a run fails if a vertex is given twice.
    """

    def __init__(
        self,
        edges: PCollection[Any],
        vertices: PCollection[tuple[K, V]] | None = None,
        directed: bool = True,
        *,
        name: str | None = None,
    ) -> None:
        given = (edges,) if vertices is None else (edges, vertices)
        made = GivenGraph(directed, name)
        super().__init__(pipeline_of(given, made).apply(made, given), directed)

    @classmethod
    def from_arrays(
        cls,
        edges: PCollection[Any],
        vertices: PCollection[Any] | None = None,
        directed: bool = True,
        *,
        name: str | None = None,
    ) -> Graph[Any, Any, Any]:
        """A graph of elements that are NumPy arrays, each of many edges: `(sources, targets)` or `(sources, targets,
        values)`.

        Elements of `vertices` are arrays of ids, or pairs of arrays, `(ids, values)`. This is the fastest way into the
        algorithms that compute with arrays. Raises BuildError if NumPy is missing.
        """
        given = (edges,) if vertices is None else (edges, vertices)
        made = GivenArrays(directed, name)
        return _graph(pipeline_of(given, made).apply(made, given), directed)

    def reverse(self, *, name: str | None = None) -> Graph[K, V, E]:
        """The graph with each edge in the other direction."""

        def derive(edges: PCollection[Any], vertices: PCollection[Any]) -> Any:
            with pure_steps():
                return edges | Map(turned, name="turned").with_output_types(edges.element_type), vertices

        return self._derived("reverse", name, derive)

    def undirected(self, *, name: str | None = None) -> Graph[K, V, E]:
        """The graph with the same edges, each of which leads both ways."""
        return self._derived("undirected", name, lambda edges, vertices: (edges, vertices), directed=False)

    def map_vertices(self, fn: Callable[[K, V], W], *, name: str | None = None) -> Graph[K, W, E]:
        """The graph with `fn(id, value)` as the value of each vertex."""

        def derive(edges: PCollection[Any], vertices: PCollection[Any]) -> Any:
            check_function("map_vertices", "fn", fn)
            type_ = pair_type(key_type(vertices), Any)
            return edges, vertices | MapTuple(WithVertexValue(fn), name="values").with_output_types(type_)

        return self._derived("map_vertices", name, derive)

    def map_edges(self, fn: Callable[[Edge[K, E]], W], *, name: str | None = None) -> Graph[K, V, W]:
        """The graph with `fn(edge)` as the value of each edge."""

        def derive(edges: PCollection[Any], vertices: PCollection[Any]) -> Any:
            check_function("map_edges", "fn", fn)
            return edges | Map(WithEdgeValue(fn), name="values").with_output_types(Edge), vertices

        return self._derived("map_edges", name, derive)

    def subgraph(
        self,
        vertices: Callable[[K, V], object] | None = None,
        edges: Callable[[Edge[K, E]], object] | None = None,
        *,
        name: str | None = None,
    ) -> Graph[K, V, E]:
        """The vertices for which `vertices(id, value)` is true, and the edges between them for which `edges(edge)` is.

        Without one of the functions all are kept.
        """

        def derive(all_edges: PCollection[Any], all_vertices: PCollection[Any]) -> Any:
            if vertices is None and edges is None:
                raise BuildError(
                    "subgraph needs a condition: vertices=…, a function of (id, value), or edges=…, of an Edge"
                )
            left = all_edges
            if edges is not None:
                check_function("subgraph", "edges", edges)
                left = left | Filter(edges, name="edges")
            if vertices is None:
                return left, all_vertices
            check_function("subgraph", "vertices", vertices)
            kept = all_vertices | Filter(KeptVertex(vertices), name="vertices")
            return induced(left, kept), kept

        return self._derived("subgraph", name, derive)

    def k_core(self, k: int, *, name: str | None = None) -> Graph[K, V, E]:
        """The largest part of the graph in which every vertex has edges to at least `k` others, whatever their
        direction."""
        core = self.core_numbers(name=name and f"{name}: core numbers")

        def derive(edges: PCollection[Any], vertices: PCollection[Any], cores: PCollection[Any]) -> Any:
            if isinstance(k, bool) or not isinstance(k, int) or k < 0:
                raise BuildError(f"k is a number of neighbours, at least 0, not {shorten(k)}")
            of_joined = Map(vertex_of_joined, name="vertices").with_output_types(vertices.element_type)
            with pure_steps():
                inside = cores | Filter(InCore(k), name="core")
                kept = vertices | Join.inner(inside) | of_joined
                return induced(edges, kept), kept

        return self._derived("k_core", name, derive, core)

    def degrees(self, *, name: str | None = None) -> PCollection[tuple[K, int]]:
        """`(id, number of edges)` of each vertex. A loop counts twice."""
        return self._counted("degrees", name, ends_of)

    def out_degrees(self, *, name: str | None = None) -> PCollection[tuple[K, int]]:
        """`(id, number of edges that leave it)` of each vertex. An edge of an undirected graph leaves both of its
        vertices, a loop its only one."""
        return self._counted("out_degrees", name, source_of if self.directed else different_ends_of)

    def in_degrees(self, *, name: str | None = None) -> PCollection[tuple[K, int]]:
        """`(id, number of edges that enter it)` of each vertex. An edge of an undirected graph enters both of its
        vertices, a loop its only one."""
        return self._counted("in_degrees", name, target_of if self.directed else different_ends_of)

    def local(
        self,
        fn: Callable[[Any], Any],
        to: Literal["networkx", "rustworkx", "igraph"] = "networkx",
        *,
        name: str | None = None,
    ) -> PCollection[tuple[K, Any]]:
        """`(id, value)` for what `fn` returns for a vertex, when it is called once with the whole graph as one of a
        library of graphs.

        `fn` returns a mapping of vertices to values or, of `rustworkx` and `igraph`, whose vertices are numbers, a
        sequence with a value for each vertex. In a graph of `networkx` vertices are their ids; one with several edges
        between the same vertices is a MultiGraph. The value of an edge is its attribute `weight`, and that of a vertex
        `value`; in `igraph` an id is the attribute `name`. In `rustworkx` ids and values are the payloads. The graph
        has to fit in the memory of one process. Raises BuildError if the library is missing.
        """
        result: PCollection[tuple[K, Any]] = self._arrays.pipeline.apply(
            Local(fn, to, key_type(self.vertices), name), self._arrays
        )
        return result

    def _derived(
        self, title: str, name: str | None, derive: Derive, *more: PCollection[Any], directed: bool | None = None
    ) -> Graph[Any, Any, Any]:
        directed = self.directed if directed is None else directed
        return _graph(
            self._apply(DerivedGraph(derive, directed, title, name), self.edges, self.vertices, *more), directed
        )

    def _counted(self, title: str, name: str | None, of: Callable[[Edge[K, E]], Any]) -> PCollection[tuple[K, int]]:
        result: PCollection[tuple[K, int]] = self._apply(CountedEdges(of, title, name), self.edges, self.vertices)
        return result


def _graph(parts: Parts, directed: bool) -> Graph[Any, Any, Any]:
    made: Graph[Any, Any, Any] = Graph.__new__(Graph)
    GraphParts.__init__(made, parts, directed)
    return made
