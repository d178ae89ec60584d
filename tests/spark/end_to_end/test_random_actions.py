"""Pipelines of several actions give the same results on Spark as on the direct runner: random webs of side inputs,
groupings and loops, each of which reads what any earlier ones have made.

`--spark-pipelines 200` compares a tenth as many webs; all collections of a web are compared.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import PaneRecorder

Web: TypeAlias = list[tuple[str, int, int]]
"""The steps of a pipeline: of which kind each is, and how far before it the steps are whose results it reads."""

KINDS = ["side", "group", "side", "group", "loop", "constant"]
STEPS = st.tuples(st.sampled_from(KINDS), st.integers(1, 2), st.integers(1, 2))
PAIR = tuple[int, int]


def totals(pcolls: Any, name: str) -> Any:
    """The totals of each key. Nothing is combined before the values of a key have come together."""
    grouped = pcolls | f"{name}: group" >> tg.GroupByKey()
    return grouped | f"{name}: total" >> tg.MapTuple(lambda key, ns: (key, sum(ns) % 97)).with_output_types(PAIR)


def moved(pair: tuple[int, int], beside: list[Any]) -> tuple[int, int]:
    key, n = pair
    return (key + len(beside)) % 5, (n + sum(map(sum, beside))) % 97


def step(number: int, kind: str, first: Any, second: Any) -> Any:
    """The result of a step of a web, from those of two others."""
    name = f"{kind} {number}"
    match kind:
        case "side":
            return first | name >> tg.Map(moved, tg.AsList(second)).with_output_types(PAIR)
        case "group":
            return totals((first, second) | f"{name}: both" >> tg.Flatten(), name)
        case "loop":
            return first | name >> tg.Iterate(lambda x: totals(x, name), rounds=2)
        case _:
            return first | name >> tg.Iterate(
                lambda x: totals((x, second) | f"{name}: both" >> tg.Flatten(), name), rounds=2
            )


def results(web: Web, flags: list[str]) -> list[list[str]]:
    """What each step of a web emits, sorted."""
    p = tg.Pipeline(options=flags)
    made = [
        p | f"given {number}" >> tg.Create(pairs) | f"read {number}" >> tg.Map(tuple).with_output_types(PAIR)
        for number, pairs in enumerate([[(1, 1), (2, 2)], [(1, 10)], [(3, 5), (4, 7), (3, 1)], [(0, 9)]])
    ]
    recorders = []
    for number, (kind, first, second) in enumerate(web):
        made.append(step(number, kind, made[-first], made[-second]))
        recorders.append(PaneRecorder(f"records {number}"))
        _ = made[-1] | recorders[-1]
    p.run().wait_until_finish()
    return [sorted(map(repr, recorder.records())) for recorder in recorders]


def drawn(number: int) -> list[Web]:
    found: list[Web] = []

    @settings(max_examples=number, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None)
    @given(st.lists(STEPS, min_size=9, max_size=12))
    def draw(web: Web) -> None:
        found.append(web)

    draw()
    return found


def test_random_webs_of_side_inputs_and_loops_give_the_same_results_as_on_the_direct_runner(
    flags: list[str], request: pytest.FixtureRequest
) -> None:
    for web in drawn(max(request.config.getoption("--spark-pipelines") // 10, 4)):
        assert results(web, flags) == results(web, ["--runner", "direct"]), web
