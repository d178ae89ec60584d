"""What graphs refuse, when they are built or run, each with its message."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tests.graph.test_programs import graph_of
from tidegate.graph import Graph


def same(*arguments: Any) -> Any:
    return arguments[0]


def created(elements: list[Any], type_: Any) -> Any:
    return tg.Pipeline(options=["--runner", "direct"]) | tg.Create(elements).with_output_types(type_)


BUILDING: dict[str, tuple[Callable[[], object], str]] = {
    "numbers as edges": (
        lambda: Graph(created([1], int)),
        "an edge is (source, target) or (source, target, value), and these edges are int",
    ),
    "edges of four": (
        lambda: Graph(created([], tuple[int, int, int, int])),
        "an edge is (source, target) or (source, target, value), and these edges are tuple[int, int, int, int]",
    ),
    "a list": (lambda: Graph([(1, 2)]), "Graph takes PCollections, not list"),  # type: ignore[arg-type]
    "windows": (
        lambda: Graph(created([(1, 2)], tuple[int, int]) | tg.WindowInto(tg.FixedWindows(10))),
        "the edges of a Graph are in the global window, not in FixedWindows(size=Duration(10s), "
        "offset=Duration(0s)): apply tg.WindowInto(tg.GlobalWindows())",
    ),
    "several panes": (
        lambda: Graph(
            created([(1, 2)], tuple[int, int])
            | tg.WindowInto(tg.GlobalWindows(), trigger=tg.Repeatedly(tg.AfterCount(1)), accumulation=tg.ACCUMULATING)
        ),
        "the edges of a Graph have the trigger Repeatedly(trigger=AfterCount(n=1)), which can fire more than once, so "
        "a vertex would have several values: apply tg.WindowInto(tg.GlobalWindows())",
    ),
    "endless edges": (
        lambda: Graph(tg.Pipeline() | tg.PeriodicImpulse(1) | tg.Map(lambda at: (1, 2))),
        "a Graph needs bounded edges: on unbounded input it never has all of them",
    ),
    "vertices without values": (
        lambda: Graph(e := created([(1, 2)], tuple[int, int]), e.pipeline | "v" >> tg.Create([1])),
        "Graph takes pairs (key, value), but its input holds int: int given where tuple[Any, Any] is wanted. "
        "tg.WithKeys(fn) makes pairs, with the key that fn returns for an element",
    ),
    "damping": (
        lambda: graph_of().pagerank(damping=85),
        "damping is the share of its rank that a vertex passes on, from 0 to 1, not 85",
    ),
    "distance": (lambda: graph_of().pagerank(by=-1), "by is a distance of at least 0, not -1"),
    "rounds": (lambda: graph_of().hits(rounds=-1), "rounds is a number, at least 0, not -1"),
    "endless labels": (
        lambda: graph_of().label_propagation(None),
        "label_propagation needs rounds: labels may go to and fro for ever",
    ),
    "k": (lambda: graph_of().k_core(1.5), "k is a number of neighbours, at least 0, not 1.5"),
    "no condition": (
        lambda: graph_of().subgraph(),
        "subgraph needs a condition: vertices=…, a function of (id, value), or edges=…, of an Edge",
    ),
    "no function": (lambda: graph_of().map_edges(1), "map_edges takes a function as fn, not 1"),
    "no update": (lambda: graph_of().pregel(same, min, None), "pregel takes a function as update, not None"),
    "no end": (
        lambda: graph_of().gather_sum_apply(same, sum, same),
        "gather_sum_apply would never end: give rounds=…, until=…, or both",
    ),
    "no such combiner": (
        lambda: graph_of().pregel(same, len, same, arrays=True),
        "pregel(arrays=True) combines messages by min, max or sum, not by <built-in function len>",
    ),
    "a round of a vertex": (
        lambda: graph_of().pregel(lambda state, edge, number=tg.DoFn.RoundParam: number, min, same),
        "<lambda>: parameter 'number' asks for tg.DoFn.RoundParam, and functions of pregel are called with vertices "
        "and edges only",
    ),
    "a combiner without hash": (
        lambda: graph_of().pregel(same, [min], same, arrays=True),
        "pregel(arrays=True) combines messages by min, max or sum, not by [<built-in function min>]",
    ),
    "changed over arrays": (
        lambda: graph_of().pregel(same, min, same, changed=same, arrays=True),
        "pregel(arrays=True) compares states by their elements: it takes no changed=…",
    ),
    "no such library": (
        lambda: graph_of().local(same, to="boost"),
        "local hands a graph to one of 'networkx', 'rustworkx', 'igraph', not to 'boost'",
    ),
    "a list of libraries": (
        lambda: graph_of().local(same, to=["networkx"]),
        "local hands a graph to one of 'networkx', 'rustworkx', 'igraph', not to ['networkx']",
    ),
}


@pytest.mark.parametrize("case", BUILDING)
def test_a_graph_is_refused_when_it_is_built(case: str) -> None:
    build, message = BUILDING[case]
    with pytest.raises(tg.BuildError) as caught:
        build()
    assert str(caught.value).splitlines()[0] == message


def test_a_refusal_names_step_and_line() -> None:
    graph = graph_of()
    with pytest.raises(tg.BuildError) as caught:
        graph.subgraph(name="near")
    assert "in step 'near', applied at " in str(caught.value)
    assert "test_refused.py:" in str(caught.value)


def arrays(edges: Any, vertices: Any = None) -> Any:
    p = tg.Pipeline(options=["--runner", "direct"])
    more = None if vertices is None else p | "v" >> tg.Create([vertices]).with_output_types(Any)
    return Graph.from_arrays(p | tg.Create([edges]).with_output_types(Any), more)


RUNNING: dict[str, tuple[Callable[[], Any], str]] = {
    "an edge of one": (
        lambda: graph_of([(1,)]).edges,
        "an edge is (source, target) or (source, target, value), not (1,)",
    ),
    "a vertex twice": (
        lambda: graph_of(vertices=[("a", 1), ("a", 2)]).vertices,
        "the vertex 'a' is given twice, with the values [1, 2]",
    ),
    "a vertex twice, in arrays": (
        lambda: graph_of(vertices=[("a", 1), ("a", 2)]).triangles(),
        "the vertex 'a' is given twice",
    ),
    "no such source": (
        lambda: graph_of().shortest_paths("moon"),
        "shortest_paths: the graph has no vertex 'moon'",
    ),
    "a negative length": (
        lambda: graph_of([("a", "b", 1), ("b", "c", -2)]).shortest_paths("a"),
        "shortest_paths takes weights of at least 0: the edge from 'b' to 'c' has the value -2",
    ),
    "a way longer than a float": (
        lambda: graph_of([("a", "b", 1e308), ("b", "c", 1e308)]).shortest_paths("a"),
        "shortest_paths: the shortest way to a vertex is longer than any float, 1.8e+308: give lengths in a larger ",
    ),
    "an endless weight": (
        lambda: graph_of([("a", "b", 1.0), ("b", "c", float("inf"))]).pagerank(by=0.1),
        "pagerank takes finite weights of at least 0: the edge from 'b' to 'c' has the value inf",
    ),
    "no number as a weight": (
        lambda: graph_of([("a", "b", 1.0), ("b", "c", float("nan"))]).pagerank(by=0.1),
        "pagerank takes finite weights of at least 0: the edge from 'b' to 'c' has the value nan",
    ),
    "too small a weight": (
        lambda: graph_of([("a", "b", 5e-324)]).pagerank(rounds=1),
        "pagerank: the weights of the edges of 'a' are too small to be divided by their sum",
    ),
    "a name as a weight": (
        lambda: graph_of([("a", "b", "road")]).pagerank(),
        "pagerank takes numbers as the values of edges: the edge from 'a' to 'b' has the value 'road'. With "
        "weighted=False each edge counts as 1",
    ),
    "a weight missing": (
        lambda: graph_of([("a", "b", 1), ("a", "c")]).shortest_paths("a"),
        "shortest_paths takes numbers as the values of edges: the edge from 'a' to 'c' has the value None",
    ),
    "lists as arrays": (
        lambda: arrays(([1], [2])).edges,
        "edges in arrays are (sources, targets) or (sources, targets, values), each a NumPy array, not ([1], [2])",
    ),
    "arrays of different lengths": (
        lambda: arrays((np.arange(2), np.arange(3))).edges,
        "the arrays of a block have one dimension, and the same length, not the shapes [(2,), (3,)]",
    ),
    "NaN as an id": (
        lambda: graph_of([(float("nan"), 1.0), (2.0, 3.0)], []).connected_components(),
        "a key of type float has no canonical encoding: nan: NaN does not equal itself, so it can't be grouped; drop "
        "or replace it before grouping\n  in step 'Graph/arrays', applied at ",
    ),
    "a list as an id": (
        lambda: graph_of([([1], [2])], []).triangles(),
        "a key of type list has no canonical encoding: [1]: it can change; use tuple(key)\n  in step 'Graph/arrays'",
    ),
    "a list as the id of a vertex": (
        lambda: graph_of([("a", "b")], [([1], None)]).pagerank(rounds=1),
        "a key of type list has no canonical encoding: [1]: it can change; use tuple(key)",
    ),
    "NaN in an array": (
        lambda: arrays((np.array([1.5]), np.array([np.nan]))).core_numbers(),
        "a key of type float has no canonical encoding: nan",
    ),
    "nanoseconds as ids": (
        lambda: arrays((np.array([1]), np.array(["2024-05-01"], "datetime64[ns]"))).edges,
        "the targets of a block have the type datetime64[ns], and 2024-05-01T00:00:00.000000000 can't be an id: give "
        "dates, as in array.astype('datetime64[D]'), or numbers, as in array.astype('int64')",
    ),
    "times of a day as ids": (
        lambda: arrays((np.array([1]), np.array([2])), np.array(["2024-05-01T12"], "datetime64[s]")).vertices,
        "the ids of a block have the type datetime64[s], and 2024-05-01T12:00:00 can't be an id: give dates",
    ),
    "no time as an id": (
        lambda: arrays((np.array(["2024-05-01", "NaT"], "datetime64[D]"), np.array([1, 2]))).connected_components(),
        "the sources of a block have the type datetime64[D], and NaT can't be an id",
    ),
    "months as ids": (
        lambda: arrays((np.array([5], "timedelta64[M]"), np.array([1]))).edges,
        "the sources of a block have the type timedelta64[M], and 5 months can't be an id: give timedeltas, as in "
        "array.astype('timedelta64[us]'), or numbers",
    ),
    "masked ids": (
        lambda: arrays((np.ma.array([1, 2], mask=[False, True]), np.array([3, 4]))).edges,
        "the sources of a block are an array that masks some of its entries, and an edge or a vertex can't be left "
        "half out: leave masked entries out of all arrays of the block, or fill them with array.filled(value)",
    ),
    "masked weights": (
        lambda: arrays((np.array([1]), np.array([3]), np.ma.array([2.0], mask=[True]))).pagerank(rounds=1),
        "the values of a block are an array that masks some of its entries",
    ),
    "a message for all edges": (
        lambda: graph_of().pregel(lambda s, e: np.zeros(3), sum, np.add, lambda i, v: np.zeros(len(i)), arrays=True),
        "must return a message for each of 4 edges, not an array of the shape (3,)",
    ),
    "text from a library": (
        lambda: graph_of().local(lambda graph: "many"),
        "must return a mapping of vertices to values, not 'many'",
    ),
    "a stranger": (
        lambda: graph_of().local(lambda graph: {"mars": 1}),
        "returned a value for 'mars', which is no vertex",
    ),
    "a number beyond the last": (
        lambda: graph_of().local(lambda graph: {-1: 1}, to="rustworkx"),
        "returned a value for -1, which is no vertex",
    ),
}


@pytest.mark.parametrize("case", RUNNING)
def test_a_run_fails_for_what_is_no_graph(case: str) -> None:
    build, message = RUNNING[case]
    with pytest.raises(tg.RunError) as caught:
        build().collect(limit=None)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("missing", "build", "message"),
    [
        ("numpy", lambda g: g.pagerank(), "pagerank needs the package numpy: pip install 'tidegate[graph]'"),
        (
            "igraph",
            lambda g: g.local(same, "igraph"),
            "local(to='igraph') needs the package igraph: pip install igraph",
        ),
    ],
    ids=["numpy", "igraph"],
)
def test_a_missing_package_is_named(missing: str, build: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(tg.BuildError) as caught:
        build(graph)
    assert str(caught.value).splitlines()[0] == message


def test_importing_graphs_imports_no_numpy() -> None:
    script = "import sys, tidegate as tg; before = 'tidegate.graph' in sys.modules; import tidegate.graph; "
    shown = "print(before, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script + shown], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_functions_of_single_vertices_need_no_numpy(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        """
