"""`explain`: a plan as text, with the reason for every decision, and as a graph."""

from __future__ import annotations

from dataclasses import replace

from tidegate.runners.plan import Decision, Edge, Exchange, Plan, Step
from tidegate.runners.planner.explain import explain, graph_of_plan, warnings
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.seal import this_environment
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing.assigners import FixedWindows
from tidegate.sdk.windowing.strategy import ACCUMULATING, WindowingStrategy
from tidegate.sdk.windowing.triggers import AfterCount, AfterWatermark, Repeatedly


def at(line: int) -> Where:
    return Where("job.py", line)


def out(*ids: str) -> tuple[portable.Output, ...]:
    return tuple(portable.Output("main" if number == 0 else id, id) for number, id in enumerate(ids))


def step(label: str, line: int, source: str, *ids: str) -> portable.ParDo:
    return portable.ParDo(
        label=label, where=at(line), inputs=(source,), outputs=out(*ids), fn=UserFn.of(abs), form="map",
        params=(Param("element"),),
    )  # fmt: skip


MINUTES = WindowingStrategy(FixedWindows(60), AfterWatermark(early=Repeatedly(AfterCount(10))), ACCUMULATING)
CREATE = portable.Create(label="numbers", where=at(1), outputs=out("a"), values=portable.Values(None, 3))
PARSE = step("parse", 2, "a", "b", "bad")
PAIR = step("pair", 3, "b", "c")
WINDOW = portable.AssignWindows(label="minutes", where=at(4), inputs=("c",), outputs=out("d"), windowing=MINUTES)
SUM = portable.CombinePerKey(
    label="sum",
    where=at(5),
    inputs=("d",),
    outputs=out("e"),
    fn=UserFn.of(sum),
    name="sum",
    in_parts=True,
    has_identity=True,
)
AGAIN = portable.GroupByKey(label="again", where=at(6), inputs=("e",), outputs=out("f"))
JOIN = replace(step("join", 7, "f", "g"), side_inputs=(portable.SideInputRef("bad", "list"),))
WRITE = portable.Write(
    label="store", where=at(8), inputs=("g",), sink=UserFn.of(abs), name="Rows", delivery="at_least_once"
)


def make_plan() -> Plan:
    nodes = (CREATE, PARSE, PAIR, WINDOW, SUM, AGAIN, JOIN, WRITE)
    pipeline = portable.Pipeline(
        nodes,
        tuple(
            portable.Collection(id, windowing=MINUTES if id in "def" else WindowingStrategy())
            for node in nodes
            for id in (o.collection for o in node.outputs)
        ),
        this_environment(),
        name="job",
    )
    steps = (
        Step(0, (CREATE,), 0),
        Step(1, (PARSE,), 0),
        Step(2, (PAIR, WINDOW), 0),
        Step(3, (SUM,), 0, "parts", "table"),
        Step(4, (SUM,), 1, "merge", "table"),
        Step(5, (AGAIN,), 1, "whole", "general", in_time_order=True),
        Step(6, (JOIN,), 1),
        Step(7, (WRITE,), 1),
    )
    edges = (
        Edge("a", 0, 1),
        Edge("b", 1, 2),
        Edge("d", 2, 3),
        Edge("sum~parts", 3, 4, Exchange("hash", "blocking", "parts of one key meet")),
        Edge("e", 4, 5),
        Edge("f", 5, 6),
        Edge("bad", 1, 6, Exchange("broadcast", "blocking", "a side input"), side=0, node="join"),
        Edge("g", 6, 7),
    )
    decisions = (
        Decision("minutes", "fused 2 steps into one loop", "each has only one reader"),
        Decision("sum", "combined in parts before the exchange", "the input is bounded"),
        Decision("again", "no exchange", "'sum' has partitioned its input by the same key"),
        Decision("count", "dropped", "nothing reads its result"),
    )
    return Plan(pipeline, steps, edges, ((0,), (1,)), decisions)


