"""`python benchmarks/iterations.py`: loops beside the same work by hand, in turns, and what an empty round costs.

    python benchmarks/iterations.py [--runner direct] [--scale 0.2] [--turns 3] [--only G1,G3] [-- flags of the runner]

G1 is PageRank over pairs, ten rounds of 100,000 pages with 1 M links at scale 1, beside loops over pairs by hand. G2 is
the same links in arrays, `Graph.pagerank` beside NumPy. G3 is the components of 500,000 vertices with 1 M edges by
`IterateDelta`, beside the same delta rounds over dicts, and G4 by `Graph.connected_components`, beside NumPy. M1 is
k-means over arrays, ten rounds of 1 M points of 8 numbers, beside the same blocks in NumPy with one thread. F is a loop
in a stream, round which 500,000 elements go three times, beside the same steps three times in a line; its figure is how
many elements and hops a second go round, divided by how many go along the line. Results are compared. R is the time of
a round of four steps without elements. Times are the least of the turns: on the direct runner those of the processors;
on `streaming`, which is to use more than one, those of the clock, and the start of the workers is among them: S is what
a pipeline of one element takes.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is imported, which reads it then

import numpy as np

import tidegate as tg
from tidegate.graph import Graph

ROUNDS = 10
BLOCK = 8_192
CLUSTERS = 10
HOPS = 3
TARGETS = {
    "direct": {"G1": 2.0, "G2": 2.0, "G3": 1.5, "G4": 2.0, "M1": 1.3, "F": 0.7, "R": 3.0},
    "streaming": {"G1": 1.6, "G2": 4.0, "G3": 1.3, "G4": 3.0, "M1": 1.0, "F": 0.6, "R": 20.0},
}
"""Ratios by runner, on `streaming` with two workers, and for R milliseconds. Those of G2 and G4 leave the start out.
That of F has to be reached, the others are limits."""


def processor_time() -> float:
    """The processor time (s) of this process and of those that it has waited for."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (0, resource.RUSAGE_CHILDREN)))


CLOCKS: dict[str, Callable[[], float]] = {"processors": processor_time, "wall": time.perf_counter}


def graph(scale: float) -> dict[int, list[int]]:
    """Pages with their links."""
    chance, pages = random.Random(1), max(10, int(100_000 * scale))
    return {page: [chance.randrange(pages) for _ in range(10)] for page in range(pages)}


def ranks_by_hand(links: dict[int, list[int]]) -> dict[int, float]:
    """PageRank as loops over pairs."""
    ranks = dict.fromkeys(links, 1 / len(links))
    for _ in range(ROUNDS):

        def shares(ranks: dict[int, float] = ranks) -> Iterator[tuple[int, float]]:
            for page, targets in links.items():
                share = ranks[page] / len(targets)
                for target in targets:
                    yield target, share

        new: dict[int, float] = {}
        for page, share in shares():
            new[page] = new.get(page, 0.0) + share
        ranks = {page: 0.15 / len(links) + 0.85 * new.get(page, 0.0) for page in links}
    return ranks


def spread(group: tuple[int, tuple[list[list[int]], list[float]]]) -> Iterator[tuple[int, float]]:
    """What a page passes on to the pages that it links to, and nothing to itself, so that no page is lost."""
    page, ((targets,), (rank,)) = group
    yield page, 0.0
    share = rank / len(targets)
    for target in targets:
        yield target, share


def ranks_by_loop(links: dict[int, list[int]], options: list[str]) -> dict[int, float]:
    """PageRank as a pipeline."""
    p = tg.Pipeline(options=options)
    pages = len(links)
    known = p | "links" >> tg.Create(list(links.items())).with_output_types(tuple[int, list[int]])
    start = known | "start" >> tg.MapValues(lambda _: 1 / pages).with_output_types(tuple[int, float])

    def step(ranks: Any) -> Any:
        shares = (known, ranks) | tg.CoGroupByKey() | tg.FlatMap(spread).with_output_types(tuple[int, float])
        return shares | tg.CombinePerKey(sum) | tg.MapValues(lambda rank: 0.15 / pages + 0.85 * rank)

    return dict((start | tg.Iterate(step, rounds=ROUNDS)).collect(limit=None))


