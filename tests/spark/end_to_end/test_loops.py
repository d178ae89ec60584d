"""The driver runs the rounds of a loop: constants are shuffled and decoded once, and a round's plan doesn't grow."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.example_scripts import lines_of
from tests.support.run_and_collect import collect
from tidegate.runners.spark.driver.loop_rounds import LoopRounds
from tidegate.sdk.errors import RunError, UserCodeError

LINKS = [(page, [(page * 7 + 1) % 20, (page + 3) % 20]) for page in range(20)]


class Noted:
    """A value that adds a line to a file whenever it is decoded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state)
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")


def shares(group: Any) -> Any:
    page, (targets, ranks) = group
    yield page, 1
    for target in targets[0]:
        yield target, ranks[0] % 1000


def ranks(p: tg.Pipeline, rounds: int) -> dict[str, Any]:
    """Numbers that go along links, as those of PageRank, but whole."""
    links = p | "links" >> tg.Create(LINKS).with_output_types(tuple[int, list[int]])
    start = links | "start" >> tg.MapValues(len).with_output_types(tuple[int, int])

    def step(before: Any) -> Any:
        joined = (links, before) | tg.CoGroupByKey() | tg.FlatMap(shares).with_output_types(tuple[int, int])
        return joined | tg.CombinePerKey(sum)

    return {"ranks": start | tg.Iterate(step, rounds=rounds)}


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The physical plan of each round of the loops that run."""
    found: list[str] = []
    frame = LoopRounds.frame

    def planned(self: LoopRounds, *arguments: Any) -> Any:
        made = frame(self, *arguments)
        found.append(made._jdf.queryExecution().executedPlan().toString())
        return made

    monkeypatch.setattr(LoopRounds, "frame", planned)
    return found


def exchanges_of_constants(plan: str) -> int:
    """How many exchanges what is cached crosses before it reaches a task."""
    above: list[tuple[int, str]] = []
    found = 0
    cached = None
    for line in plan.splitlines():
        depth = len(line) - len(line.lstrip(" :+-|"))
        if cached is not None and depth > cached:
            continue
        cached = None
        above = [(at, each) for at, each in above if at < depth]
        if "InMemoryTableScan" in line:
            cached = depth
            for _, each in reversed(above):
                if "MapInArrow" in each:
                    break
                found += "Exchange" in each
        above.append((depth, line))
    return found


def test_constants_are_not_shuffled_again_and_plans_do_not_grow(flags: list[str], plans: list[str]) -> None:
    on_spark, direct = (collect(lambda p: ranks(p, 12), options=options) for options in (flags, None))
    assert sorted(on_spark.values("ranks")) == sorted(direct.values("ranks"))
    assert on_spark.metrics() == direct.metrics()
    assert len(plans) == 12
    assert all("InMemoryTableScan" in plan for plan in plans)
    assert [exchanges_of_constants(plan) for plan in plans[1:]] == [0] * 11
    assert len({plan.count("Exchange hashpartitioning") for plan in plans[1:]}) == 1
    assert len({len(plan.splitlines()) for plan in plans[1:]}) == 1


def test_without_united_partitions_constants_are_shuffled_in_each_round(
    flags: list[str], plans: list[str], spark_session: Any
) -> None:
    spark_session.conf.set("spark.sql.unionOutputPartitioning", "false")
    try:
        on_spark = collect(lambda p: ranks(p, 3), options=flags)
    finally:
        spark_session.conf.unset("spark.sql.unionOutputPartitioning")
    assert sorted(on_spark.values("ranks")) == sorted(collect(lambda p: ranks(p, 3)).values("ranks"))
    assert [exchanges_of_constants(plan) for plan in plans[1:]] == [1, 1]


def grown(before: Any) -> Any:
    return before | tg.CombinePerKey(sum) | tg.MapValues(lambda value: value + 1).with_output_types(tuple[int, int])


def test_dataframes_of_what_a_loop_has_left_can_be_united(flags: list[str], spark_session: Any) -> None:
    p = tg.Pipeline(options=flags)
    start = p | tg.Create([(key, 0) for key in range(10)]).with_output_types(tuple[int, int])
    made = start | tg.Iterate(grown, rounds=3)
    _ = made | "all" >> tg.ToDataFrame("key int, value int")
    _ = made | tg.Filter(lambda pair: pair[0] > 4) | "some" >> tg.ToDataFrame("key int, value int")
    result = p.run()
    frames = [result.dataframe(name) for name in ("all", "some")]
    both = frames[0].unionAll(frames[1])
    plan = both._jdf.queryExecution().withCachedData().toString().splitlines()
    assert [line[3:19] for line in plan if line[:3] in (":- ", "+- ")] == ["InMemoryRelation"] * 2
    assert sorted(map(tuple, both.collect())) == sorted([(key, 3) for key in (*range(10), *range(5, 10))])
    for frame in frames:
        frame.unpersist()


@pytest.mark.parametrize("form", ["bulk", "delta"])
def test_what_was_persisted_between_loops_is_found_and_not_made_again(
    flags: list[str], tmp_path: Path, form: str
) -> None:
    """The second loop reads rows of two actions, of which both were made of what the first loop has left."""

    def noted(pair: Any) -> Any:
        with (tmp_path / "calls").open("a") as file:
            file.write("called\n")
        return pair

    def build(p: tg.Pipeline) -> dict[str, Any]:
        pairs = tuple[int, int]
        start = p | tg.Create([(key, 0) for key in range(10)]).with_output_types(pairs)
        first = start | "first" >> tg.Iterate(grown, rounds=2)
        called = first | "noted" >> tg.Map(noted).with_output_types(pairs)
        total = tg.AsSingleton(called | tg.Values() | tg.CombineGlobally(sum))
        more = called | "more" >> tg.Map(lambda pair, total: (pair[0], total), total).with_output_types(pairs)

        def joined(before: Any) -> Any:
            found = (before, called, more) | tg.CoGroupByKey()
            return found | tg.MapValues(lambda lists: sum(map(sum, lists))).with_output_types(pairs)

        if form == "bulk":
            return {"": called | "second" >> tg.Iterate(joined, rounds=3)}

        def looked_up(solution: Any, work: Any) -> Any:
            pairs_found = joined(work) | tg.MapValues(lambda value: value % 1_000).with_output_types(pairs)
            return tg.Round((pairs_found, pairs_found | "next" >> tg.Filter(lambda pair: pair[0] > 3)))

        return {"": (called, more) | "second" >> tg.IterateDelta(looked_up, rounds=3)}

    on_spark = sorted(collect(build, options=flags).values(""))
    calls = len((tmp_path / "calls").read_text().splitlines())
    assert calls == 10
    assert on_spark == sorted(collect(build).values(""))


def test_a_worker_decodes_constants_once(flags: list[str], tmp_path: Path) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        made = [(n, Noted(tmp_path / "decoded")) for n in range(3)]
        kept = p | "kept" >> tg.Create(made).with_output_types(tuple[int, Noted])
        start = p | tg.Create([(n, 0) for n in range(3)]).with_output_types(tuple[int, int])

        def step(before: Any) -> Any:
            joined = (kept, before) | tg.CoGroupByKey()
            both = joined | tg.MapValues(lambda pair: pair[1][0] + len(pair[0])).with_output_types(tuple[int, int])
            other = kept | tg.Filter(lambda pair, most: most < 0, tg.AsSingleton(before | tg.Map(lambda _: 0) | MAX))
            return (both, other) | tg.Flatten()

        return {"it": start | tg.Iterate(step, rounds=6)}

    assert sorted(collect(build, options=flags).values("it")) == [(0, 6), (1, 6), (2, 6)]
    by_worker = Counter((tmp_path / "decoded").read_text().split())
    del by_worker[str(os.getpid())]
    # Once in the task that begins, and once by each of the two steps of a round that read them.
    assert max(by_worker.values()) <= 9


MAX = tg.CombineGlobally(max)
PAIR = tuple[int, int]


@pytest.mark.parametrize("budget", ["1", "1MB"])
def test_constants_beyond_the_memory_budget_are_read_in_each_round(budget: str, flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        many = p | "many" >> tg.Create([(n, "x" * 50) for n in range(20_000)]).with_output_types(tuple[int, str])
        start = p | tg.Create([(n, 0) for n in range(10)]).with_output_types(tuple[int, int])

        def step(before: Any) -> Any:
            found = before | tg.Join.inner(many)
            return found | tg.MapValues(lambda both: both[0] + len(both[1])).with_output_types(tuple[int, int])

        return {"it": start | tg.Iterate(step, rounds=3)}

    found = collect(build, options=[*flags, "--memory_budget", budget])
    assert sorted(found.values("it")) == [(n, 150) for n in range(10)]


def test_an_error_in_a_round_names_step_line_and_element(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        numbers = p | tg.Create([3, 3])
        return {"it": numbers | tg.Iterate(lambda x: x | "shrink" >> tg.Map(lambda n: 12 // (n - 1)), rounds=9)}

    with pytest.raises(UserCodeError) as caught:
        collect(build, options=flags)
    text = str(caught.value)
    assert "Iterate/shrink" in text
    assert "test_loops.py" in text
    assert "element" in text


def test_what_leaves_a_loop_early_is_complete_and_in_order(flags: list[str], tmp_path: Path) -> None:
    def step(before: Any) -> Any:
        new = before | tg.CombinePerKey(sum) | "more" >> tg.MapValues(lambda n: n + 1)
        seen = new | tg.MapTuple(lambda key, n: f"{key}: {n}")
        return tg.Round(new, out={"seen": seen})

    with tg.Pipeline(options=flags) as p:
        start = p | tg.Create([(key, 0) for key in range(3)]).with_output_types(tuple[int, int])
        loop = start | tg.Iterate(step, rounds=35)
        _ = loop.out["seen"] | tg.io.WriteToText(str(tmp_path / "seen"), num_shards=1)
    lines = lines_of(tmp_path / "seen")
    for key in range(3):
        assert [line for line in lines if line.startswith(f"{key}:")] == [f"{key}: {n}" for n in range(1, 36)]


def test_a_loop_that_reads_what_another_has_left(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        first = p | tg.Create([(n, n) for n in range(4)]).with_output_types(tuple[int, int])
        summed = first | "first" >> tg.Iterate(
            lambda x: x | tg.MapValues(lambda n: n + 1) | tg.CombinePerKey(sum), rounds=3
        )

        def step(before: Any) -> Any:
            return (before, summed) | tg.Flatten() | tg.CombinePerKey(sum)

        return {"it": summed | "second" >> tg.Iterate(step, rounds=2), "summed": summed}

    found = collect(build, options=flags)
    assert sorted(found.values("it")) == [(n, 3 * (n + 3)) for n in range(4)]
    assert sorted(found.values("summed")) == [(n, n + 3) for n in range(4)]


def test_a_step_may_see_what_the_round_has_computed_of_what_it_has_found(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        def step(before: Any) -> Any:
            moved = before | "moved" >> tg.MapTuple(lambda key, n: (key, n + 1)).with_output_types(tuple[int, int])
            total = tg.AsSingleton(before | tg.Values() | "total" >> tg.CombineGlobally(sum))
            other = before | "other" >> tg.MapTuple(lambda key, n, total: (key, total), total).with_output_types(PAIR)
            both = (moved, other) | tg.Flatten()
            return both | tg.CombinePerKey(max)

        return {"it": p | tg.Create([(0, 1), (1, 5)]).with_output_types(tuple[int, int]) | tg.Iterate(step, rounds=4)}

    on_spark, direct = (collect(build, options=options) for options in (flags, None))
    assert sorted(on_spark.values("it")) == sorted(direct.values("it"))


def test_a_strict_loop_fails_if_its_condition_is_not_met(flags: list[str]) -> None:
    def build(p: tg.Pipeline) -> dict[str, Any]:
        loop = tg.Iterate(lambda x: x | tg.Map(lambda n: n + 1), rounds=2, until=tg.Empty(), strict=True)
        return {"it": p | tg.Create([1]) | loop}

    with pytest.raises(RunError, match="the loop was over after 2 rounds"):
        collect(build, options=flags)
