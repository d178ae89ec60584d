"""The decisions of the planner: dropped, fused and lifted steps, exchanges, stages and regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.random_pipelines import Description, build, pipelines
from tidegate.runners.plan import Exchange, Plan, Step
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.portable.model import Flatten

ONE_PROCESS = Traits(parallel=False)
SPARK = Traits(parallel=True, blocking=True)
STREAMING = Traits(parallel=True, streaming=True)


def planned(write: Callable[[tg.Pipeline], Any], traits: Traits = ONE_PROCESS) -> Plan:
    pipeline = tg.Pipeline()
    write(pipeline)
    return plan(pipeline.sealed(), traits)


def fused(found: Plan) -> list[list[str]]:
    return [[node.label for node in step.nodes] for step in found.steps]


def step_of(found: Plan, label: str) -> Step:
    return next(step for step in found.steps if step.label == label)


def exchange_before(found: Plan, label: str) -> Exchange | None:
    edges = [edge for edge in found.edges if edge.target == step_of(found, label).id and edge.side is None]
    assert len({edge.exchange for edge in edges}) == 1
    return edges[0].exchange


def decisions(found: Plan, label: str) -> list[tuple[str, str]]:
    return [(decision.choice, decision.reason) for decision in found.decisions if decision.step == label]


def keep(x: Any) -> Any:
    return x


class Identity(tg.DoFn):
    def process(self, element: Any) -> list[Any]:
        return [element]


# -- dead branches


def test_steps_whose_output_is_not_read_are_dropped_and_reported() -> None:
    def write(p: tg.Pipeline) -> None:
        pairs = p | "pairs" >> tg.Create([(1, 2)])
        _ = pairs | "group" >> tg.GroupByKey() | "spread" >> tg.Reshuffle()
        _ = pairs | "count" >> tg.CombinePerKey(len) | "print" >> tg.Map(print)

    found = planned(write)
    assert fused(found) == [["pairs"], ["count"], ["print"]]
    assert decisions(found, "group") == [("dropped", "nothing reads its result")]
    assert decisions(found, "spread") == [("dropped", "nothing reads its result")]
    assert {collection.id for collection in found.pipeline.collections} == {"pairs", "count", "print"}


def test_a_function_whose_output_is_not_read_still_runs_with_all_its_inputs() -> None:
    def write(p: tg.Pipeline) -> None:
        _ = p | "pairs" >> tg.Create([(1, 2)]) | "group" >> tg.GroupByKey() | "effect" >> tg.Map(print)

    assert fused(planned(write)) == [["pairs"], ["group"], ["effect"]]


def test_steps_that_only_a_side_input_reads_are_kept() -> None:
    def write(p: tg.Pipeline) -> None:
        side = p | "numbers" >> tg.Create([1]) | "sum" >> tg.CombineGlobally(sum)
        _ = p | "main" >> tg.Create([1]) | "use" >> tg.Map(lambda x, s: x + s, tg.AsSingleton(side))

    assert {step.label for step in planned(write).steps} == {"numbers", "sum", "main", "use"}


# -- fusion


def test_a_chain_is_one_step() -> None:
    def write(p: tg.Pipeline) -> None:
        chain = p | "c" >> tg.Create([1]) | "a" >> tg.Map(keep) | "b" >> tg.FlatMap(lambda x: [x])
        _ = chain | "w" >> tg.WindowInto(tg.FixedWindows(5)) | "d" >> tg.ParDo(Identity())

    found = planned(write)
    assert fused(found) == [["c"], ["a", "b", "w", "d"]]
    assert decisions(found, "d") == [("fused 4 steps into one loop", "each has only one reader")]


def test_a_chain_ends_at_an_output_with_two_readers() -> None:
    def write(p: tg.Pipeline) -> None:
        both = p | "c" >> tg.Create([1]) | "a" >> tg.Map(keep) | "b" >> tg.Map(keep)
        _ = both | "left" >> tg.Map(keep)
        _ = both | "right" >> tg.Map(keep)

    assert fused(planned(write)) == [["c"], ["a", "b"], ["left"], ["right"]]


def test_a_chain_ends_at_additional_outputs_only_if_they_are_read() -> None:
    def write(read: bool) -> Callable[[tg.Pipeline], None]:
        def add_steps(p: tg.Pipeline) -> None:
            tagged = p | "c" >> tg.Create([1]) | "tags" >> tg.ParDo(Identity()).with_outputs("odd")
            good, bad = tagged["main"] | "try" >> tg.Map(keep).with_exception_handling()
            _ = good | "after" >> tg.Map(keep)
            if read:
                _ = bad | "bad" >> tg.Map(keep)

        return add_steps

    assert fused(planned(write(True))) == [["c"], ["tags", "try"], ["after"], ["bad"]]
    assert fused(planned(write(False))) == [["c"], ["tags", "try", "after"]]


def test_a_chain_ends_at_a_flatten_and_the_flatten_is_no_step() -> None:
    def write(p: tg.Pipeline) -> None:
        a = p | "a" >> tg.Create([1]) | "fa" >> tg.Map(keep)
        b = p | "b" >> tg.Create([1]) | "fb" >> tg.Map(keep)
        _ = (a, b) | "all" >> tg.Flatten() | "after" >> tg.Map(keep)

    found = planned(write)
    assert fused(found) == [["a"], ["fa"], ["b"], ["fb"], ["after"]]
    assert [edge.collection for edge in found.inputs(4)] == ["fa", "fb"]


def test_a_chain_ends_before_a_step_with_side_inputs_and_the_next_starts_with_it() -> None:
    def write(p: tg.Pipeline) -> None:
        side = p | "s" >> tg.Create([1])
        main = p | "c" >> tg.Create([1]) | "a" >> tg.Map(keep)
        _ = main | "use" >> tg.Map(lambda x, s: x, tg.AsList(side)) | "b" >> tg.Map(keep)

    assert fused(planned(write)) == [["s"], ["c"], ["a"], ["use", "b"]]


def test_a_chain_ends_at_an_output_that_is_a_side_input() -> None:
    def write(p: tg.Pipeline) -> None:
        side = p | "c" >> tg.Create([1]) | "a" >> tg.Map(keep)
        _ = side | "b" >> tg.Map(keep)
        _ = p | "m" >> tg.Create([1]) | "use" >> tg.Map(lambda x, s: x, tg.AsList(side))

    assert fused(planned(write)) == [["c"], ["a"], ["b"], ["m"], ["use"]]


def grouping(*steps: Any) -> Callable[[tg.Pipeline], None]:
    def write(p: tg.Pipeline) -> None:
        pairs: Any = p | "pairs" >> tg.Create([(1, 2)])
        for number, step in enumerate(steps):
            pairs = pairs | f"step {number}" >> step
        _ = pairs | "end" >> tg.Map(print)

    return write


def test_in_one_process_a_grouping_runs_inside_the_loop_that_feeds_it() -> None:
    write = grouping(tg.Map(keep), tg.Filter(keep), tg.GroupByKey())
    assert fused(planned(write)) == [["pairs"], ["step 0", "step 1", "step 2"], ["end"]]


def test_a_loop_that_multiplies_elements_fills_tables_that_can_be_spilled_meanwhile() -> None:
    twice = tg.FlatMap(lambda pair: [pair, pair])
    apart, together = [["pairs"], ["step 0"], ["step 1"], ["end"]], [["pairs"], ["step 0", "step 1"], ["end"]]
    assert fused(planned(grouping(twice, tg.GroupByKey()))) == together
    assert fused(planned(grouping(twice, tg.CombinePerKey(sum)))) == together
    assert fused(planned(grouping(twice, tg.CombinePerElement(len)))) == apart  # which counts a block at once
    windowed = grouping(twice, tg.CombinePerKey(sum))
    assert fused(planned(windowed, Traits(parallel=False, streaming=True))) == apart


def test_with_several_workers_a_grouping_is_a_step_after_its_exchange() -> None:
    found = planned(grouping(tg.Map(keep), tg.GroupByKey()), SPARK)
    assert fused(found) == [["pairs"], ["step 0"], ["step 1"], ["end"]]
    assert exchange_before(found, "step 1") == Exchange("hash", "blocking", "equal keys meet")


# -- lifting


class Mean(tg.CombineFn[int, Any, float]):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add_input(self, accumulator: Any, element: int) -> Any:
        return accumulator[0] + element, accumulator[1] + 1

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        sums, counts = zip(*accumulators, strict=True)
        return sum(sums), sum(counts)

    def extract_output(self, accumulator: Any) -> float:
        return float(accumulator[0] / accumulator[1])


def phases(found: Plan) -> list[str]:
    return [step.phase for step in found.steps if step.phase is not None]


@pytest.mark.parametrize("combiner", [sum, len, max, Mean(), tg.associative(max)])
@pytest.mark.parametrize("traits", [SPARK, STREAMING])
def test_partial_results_are_combined_before_the_exchange(combiner: Any, traits: Traits) -> None:
    found = planned(grouping(tg.CombinePerKey(combiner)), traits)
    assert phases(found) == ["parts", "merge"]
    parts, merge = (step for step in found.steps if step.phase)
    (edge,) = found.inputs(merge.id)
    assert (edge.source, edge.collection) == (parts.id, parts.outputs[0])
    assert edge.exchange is not None
    assert (edge.exchange.routing, edge.exchange.reason) == ("hash", "parts of one key meet")
    assert step_of(found, "pairs").stage == parts.stage != merge.stage


def test_in_one_process_nothing_is_lifted() -> None:
    found = planned(grouping(tg.CombinePerKey(sum)))
    assert phases(found) == ["whole"]
    assert ("combined once", "one process: there is no exchange to save") in decisions(found, "step 0")


def test_a_plain_callable_is_never_called_with_partial_values() -> None:
    found = planned(grouping(tg.CombinePerKey(keep)), SPARK)
    assert phases(found) == ["whole"]
    assert ("combined after the exchange", "keep is a plain callable, called once with all values") in decisions(
        found, "step 0"
    )


def test_a_global_combine_gathers_its_partial_results() -> None:
    found = planned(grouping(tg.Values(), tg.CombineGlobally(len)), SPARK)
    assert phases(found) == ["parts", "merge"]
    (edge,) = found.inputs(step_of_phase(found, "merge").id)
    assert edge.exchange is not None
    assert edge.exchange.routing == "gather"


def step_of_phase(found: Plan, phase: str) -> Step:
    return next(step for step in found.steps if step.phase == phase)


REPEATED = {"trigger": tg.Repeatedly(tg.AfterCount(3)), "accumulation": tg.DISCARDING}


@pytest.mark.parametrize(
    ("windows", "bounded", "stream"),
    [
        (tg.WindowInto(tg.FixedWindows(5)), True, True),
        (tg.WindowInto(tg.FixedWindows(5), trigger=tg.AfterWatermark()), True, True),
        (tg.WindowInto(tg.FixedWindows(5), **REPEATED), False, False),
        (tg.WindowInto(tg.FixedWindows(5), evictor=tg.KeepLast(3)), False, False),
        (tg.WindowInto(tg.FixedWindows(5), allowed_lateness=5), True, False),
        (tg.WindowInto(tg.FixedWindows(5), timestamp_combiner=tg.TimestampCombiner.EARLIEST), True, False),
        (tg.WindowInto(tg.Sessions(5)), True, False),
        (
            tg.WindowInto(
                tg.FixedWindows(5),
                trigger=tg.AfterWatermark(early=tg.EveryProcessingTime(1)),
                accumulation=tg.DISCARDING,
            ),
            True,
            False,
        ),
    ],
    ids=["plain", "bare", "count", "evictor", "lateness", "earliest", "sessions", "early"],
)
def test_combines_are_lifted_only_if_the_result_does_not_change(windows: Any, bounded: bool, stream: bool) -> None:
    write = grouping(windows, tg.CombinePerKey(sum))
    assert phases(planned(write, SPARK)) == (["parts", "merge"] if bounded else ["whole"])
    assert phases(planned(write, STREAMING)) == (["parts", "merge"] if stream else ["whole"])


@pytest.mark.parametrize(
    ("windows", "batch", "stream"),
    [
        (tg.WindowInto(tg.Sessions(5)), "sessions", "live_sessions"),
        (tg.WindowInto(tg.Sessions(lambda element: 5), trigger=tg.AfterWatermark()), "sessions", "live_sessions"),
        (tg.WindowInto(tg.Sessions(5), allowed_lateness=5), "sessions", "general"),
        (tg.WindowInto(tg.Sessions(5), timestamp_combiner=tg.TimestampCombiner.LATEST), "general", "general"),
        (tg.WindowInto(tg.Sessions(5), **REPEATED), "general", "general"),
        (tg.WindowInto(tg.Sessions(5), evictor=tg.KeepLast(3)), "general", "general"),
    ],
    ids=["plain", "gaps", "lateness", "latest", "count", "evictor"],
)
def test_sessions_with_one_pane_have_a_separate_path(windows: Any, batch: str, stream: str) -> None:
    write = grouping(windows, tg.GroupByKey())
    for traits, path in ((SPARK, batch), (STREAMING, stream)):
        assert [step.path for step in planned(write, traits).steps if step.path is not None] == [path]


def test_in_a_stream_a_combine_with_late_data_is_not_lifted() -> None:
    def write(p: tg.Pipeline) -> None:
        pairs = p | tg.Create([(1, 2)]) | tg.WindowInto(tg.FixedWindows(5))
        both = pairs | "sum" >> tg.CombinePerKey(sum).with_late_data("late")
        _ = both.main | tg.Map(print)

    assert phases(planned(write, STREAMING)) == ["whole"]
    assert phases(planned(write, SPARK)) == ["parts", "merge"]


# -- exchanges


def test_a_second_grouping_by_the_same_key_needs_no_exchange() -> None:
    found = planned(grouping(tg.GroupByKey(), tg.Filter(keep), tg.GroupByKey()), SPARK)
    assert exchange_before(found, "step 2") is None
    assert ("no exchange", "'step 0' has partitioned its input by the same key") in decisions(found, "step 2")
    assert step_of(found, "step 0").stage == step_of(found, "step 2").stage


def test_a_combine_of_partitioned_input_is_neither_lifted_nor_exchanged() -> None:
    found = planned(grouping(tg.GroupByKey(), tg.Filter(keep), tg.CombinePerKey(len)), SPARK)
    assert phases(found) == ["whole", "whole"]
    assert exchange_before(found, "step 2") is None


@pytest.mark.parametrize("between", [tg.Map(keep), tg.Reshuffle(), tg.FlatMap(lambda pair: [pair])])
def test_a_grouping_after_a_step_that_may_change_keys_needs_an_exchange(between: Any) -> None:
    found = planned(grouping(tg.GroupByKey(), between, tg.GroupByKey()), SPARK)
    exchange = exchange_before(found, "step 2")
    assert exchange is not None
    assert exchange.routing == "hash"


def test_a_flatten_is_partitioned_if_all_its_inputs_are() -> None:
    def write(partitioned: bool) -> Callable[[tg.Pipeline], None]:
        def add_steps(p: tg.Pipeline) -> None:
            a = p | "a" >> tg.Create([(1, 2)]) | "ga" >> tg.CombinePerKey(sum)
            b = p | "b" >> tg.Create([(1, 2)])
            if partitioned:
                b = b | "gb" >> tg.CombinePerKey(sum)
            _ = (a, b) | tg.Flatten() | "both" >> tg.GroupByKey() | "end" >> tg.Map(print)

        return add_steps

    assert exchange_before(planned(write(True), SPARK), "both") is None
    assert exchange_before(planned(write(False), SPARK), "both") is not None


def test_a_count_per_element_is_partitioned_by_element_and_not_by_key() -> None:
    found = planned(grouping(tg.GroupByKey(), tg.CombinePerElement(len)), SPARK)
    assert [step.phase for step in found.steps if step.label == "step 1"] == ["parts", "merge"]


def test_a_reshuffle_is_an_exchange() -> None:
    found = planned(grouping(tg.Reshuffle()), SPARK)
    assert exchange_before(found, "step 0") == Exchange("rebalance", "blocking", "a Reshuffle was asked for")


def test_a_side_input_is_broadcast() -> None:
    def write(p: tg.Pipeline) -> None:
        side = p | "s" >> tg.Create([1])
        _ = p | "m" >> tg.Create([1]) | "use" >> tg.Map(lambda x, s, t: x, tg.AsList(side), tg.AsIter(side))

    found = planned(write, SPARK)
    edges = [edge for edge in found.inputs(step_of(found, "use").id) if edge.side is not None]
    assert [(edge.collection, edge.side, edge.node) for edge in edges] == [("s", 0, "use"), ("s", 1, "use")]
    assert {edge.exchange for edge in edges} == {Exchange("broadcast", "blocking", "a side input")}
    assert found.regions == ((step_of(found, "s").stage,), (step_of(found, "m").stage,))


# -- stages and regions


def side_input_from_the_main_input(p: tg.Pipeline) -> None:
    numbers = p | "numbers" >> tg.Create([1, 2])
    side = numbers | "side" >> tg.Map(keep)
    _ = numbers | "use" >> tg.Map(lambda x, s: x, tg.AsList(side))


def test_a_side_input_made_from_the_main_input_runs_before_it() -> None:
    found = planned(side_input_from_the_main_input, SPARK)
    use, side = step_of(found, "use"), step_of(found, "side")
    assert use.stage != side.stage == step_of(found, "numbers").stage
    assert exchange_before(found, "use") == Exchange("forward", "blocking", "one input depends on the stage of another")
    assert found.regions == ((side.stage,), (use.stage,))
    check(found, SPARK)


def test_in_a_stream_a_side_input_made_from_the_main_input_runs_in_the_same_region() -> None:
    found = planned(side_input_from_the_main_input, STREAMING)
    assert len(found.regions) == 1
    assert {edge.exchange.mode for edge in found.edges if edge.exchange} == {"pipelined"}


def test_unbounded_sources_that_are_not_connected_run_at_the_same_time_after_all_bounded_ones() -> None:
    def write(p: tg.Pipeline) -> None:
        _ = p | "ticks" >> tg.io.GenerateSequence(0, rate=1) | "first" >> tg.Map(print)
        _ = p | "numbers" >> tg.Create([1, 2]) | "second" >> tg.Map(print)
        _ = p | "more ticks" >> tg.io.GenerateSequence(0, rate=1) | "third" >> tg.Map(print)

    found = planned(write, STREAMING)
    stages = {node.label: step.stage for step in found.steps for node in step.nodes}
    ticks, numbers, more = (stages[label] for label in ("first", "second", "third"))
    assert found.regions == ((numbers,), (ticks, more))


def test_steps_before_and_after_an_exchange_are_joined_in_a_separate_stage() -> None:
    def write(p: tg.Pipeline) -> None:
        pairs = p | "pairs" >> tg.Create([(1, 2)])
        after = pairs | "group" >> tg.GroupByKey() | "after" >> tg.Map(keep)
        before = pairs | "before" >> tg.Map(keep)
        _ = (after, before) | tg.Flatten() | "meet" >> tg.Map(print)

    found = planned(write, SPARK)
    stages = [step_of(found, label).stage for label in ("before", "after", "meet")]
    assert len(set(stages)) == 3
    assert found.regions == tuple((stage,) for stage in stages)


@settings(max_examples=60)
@given(pipelines(steps=16), st.sampled_from([ONE_PROCESS, SPARK, STREAMING, Traits(parallel=True)]))
def test_every_plan_satisfies_the_invariants(description: Description, traits: Traits) -> None:
    pipeline = tg.Pipeline()
    collections = build(description, pipeline)
    for number in description.read:
        _ = collections[number] | f"read {number}" >> tg.Map(keep)
    found = plan(pipeline.sealed(), traits)
    check(found, traits)


def check(found: Plan, traits: Traits) -> None:
    """Check the invariants of a plan."""
    assert [step.id for step in found.steps] == list(range(len(found.steps)))
    stages = {step.id: step.stage for step in found.steps}
    assert sorted({stage for region in found.regions for stage in region}) == sorted(set(stages.values()))
    assert sum(map(len, found.regions)) == len(set(stages.values()))
    labels = [node.label for step in found.steps for node in (step.nodes[:-1] if step.phase == "parts" else step.nodes)]
    assert sorted(labels) == sorted(node.label for node in found.pipeline.nodes if not isinstance(node, Flatten))
    for edge in found.edges:
        assert edge.source < edge.target
        assert edge.collection in found.steps[edge.source].outputs
        if edge.exchange is None:
            assert stages[edge.source] == stages[edge.target]
            continue
        source_region, target_region = found.region_of(stages[edge.source]), found.region_of(stages[edge.target])
        if traits.parallel:
            assert stages[edge.source] != stages[edge.target]
        if edge.exchange.mode == "blocking":
            assert source_region < target_region
        else:
            assert source_region == target_region
            assert not traits.blocking
    if traits.parallel:
        for step in found.steps:
            assert not feeds_itself(found, step.stage)


def feeds_itself(found: Plan, stage: int) -> bool:
    stages = {step.id: step.stage for step in found.steps}
    seen: set[int] = set()
    todo = [stage]
    while todo:
        current = todo.pop()
        for edge in found.edges:
            target = stages[edge.target]
            if stages[edge.source] == current and target != current and target not in seen:
                seen.add(target)
                todo.append(target)
    return stage in seen


# -- refusals


def test_a_cycle_is_refused() -> None:
    from dataclasses import replace

    pipeline = tg.Pipeline()
    _ = pipeline | "c" >> tg.Create([1]) | "a" >> tg.Map(keep) | "b" >> tg.Map(keep)
    sealed = pipeline.sealed()
    create, a, b = sealed.nodes
    with pytest.raises(tg.BuildError) as raised:
        plan(replace(sealed, nodes=(create, replace(a, inputs=("b",)), b)), ONE_PROCESS)
    assert str(raised.value).startswith("the steps form a cycle: 'a' → 'b' → 'a'\n  applied at ")


def test_broken_references_are_refused() -> None:
    from dataclasses import replace

    pipeline = tg.Pipeline()
    _ = pipeline | "c" >> tg.Create([1]) | "a" >> tg.Map(keep)
    sealed = pipeline.sealed()
    create, a = sealed.nodes
    with pytest.raises(tg.BuildError, match="step 'a' reads 'z', which no step makes"):
        plan(replace(sealed, nodes=(create, replace(a, inputs=("z",)))), ONE_PROCESS)
    with pytest.raises(tg.BuildError, match="two steps are labelled 'a'"):
        plan(replace(sealed, nodes=(create, a, a)), ONE_PROCESS)
    with pytest.raises(tg.BuildError, match="two steps make 'a'"):
        plan(replace(sealed, nodes=(create, a, replace(a, label="a2"))), ONE_PROCESS)
    with pytest.raises(tg.BuildError, match="step 'a' makes 'a', which is not among the collections"):
        plan(replace(sealed, collections=sealed.collections[:1]), ONE_PROCESS)


def test_an_unbounded_grouping_that_could_never_fire_is_refused() -> None:
    from dataclasses import dataclass

    from tidegate.sdk.connectors.sources import SimpleSource

    @dataclass(frozen=True)
    class Endless(SimpleSource[Any]):
        @property
        def bounded(self) -> bool:
            return False

        def generate(self, split: Any, position: Any) -> Any:
            yield 1, (1, 1)

    def write(p: tg.Pipeline) -> None:
        _ = p | tg.Read(Endless()) | "group" >> tg.GroupByKey() | tg.Map(print)

    with pytest.raises(tg.BuildError) as raised:
        planned(write)
    assert str(raised.value).startswith(
        "unbounded data in the global window with DefaultTrigger() would never emit anything: apply "
        "WindowInto(FixedWindows(…)) before it, or a trigger that fires as data comes, such as "
        "Repeatedly(AfterProcessingTime(60))\n  in step 'group', applied at "
    )


class SlowTuple(tuple[Any, ...]):
    """A tuple whose iteration another thread interrupts after each item: it runs `interrupt`, but not within itself."""

    interrupt: Callable[[], None]
    interrupted = False

    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            yield item
            if not self.interrupted:
                self.interrupted = True
                self.interrupt()
                self.interrupted = False


@pytest.mark.parametrize("ask", [Plan.inputs, Plan.outputs, Plan.stage_steps])
def test_two_threads_may_ask_a_new_plan_for_the_same_at_once(ask: Callable[[Plan, int], Iterator[Any]]) -> None:
    """Otherwise one of them may miss steps, such as the one that updates the solution of a loop."""

    def write(p: tg.Pipeline) -> None:
        _ = p | tg.Create([("a", 1)]) | tg.GroupByKey() | tg.Map(print)

    known = planned(write, STREAMING)
    numbers = range(len(known.steps) + 1)
    expected = [list(ask(known, number)) for number in numbers]
    assert any(expected[1:])
    steps, edges = SlowTuple(known.steps), SlowTuple(known.edges)
    new = Plan(known.pipeline, steps, edges, known.regions)
    found: list[list[Any]] = []
    steps.interrupt = edges.interrupt = lambda: found.append([list(ask(new, number)) for number in numbers])
    assert list(ask(new, 0)) == expected[0]
    assert [list(ask(new, number)) for number in numbers] == expected
    assert found
    assert all(each == expected for each in found)
