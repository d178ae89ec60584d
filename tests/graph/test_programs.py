"""Vertex programs, other graphs made from a graph, and graphs handed to libraries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tidegate.graph import Edge, Graph

ROADS = [("home", "park", 2), ("home", "school", 7), ("park", "school", 3), ("school", "beach", 9)]
PLACES = [("home", 1), ("park", 2), ("island", 3)]


def graph_of(edges: Any = ROADS, vertices: Any = PLACES, directed: bool = True) -> Any:
    """A graph in a pipeline of its own."""
    p = tg.Pipeline(options=["--runner", "direct"])
    known = p | "edges" >> tg.Create(edges).with_output_types(tuple)
    return Graph(known, p | "vertices" >> tg.Create(vertices).with_output_types(tuple[str, int]), directed)


def found(pairs: Any) -> dict[Any, Any]:
    """The pairs that a step emits, each key once."""
    results = pairs.collect(limit=None)
    assert len({key for key, _ in results}) == len(results)
    return dict(results)


def test_all_vertices_have_their_value_or_none() -> None:
    assert found(graph_of().vertices) == {"home": 1, "park": 2, "island": 3, "school": None, "beach": None}


def test_a_message_reaches_those_along_the_edges_and_none_is_no_message() -> None:
    sent = graph_of().pregel(
        send=lambda far, edge: None if far is None else far + edge.value,
        combine=min,
        update=lambda far, near: near if far is None else min(far, near),
        start=lambda id, value: 0 if value == 1 else None,
    )
    assert found(sent) == {"home": 0, "park": 2, "school": 5, "beach": 14, "island": None}


@pytest.mark.parametrize("arrays", [False, True], ids=["functions", "arrays"])
def test_rounds_limit_how_far_messages_go(arrays: bool) -> None:
    graph, start = graph_of(), "home"
    farther = graph.pregel(
        send=lambda far, edge: far + edge.value,
        combine=min,
        update=np.minimum if arrays else min,
        start=lambda id, _: np.where(id == start, 0.0, np.inf) if arrays else 0.0 if id == start else float("inf"),
        arrays=arrays,
        rounds=1,
    )
    unknown = float("inf")
    assert found(farther) == {"home": 0, "park": 2, "school": 7, "beach": unknown, "island": unknown}


@pytest.mark.parametrize("arrays", [False, True], ids=["functions", "arrays"])
def test_only_vertices_whose_state_has_changed_send(arrays: bool) -> None:
    """Each vertex adds up what it gets; a vertex that is sent nothing sends in the first round only."""
    chain = [(1, 2), (2, 3), (4, 4)]
    graph = graph_of(chain, [])
    total = graph.pregel(
        lambda n, edge: n, sum, lambda n, more: n + more, lambda id, _: id * 10, arrays=arrays, rounds=3
    )
    # Vertex 3 gets 20 and, as 2 has become 30, 30. Vertex 4 doubles what it has.
    assert found(total) == {1: 10, 2: 30, 3: 80, 4: 320}


def test_states_over_arrays_may_have_several_numbers() -> None:
    graph = graph_of([(1, 2), (2, 3)], [])
    states = graph.pregel(
        lambda states, edges: states, max, np.maximum, lambda ids, _: np.stack([ids, -ids], axis=1), arrays=True
    )
    assert {id: state.tolist() for id, state in found(states).items()} == {1: [1, -1], 2: [2, -1], 3: [3, -1]}


@pytest.mark.parametrize("combine", [min, max])
@pytest.mark.parametrize("values", [["x", "yyy", "z"], ["x\0", "yyy", "z"], [2**53 + 1, 0.5, 2**53], [2**63, -1, 7]])
def test_programs_over_arrays_give_what_those_of_single_vertices_give(values: list[Any], combine: Any) -> None:
    edges, vertices = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "a")], list(zip("abc", values))

    def better(before: Any, message: Any) -> Any:
        return combine(before, message)

    def better_of_each(before: Any, messages: Any) -> Any:
        return np.where((before < messages) == (combine is min), before, messages)

    one = graph_of(edges, vertices).pregel(lambda state, edge: state, combine, better)
    all_ = graph_of(edges, vertices).pregel(lambda states, edges: states, combine, better_of_each, arrays=True)
    expected = dict.fromkeys("abc", combine(values))
    for given in (one, all_):
        assert {id: (type(state), state) for id, state in found(given).items()} == {
            id: (type(state), state) for id, state in expected.items()
        }


@pytest.mark.parametrize("values", [[2**62] * 3, [-(2**63)] * 2, [2**62, 2**62, -(2**62)], [2**63] * 2, [1, 2, 3]])
def test_sums_over_arrays_are_exact_beyond_64_bits(values: list[int]) -> None:
    graph = graph_of([(n, -1) for n in range(len(values))], [*enumerate(values), (-1, 0)])
    for arrays in (False, True):
        states = found(graph.pregel(lambda n, edge: n, sum, lambda n, more: n + more, arrays=arrays, name=f"{arrays}"))
        assert states[-1] == sum(values)
        assert type(states[-1]) is int


def test_programs_over_arrays_may_change_states_in_place_but_not_edges() -> None:
    graph = graph_of([("a", "b", 2), ("b", "c", 3)], [("a", 0), ("b", 9), ("c", 9)])

    def least(states: Any, messages: Any) -> Any:
        return np.minimum(states, messages, out=states)

    far = graph.pregel(lambda states, edges: states + edges.value, min, least, arrays=True)
    assert found(far) == {"a": 0, "b": 2, "c": 5}

    def longer(states: Any, edges: Any) -> Any:
        edges.value[:] += 1
        return states + edges.value

    with pytest.raises(tg.TidegateError, match="read-only") as raised:
        found(graph.pregel(longer, min, np.minimum, arrays=True, name="longer"))
    assert "test_programs.py" in str(raised.value)


def test_ranks_of_weights_whose_sum_is_beyond_floats_are_those_of_smaller_weights() -> None:
    def ranks(weight: float) -> dict[Any, float]:
        return found(graph_of([(1, 2, weight), (1, 3, weight), (2, 1, 1.0), (3, 1, 1e-300)], []).pagerank(rounds=20))

    assert ranks(1e308) == pytest.approx(ranks(1.0))


def test_texts_over_arrays_are_added_and_may_become_longer_or_numbers() -> None:
    edges, vertices = [("a", "c"), ("b", "c")], [("a", "x"), ("b", "yy"), ("c", "")]
    graph = graph_of(edges, vertices)
    joined = graph.pregel(lambda states, edges: states, sum, lambda states, more: more, arrays=True)
    assert found(joined) == {"a": "x", "b": "yy", "c": "xyy"}
    lengths = graph.pregel(
        lambda states, edges: np.strings.str_len(states), sum, lambda states, n: n, arrays=True, name="n"
    )
    assert found(lengths) == {"a": "x", "b": "yy", "c": 3}


def test_numbers_over_arrays_stay_what_they_are_when_others_become_floats() -> None:
    graph = graph_of([("a", "b")], [("a", 2**53 + 1), ("b", 1)])
    halved = graph.pregel(lambda states, edges: states * 0 + 0.5, sum, lambda states, half: half, arrays=True)
    assert found(halved) == {"a": 2**53 + 1, "b": 0.5}


def test_an_undirected_edge_leads_both_ways_and_a_loop_once() -> None:
    graph = graph_of([(1, 2), (3, 3)], [], directed=False)
    heard = graph.scatter_gather(
        lambda state, edge: (edge.source, edge.target), lambda state, messages: sorted(messages), lambda id, _: [],
        rounds=1,
    )  # fmt: skip
    assert found(heard) == {1: [(2, 1)], 2: [(1, 2)], 3: [(3, 3)]}


def test_changed_says_when_a_vertex_sends_again() -> None:
    halved = graph_of([(1, 1)], [(1, 64.0)]).pregel(
        lambda n, edge: n / 2, min, min, changed=lambda old, new: old - new > 5
    )
    assert found(halved) == {1: 4.0}


def test_every_vertex_gathers_from_all_in_every_round() -> None:
    ranks = graph_of().gather_sum_apply(
        gather=lambda rank, edge: rank,
        sum=sum,
        apply=lambda rank, total: 1 if total is None else 1 + total,
        start=lambda id, value: 1,
        until=tg.Settled(),
    )
    assert found(ranks) == {"home": 1, "island": 1, "park": 2, "school": 4, "beach": 5}


def test_graphs_are_made_from_graphs() -> None:
    graph = graph_of()
    assert sorted(graph.reverse().edges.collect())[0] == Edge("beach", "school", 9)
    assert found(graph.undirected().shortest_paths("beach"))["home"] == 14
    assert found(graph.map_edges(lambda edge: 1).shortest_paths("home"))["beach"] == 2
    assert found(graph.map_vertices(lambda id, value: f"{id} {value}").vertices)["park"] == "park 2"
    small = graph.subgraph(vertices=lambda id, _: id != "park", edges=lambda edge: edge.value > 7)
    assert small.edges.collect() == [Edge("school", "beach", 9)]
    assert found(small.connected_components()) == {
        "beach": "beach",
        "home": "home",
        "island": "island",
        "school": "beach",
    }


def test_a_k_core_keeps_values_and_edges() -> None:
    core = graph_of().k_core(2)
    assert found(core.vertices) == {"home": 1, "park": 2, "school": None}
    assert sorted(core.edges.collect()) == [Edge(*road) for road in ROADS[:3]]
    assert found(core.triangles()) == {"home": 1, "park": 1, "school": 1}


def test_cores_have_labels_of_their_own() -> None:
    graph = graph_of()
    assert found(graph.k_core(1).k_core(2).vertices) == found(graph.k_core(2).vertices)
    assert found(graph.k_core(2, name="mine").vertices) == {"home": 1, "park": 2, "school": None}


@dataclass(frozen=True, order=True)
class Numbered:
    number: int


IN_ORDER: dict[str, list[Any]] = {
    "numbers of NumPy": [np.int64(-300), np.int64(-1), np.int64(2), np.int64(300), np.int64(70_000)],
    "numbers of NumPy and Python": [-300, np.int64(-1), 5, np.float64(7.5), np.int64(300)],
    "decimals": [Decimal("-3"), Decimal("-1.5"), Decimal("0"), Decimal("2"), Decimal("100")],
    "fractions": [Fraction(n, 3) for n in (-9, -1, 0, 2, 100)],
    "numbers of several kinds": [-300, Decimal(-2), Fraction(-1, 2), 0, 2.5, 70_000],
    "lengths of time": [timedelta(n) for n in (-5, -1, 0, 3, 300)],
    "tuples": [(-300,), (Decimal(-1),), (2.5,), (300,)],
    "an author's": [Numbered(n) for n in (-300, -1, 5, 300)],
    "texts": ["B", np.str_("a"), "aa", "z"],
}


@pytest.mark.parametrize("kind", IN_ORDER)
def test_the_least_id_is_the_least_of_those_that_can_be_compared(kind: str) -> None:
    ids = IN_ORDER[kind]
    graph = graph_of(list(pairwise(reversed(ids))), [])
    assert set(found(graph.connected_components()).values()) == {ids[0]}
    assert found(graph_of([(ids[-1], ids[0]), (ids[-1], ids[1])], []).label_propagation(1))[ids[-1]] == ids[0]


@dataclass(frozen=True)
class Compared:
    number: int

    def __lt__(self, other: Any) -> bool:
        return bool(self.number < other.number)


@pytest.mark.parametrize(
    "ids", [[1, "a", 2.5], [frozenset("ab"), frozenset("b"), frozenset("ac")], [Compared(2), "a", Compared(1)]]
)
def test_one_of_ids_that_cannot_be_compared_is_the_least_in_every_run(ids: list[Any]) -> None:
    found_in = [found(graph_of(list(pairwise(order)), []).connected_components()) for order in permutations(ids)]
    assert len({frozenset(components.values()) for components in found_in}) == 1


def test_a_way_longer_than_any_float_is_none_if_there_is_a_shorter_one() -> None:
    roads = [("a", "b", 1e308), ("b", "c", 1e308), ("a", "c", 1.0), ("c", "d", float("inf"))]
    assert found(graph_of(roads, []).shortest_paths("a")) == {"a": 0, "b": 1e308, "c": 1}


def test_lengths_are_numbers_of_any_kind() -> None:
    roads = [("a", "b", Decimal("1.5")), ("b", "c", Fraction(1, 2)), ("c", "d", np.float32(2)), ("d", "e", True)]
    assert found(graph_of(roads, []).shortest_paths("a")) == {"a": 0, "b": 1.5, "c": 2, "d": 4, "e": 5}


def test_weights_count_unless_told_otherwise() -> None:
    graph = graph_of()
    assert found(graph.shortest_paths("home", weighted=False)) == {"home": 0, "park": 1, "school": 1, "beach": 2}
    assert found(graph.shortest_paths("home", rounds=1)) == {"home": 0, "park": 2, "school": 7}
    by_weight = found(graph.pagerank(rounds=1))
    evenly = found(graph.pagerank(rounds=1, weighted=False))
    assert by_weight["school"] > evenly["school"]
    assert sum(by_weight.values()) == pytest.approx(1)


def test_blocks_of_arrays_make_the_same_graph() -> None:
    p = tg.Pipeline(options=["--runner", "direct"])
    blocks = [
        (np.array(["a", "b"]), np.array(["b", "c"]), np.array([1.5, 2.5])),
        (np.array(["c"]), np.array(["a"]), np.array([3.0])),
    ]
    vertices = [(np.array(["a", "z"]), np.array([7, 8]))]
    graph = Graph.from_arrays(
        p | tg.Create(blocks).with_output_types(tuple), p | "more" >> tg.Create(vertices).with_output_types(tuple)
    )
    assert sorted(graph.edges.collect()) == [Edge("a", "b", 1.5), Edge("b", "c", 2.5), Edge("c", "a", 3.0)]
    assert found(graph.vertices) == {"a": 7, "b": None, "c": None, "z": 8}
    assert found(graph.shortest_paths("a")) == {"a": 0, "b": 1.5, "c": 4}
    assert found(graph.degrees()) == {"a": 2, "b": 2, "c": 2, "z": 0}


def test_blocks_of_other_kinds_keep_their_ids_and_lengths() -> None:
    p = tg.Pipeline(options=["--runner", "direct"])
    huge = 2**53
    blocks = [
        (np.array([1, huge + 1]), np.array([huge, huge]), np.array([1, 2])),
        (np.array([1.5]), np.array([1.0]), np.array([0.5])),
        (np.array(["1"]), np.array(["x"]), np.array([2], np.uint8)),
        (np.array([b"1"]), np.array([b"x"]), np.array([True])),
        (np.array([]), np.array([]), np.array([])),
    ]
    graph = Graph.from_arrays(p | tg.Create([0]) | tg.FlatMap(lambda _: blocks))
    assert found(graph.degrees()) == {1: 2, huge: 2, huge + 1: 1, 1.5: 1, "1": 1, "x": 1, b"1": 1, b"x": 1}
    label = found(graph.connected_components())
    parts = {frozenset(id for id in label if label[id] == each) for each in set(label.values())}
    assert parts == {frozenset({1, 1.5, huge, huge + 1}), frozenset({"1", "x"}), frozenset({b"1", b"x"})}
    assert found(graph.shortest_paths(1.5)) == {1.5: 0, 1: 0.5, huge: 1.5}


def test_a_block_of_no_edges_gives_no_values() -> None:
    p = tg.Pipeline(options=["--runner", "direct"])
    none = np.array([])
    blocks = [(none, none, none), (np.array([1]), np.array([2]))]
    more = p | "v" >> tg.Create([0]) | "more" >> tg.FlatMap(lambda _: [(none, none), np.array([3])])
    graph = Graph.from_arrays(p | tg.Create([0]) | tg.FlatMap(lambda _: blocks), more)
    assert found(graph.shortest_paths(1)) == {1: 0, 2: 1}
    assert found(graph.local(lambda g: dict(g.nodes(data=True)))) == {1: {}, 2: {}, 3: {}}


def test_times_in_arrays_are_what_they_were() -> None:
    p = tg.Pipeline(options=["--runner", "direct"])
    day = np.array(["2024-05-01"], "datetime64[D]")
    nanosecond, second = np.array([1], "timedelta64[ns]"), np.array([1], "timedelta64[s]")
    blocks = [
        (day, second, nanosecond),
        (np.ma.array(["x"]), np.array(["y"]), np.array(["2024-05-01"], "datetime64[ns]")),
    ]
    graph = Graph.from_arrays(p | tg.Create([0]) | tg.FlatMap(lambda _: blocks))
    may, one = date(2024, 5, 1), timedelta(seconds=1)
    assert {edge.source: edge.value for edge in graph.edges.collect()} == {may: nanosecond[0], "x": blocks[1][2][0]}
    label = found(graph.connected_components())
    assert label.keys() == {may, one, "x", "y"}
    assert label[may] == label[one] != label["x"] == label["y"]


@pytest.mark.parametrize("values", [np.array(["3"]), np.array([10**400], object), np.array([None], object)])
def test_values_in_arrays_that_are_no_numbers_are_refused_with_their_edge(values: Any) -> None:
    p = tg.Pipeline(options=["--runner", "direct"])
    block = (np.array(["a"]), np.array(["b"]), values)
    graph = Graph.from_arrays(p | tg.Create([0]) | tg.FlatMap(lambda _: [block]))
    with pytest.raises(tg.UserCodeError, match="the edge from 'a' to 'b' has the value"):
        graph.shortest_paths("a").collect()


def test_advice_is_about_the_arguments_of_the_program() -> None:
    graph = graph_of()
    for build, message in [
        (lambda: graph.pagerank(rounds=2, strict=True), "strict fails a run whose values have not settled .* give by="),
        (lambda: graph.pregel(lambda s, e: s, lambda a, b: a, lambda s, m: s), r"write combine=tg.associative\(lambda"),
        (
            lambda: graph.gather_sum_apply(lambda s, e: s, lambda a, b: a, lambda s, m: s, rounds=1),
            r"write sum=tg.associative\(lambda a, b",
        ),
        (lambda: graph.gather_sum_apply(lambda s, e: s, min, lambda s, m: s), "would never end: give rounds=…, until="),
        (
            lambda: graph.gather_sum_apply(lambda s, e: s, min, lambda s, m: s, rounds=1, strict=True),
            "give gather_sum_apply until=…, too",
        ),
    ]:
        with pytest.raises(tg.BuildError, match=message):
            build()


@pytest.mark.parametrize(
    ("to", "distances"),
    [
        ("networkx", lambda g: __import__("networkx").single_source_dijkstra_path_length(g, "home")),
        ("rustworkx", lambda g: {**__import__("rustworkx").dijkstra_shortest_path_lengths(g, 1, float), 1: 0.0}),
        ("igraph", lambda g: g.distances("home", weights="weight")[0]),
    ],
    ids=["networkx", "rustworkx", "igraph"],
)
def test_a_library_gets_the_graph_with_its_weights(to: str, distances: Any) -> None:
    result = found(graph_of().local(distances, to=to))
    if to == "igraph":
        assert result.pop("island") == float("inf")
    assert result == {"home": 0, "park": 2, "school": 5, "beach": 14}


def test_a_library_may_return_a_series_by_id() -> None:
    def ranked(graph: Any) -> Any:
        import pandas as pd

        return pd.Series({id: number for number, id in enumerate(sorted(graph))})

    assert found(graph_of([("a", "b")], []).local(ranked)) == {"a": 0, "b": 1}


def test_arrays_are_values_of_vertices_and_edges() -> None:
    def longer(states: Any, edges: Any) -> Any:
        return np.array([len(value) for value in edges.value])

    vertices = [("a", np.arange(2)), ("b", np.arange(2))]
    graph = graph_of([("a", "b", np.arange(3)), ("b", "a", np.arange(3))], vertices)
    lengths = graph.pregel(
        longer, max, np.maximum, lambda _, values: np.array([len(value) for value in values]), arrays=True
    )
    assert found(lengths) == {"a": 3, "b": 3}


@pytest.mark.parametrize("number", [np.int64, np.float32, np.bool_])
def test_numbers_of_numpy_are_weights(number: Any) -> None:
    graph = graph_of([("a", "b", number(1)), ("b", "c", number(1))], [])
    assert found(graph.shortest_paths("a")) == {"a": 0.0, "b": 1.0, "c": 2.0}


def test_a_library_gets_several_edges_and_the_values_of_vertices() -> None:
    def seen(graph: Any) -> Any:
        return {id: (type(graph).__name__, value) for id, value in graph.nodes(data="value")}

    assert found(graph_of([("a", "b"), ("b", "a")], [("a", 5)], directed=False).local(seen)) == {
        "a": ("MultiGraph", 5),
        "b": ("MultiGraph", None),
    }
    assert found(graph_of([("a", "b"), ("b", "a")], [("a", 5)]).local(seen))["a"] == ("DiGraph", 5)


def test_ids_of_edges_and_of_vertices_may_have_several_types() -> None:
    p = tg.Pipeline(options=["--runner", "direct"])
    likes = p | "likes" >> tg.Create([("ann", 1), ("bob", 1), ("bob", 2)])
    people = p | "people" >> tg.Create([("ann", 30), ("bob", 40)])
    titles = p | "titles" >> tg.Create([(1, "Dune"), (2, "Emma")])
    graph = Graph(likes, people)
    for values in (graph.pagerank(), graph.degrees(), graph.connected_components()):
        assert found(values | tg.Join.inner(titles)).keys() == {1, 2}


def test_vertices_without_edges_may_have_ids_of_another_type() -> None:
    components = graph_of([("a", "b")], [(7, None)]).connected_components()
    assert found(components) == {"a": "a", "b": "a", 7: 7}


def test_the_greatest_integer_of_64_bits_stays_an_id() -> None:
    most = 2**63 - 1
    assert found(graph_of([(most, most - 1)], []).connected_components()) == {most: most - 1, most - 1: most - 1}
