"""Long paths, large stars and blocks of arrays, and the same answers on the other runners."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

import tidegate as tg
from tidegate.graph import Graph

PATH = 2_000
SEVERAL = [("a", "b", 2), ("b", "c", 3), ("c", "a", 1), ("a", "c", 9), ("d", "d", 1), ("e", "f", 4), ("e", "f", 2)]
"""Edges with a triangle, a loop, and several between two vertices."""


def path_and_star(p: Any, directed: bool = False) -> Any:
    """A path of 2,000 vertices, and a star of as many, whose ids are negative, in blocks of arrays."""
    ids = np.arange(PATH)
    blocks = [(ids[:-1], ids[1:]), (np.full(PATH, -1), -2 - ids)]
    return Graph.from_arrays(p | tg.Create(blocks).with_output_types(tuple), directed=directed)


def test_a_long_path_is_followed_to_its_end() -> None:
    with tg.Pipeline(options=["--runner", "direct"]) as p:
        found = path_and_star(p).shortest_paths(0).collect(limit=None)
    assert sorted(found) == [(n, float(n)) for n in range(PATH)]


def test_components_and_cores_of_a_path_and_a_star_take_few_rounds() -> None:
    p = tg.Pipeline(options=["--runner", "direct"])
    graph = path_and_star(p)
    parts = graph.connected_components() | "tag" >> tg.Map(lambda pair: ("component", pair))
    cores = graph.core_numbers() | "tag cores" >> tg.Map(lambda pair: ("core", pair))
    found = ((parts, cores) | tg.Flatten() | tg.combiners.ToList()).collect(limit=None)[0]
    lowest = -1 - PATH
    assert sorted(pair for name, pair in found if name == "component") == sorted(
        [(id, lowest) for id in range(lowest, 0)] + [(id, 0) for id in range(PATH)]
    )
    assert {pair[1] for name, pair in found if name == "core"} == {1}


def test_triangles_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    from tidegate.graph import cores
    from tidegate.graph.arrays import graph_arrays

    made = nx.gnp_random_graph(60, 0.3, seed=4)
    ends = np.array(made.edges)
    graph = graph_arrays(None, [(ends[:, 0], ends[:, 1], None)], [], False)
    whole = dict(cores.triangles(graph))
    monkeypatch.setattr(cores, "PAIRS_AT_ONCE", 50)
    assert dict(cores.triangles(graph)) == whole == nx.triangles(made)


@pytest.mark.parametrize(
    "runner", ["direct", "streaming", pytest.param("spark", marks=pytest.mark.xdist_group("spark"))]
)
def test_answers_are_the_same_on_each_runner(runner: str, request: pytest.FixtureRequest) -> None:
    if runner == "spark":
        request.getfixturevalue("spark_session")
    p = tg.Pipeline(options=["--runner", runner])
    edges = p | tg.Create(SEVERAL).with_output_types(tuple)
    graph: Any = Graph(edges)
    found = {
        "components": graph.connected_components(),
        "farther": graph.pregel(
            lambda far, edge: far + edge.value if far >= 0 else None, min, lambda far, near: near if far < 0 else
            min(far, near), lambda id, _: 0 if id == "a" else -1
        ),
    }  # fmt: skip
    named = [pairs | f"named {name}" >> tg.Map(lambda pair, n=name: (n, pair)) for name, pairs in found.items()]
    results = (named | tg.Flatten()).collect(limit=None)
    distances = {("a", 0), ("b", 2), ("c", 5), ("d", -1), ("e", -1), ("f", -1)}
    assert {pair for name, pair in results if name == "farther"} == distances
    labels = zip("abcdef", "aaadee")
    assert {pair for name, pair in results if name == "components"} == set(labels)
