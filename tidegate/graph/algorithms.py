"""The algorithms of a graph, which compute with arrays."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from tidegate.graph.array_loop import OnArrays, need_numpy
from tidegate.graph.building import key_type
from tidegate.graph.parts import GraphParts
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import pair_type

K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E")

DISTANCE: Final = 1e-8
"""By how much scores may move in the last round, unless the author says it."""

EDGES: Final = 64
"""By how many edges ways may become longer in a round, unless the author says how many rounds there are."""


class GraphAlgorithms(GraphParts[K, V, E]):
    """Algorithms, each of which gives a value for each vertex."""

    def pagerank(
        self,
        damping: float = 0.85,
        *,
        rounds: int | None = None,
        by: float | None = None,
        weighted: bool = True,
        strict: bool = False,
        name: str | None = None,
    ) -> PCollection[tuple[K, float]]:
        """`(id, rank)` of each vertex: the share of a random walk's time that it spends there. Ranks add up to 1.

        The walk follows an edge that leaves a vertex with the probability `damping`, and otherwise, or if there is
        none, goes anywhere. Edges are chosen by their values, if they have any and unless `weighted` is False. It is
        over after `rounds`, or when no rank has moved by more than `by` (1e-8, if neither is given).
        """
        need_numpy("pagerank")
        from tidegate.graph.ranking import PageRank

        if not isinstance(damping, (int, float)) or not 0 <= damping <= 1:
            raise BuildError(
                f"damping is the share of its rank that a vertex passes on, from 0 to 1, not {shorten(damping)}"
            )
        program = PageRank(damping, _distance(by, rounds), weighted)
        ends = by is not None or rounds is None
        return self._loop(program, float, rounds, ends=ends, strict=strict, name=name)

    def hits(
        self,
        *,
        rounds: int | None = None,
        by: float | None = None,
        strict: bool = False,
        name: str | None = None,
    ) -> PCollection[tuple[K, tuple[float, float]]]:
        """`(id, (hub, authority))` of each vertex: hubs have edges to authorities. Each kind of score adds up to 1.
        The values of edges don't count.

        It is over after `rounds`, or when no score has moved by more than `by` (1e-8, if neither is given).
        """
        need_numpy("hits")
        from tidegate.graph.ranking import Hits

        ends = by is not None or rounds is None
        program = Hits(_distance(by, rounds))
        return self._loop(program, tuple[float, float], rounds, ends=ends, strict=strict, name=name)

    def shortest_paths(
        self, source: K, *, weighted: bool = True, rounds: int | None = None, name: str | None = None
    ) -> PCollection[tuple[K, float]]:
        """`(id, distance)` of each vertex that can be reached from `source`: the least sum of values of edges.

        If no edge has a value, or with `weighted=False`, all have the length 1. After `rounds` distances are those of
        ways with at most so many edges. The run fails if there is no such vertex, if a value is no number or negative,
        or if a distance is greater than any float.
        """
        need_numpy("shortest_paths")
        from tidegate.graph.array_programs import ShortestPaths

        program = ShortestPaths(source, weighted, EDGES if rounds is None else 1)
        return self._loop(program, float, rounds, ends=rounds is None, name=name)

    def connected_components(self, *, name: str | None = None) -> PCollection[tuple[K, K]]:
        """`(id, component)` of each vertex: the least id of those connected with it, by edges of any direction.

        Ids that can't be compared, such as `1` and `"a"`, are ordered by their encoding as keys.
        """
        need_numpy("connected_components")
        from tidegate.graph.communities import ConnectedComponents

        return self._loop(ConnectedComponents(), key_type(self.vertices), name=name)

    def label_propagation(self, rounds: int, *, name: str | None = None) -> PCollection[tuple[K, K]]:
        """`(id, label)` of each vertex: vertices that mostly have edges to one another get the same label, an id.

        Vertices begin with their ids. In each of `rounds`, all take the label that most of their edges of any direction
        lead to, of several the least.
        """
        need_numpy("label_propagation")
        from tidegate.graph.communities import LabelPropagation

        if rounds is None:
            raise BuildError("label_propagation needs rounds: labels may go to and fro for ever")
        return self._loop(LabelPropagation(), key_type(self.vertices), rounds, ends=False, name=name)

    def core_numbers(self, *, name: str | None = None) -> PCollection[tuple[K, int]]:
        """`(id, k)` of each vertex: the largest k for which it is in the k-core, in which all have k neighbours.

        Directions, loops and further edges between the same vertices don't count.
        """
        need_numpy("core_numbers")
        from tidegate.graph.cores import CoreNumbers

        return self._loop(CoreNumbers(), int, name=name)

    def triangles(self, *, name: str | None = None) -> PCollection[tuple[K, int]]:
        """`(id, number of triangles)` of each vertex. Their sum is three times the number of triangles.

        Directions, loops and further edges between the same vertices don't count.
        """
        need_numpy("triangles")
        from tidegate.graph.cores import triangles

        step = OnArrays(triangles, "Triangles", pair_type(key_type(self.vertices), int), name)
        result: PCollection[tuple[K, int]] = self._arrays.pipeline.apply(step, self._arrays)
        return result


def _distance(by: Any, rounds: int | None) -> float:
    """The distance by which scores may move in the last round."""
    if by is None:
        return DISTANCE
    if isinstance(by, bool) or not isinstance(by, (int, float)) or not by >= 0:
        raise BuildError(f"by is a distance of at least 0, not {shorten(by)}")
    return by
