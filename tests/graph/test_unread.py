"""What nobody reads of a graph is not made, on any runner."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tidegate.graph import Graph
from tidegate.runners.direct.runner import DirectRunner
from tidegate.runners.spark.runner import SparkRunner
from tidegate.runners.streaming.runner import StreamingRunner
from tidegate.sdk.portable.json import dump, load

RUNNERS = [DirectRunner, StreamingRunner, SparkRunner]
ARRAYS = {"edge batches", "edge blocks", "Impulse", "arrays"}
VERTICES = {"ends", "Distinct/Count", "Distinct/Keys", "without value"}


def steps_that_run(within: str, p: tg.Pipeline, runner: Any = DirectRunner) -> Set[str]:
    """The steps of a composite that a runner keeps of a pipeline that has come as JSON."""
    planned = runner().plan(load(dump(p.sealed(values=True))), p.options)
    labels = [node.label for node in planned.pipeline.nodes]
    return {label.removeprefix(f"{within}/") for label in labels if label.startswith(f"{within}/")}


def graph_in(p: tg.Pipeline) -> Any:
    return Graph(p | tg.Create([(1, 2), (2, 3)]))


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize(
    ("apply", "run"),
    [
        (lambda graph: graph.edges, {"edges"}),
        (lambda graph: graph.vertices, {"edges"} | VERTICES),
        (lambda graph: graph.degrees(), {"edges"} | VERTICES),
        (lambda graph: graph.pregel(max, max, max, rounds=2), {"edges"} | VERTICES),
        (lambda graph: graph.connected_components(), {"edges"} | ARRAYS),
        (lambda graph: graph.local(lambda given: {}), {"edges"} | ARRAYS),
    ],
    ids=["edges", "vertices", "degrees", "pregel", "components", "local"],
)
def test_a_graph_makes_what_is_read(runner: Any, apply: Callable[[Any], Any], run: Set[str]) -> None:
    p = tg.Pipeline()
    apply(graph_in(p)) | tg.Map(print)
    assert steps_that_run("Graph", p, runner) == run


def test_a_graph_of_arrays_makes_what_is_read() -> None:
    p = tg.Pipeline()
    blocks = p | tg.Create([(np.array([1]), np.array([2]))]).with_output_types(tuple)
    Graph.from_arrays(blocks).connected_components() | tg.Map(print)
    assert steps_that_run("Graph.from_arrays", p) == {"edge blocks", "Impulse", "arrays"}


def test_a_graph_made_from_another_makes_what_is_read() -> None:
    p = tg.Pipeline()
    reverse = graph_in(p).reverse()
    reverse.edges | tg.Map(print)
    assert steps_that_run("reverse", p) == {"turned"}
    reverse.hits() | "print hits" >> tg.Map(print)
    vertices = {"vertex batches", "vertex blocks"}
    assert steps_that_run("reverse", p) == {"turned"} | vertices | ARRAYS


def test_the_authors_functions_run_even_if_nobody_reads_the_graph() -> None:
    p = tg.Pipeline()
    graph = graph_in(p)
    graph.subgraph(vertices=lambda id, value: id > 1, edges=lambda edge: True)
    graph.map_vertices(lambda id, value: print(id))
    assert steps_that_run("subgraph", p) == {"edges", "vertices"}
    assert steps_that_run("map_vertices", p) == {"values"}
    assert steps_that_run("Graph", p) == {"edges"} | VERTICES


def test_a_run_warns_of_a_graph_of_which_nothing_is_read() -> None:
    p = tg.Pipeline()
    graph_in(p).degrees()
    with pytest.warns(tg.TidegateWarning, match="no step reads what 'degrees/CombinePerKey\\(sum\\)' makes"):
        p.run()