import sys

sys.modules["numpy"] = None

import tidegate as tg
from tidegate.graph import Graph

with tg.Pipeline() as p:
    graph = Graph(p | tg.Create([(1, 2), (2, 3)]))
    far = graph.reverse().pregel(lambda n, edge: n + 1, max, lambda n, got: max(n, got), start=lambda id, value: 0)
    far | tg.combiners.ToList() | tg.Map(sorted) | tg.Map(print)
    graph.degrees() | "listed" >> tg.combiners.ToList() | "sorted" >> tg.Map(sorted) | "print" >> tg.Map(print)
"""
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (sorted(done.stdout.splitlines()), done.stderr) == (
        ["[(1, 1), (2, 2), (3, 1)]", "[(1, 2), (2, 1), (3, 0)]"],
        "",
    )


@pytest.mark.parametrize(
    "value", [np.timedelta64(3, "us"), np.timedelta64(3, "M"), np.timedelta64("NaT", "ns"), Decimal("sNaN")], ids=str
)
@pytest.mark.parametrize("arrays", [False, True])
def test_weights_that_are_no_numbers_are_named_with_their_edge(value: Any, arrays: bool) -> None:
    if not arrays:
        graph: Any = graph_of([(1, 2, value)], [])
    else:
        graph = Graph.from_arrays(created([(np.array([1]), np.array([2]), np.array([value]))], tuple))
    with pytest.raises(tg.RunError, match="takes numbers as the values of edges: the edge from 1 to 2 has the value"):
        graph.shortest_paths(1).collect()


def test_networkx_has_no_node_none() -> None:
    with pytest.raises(tg.RunError, match="networkx has no node None: give the vertex another id, or use to="):
        graph_of([(None, 1)], []).local(lambda g: dict.fromkeys(g, 0), "networkx").collect()