def random_edges(vertices: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of edges, in two arrays."""
    chance = np.random.default_rng(1)
    return chance.integers(0, vertices, edges), chance.integers(0, vertices, edges)


def array_ranks_by_hand(sources: np.ndarray, targets: np.ndarray) -> dict[int, float]:
    """PageRank over arrays; pages without links pass their ranks on to all."""
    pages = int(max(sources.max(), targets.max())) + 1
    links = np.bincount(sources, minlength=pages)
    share, ends = 1 / np.maximum(links, 1), np.flatnonzero(links == 0)
    ranks = np.full(pages, 1 / pages)
    for _ in range(ROUNDS):
        everywhere = (0.15 + 0.85 * ranks[ends].sum()) / pages
        ranks = 0.85 * np.bincount(targets, (ranks * share)[sources], pages) + everywhere
    return dict(enumerate(ranks.tolist()))


def array_graph(sources: np.ndarray, targets: np.ndarray, options: list[str]) -> Graph[Any, Any, Any]:
    """A graph of arrays, in a pipeline of its own."""
    edges = tg.Pipeline(options=options) | tg.Create([(sources, targets)]).with_output_types(tuple)
    return Graph.from_arrays(edges)


def array_ranks_by_graph(sources: np.ndarray, targets: np.ndarray, options: list[str]) -> dict[int, float]:
    """PageRank as an algorithm of a graph."""
    ranks = array_graph(sources, targets, options).pagerank(rounds=ROUNDS)
    return (ranks | tg.combiners.ToDict()).collect()[0]


def components_by_hand(links: dict[int, list[int]]) -> dict[int, int]:
    """Components by delta rounds: vertices whose label has become less tell their neighbours."""
    labels = {vertex: vertex for vertex in links}
    changed = dict(labels)
    while changed:
        told: dict[int, int] = {}
        for vertex, label in changed.items():
            for other in links[vertex]:
                if label < told.get(other, label + 1):
                    told[other] = label
        changed = {vertex: label for vertex, label in told.items() if label < labels[vertex]}
        labels.update(changed)
    return labels


def components_by_delta(links: dict[int, list[int]], options: list[str]) -> dict[int, int]:
    """Components as a loop with a solution."""
    p = tg.Pipeline(options=options)
    known = p | "links" >> tg.Create(list(links.items())).with_output_types(tuple[int, list[int]])
    labels = known | tg.MapTuple(lambda vertex, others: (vertex, vertex)).with_output_types(tuple[int, int])

    def step(solution: Any, changed: Any) -> Any:
        tell = tg.FlatMapTuple(lambda vertex, both: [(other, both[0]) for other in both[1]])
        return changed | tg.Join.inner(known) | tell.with_output_types(tuple[int, int])

    found = (labels, labels) | tg.IterateDelta(step, merge=min)
    return (found | tg.combiners.ToDict()).collect()[0]


def array_components_by_hand(sources: np.ndarray, targets: np.ndarray) -> dict[int, int]:
    """Components by rounds in which every vertex takes the least label of its neighbours."""
    labels = np.arange(int(max(sources.max(), targets.max())) + 1)
    while True:
        new = labels.copy()
        np.minimum.at(new, targets, labels[sources])
        np.minimum.at(new, sources, labels[targets])
        if np.array_equal(new, labels):
            return dict(enumerate(labels.tolist()))
        labels = new


def array_components_by_graph(sources: np.ndarray, targets: np.ndarray, options: list[str]) -> dict[int, int]:
    """Components as an algorithm of a graph."""
    components = array_graph(sources, targets, options).connected_components()
    return (components | tg.combiners.ToDict()).collect()[0]


def points(scale: float) -> list[np.ndarray]:
    """Blocks of points."""
    made = np.random.default_rng(1).normal(size=(max(BLOCK, int(1_000_000 * scale)), 8))
    return [made[start : start + BLOCK] for start in range(0, len(made), BLOCK)]


def sums(block: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """For each centre the sum of the block's points that are nearest to it, and in the last column their number."""
    nearest = (-2 * block @ centres.T + (centres * centres).sum(1)).argmin(1)
    columns = [np.bincount(nearest, weights=column, minlength=CLUSTERS) for column in block.T]
    return np.column_stack([*columns, np.bincount(nearest, minlength=CLUSTERS)])


def centres_of(parts: Any) -> np.ndarray:
    """The centres from the sums of all blocks."""
    total = sum(parts)
    moved: np.ndarray = total[:, :-1] / np.maximum(total[:, -1:], 1)
    return moved


def centres_by_hand(blocks: list[np.ndarray]) -> np.ndarray:
    """K-means as a loop over blocks."""
    centres = blocks[0][:CLUSTERS]
    for _ in range(ROUNDS):
        centres = centres_of([sums(block, centres) for block in blocks])
    return centres


def centres_by_loop(blocks: list[np.ndarray], options: list[str]) -> np.ndarray:
    """K-means as a pipeline."""
    p = tg.Pipeline(options=options)
    known = p | "points" >> tg.Create(blocks).with_output_types(np.ndarray) | tg.Reshuffle()
    start = p | "start" >> tg.Create([blocks[0][:CLUSTERS]]).with_output_types(np.ndarray)

    def step(centres: Any) -> Any:
        parts = known | tg.Map(sums, tg.AsSingleton(centres))
        return parts | tg.CombineGlobally(centres_of).without_defaults()

    (centres,) = (start | tg.Iterate(step, rounds=ROUNDS)).collect()
    return centres


def start_and_end(options: list[str]) -> None:
    """A pipeline of one element."""
    (tg.Pipeline(options=options) | tg.Create([1]) | tg.Map(lambda n: n + 1)).collect()


def hopped(pair: tuple[int, int]) -> tuple[int, int]:
    """An element after another hop."""
    return pair[0] + 1, pair[1] * 3 % 1_009


def hop(items: Any) -> tg.Round[Any]:
    """The steps of a loop in a stream: what has gone round often enough leaves it."""
    after = items | tg.Map(hopped).with_output_types(tuple[int, int])
    again = after | "again" >> tg.Filter(lambda pair: pair[0] < HOPS)
    return tg.Round(again, out=after | "done" >> tg.Filter(lambda pair: pair[0] >= HOPS))


def hop_in_line(items: Any) -> tuple[Any, Any]:
    """What goes on, and what is done."""
    turn = hop(items)
    return turn.new, turn.out


def along(items: Any) -> Any:
    """The steps of the loop as often as elements go round it."""
    left = []
    for number in range(HOPS):
        items, done = items | f"hop {number + 1}" >> tg.ptransform_fn(hop_in_line)()
        left.append(done)
    return tuple(left) | tg.Flatten()


def hops(elements: int, options: list[str], *, in_line: bool) -> int:
    """The sum of what leaves the loop, or the same steps in a line."""
    items = tg.Pipeline(options=options) | tg.Create([(0, n) for n in range(elements)])
    done: Any = along(items) if in_line else items | tg.Feedback(hop)
    (total,) = (done | tg.Map(lambda pair: pair[1]) | tg.CombineGlobally(sum)).collect()
    return total


def empty_round(options: list[str], clock: Callable[[], float], rounds: int = 400) -> float:
    """Seconds of a round of four steps without elements."""

    def step(before: Any) -> Any:
        mapped = before | tg.Map(lambda pair: pair) | tg.CombinePerKey(sum)
        return mapped | tg.GroupByKey() | tg.MapValues(sum)

    def run(n: int) -> float:
        before = clock()
        p = tg.Pipeline(options=options)
        nothing = p | tg.Create([]).with_output_types(tuple[int, int])
        (nothing | tg.Iterate(step, rounds=n)).collect()
        return clock() - before

    run(10)
    return (run(rounds + 1) - run(1)) / rounds


def least(turns: int, clock: Callable[[], float], *works: Callable[[], Any]) -> tuple[list[float], list[Any]]:
    """The least time of each work over all turns, and its result."""
    times = [float("inf")] * len(works)
    results: list[Any] = [None] * len(works)
    for _ in range(turns):
        for number, work in enumerate(works):
            before = clock()
            results[number] = work()
            times[number] = min(times[number], clock() - before)
    return times, results


def show(name: str, times: list[float], target: float) -> None:
    """Print the times by hand and of the loop."""
    by_hand, loop = times
    print(
        f"{name}  by hand {by_hand:.3f} s, loop {loop:.3f} s, ratio {loop / by_hand:.2f} (must {target:g})", flush=True
    )


def main() -> None:
    """Print a line for each benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runner", default="direct")
    parser.add_argument("--scale", type=float, default=0.2, help="1 is the full size")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="S,G1,G2,G3,G4,M1,F,R", help="which benchmarks")
    parser.add_argument("--clock", choices=CLOCKS, help="what measures, if not that of the runner")
    parser.add_argument("flags", nargs="*", help="further flags of the pipelines, after --")
    asked = parser.parse_args()
    options = ["--runner", asked.runner, *(["--checks", "off"] if asked.runner == "direct" else []), *asked.flags]
    clock = CLOCKS[asked.clock or ("wall" if asked.runner == "streaming" else "processors")]
    targets, chosen = TARGETS[asked.runner], asked.only.split(",")
    scale, turns = asked.scale, asked.turns
    print(f"{asked.runner}, scale {scale:g}, load {os.getloadavg()[0]:.1f}")
    if "S" in chosen:
        (taken,), _ = least(turns, clock, lambda: start_and_end(options))
        print(f"S   {taken:.3f} s for a pipeline of one element")
    if "G1" in chosen:
        links = graph(scale)
        times, (by_hand, by_loop) = least(
            turns, clock, lambda: ranks_by_hand(links), lambda: ranks_by_loop(links, options)
        )
        assert max(abs(by_hand[page] - by_loop[page]) for page in links) < 1e-12
        show("G1", times, targets["G1"])
    if "G2" in chosen:
        ends = random_edges(int(100_000 * scale), int(1_000_000 * scale))
        times, (by_hand, by_graph) = least(
            turns, clock, lambda: array_ranks_by_hand(*ends), lambda: array_ranks_by_graph(*ends, options)
        )
        assert max(abs(by_hand[page] - by_graph[page]) for page in by_hand) < 1e-12
        show("G2", times, targets["G2"])
    ends = random_edges(int(500_000 * scale), int(1_000_000 * scale))
    if "G3" in chosen:
        neighbours: dict[int, list[int]] = {vertex: [] for vertex in range(int(max(map(np.max, ends))) + 1)}
        for one, other in zip(ends[0].tolist(), ends[1].tolist()):
            neighbours[one].append(other)
            neighbours[other].append(one)
        times, (plain, delta) = least(
            turns, clock, lambda: components_by_hand(neighbours), lambda: components_by_delta(neighbours, options)
        )
        assert plain == delta
        show("G3", times, targets["G3"])
    if "G4" in chosen:
        times, (arrays, by_graph) = least(
            turns, clock, lambda: array_components_by_hand(*ends), lambda: array_components_by_graph(*ends, options)
        )
        # Graph knows only vertices that have an edge.
        assert all(arrays[vertex] == component for vertex, component in by_graph.items())
        show("G4", times, targets["G4"])
    if "M1" in chosen:
        blocks = points(scale)
        times, (centres, moved) = least(
            turns, clock, lambda: centres_by_hand(blocks), lambda: centres_by_loop(blocks, options)
        )
        assert np.allclose(centres, moved, atol=1e-9)
        show("M1", times, targets["M1"])
    if "F" in chosen:
        elements = int(500_000 * scale)
        (line, loop), (total, in_loop) = least(
            turns,
            clock,
            lambda: hops(elements, options, in_line=True),
            lambda: hops(elements, options, in_line=False),
        )
        assert total == in_loop
        print(
            f"F   {elements * HOPS / loop:,.0f} hops/s, in a line {elements * HOPS / line:,.0f}, "
            f"ratio {line / loop:.2f} (must {targets['F']:g})"
        )
    if "R" in chosen:
        round_ms = 1_000 * min(empty_round(options, clock) for _ in range(turns))
        print(f"R   {round_ms:.2f} ms for an empty round of four steps (must {targets['R']:g})")


if __name__ == "__main__":
    main()
