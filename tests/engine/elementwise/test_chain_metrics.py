"""Metrics updated by author code belong to the step that runs it, whether steps are fused or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.direct import DirectRunner


def count(amount: int = 1) -> None:
    tg.Metrics.counter("mine", "calls").inc(amount)


def counted(x: int) -> int:
    count()
    return x


class Counts(tg.DoFn):
    def setup(self) -> None:
        count(1_000)

    def start_bundle(self) -> None:
        count(100)

    def process(self, element: int) -> Iterator[int]:
        count()
        yield element
        count()

    def finish_bundle(self) -> Iterator[int]:
        count(10_000)
        yield 7
        count(10_000)

    def teardown(self) -> None:
        count(100_000)


def calls(build: Any, **options: Any) -> dict[str, int]:
    """The counter of each step."""
    pipeline = tg.Pipeline(DirectRunner(block_size=4), options or None)
    build(pipeline)
    found = pipeline.run().metrics().query("calls", namespace="mine")
    return {result.key.step: result.value for result in found}


@pytest.mark.parametrize("checks", ["sample", "all", "off"])
def test_fused_steps_have_separate_counters(checks: str) -> None:
    def build(p: tg.Pipeline) -> None:
        chain = p | tg.Create(range(6)) | "a" >> tg.Map(counted) | "b" >> tg.Filter(counted)
        chain = chain | "c" >> tg.FlatMap(lambda x: [counted(x), counted(x)]) | "d" >> tg.Map(lambda x: counted(x))
        _ = chain | "e" >> tg.Map(counted).with_exception_handling()

    assert calls(build, checks=checks) == {"a": 6, "b": 6, "c": 10, "d": 10, "e": 10}


def test_steps_after_a_side_exit_have_separate_counters() -> None:
    def build(p: tg.Pipeline) -> None:
        chain = p | tg.Create(range(6)) | "a" >> tg.Map(lambda x: tg.TimestampedValue(counted(x), x))
        _ = chain | "b" >> tg.Map(counted) | "c" >> tg.Map(counted)

    assert calls(build) == {"a": 6, "b": 6, "c": 6}


def test_every_life_cycle_method_counts_for_its_step() -> None:
    def build(p: tg.Pipeline) -> None:
        _ = p | tg.Create([1, 2]) | "life" >> tg.ParDo(Counts()) | "after" >> tg.Map(counted)

    assert calls(build) == {"life": 1_000 + 100 + 4 + 20_000 + 100_000, "after": 3}


class CountingSum(tg.CombineFn[int, int, int]):
    def setup(self) -> None:
        count(1_000)

    def create_accumulator(self) -> int:
        count(100)
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        count()
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        count(10_000)
        return accumulator

    def teardown(self) -> None:
        count(100_000)


@pytest.mark.parametrize("checks", ["sample", "all", "off"])
def test_combiners_count_for_their_step_but_not_in_the_trials_of_checks(checks: str) -> None:
    def build(p: tg.Pipeline) -> None:
        pairs = p | tg.Create([1, 2, 3]) | "pair" >> tg.Map(lambda x: ("a", counted(x)))
        _ = pairs | "per key" >> tg.CombinePerKey(CountingSum()) | tg.Map(str)
        _ = p | "more" >> tg.Create([1, 2]) | "globally" >> tg.CombineGlobally(CountingSum()) | "text" >> tg.Map(str)

    assert calls(build, checks=checks) == {"pair": 3, "per key": 111_103, "globally": 111_102}


def test_distributions_gauges_and_string_sets_belong_to_their_step() -> None:
    def measure(x: int) -> int:
        tg.Metrics.distribution("mine", "size").update(x)
        tg.Metrics.gauge("mine", "last").set(x)
        tg.Metrics.string_set("mine", "kinds").add("odd" if x % 2 else "even")
        return x * 10

    pipeline = tg.Pipeline(DirectRunner(block_size=2))
    _ = pipeline | tg.Create([3, 1, 2]) | "a" >> tg.Map(measure) | "b" >> tg.Map(measure)
    metrics = pipeline.run().metrics()
    found = {
        (result.key.step, result.key.name): result.value for result in metrics.all() if result.key.namespace == "mine"
    }
    assert found[("a", "last")] == 2
    assert found[("b", "last")] == 20
    assert found[("a", "kinds")] == {"odd", "even"}
    assert found[("b", "kinds")] == {"even"}
    sizes = {step: found[(step, "size")] for step in ("a", "b")}
    assert {step: (size.count, size.sum, size.min, size.max) for step, size in sizes.items()} == {
        "a": (3, 6, 1, 3),
        "b": (3, 60, 10, 30),
    }


def test_steps_of_the_same_name_in_different_composites_have_separate_counters() -> None:
    @tg.ptransform_fn
    def twice(pcoll: tg.PCollection[int]) -> tg.PCollection[int]:
        return pcoll | "count" >> tg.Map(counted)

    def build(p: tg.Pipeline) -> None:
        _ = p | tg.Create([1, 2]) | "first" >> twice() | "second" >> twice()

    assert calls(build) == {"first/count": 2, "second/count": 2}
