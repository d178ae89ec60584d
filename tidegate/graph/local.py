"""A graph handed to a library of graphs: networkx, rustworkx or igraph, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from tidegate.graph.array_loop import need_numpy
from tidegate.graph.edges import check_function
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import FlatMap, pair_type
from tidegate.sdk.steps.transform import Transform
from tidegate.sdk.user_code.user_fn import name_of

if TYPE_CHECKING:
    from tidegate.graph.arrays import GraphArrays


def _networkx(graph: GraphArrays) -> Any:
    import networkx as nx

    ids = graph.listed_ids()
    if any(id is None for id in ids):
        raise ValueError("networkx has no node None: give the vertex another id, or use to='rustworkx' or to='igraph'")
    ends = list(zip(map(ids.__getitem__, graph.sources.tolist()), map(ids.__getitem__, graph.targets.tolist())))
    distinct = set(ends) if graph.directed else set(map(frozenset, ends))
    several = len(distinct) < len(ends)
    kinds = ((nx.Graph, nx.MultiGraph), (nx.DiGraph, nx.MultiDiGraph))
    made: Any = kinds[graph.directed][several]()
    for id, value in zip(ids, _vertex_values(graph)):
        made.add_node(id) if value is None else made.add_node(id, value=value)
    for (source, target), value in zip(ends, _edge_values(graph)):
        made.add_edge(source, target) if value is None else made.add_edge(source, target, weight=value)
    return made


def _rustworkx(graph: GraphArrays) -> Any:
    import rustworkx as rx

    made = rx.PyDiGraph() if graph.directed else rx.PyGraph()
    made.add_nodes_from(graph.listed_ids())
    made.add_edges_from(list(zip(graph.sources.tolist(), graph.targets.tolist(), _edge_values(graph))))
    return made


def _igraph(graph: GraphArrays) -> Any:
    import igraph as ig

    made = ig.Graph(
        n=graph.size, edges=list(zip(graph.sources.tolist(), graph.targets.tolist())), directed=graph.directed
    )
    made.vs["name"] = graph.listed_ids()
    if graph.vertex_values is not None:
        made.vs["value"] = graph.vertex_values
    if graph.edge_values is not None:
        made.es["weight"] = _edge_values(graph)
    return made


MAKERS: Final[dict[str, Callable[[GraphArrays], Any]]] = {
    "networkx": _networkx,
    "rustworkx": _rustworkx,
    "igraph": _igraph,
}
"""The libraries, each with what makes its graph."""


class Local(Transform):
    """Calls a function with the whole graph, and emits a value for each vertex: see `Graph.local`."""

    def __init__(self, fn: Callable[[Any], Any], to: str, key: Any, name: str | None) -> None:
        self.fn = fn
        self.to = to
        self.key = key
        self.label = name

    def default_label(self) -> str:
        return f"local({name_of(self.fn)})"

    def expand(self, input: PCollection[GraphArrays]) -> PCollection[tuple[Any, Any]]:
        check_function("local", "fn", self.fn)
        if self.to not in list(MAKERS):  # a list has no need of a hash
            raise BuildError(f"local hands a graph to one of {', '.join(map(repr, MAKERS))}, not to {shorten(self.to)}")
        if find_spec(self.to) is None:
            raise BuildError(f"local(to={self.to!r}) needs the package {self.to}: pip install {self.to}")
        need_numpy("Graph.local")
        call: Any = FlatMap(_Called(self.fn, self.to), name="call")
        result: PCollection[tuple[Any, Any]] = input | call.with_output_types(pair_type(self.key, Any))
        return result


@dataclass(frozen=True, slots=True)
class _Called:
    fn: Callable[[Any], Any]
    to: str

    def __call__(self, graph: GraphArrays) -> Iterator[tuple[Any, Any]]:
        ids = graph.listed_ids()
        result = self.fn(MAKERS[self.to](graph))
        match result:
            case _ if hasattr(result, "items"):
                by_name = dict(zip(ids, ids)) if self.to == "networkx" else dict(enumerate(ids))
                for vertex, value in result.items():
                    if vertex not in by_name:
                        raise ValueError(
                            f"{name_of(self.fn)} returned a value for {shorten(vertex, 40)}, which is no vertex"
                        )
                    yield by_name[vertex], value
            case str() | bytes():
                raise self._unfit(result, ids)
            case _ if self.to != "networkx" and isinstance(result, Sequence) and len(result) == len(ids):
                yield from zip(ids, result)
            case _:
                raise self._unfit(result, ids)

    def _unfit(self, result: Any, ids: list[Any]) -> ValueError:
        wanted = "a mapping of vertices to values"
        if self.to != "networkx":
            wanted += f", or a sequence of a value for each of the {len(ids)} vertices"
        return ValueError(f"{name_of(self.fn)} must return {wanted}, not {shorten(result, 80)}")


def _edge_values(graph: GraphArrays) -> list[Any]:
    match graph.edge_values:
        case None:
            return [None] * len(graph.sources)
        case list() as values:
            return values
        case values:
            return list(values.tolist())


def _vertex_values(graph: GraphArrays) -> list[Any]:
    return [None] * graph.size if graph.vertex_values is None else graph.vertex_values
