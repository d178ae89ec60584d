"""Core numbers, by peeling, and triangles, by the order of degrees: both over simple, undirected edges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tidegate.graph.array_loop import ArrayProgram
from tidegate.graph.arrays import GraphArrays, Numbers

PAIRS_AT_ONCE = 1 << 22
"""How many pairs of neighbours are looked at in one piece, which bounds the memory that they take."""


@dataclass(frozen=True, slots=True, eq=False)
class Adjacency:
    """The neighbours of vertex v are `targets[starts[v]:starts[v + 1]]`."""

    graph: GraphArrays
    starts: Numbers
    targets: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Peeled:
    """The core numbers of the vertices that have been taken away, and the degrees of those that are left."""

    cores: Numbers
    degrees: Numbers
    left: npt.NDArray[np.bool_]

    @property
    def again(self) -> bool:
        return bool(self.left.any())


@dataclass(frozen=True, slots=True)
class CoreNumbers(ArrayProgram[Adjacency, Peeled]):
    """A round takes away vertices of the least degree, k, until all that are left have more neighbours than k."""

    title: ClassVar[str] = "CoreNumbers"

    def constants(self, graph: GraphArrays) -> Adjacency:
        sources, targets = graph.neighbours()
        return Adjacency(graph, _starts(sources, graph.size), targets)

    def begin(self, constants: Adjacency) -> Peeled:
        size = constants.graph.size
        return Peeled(np.zeros(size, np.intp), np.diff(constants.starts), np.ones(size, bool))

    def step(self, state: Peeled, constants: Adjacency) -> Peeled:
        if not state.again:
            return state
        cores, degrees, left = state.cores.copy(), state.degrees.copy(), state.left.copy()
        k = int(degrees[left].min())
        gone = np.flatnonzero(left & (degrees <= k))
        while len(gone):
            left[gone] = False
            cores[gone] = k
            touched, lost = np.unique(_neighbours(constants, gone), return_counts=True)
            degrees[touched] -= lost
            gone = touched[left[touched] & (degrees[touched] <= k)]
        return Peeled(cores, degrees, left)

    def result(self, state: Peeled, constants: Adjacency) -> Iterable[tuple[Any, int]]:
        return zip(constants.graph.listed_ids(), state.cores.tolist())


def triangles(graph: GraphArrays) -> Iterator[tuple[Any, int]]:
    """The number of triangles that each vertex is in.

    Every edge points to the vertex of the higher degree, so that a triangle is found once, at its least vertex, and no
    vertex has more than √(2 · edges) neighbours to make pairs of.
    """
    sources, targets = graph.neighbours()
    order = np.lexsort((np.arange(graph.size), np.bincount(sources, minlength=graph.size)))
    place = np.empty(graph.size, np.intp)
    place[order] = np.arange(graph.size)
    sources, targets = place[sources], place[targets]
    up = sources < targets
    size = max(graph.size, 1)
    keys = np.sort(sources[up] * size + targets[up])
    sources, targets = keys // size, keys % size
    ends = _starts(sources, graph.size)[sources + 1] if len(keys) else keys
    later = ends - np.arange(len(keys)) - 1  # the edges of the same vertex that follow each edge
    found = np.zeros(graph.size, np.intp)
    pairs = np.cumsum(later)
    begin = 0
    while begin < len(keys):
        done = int(pairs[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(pairs, done + PAIRS_AT_ONCE, "right")))
        first = np.repeat(np.arange(begin, end), later[begin:end])
        second = first + 1 + _within(later[begin:end])
        closing = targets[first] * size + targets[second]
        at = np.searchsorted(keys, closing)
        closed = keys[np.minimum(at, len(keys) - 1)] == closing
        for corner in (sources[first[closed]], targets[first[closed]], targets[second[closed]]):
            found += np.bincount(corner, minlength=graph.size)
        begin = end
    yield from zip(graph.listed_ids(), found[place].tolist())


def _starts(sources: Numbers, size: int) -> Numbers:
    """Where the edges of each vertex begin, in sorted edges; at the end, their number."""
    return np.concatenate([np.zeros(1, np.intp), np.cumsum(np.bincount(sources, minlength=size))])


def _neighbours(adjacency: Adjacency, vertices: Numbers) -> Numbers:
    begins = adjacency.starts[vertices]
    lengths = adjacency.starts[vertices + 1] - begins
    found: Numbers = adjacency.targets[np.repeat(begins, lengths) + _within(lengths)]
    return found


def _within(lengths: Numbers) -> Numbers:
    """0, 1, … for each length, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
