"""A loop in the portable form: a file of the format that had it first, what is refused, and how it is drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.plan import Plan
from tidegate.runners.planner import Traits, plan
from tidegate.runners.planner.explain import explain
from tidegate.sdk.drawing.graph import graph_of
from tidegate.sdk.portable.integrity import check_references
from tidegate.sdk.portable.json import dump, load
from tidegate.sdk.portable.model import Iterate, Lookup, Pipeline
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


def lines_of_loop(text: str, label: str) -> list[str]:
    """What an explained plan says of a loop."""
    lines = text[text.index(f"Loop {label}: ") :].splitlines()
    return [line.strip() for line in lines[: lines.index("") if "" in lines else None]]


@pytest.mark.parametrize("name", ["L", "L~1"])
def test_what_runs_once_is_of_the_loop_and_not_of_a_step_whose_name_begins_as_its_name_does(name: str) -> None:
    p = tg.Pipeline()
    pairs = p | "pairs" >> tg.Create([(1, 2)]).with_output_types(tuple[int, int])
    before = pairs | "L and more" >> tg.ptransform_fn(lambda x: x | tg.CombinePerKey(sum))()

    def body(x: Any) -> Any:
        both = (x, pairs | "in front" >> tg.MapValues(lambda n: n + 1)) | "both" >> tg.CoGroupByKey()
        return both | tg.Map(lambda group: (group[0], 1)).with_output_types(tuple[int, int])

    loop = before | name >> tg.Iterate(body, rounds=2)
    _ = loop | f"{name}oader" >> tg.ptransform_fn(lambda x: x | tg.CombinePerKey(sum))() | "print" >> tg.Map(print)
    text = explain(plan(p.sealed(), Traits(parallel=True, blocking=True, parallel_loops=True)))
    assert f"runs once, before round 1: {name}/in front, {name}/both/Tag(1)" in lines_of_loop(text, name)


@pytest.mark.parametrize(
    "traits", [Traits(parallel=False), Traits(parallel=True, blocking=True, parallel_loops=True)], ids=["one", "all"]
)
def test_what_runs_once_may_be_in_the_body_of_another_loop(traits: Traits) -> None:
    p = tg.Pipeline()

    def outer(x: Any) -> Any:
        def inner(y: Any) -> Any:
            return (y, x | "once" >> tg.MapValues(lambda n: n + 1)) | tg.Flatten() | "sum" >> tg.CombinePerKey(sum)

        return x | "in" >> tg.Iterate(inner, rounds=2)

    start = p | tg.Create([(1, 2)]).with_output_types(tuple[int, int])
    _ = start | "out" >> tg.Iterate(outer, rounds=2) | tg.Map(print)
    text = explain(plan(p.sealed(), traits))
    assert "runs once, before round 1: out/in/once" in lines_of_loop(text, "out/in")
    assert "runs once" not in text[text.index("Loop out: ") : text.index("Loop out/in: ")]


def test_what_is_kept_may_be_what_a_variable_starts_as() -> None:
    p = tg.Pipeline()
    a, b = (p | name >> tg.Create([1]) for name in ("a", "b"))

    def body(both: Any) -> Any:
        return both[0] | tg.Map(lambda n, others: n, tg.AsList(b)), both[1] | "2" >> tg.Map(lambda n: n)

    for number in (0, 1):
        _ = ((a, b) | f"loop {number}" >> tg.Iterate(body, rounds=2))[number] | f"print {number}" >> tg.Map(print)
    for traits in (Traits(parallel=False), Traits(parallel=True, blocking=True, parallel_loops=True)):
        text = explain(plan(p.sealed(), traits))
        assert "kept for all rounds: b" in lines_of_loop(text, "loop 0")
        assert "changed by each round: 1, 2" in lines_of_loop(text, "loop 0")


def test_explain_says_which_regions_all_tasks_run_again() -> None:
    text = explain(plan(halved(), Traits(parallel=True, blocking=True, parallel_loops=True)))
    assert "and runs again in each round of loop" in text
    assert "in other rounds what the one before has left by forward exchange" in text
    assert "· all tasks run its rounds: its input is bounded and stored" in text
    assert text[text.index("Loop loop") :].splitlines()[0] == "Loop loop: at most 5 rounds, in all tasks, region 2"
    text = explain(plan(components(), Traits(parallel=True, blocking=True, parallel_loops=True)))
    assert "· all tasks run its rounds: its input is bounded and stored" in text
    assert "· loop:workset~before stays where it is: each round leaves it partitioned by key" in text
    assert text[text.index("Loop loop") :].splitlines() == [
        "Loop loop: at most 10,000 rounds, in all tasks, region 2",
        "  runs once, before round 1: loop/OneValue(start)",
        "  updated by each round, a table in parts, one in each task: loop/OneValue(start)",
        "  changed by each round: workset",
        "  over when this is empty: workset",
        "  Each round: 1 exchange between processes",
    ]


def of_loops(planned: Plan) -> dict[str, str]:
    """Why one task runs the rounds of each loop, also of those in the bodies of others."""
    found = {each.step: each.reason for each in planned.decisions if each.choice == "one task runs all rounds"}
    for loop in planned.loops:
        found |= of_loops(loop.plan)
    return found


@pytest.mark.parametrize(
    ("traits", "reason"),
    [
        (Traits(parallel=False), "one process: there are no other tasks"),
        (Traits(parallel=True, streaming=True), "bounded input runs as a stream, in which no region runs again"),
        (Traits(parallel=True, blocking=True, parallel_loops=True), None),
    ],
    ids=["one process", "a stream", "a batch"],
)
def test_a_plan_says_why_one_task_runs_a_loop(traits: Traits, reason: str | None) -> None:
    p = tg.Pipeline()

    def outer(x: Any) -> Any:
        return x | "in" >> tg.Iterate(lambda y: y | tg.MapValues(lambda n: n + 1), rounds=2) | tg.CombinePerKey(sum)

    start = p | tg.Create([(1, 2)]).with_output_types(tuple[int, int])
    _ = start | "out" >> tg.Iterate(outer, rounds=2) | tg.Map(print)
    planned = plan(p.sealed(), traits)
    expected = {"out/in": "it is within another loop"} | ({} if reason is None else {"out": reason})
    assert of_loops(planned) == expected
    assert all(f"· one task runs all rounds: {each}" in explain(planned) for each in expected.values())


def test_a_plan_says_what_makes_the_pipeline_of_a_loop_a_stream() -> None:
    def planned(add: Callable[[tg.Pipeline, Any], object]) -> dict[str, str]:
        p = tg.Pipeline()
        numbers = p | "numbers" >> tg.Create([1])
        _ = numbers | "loop" >> tg.Iterate(lambda x: x | tg.Map(lambda n: n + 1), rounds=2) | "print" >> tg.Map(print)
        add(p, numbers)
        return of_loops(plan(p.sealed(), Traits(parallel=True)))

    def feed_back(p: tg.Pipeline, numbers: Any) -> None:
        body = tg.Feedback(lambda x: tg.Round(x | tg.Filter(lambda n: n > 1), out=x | tg.Map(lambda n: n)))
        _ = numbers | "around" >> body | "print around" >> tg.Map(print)

    def read(p: tg.Pipeline, numbers: Any) -> None:
        _ = p | "ticks" >> tg.PeriodicImpulse(interval=1) | "print ticks" >> tg.Map(print)

    around = "'around' lets the pipeline run as a stream, in which no region runs again"
    assert planned(feed_back) == {"loop": around}
    (reason,) = planned(read).values()
    assert reason.startswith("'ticks")
    assert reason.endswith("is unbounded, and in a stream no region runs again")


def test_all_tasks_run_a_loop_whose_result_is_read_together_with_its_input() -> None:
    p = tg.Pipeline()
    numbers = p | "numbers" >> tg.Create([("a", 1), ("b", 2)]).with_output_types(tuple[str, int])
    loop = numbers | "loop" >> tg.Iterate(lambda x: x | tg.MapValues(lambda n: n + 1), rounds=3)
    _ = (numbers, loop) | tg.CoGroupByKey() | "print" >> tg.Map(print)
    _ = (numbers, loop) | tg.Flatten() | "print both" >> tg.Map(print)
    (found,) = plan(p.sealed(), Traits(parallel=True, parallel_loops=True)).loops
    assert found.regions


def components(*, values: bool = False) -> Pipeline:
    """A loop with a solution."""
    p = tg.Pipeline()
    labels = p | "labels" >> tg.Create([(1, 1), (2, 2)]).with_output_types(tuple[int, int])

    def step(solution: Any, work: Any) -> Any:
        lower = tg.MapTuple(lambda k, both: (k, min(both[0], both[1] or 0))).with_output_types(tuple[int, int])
        return work | solution.lookup() | "next" >> lower

    _ = (labels, labels) | "loop" >> tg.IterateDelta(step, merge=min) | tg.Map(print)
    return p.sealed(values=values)


def test_a_loop_with_a_solution_is_read_as_it_was_written() -> None:
    pipeline = components(values=True)
    assert load(dump(pipeline)) == pipeline
    (loop,) = (node for node in pipeline.nodes if isinstance(node, Iterate))
    assert [(each.form, each.drives) for each in loop.variables] == [("solution", False), ("changes", True)]
    assert isinstance(next(node for node in loop.body if node.label.endswith("Lookup")), Lookup)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda node: replace(node, inputs=node.inputs[:1]),
            "step 'loop/Lookup' looks up what is not the solution of a loop",
        ),
        (
            lambda node: replace(node, inputs=(node.inputs[1], node.inputs[1])),
            "step 'loop/Lookup' reads the solution of 'loop' without a lookup",
        ),
        (
            lambda node: replace(node, inputs=(node.inputs[0], "labels")),
            "step 'loop/Lookup' looks up what is not the solution of a loop",
        ),
    ],
)
def test_a_lookup_that_is_not_consistent_is_refused(change: Any, message: str) -> None:
    pipeline = components()
    nodes = [
        replace(node, body=tuple(change(each) if isinstance(each, Lookup) else each for each in node.body))
        if isinstance(node, Iterate)
        else node
        for node in pipeline.nodes
    ]
    with pytest.raises(tg.BuildError) as caught:
        check_references(replace(pipeline, nodes=tuple(nodes)))
    assert str(caught.value).splitlines()[0] == message


def test_explain_and_graph_name_the_solution() -> None:
    pipeline = components()
    text = explain(plan(pipeline, Traits(parallel=True, blocking=True)))
    assert (
        "  updated by each round, a table in memory: loop/OneValue(start)\n  changed by each round: workset\n" in text
    )
    assert "  over when this is empty: workset\n" in text
    assert "look up in the solution" in text
    links = [(link.source, link.target, link.label) for link in graph_of(pipeline).links]
    assert ("loop:solution~before", "loop/Lookup", "") in links
    assert ("loop/OneValue(updates)", "loop:solution~before", "next round") in links
