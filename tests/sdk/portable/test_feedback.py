"""A feedback loop in the portable form: stored and read again, what is refused, how it is drawn and explained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.planner import Traits, plan
from tidegate.runners.planner.explain import explain
from tidegate.sdk.drawing.graph import graph_of
from tidegate.sdk.portable.integrity import check_references
from tidegate.sdk.portable.json import dump, load
from tidegate.sdk.portable.model import Feedback, Pipeline
from tidegate.sdk.runner import find_runner


def counted_down() -> Pipeline:
    """A loop with a limit and a constant."""
    p = tg.Pipeline()
    numbers = p | "numbers" >> tg.Create([3, 9])
    ones = p | "ones" >> tg.Create([1])

    def body(before: Any) -> Any:
        less = before | "less" >> tg.Map(lambda n, by: n - by, tg.AsSingleton(ones))
        return tg.Round(less | "more" >> tg.Filter(lambda n: n > 0), out=less)

    done, lost = numbers | "loop" >> tg.Feedback(body, max_hops=4, max_backlog="1kB")
    _ = done | "done" >> tg.Map(print)
    _ = lost | "lost" >> tg.Map(print)
    return p.sealed(values=True)


def test_a_stored_loop_is_read_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = counted_down()
    loaded = load(dump(pipeline))
    assert dump(loaded) == dump(pipeline)
    (loop,) = (node for node in loaded.nodes if isinstance(node, Feedback))
    assert (loop.before, loop.after, loop.gives) == ("loop~before", "loop/more", ("loop/less",))
    assert (loop.max_hops, loop.max_backlog, loop.inputs) == (4, 1000, ("numbers", "ones"))
    find_runner("direct").run(loaded, tg.Pipeline().options)
    assert sorted(map(int, capsys.readouterr().out.split())) == [0, 1, 2, 4, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"after": "nowhere"}, "step 'loop' takes 'nowhere' from its body, which doesn't make it"),
        ({"gives": ("nowhere",)}, "step 'loop' takes 'nowhere' from its body, which doesn't make it"),
        ({"before": "numbers"}, "step 'loop' doesn't read what it feeds back, or has a limit below 0"),
        ({"max_hops": -1}, "step 'loop' doesn't read what it feeds back, or has a limit below 0"),
        ({"max_hops": None}, "step 'loop' has 2 inputs and 2 outputs, which a feedback can't have"),
        ({"inputs": ("numbers",)}, "step 'loop/less' reads 'ones', which no step makes"),
    ],
)
def test_a_loop_that_is_not_consistent_is_refused(change: dict[str, Any], message: str) -> None:
    pipeline = counted_down()
    nodes = tuple(replace(node, **change) if isinstance(node, Feedback) else node for node in pipeline.nodes)
    with pytest.raises(tg.BuildError) as caught:
        check_references(replace(pipeline, nodes=nodes))
    assert str(caught.value).splitlines()[0] == message


def test_a_loop_is_drawn_as_a_box_with_an_arrow_back() -> None:
    graph = graph_of(counted_down())
    assert [(group.id, group.title) for group in graph.groups] == [("loop", "loop (feedback, at most 4 hops)")]
    assert [box.id for box in graph.boxes if box.group == "loop"] == ["loop~before", "loop/less", "loop/more"]
    links = {(link.source, link.target): link.label for link in graph.links}
    assert links["numbers", "loop~before"] == ""
    assert links["loop/more", "loop~before"] == "fed back"
    assert ("loop/less", "done") in links
    assert ("loop~before", "lost") in links


def test_a_plan_says_what_is_fed_back() -> None:
    text = explain(plan(counted_down(), Traits(parallel=False)))
    assert "take the input and what is fed back" in text
    assert "↑ fed back from [" in text
    assert "takes loop/more again" in text
