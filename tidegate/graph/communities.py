"""Connected components, and communities by label propagation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tidegate.graph.array_loop import ArrayProgram
from tidegate.graph.arrays import GraphArrays, Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """The root of each vertex's tree, and the edges between different trees, as pairs of roots."""

    roots: Numbers
    ones: Numbers
    others: Numbers

    @property
    def again(self) -> bool:
        return len(self.ones) > 0


@dataclass(frozen=True, slots=True)
class ConnectedComponents(ArrayProgram[GraphArrays, Trees]):
    """In each round a root joins the least of the neighbouring roots that are less than it."""

    title: ClassVar[str] = "ConnectedComponents"

    def constants(self, graph: GraphArrays) -> GraphArrays:
        return graph

    def begin(self, constants: GraphArrays) -> Trees:
        between = constants.sources != constants.targets
        return Trees(np.arange(constants.size), constants.sources[between], constants.targets[between])

    def step(self, state: Trees, constants: GraphArrays) -> Trees:
        roots = state.roots.copy()
        np.minimum.at(roots, np.maximum(state.ones, state.others), np.minimum(state.ones, state.others))
        while True:
            above = roots[roots]
            if np.array_equal(above, roots):
                break
            roots = above
        ones, others = roots[state.ones], roots[state.others]
        apart = ones != others
        return Trees(roots, ones[apart], others[apart])

    def result(self, state: Trees, constants: GraphArrays) -> Iterator[tuple[Any, Any]]:
        ids = constants.listed_ids()
        yield from zip(ids, map(ids.__getitem__, state.roots.tolist()))


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The label of each vertex, which is the number of a vertex."""

    labels: Numbers
    again: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours:
    """The ways between vertices, in both directions."""

    graph: GraphArrays
    sources: Numbers
    targets: Numbers


@dataclass(frozen=True, slots=True)
class LabelPropagation(ArrayProgram[Neighbours, Labels]):
    """In each round all vertices take the label that most of their edges lead to, of several the least."""

    title: ClassVar[str] = "LabelPropagation"

    def constants(self, graph: GraphArrays) -> Neighbours:
        sources, targets, _ = graph.both_ways()
        return Neighbours(graph, sources, targets)

    def begin(self, constants: Neighbours) -> Labels:
        return Labels(np.arange(constants.graph.size))

    def step(self, state: Labels, constants: Neighbours) -> Labels:
        if not state.again:
            return state
        size = max(constants.graph.size, 1)
        found, count = np.unique(constants.targets * size + state.labels[constants.sources], return_counts=True)
        vertices, labels = found // size, found % size
        order = np.lexsort((labels, -count, vertices))
        vertices, labels = vertices[order], labels[order]
        first = np.diff(vertices, prepend=-1) > 0
        new = state.labels.copy()
        new[vertices[first]] = labels[first]
        return Labels(new, not np.array_equal(new, state.labels))

    def result(self, state: Labels, constants: Neighbours) -> Iterator[tuple[Any, Any]]:
        ids = constants.graph.listed_ids()
        yield from zip(ids, map(ids.__getitem__, state.labels.tolist()))
