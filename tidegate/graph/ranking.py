"""PageRank and HITS: ranks of vertices by the edges between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.graph.array_loop import ArrayProgram
from tidegate.graph.arrays import GraphArrays, Numbers
from tidegate.sdk.errors import shorten

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """The ways along edges, with the share of its rank that a vertex passes on over each."""

    graph: GraphArrays
    sources: Numbers
    targets: Numbers
    per_vertex: Floats
    """The share by source, where all of a vertex's edges weigh the same: 1 / their number, or 0 without edges."""
    per_edge: Floats | None
    """The share by edge, if edges have weights."""
    ends: Numbers
    """The vertices that pass on nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The ranks after a round."""

    ranks: Floats
    again: bool = True


@dataclass(frozen=True, slots=True)
class PageRank(ArrayProgram[Links, Ranks]):
    """A vertex passes `damping` of its rank on to those it has edges to; one without edges, to all."""

    title: ClassVar[str] = "PageRank"

    damping: float
    by: float
    weighted: bool

    def constants(self, graph: GraphArrays) -> Links:
        sources, targets, edge = graph.ways()
        weights = graph.weights("pagerank")[edge] if self.weighted else None
        if weights is not None and len(weights) and not (weights.min() >= 0 and weights.max() < np.inf):
            given = graph.weights("pagerank")
            at = np.flatnonzero(~((given >= 0) & (given < np.inf)))[0]
            raise ValueError(f"pagerank takes finite weights of at least 0: {graph.shown_edge(at)}")
        total = _sums(sources, weights, graph.size)
        if weights is not None and not total.max(initial=0.0) < np.inf:  # only the shares of a vertex's edges count
            weights = np.where(np.isinf(total)[sources], weights * 2.0**-64, weights)
            total = _sums(sources, weights, graph.size)
        ends = np.flatnonzero(total == 0)
        with np.errstate(over="ignore"):
            share = np.divide(1.0, total, out=np.zeros(graph.size), where=total > 0)
        if not share.max(initial=0.0) < np.inf:
            vertex = shorten(graph.listed_ids()[int(share.argmax())], 40)
            raise ValueError(f"pagerank: the weights of the edges of {vertex} are too small to be divided by their sum")
        return Links(graph, sources, targets, share, None if weights is None else weights * share[sources], ends)

    def begin(self, constants: Links) -> Ranks:
        size = constants.graph.size
        return Ranks(np.full(size, 1 / max(size, 1)))

    def step(self, state: Ranks, constants: Links) -> Ranks:
        size, ranks = constants.graph.size, state.ranks
        if constants.per_edge is None:
            passed = (ranks * constants.per_vertex)[constants.sources]
        else:
            passed = ranks[constants.sources] * constants.per_edge
        everywhere = (1 - self.damping + self.damping * ranks[constants.ends].sum()) / max(size, 1)
        new = _sums(constants.targets, passed, size)
        new *= self.damping
        new += everywhere
        return Ranks(new, not _moved(ranks, new) <= self.by)

    def result(self, state: Ranks, constants: Links) -> Iterable[tuple[Any, float]]:
        return zip(constants.graph.listed_ids(), state.ranks.tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """Hubs and authorities after a round."""

    hubs: Floats
    authorities: Floats
    again: bool = True


@dataclass(frozen=True, slots=True)
class Hits(ArrayProgram[GraphArrays, Scores]):
    """A good hub has edges to good authorities, and a good authority has edges from good hubs."""

    title: ClassVar[str] = "HITS"

    by: float

    def constants(self, graph: GraphArrays) -> GraphArrays:
        return graph

    def begin(self, constants: GraphArrays) -> Scores:
        even = np.full(constants.size, 1 / max(constants.size, 1))
        return Scores(even, np.zeros(constants.size))

    def step(self, state: Scores, constants: GraphArrays) -> Scores:
        sources, targets, _ = constants.ways()
        authorities = _of_one(_sums(targets, state.hubs[sources], constants.size))
        hubs = _of_one(_sums(sources, authorities[targets], constants.size))
        moved = max(_moved(state.hubs, hubs), _moved(state.authorities, authorities))
        return Scores(hubs, authorities, not moved <= self.by)

    def result(self, state: Scores, constants: GraphArrays) -> Iterator[tuple[Any, tuple[float, float]]]:
        pairs = zip(state.hubs.tolist(), state.authorities.tolist())
        yield from zip(constants.listed_ids(), pairs)


def _sums(vertices: Numbers, weights: Floats | None, size: int) -> Floats:
    """For each vertex the sum of weights, or the number of its mentions."""
    return np.asarray(np.bincount(vertices, weights, size), np.float64)


def _moved(old: Floats, new: Floats) -> float:
    return float(np.abs(new - old).max(initial=0.0))


def _of_one(scores: Floats) -> Floats:
    """The scores, so that their sum is 1, or all are 0."""
    total = float(scores.sum())
    return scores / total if total else scores
