"""The loops of chains fill the tables of the grouping that alone reads them, with the results and errors of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate.runners.engine.elementwise.chain import Chain
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.operator_graph import Graph
from tidegate.runners.planner import Traits, plan

MANY = 3000
"""More elements than go through the loop that checks them."""


def apart(key: int) -> tuple[int, int]:
    """A pair of a key, for one of the collections."""
    return key % 7, key


def joined(p: tg.Pipeline) -> None:
    sides = {tag: p | tag >> tg.Create([1]) | f"pair {tag}" >> tg.Map(apart) for tag in ("a", "b")}
    _ = sides | "join" >> tg.CoGroupByKey() | tg.Map(str)


def flattened(p: tg.Pipeline) -> tuple[Any, Any]:
    a, b = (p | name >> tg.Create([1]) | f"pair {name}" >> tg.Map(apart) for name in "ab")
    _ = (a, b) | tg.Flatten() | "group" >> tg.GroupByKey() | "out" >> tg.Map(str)
    return a, b


def read_twice(p: tg.Pipeline) -> None:
    a, _ = flattened(p)
    _ = a | "again" >> tg.Map(str)


def twice_in_one(p: tg.Pipeline) -> None:
    a = p | tg.Create([1]) | "pair a" >> tg.Map(apart)
    _ = (a, a) | tg.Flatten() | "group" >> tg.GroupByKey() | "out" >> tg.Map(str)


def with_dead_letters(p: tg.Pipeline) -> None:
    kept, failed = p | tg.Create([1]) | "pair a" >> tg.Map(apart).with_exception_handling()
    b = p | "b" >> tg.Create([1]) | "pair b" >> tg.Map(apart)
    _ = (kept, b) | tg.Flatten() | "group" >> tg.GroupByKey() | "out" >> tg.Map(str)
    _ = failed | "failed" >> tg.Map(str)


def counted(p: tg.Pipeline) -> None:
    a, b = (p | name >> tg.Create([1]) | f"pair {name}" >> tg.Map(apart) for name in "ab")
    _ = (a, b) | tg.Flatten() | "group" >> tg.CombinePerElement(len) | "out" >> tg.Map(str)


def by_window(p: tg.Pipeline) -> None:
    a = p | tg.Create([1]) | "pair a" >> tg.Map(lambda x, w=tg.DoFn.WindowParam: (w.start, x))
    b = p | "b" >> tg.Create([1]) | "pair b" >> tg.Map(apart)
    _ = (a, b) | tg.Flatten() | "group" >> tg.GroupByKey() | "out" >> tg.Map(str)


@pytest.mark.parametrize(
    ("build", "group", "fused"),
    [
        pytest.param(joined, "join/Group", {"join/Tag(a)", "join/Tag(b)"}, id="the collections of a CoGroupByKey"),
        pytest.param(flattened, "group", {"pair a", "pair b"}, id="those of a Flatten"),
        pytest.param(read_twice, "group", {"pair b"}, id="one that another step reads"),
        pytest.param(twice_in_one, "group", set(), id="one that is read twice"),
        pytest.param(with_dead_letters, "group", {"pair b"}, id="one with another output"),
        pytest.param(counted, "group", set(), id="those that are counted in blocks"),
        pytest.param(by_window, "group", {"pair b"}, id="one that is called for each window"),
    ],
)
def test_chains_that_a_grouping_alone_reads_fill_its_tables(
    build: Callable[[tg.Pipeline], Any], group: str, fused: set[str]
) -> None:
    p = tg.Pipeline()
    build(p)
    planned = plan(p.portable(), Traits(parallel=False))
    steps = [step for step in planned.steps if not (step.is_source or step.is_sink)]
    inside = {step.id for step in steps}
    edges = [edge for edge in planned.edges if edge.target in inside]
    graph = Graph(planned, steps, edges, Context(1 << 30, lambda: pytest.fail("nothing is spilled")), {})
    operators: dict[str, Any] = graph.operators()

    grouping = operators[group].grouping if fused else None
    filling = {name for name, of in operators.items() if isinstance(of, Chain) and of.grouping is not None}

    assert {name.removesuffix("/Pairs") for name in filling} == fused
    assert all(operators[name].grouping is grouping for name in filling)


@pytest.mark.parametrize("inline", ["on", "off", "always"])
@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("sides", [1, 2, 3])
def test_groups_have_the_values_of_each_collection_in_the_order_of_arrival(
    inline: str, tagged: bool, sides: int
) -> None:
    names = "abc"[:sides]

    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        parts = {
            name: p | name >> tg.Create(range(at, MANY, at + 1)) | f"pair {name}" >> tg.Map(lambda x: (x % 100, x))
            for at, name in enumerate(names)
        }
        grouped: Any = (parts if tagged else tuple(parts.values())) | tg.CoGroupByKey()
        return {"groups": grouped}

    values = [[(x % 100, x) for x in range(at, MANY, at + 1)] for at in range(sides)]
    lists = {key: tuple([x for k, x in side if k == key] for side in values) for key in range(100)}
    expected = [(key, dict(zip(names, group, strict=True)) if tagged else group) for key, group in lists.items()]

    assert collect(build, options=["--inline", inline]).values("groups") == expected


class Unhashable:
    """A key that has an encoding in no case."""

    def __hash__(self) -> int:
        raise ValueError("has no hash")

    def __repr__(self) -> str:
        return "Unhashable()"


@pytest.mark.parametrize(
    ("element", "message"),
    [
        ((Unhashable(), 1), "a key of type Unhashable has no canonical encoding"),
        (5, "cannot unpack non-iterable int object\n  in step 'CoGroupByKey/Tag(a)'"),
        ((1, 2, 3), "too many values to unpack (expected 2)\n  in step 'CoGroupByKey/Tag(a)'"),
    ],
)
@pytest.mark.parametrize("inline", ["on", "off", "always"])
@pytest.mark.parametrize("before", [1, MANY])
def test_errors_name_the_step_that_raised_them(element: Any, message: str, inline: str, before: int) -> None:
    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        a: Any = p | "a" >> tg.Create([*((n, n) for n in range(before)), element])
        return {"groups": {"a": a, "b": p | "b" >> tg.Create([(1, 1)])} | tg.CoGroupByKey()}

    with pytest.raises(tg.TidegateError) as caught:
        collect(build, options=["--inline", inline])
    assert message in str(caught.value)