def test_a_plan_is_printed_with_its_reasons() -> None:
    assert explain(make_plan()) == (
        """Plan of 'job': 2 regions, 2 stages, 8 steps, 2 exchanges

Region 0
  Stage 0
    [0] read, Create
          numbers   3 elements; job.py:1
    │ from [0]
    [1] step
          parse   job.py:2
    │ from [1]
    [2] 2 steps in one loop
          pair   job.py:3
          minutes   FixedWindows(60s), AfterWatermark(Repeatedly(AfterCount(10))), accumulating; job.py:4
          · fused 2 steps into one loop: each has only one reader
    │ from [2]
    [3] combine in parts
          sum   FixedWindows(60s), AfterWatermark(Repeatedly(AfterCount(10))), accumulating; job.py:5
          · combined in parts before the exchange: the input is bounded

Region 1, starts when region 0 is done
  Stage 1
    ╪ from [3]: hash exchange, blocking (parts of one key meet)
    [4] merge the parts, table path
          sum   FixedWindows(60s), AfterWatermark(Repeatedly(AfterCount(10))), accumulating; job.py:5
          · combined in parts before the exchange: the input is bounded
    │ from [4]
    [5] group, general path
          again   FixedWindows(60s), AfterWatermark(Repeatedly(AfterCount(10))), accumulating; job.py:6
          · no exchange: 'sum' has partitioned its input by the same key
          · each key's elements in timestamp order: the input is bounded, and their order can show
    │ from [5]
    ╪ from [1], output 'bad': side input 0 of 'join': broadcast exchange, blocking (a side input)
    [6] step
          join   job.py:7
    │ from [6]
    [7] write
          store   Rows, at_least_once; job.py:8

Dropped
  count: nothing reads its result

Mind
  - 'again' groups the panes of 'sum', which accumulate and may fire more than once: values are counted again with \
every pane
  - 'store' delivers at least once: after a failure it may write elements again
"""
    )


def test_the_same_plan_gives_the_same_text() -> None:
    assert explain(make_plan()) == explain(make_plan())


def test_new_windows_between_two_groupings_do_not_stop_values_from_counting_again() -> None:
    plan = make_plan()
    rewindow = portable.AssignWindows(
        label="rewindow", where=at(9), inputs=("e",), outputs=out("n"), windowing=WindowingStrategy()
    )
    nodes = [node if node is not AGAIN else replace(AGAIN, inputs=("n",)) for node in plan.pipeline.nodes]
    nodes.insert(5, rewindow)
    collections = (*plan.pipeline.collections, portable.Collection("n"))
    pipeline = replace(plan.pipeline, nodes=tuple(nodes), collections=collections)
    assert list(warnings(replace(plan, pipeline=pipeline))) == list(warnings(plan))


def test_the_graph_of_a_plan_shows_regions_stages_steps_and_exchanges() -> None:
    graph = graph_of_plan(make_plan())
    assert [(group.title, group.kind, group.parent) for group in graph.groups] == [
        ("Region 0", "region", ""),
        ("Stage 0", "stage", "region 0"),
        ("Region 1", "region", ""),
        ("Stage 1", "stage", "region 1"),
        ("Step 2: 2 steps in one loop", "step", "stage 0"),
    ]
    titles = {box.id: box.title for box in graph.boxes}
    assert list(titles.values()) == ["numbers", "parse", "pair", "minutes", "sum (parts)", "sum (merge)", *[
        "again", "join", "store",
    ]]  # fmt: skip
    links = {(titles[link.source], titles[link.target]): link for link in graph.links}
    assert links["sum (parts)", "sum (merge)"].bold
    assert links["sum (parts)", "sum (merge)"].label == "hash, blocking"
    assert ("because", "parts of one key meet") in links["sum (parts)", "sum (merge)"].facts
    assert links["parse", "join"].dashed
    assert links["pair", "minutes"].label == ""
    facts = dict(next(box for box in graph.boxes if box.title == "again").facts)
    assert facts["no exchange"] == "'sum' has partitioned its input by the same key"
