"""A loop in the portable form: a file of the format that had it first, what is refused, and how it is drawn."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.planner import Traits, plan
from tidegate.runners.planner.explain import explain
from tidegate.sdk.drawing.graph import graph_of
from tidegate.sdk.portable.integrity import check_references
from tidegate.sdk.portable.json import dump, load
from tidegate.sdk.portable.model import Iterate, Pipeline
from tidegate.sdk.runner import find_runner

FIRST = Path(__file__).parent / "fixtures" / "format-3.json"


def halved() -> Pipeline:
    """A loop with a constant, a condition and an output."""
    p = tg.Pipeline()
    numbers = p | "numbers" >> tg.Create([8, 9])
    ones = p | "ones" >> tg.Create([1])

    def step(before: Any) -> Any:
        low = ones | "low" >> tg.Map(lambda n: n + 1)
        new = before | "halve" >> tg.Map(lambda n, least: n // least, tg.AsSingleton(low))
        return tg.Round(new, again=new | "more" >> tg.Filter(lambda n: n > 1), out={"seen": new})

    loop = numbers | "loop" >> tg.Iterate(step, rounds=5)
    _ = loop.result | "print" >> tg.Map(print)
    _ = loop.out["seen"] | "print seen" >> tg.Map(print)
    return p.sealed()


def test_a_file_of_the_first_format_with_loops_is_read_and_runs() -> None:
    loaded = load(FIRST.read_bytes())
    assert dump(loaded) == FIRST.read_text()
    loop = loaded.nodes[1]
    assert isinstance(loop, Iterate)
    assert (loop.rounds, loop.strict, [node.label for node in loop.body]) == (
        10,
        True,
        ["Iterate/halve", "Iterate/more"],
    )
    if sys.version_info[:2] == (3, 11):  # the version whose bytecode is in the file
        result = find_runner("direct").run(loaded, tg.Pipeline().options)
        assert result.metrics().counter("rounds") == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"again": ("nowhere",)}, "step 'loop' takes 'nowhere' from its body, which doesn't make it"),
        ({"inputs": ()}, "step 'loop' doesn't read its loop variable ''"),
        ({"rounds": -1}, "step 'loop' has two loop variables with one id, or less than no rounds"),
        ({"body": ()}, "no step makes the collection 'loop/halve'"),
    ],
)
def test_a_loop_that_is_not_consistent_is_refused(change: dict[str, Any], message: str) -> None:
    pipeline = halved()
    nodes = tuple(replace(node, **change) if isinstance(node, Iterate) else node for node in pipeline.nodes)
    kept = {out.collection for node in nodes for out in node.outputs}
    collections = tuple(each for each in pipeline.collections if each.id in kept)
    with pytest.raises(tg.BuildError) as caught:
        check_references(replace(pipeline, nodes=nodes, collections=collections))
    assert str(caught.value).splitlines()[0] == message


def test_a_loop_is_drawn_as_a_box_with_an_arrow_back() -> None:
    graph = graph_of(halved())
    assert [(group.id, group.title) for group in graph.groups] == [("loop", "loop (at most 5 rounds)")]
    assert [box.id for box in graph.boxes if box.group == "loop"] == [
        "loop/low", "loop~before", "loop/halve", "loop/more",
    ]  # fmt: skip
    links = [(link.source, link.target, link.label) for link in graph.links]
    assert ("numbers", "loop~before", "") in links
    assert ("loop/halve", "loop~before", "next round") in links
    assert ("loop/halve", "print", "") in links
    assert ("loop/halve", "print seen", "") in links


def test_explain_says_what_runs_once_what_is_kept_and_what_a_round_exchanges() -> None:
    text = explain(plan(halved(), Traits(parallel=True, blocking=True)))
    start = text.index("Loop loop")
    assert text[start:].splitlines()[:6] == [
        "Loop loop: at most 5 rounds, all in one task",
        "  runs once, before round 1: loop/low",
        "  kept for all rounds: loop/low",
        "  changed by each round: numbers",
        "  another round while none of these is empty: loop/more",
        "  Each round: 0 exchanges between processes",
    ]
