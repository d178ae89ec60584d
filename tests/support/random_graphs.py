"""Random graphs, with the corner cases of graphs among them, as edges and vertices and as a graph of networkx."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import networkx as nx

IDS: list[Callable[[int], Hashable]] = [
    lambda n: n,
    lambda n: n * 1_000_003 - 10**12,
    lambda n: f"v{n:02}",
    lambda n: (n % 3, f"{n}"),
    lambda n: n if n % 2 else str(n),
]
"""How the vertices of a graph are called."""


@dataclass(frozen=True)
class RandomGraph:
    """A graph to compare the answers for."""

    edges: list[tuple[Any, ...]]
    vertices: list[tuple[Any, None]]
    directed: bool

    def in_networkx(self) -> Any:
        """The same graph, with all of its edges."""
        made: Any = nx.MultiDiGraph() if self.directed else nx.MultiGraph()
        made.add_nodes_from(id for id, _ in self.vertices)
        for source, target, *weight in self.edges:
            made.add_edge(source, target, weight=weight[0] if weight else 1)
        return made

    def simple(self) -> Any:
        """Its undirected graph of networkx, without loops and several edges between the same vertices."""
        made = nx.Graph(self.in_networkx().to_undirected())
        made.remove_edges_from(list(nx.selfloop_edges(made)))
        return made


def random_graph(seed: int) -> RandomGraph:
    """The graph with this number; the first ones are the corner cases."""
    chance = random.Random(seed)
    size = chance.randint(1, 14)
    any_pair = [(chance.randrange(size), chance.randrange(size)) for _ in range(chance.randint(0, 3 * size))]
    kinds: list[Callable[[], tuple[int, list[tuple[int, int]]]]] = [
        lambda: (0, []),
        lambda: (size, []),
        lambda: (size, [(n, n) for n in range(size)]),
        lambda: (size, [(0, n) for n in range(size)]),
        lambda: (size, [(n, n - 1) for n in range(1, size)]),
        lambda: (size, any_pair + any_pair[: len(any_pair) // 2]),
        lambda: (2 * size, any_pair + [(a + size, b + size) for a, b in any_pair]),
        lambda: (size, [(a, b) for a in range(size) for b in range(a)]),
    ]
    count, pairs = kinds[seed]() if seed < len(kinds) else chance.choice([*kinds, *[lambda: (size, any_pair)] * 8])()
    name, weighted = chance.choice(IDS), chance.random() < 0.5
    edges: list[tuple[Any, ...]] = [(name(a), name(b)) for a, b in pairs]
    if weighted:
        edges = [(*edge, chance.randint(1, 9)) for edge in edges]
    return RandomGraph(edges, [(name(n), None) for n in range(count)], chance.random() < 0.5)
