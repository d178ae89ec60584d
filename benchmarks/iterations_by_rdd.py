"""`python benchmarks/iterations_by_rdd.py`: loops on Spark beside the same loops by hand, with RDDs, in one session.

    python benchmarks/iterations_by_rdd.py [--scale 0.2] [--turns 3] [--only G1] [-- further flags of the runner]

The loops are those of `iterations.py`. Times are those of the clock, the least of the turns. R is the time of an empty
round beside that of one action of the same four steps.
"""

from __future__ import annotations

import argparse
import operator
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from iterations import (
    ROUNDS,
    array_components_by_graph,
    array_ranks_by_graph,
    components_by_delta,
    empty_round,
    graph,
    least,
    random_edges,
    ranks_by_loop,
)

TARGETS = {"G1": 0.8, "G2": 0.3, "G3": 0.7, "G4": 0.3, "R": 1.5}
"""Ratios."""


def session() -> Any:
    """The session of this process, which the Spark runner finds."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder.master("local[2]").appName("iterations")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.python.unix.domain.socket.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class ByRdd:
    """The loops, with as many partitions as the session runs tasks at once."""

    def __init__(self, context: Any) -> None:
        context.addPyFile(__file__)
        self.context = context
        self.partitions = context.defaultParallelism

    def ranks(self, links: Mapping[int, list[int]], rounds: int) -> dict[int, float]:
        """PageRank over pairs."""
        pages, partitions = len(links), self.partitions
        known = self.context.parallelize(list(links.items()), partitions).partitionBy(partitions).persist()
        ranks = known.mapValues(lambda _: 1 / pages)
        for _ in range(rounds):
            shares = known.join(ranks, partitions).flatMap(_shares)
            ranks = shares.reduceByKey(operator.add, partitions).mapValues(lambda rank: 0.15 / pages + 0.85 * rank)
        found = dict(ranks.collect())
        known.unpersist()
        return found

    def ranks_of_edges(self, sources: np.ndarray, targets: np.ndarray, rounds: int) -> dict[int, float]:
        """PageRank over pairs, where pages without links pass their ranks on to all."""
        pages, partitions = int(max(sources.max(), targets.max())) + 1, self.partitions
        pairs = self.context.parallelize(list(zip(sources.tolist(), targets.tolist())), partitions)
        every = self.context.parallelize(range(pages), partitions).map(lambda page: (page, None))
        grouped = every.leftOuterJoin(pairs.groupByKey(partitions), partitions)
        known = grouped.mapValues(lambda both: list(both[1] or ())).persist()
        ranks = known.mapValues(lambda _: 1 / pages)
        for _ in range(rounds):
            joined = known.join(ranks, partitions).persist()
            ends = joined.filter(lambda page: not page[1][0]).map(lambda page: page[1][1]).sum()
            everywhere = (0.15 + 0.85 * ends) / pages
            ranks = joined.flatMap(_shares).reduceByKey(operator.add, partitions)
            ranks = ranks.mapValues(lambda rank, everywhere=everywhere: everywhere + 0.85 * rank)
        found = dict(ranks.collect())
        known.unpersist()
        return found

    def components(self, links: Mapping[int, list[int]]) -> dict[int, int]:
        """Components by rounds in which vertices whose label has become less tell their neighbours."""
        partitions = self.partitions
        known = self.context.parallelize(list(links.items()), partitions).partitionBy(partitions).persist()
        labels = known.map(lambda vertex: (vertex[0], vertex[0]), preservesPartitioning=True).persist()
        changed = labels
        while True:
            told = known.join(changed, partitions).flatMap(_told).reduceByKey(min, partitions)
            both = labels.leftOuterJoin(told, partitions).persist()
            new = both.mapValues(_least).persist()
            changed = both.filter(_is_less).mapValues(lambda pair: pair[1])
            if not changed.count():
                break
            labels.unpersist()
            labels = new
        found = dict(labels.collect())
        known.unpersist()
        return found

    def empty_action(self) -> None:
        """One action of the four steps of an empty round."""
        nothing = self.context.parallelize([], self.partitions).map(lambda pair: pair)
        summed = nothing.reduceByKey(operator.add, self.partitions).groupByKey(self.partitions)
        summed.mapValues(sum).collect()


def _shares(page: tuple[int, tuple[list[int], float]]) -> Iterator[tuple[int, float]]:
    number, (targets, rank) = page
    yield number, 0.0
    for target in targets:
        yield target, rank / len(targets)


def _told(vertex: tuple[int, tuple[list[int], int]]) -> list[tuple[int, int]]:
    _, (others, label) = vertex
    return [(other, label) for other in others]


def _least(pair: tuple[int, int | None]) -> int:
    label, told = pair
    return label if told is None else min(label, told)


def _is_less(vertex: tuple[int, tuple[int, int | None]]) -> bool:
    _, (label, told) = vertex
    return told is not None and told < label


def neighbours_of(ends: tuple[np.ndarray, np.ndarray]) -> dict[int, list[int]]:
    """The vertices that edges connect each vertex with."""
    neighbours: dict[int, list[int]] = {vertex: [] for vertex in range(int(max(map(np.max, ends))) + 1)}
    for one, other in zip(ends[0].tolist(), ends[1].tolist()):
        neighbours[one].append(other)
        neighbours[other].append(one)
    return neighbours


def show(name: str, times: list[float]) -> None:
    """Print the times by hand and of the loop."""
    by_hand, loop = times
    print(
        f"{name}  by hand {by_hand:.3f} s, loop {loop:.3f} s, ratio {loop / by_hand:.2f} (must {TARGETS[name]:g})",
        flush=True,
    )


def main() -> None:
    """Print a line for each benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.2, help="1 is the full size")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", action="append", help="run only this benchmark; repeatable")
    parser.add_argument("flags", nargs="*", help="further flags of the pipelines, after --")
    asked = parser.parse_args()
    options = ["--runner", "spark", *asked.flags]
    by_rdd, clock = ByRdd(session().sparkContext), time.perf_counter
    print(f"scale {asked.scale:g}, load {os.getloadavg()[0]:.1f}", flush=True)
    links = graph(asked.scale)
    ends = random_edges(int(100_000 * asked.scale), int(1_000_000 * asked.scale))
    many = random_edges(int(500_000 * asked.scale), int(1_000_000 * asked.scale))
    neighbours = neighbours_of(many)
    works: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "G1": (lambda: by_rdd.ranks(links, ROUNDS), lambda: ranks_by_loop(links, options)),
        "G2": (lambda: by_rdd.ranks_of_edges(*ends, ROUNDS), lambda: array_ranks_by_graph(*ends, options)),
        "G3": (lambda: by_rdd.components(neighbours), lambda: components_by_delta(neighbours, options)),
        "G4": (lambda: by_rdd.components(neighbours), lambda: array_components_by_graph(*many, options)),
    }
    for name in works:
        if not asked.only or name in asked.only:
            times, (by_hand, loop) = least(asked.turns, clock, *works[name])
            assert all(abs(by_hand[key] - value) < 1e-12 for key, value in loop.items())
            show(name, times)
    if not asked.only or "R" in asked.only:
        (action,), _ = least(10, clock, by_rdd.empty_action)
        show("R", [action, min(empty_round(options, clock, 20) for _ in range(asked.turns))])


if __name__ == "__main__":
    main()
