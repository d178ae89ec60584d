"""The answers of the algorithms are those of networkx: on random graphs, and on large ones of a simple form."""

from __future__ import annotations

from collections import Counter
from typing import Any

import networkx as nx
import numpy as np
import pytest
from networkx.algorithms.link_analysis.hits_alg import _hits_python
from networkx.algorithms.link_analysis.pagerank_alg import _pagerank_python

import tidegate as tg
from tests.support.random_graphs import RandomGraph, random_graph
from tidegate.graph import Edge, Graph

CLOSE = 1e-5


def further(distance: Any, edge: Edge[Any, Any]) -> Any:
    """How far it is to the end of an edge."""
    return None if distance is None else distance + (edge.value or 1)


def nearer(distance: Any, other: Any) -> Any:
    """The lesser of two distances, of which the first may be unknown."""
    return other if distance is None else min(distance, other)


def answers(graph: RandomGraph, runner: str = "direct") -> dict[str, dict[Any, Any]]:
    """What the algorithms and programs give for a graph, by their names, in one run."""
    p = tg.Pipeline(options=["--runner", runner])
    edges = p | "edges" >> tg.Create(graph.edges).with_output_types(tuple)
    g: Any = Graph(
        edges, p | "vertices" >> tg.Create(graph.vertices).with_output_types(tuple[Any, Any]), graph.directed
    )
    results = {
        "pagerank": g.pagerank(by=1e-10),
        "hits": g.hits(by=1e-10, rounds=500),
        "components": g.connected_components(),
        "labels": g.label_propagation(5),
        "cores": g.core_numbers(),
        "2-core": g.k_core(2).vertices,
        "triangles": g.triangles(),
        "degrees": g.degrees(),
        "out": g.out_degrees(),
        "in": g.in_degrees(),
    }
    if graph.vertices:
        source = graph.vertices[0][0]
        results["distances"] = g.shortest_paths(source)
        results["by program"] = g.pregel(further, min, nearer, lambda id, _: 0 if id == source else None)
        results["components by arrays"] = g.undirected().pregel(
            pass_on, min, np.minimum, lambda ids, _: np.arange(len(ids)), arrays=True
        )
    named = [pairs | f"named {name}" >> tg.Map(lambda pair, n=name: (n, pair)) for name, pairs in results.items()]
    found: dict[str, dict[Any, Any]] = {name: {} for name in results}
    for name, (id, value) in (named | tg.Flatten()).collect(limit=None):
        assert id not in found[name]
        found[name][id] = value
    return found


def pass_on(labels: Any, edges: Any) -> Any:
    """A message that is the state itself."""
    return labels


def labels_by_hand(graph: Any, rounds: int) -> dict[Any, Any]:
    """Label propagation as a loop over vertices; labels are the places of vertices in their order."""
    order = sorted(graph) if len({type(id) for id in graph}) <= 1 else None
    labels = {id: place for place, id in enumerate(order or [])}
    if order is None:
        return {}
    for _ in range(rounds):
        new = {}
        for id in graph:
            seen = Counter(labels[other] for _, other in both_ways(graph, id))
            new[id] = min(seen, key=lambda label: (-seen[label], label)) if seen else labels[id]
        labels = new
    return {id: order[label] for id, label in labels.items()}


def both_ways(graph: Any, id: Any) -> list[tuple[Any, Any]]:
    """The edges of a vertex, seen from it; a loop is one."""
    leaving = list(graph.edges(id))
    if not graph.is_directed():
        return leaving
    return leaving + [(target, source) for source, target in graph.in_edges(id) if source != target]


def check(graph: RandomGraph, found: dict[str, dict[Any, Any]]) -> None:
    """Compare the answers for a graph with those of networkx."""
    known, simple = graph.in_networkx(), graph.simple()
    ranks = _pagerank_python(known, tol=1e-12, max_iter=1000) if len(known) else {}
    assert found["pagerank"] == pytest.approx(ranks, abs=CLOSE)
    merged = nx.DiGraph()
    merged.add_nodes_from(known)
    for source, target, _ in known.to_directed().edges:
        merged.add_edge(source, target, weight=merged.get_edge_data(source, target, {"weight": 0})["weight"] + 1)
    if merged.number_of_edges():
        try:
            hubs, authorities = _hits_python(merged, max_iter=400, tol=1e-10)
        except nx.PowerIterationFailedConvergence:
            # The two largest singular values are next to equal: after 500 rounds the scores are still on their way.
            hubs, authorities = ({id: pair[n] for id, pair in found["hits"].items()} for n in (0, 1))
            assert [sum(hubs.values()), sum(authorities.values())] == pytest.approx([1, 1])
        assert {id: hub for id, (hub, _) in found["hits"].items()} == pytest.approx(hubs, abs=CLOSE)
        assert {id: other for id, (_, other) in found["hits"].items()} == pytest.approx(authorities, abs=CLOSE)
    else:
        assert set(found["hits"].values()) <= {(0.0, 0.0), (1.0, 0.0)}
    components = {frozenset(each) for each in nx.connected_components(simple)}
    for name in ("components", "components by arrays"):
        groups: dict[Any, set[Any]] = {}
        for id, label in found.get(name, {}).items():
            groups.setdefault(label, set()).add(id)
        assert {frozenset(each) for each in groups.values()} == components
    assert all(label in simple for label in found["components"].values())
    if expected := labels_by_hand(known, 5):
        assert found["labels"] == expected
        assert all(label == min(nx.node_connected_component(simple, id)) for id, label in found["components"].items())
    assert found["cores"] == nx.core_number(simple)
    assert found["2-core"].keys() == set(nx.k_core(simple, 2))
    assert found["triangles"] == nx.triangles(simple)
    assert found["degrees"] == dict(known.degree())
    if graph.directed:
        assert found["out"] == dict(known.out_degree())
        assert found["in"] == dict(known.in_degree())
    if graph.vertices:
        distances = nx.single_source_dijkstra_path_length(known, graph.vertices[0][0])
        assert found["distances"] == distances
        assert {id: far for id, far in found["by program"].items() if far is not None} == distances
        assert found["by program"].keys() == set(known)


def test_answers_for_random_graphs_are_those_of_networkx(pytestconfig: pytest.Config) -> None:
    for seed in range(pytestconfig.getoption("--graphs")):
        graph = random_graph(seed)
        try:
            check(graph, answers(graph))
        except AssertionError as error:
            raise AssertionError(f"random_graph({seed}), {graph}: {error}") from error


@pytest.mark.xdist_group("spark")
def test_answers_on_spark_are_those_of_networkx(spark_session: Any, pytestconfig: pytest.Config) -> None:
    for seed in range(1, 1 + max(1, pytestconfig.getoption("--graphs") // 10)):
        graph = random_graph(seed)
        check(graph, answers(graph, "spark"))
