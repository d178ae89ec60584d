"""Steps that are made of one object have a copy each: what one of them remembers is nothing to the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.planner.own_functions import with_own_functions
from tidegate.sdk.portable import json as portable_json
from tidegate.testing import TestPipeline, TestStream, assert_that, equal_to


class Once(tg.DoFn):
    """Emits each element the first time that it gets it."""

    def setup(self) -> None:
        assert not hasattr(self, "seen"), "it has been set up"
        self.seen: set[Any] = set()

    def process(self, element: int) -> Iterator[int]:
        if element not in self.seen:
            self.seen.add(element)
            yield element

    def teardown(self) -> None:
        del self.seen


class Gathered(tg.DoFn):
    """Emits the elements of a bundle at its end."""

    def start_bundle(self) -> None:
        self.gathered: list[Any] = []

    def process(self, element: int, at: Any = tg.DoFn.TimestampParam, window: Any = tg.DoFn.WindowParam) -> None:
        self.gathered.append(tg.WindowedValue(element + 1, at, (window,)))

    def finish_bundle(self) -> Iterator[Any]:
        assert len(self.gathered) < 100, "it gathers what it emits"
        yield from self.gathered


class Added(tg.CombineFn[int, int, int]):
    """A sum that is set up once."""

    def setup(self) -> None:
        assert not hasattr(self, "start"), "it has been set up"
        self.start = 0

    def create_accumulator(self) -> int:
        return self.start

    def add_input(self, accumulator: int, element: int) -> int:
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator

    def teardown(self) -> None:
        del self.start


class Called(tg.AsyncFunction):
    """A call with a client."""

    async def setup(self) -> None:
        assert not hasattr(self, "client"), "it has been set up"
        self.client = 1

    async def __call__(self, element: int) -> int:
        return element + self.client

    async def teardown(self) -> None:
        del self.client


def test_a_dofn_of_two_steps_in_a_row(runner: str) -> None:
    once, step = Once(), tg.ParDo(Gathered())
    pipeline = TestPipeline(runner)
    found = pipeline | tg.Create([1, 2, 2, 3]) | tg.Reshuffle() | "one" >> tg.ParDo(once) | "two" >> tg.ParDo(once)
    assert_that(found | tg.Distinct(), equal_to([1, 2, 3]))
    assert_that(found | "a" >> step | "b" >> step | "of b" >> tg.Distinct(), equal_to([3, 4, 5]), label="gathered")
    pipeline.run()


def test_a_dofn_of_two_branches(runner: str) -> None:
    once = Once()
    pipeline = TestPipeline(runner)
    elements = pipeline | tg.Create([1, 2, 3])
    branches = [elements | f"{number}" >> tg.ParDo(once) for number in range(2)]
    assert_that(branches | tg.Flatten(), equal_to([1, 1, 2, 2, 3, 3]))
    pipeline.run()


def test_a_combiner_of_two_steps(runner: str) -> None:
    added = Added()
    pipeline = TestPipeline(runner)
    pairs = pipeline | tg.Create([("a", 1), ("b", 2), ("a", 3)])
    sums = pairs | "by key" >> tg.CombinePerKey(added)
    assert_that(sums, equal_to([("a", 4), ("b", 2)]), label="sums")
    assert_that(sums | tg.Values() | "all" >> tg.CombineGlobally(added), equal_to([6]), label="sum")
    pipeline.run()


def test_an_async_function_of_two_steps(runner: str) -> None:
    called = Called()
    pipeline = TestPipeline(runner)
    found = pipeline | tg.Create([1, 2]) | "one" >> tg.AsyncMap(called) | "two" >> tg.AsyncMap(called)
    assert_that(found, equal_to([3, 4]))
    pipeline.run()


@pytest.mark.parametrize("number", [0, 1, 2, 3], ids=["once", "gathered", "batches", "called"])
def test_a_dofn_of_a_loop_over_a_stream(stream_runner: str, number: int) -> None:
    """The loop is its rounds written out, so each round has a copy."""
    step: Any = [
        lambda x: x | tg.ParDo(Once()).with_output_types(int),
        lambda x: x | tg.ParDo(Gathered()).with_output_types(int),
        lambda x: x | tg.BatchElements(max_batch_size=2) | tg.FlatMap(lambda batch: batch).with_output_types(int),
        lambda x: x | tg.AsyncMap(Called()).with_output_types(int),
    ][number]
    pipeline = TestPipeline(stream_runner)
    stream = TestStream().add_elements([1, 2, 3]).advance_watermark_to_infinity().with_output_types(int)
    looped = pipeline | stream | tg.Iterate(step, rounds=3)
    added = 3 * (number in (1, 3))
    assert_that(looped, equal_to([1 + added, 2 + added, 3 + added]))
    pipeline.run()


def test_steps_of_a_compiled_pipeline_and_of_its_loops_have_objects_of_their_own() -> None:
    once = Once()
    pipeline = tg.Pipeline()
    elements = pipeline | tg.Create([1]) | "one" >> tg.ParDo(once)
    _ = elements | tg.Iterate(lambda x: x | "two" >> tg.ParDo(once) | "three" >> tg.ParDo(once), rounds=2)
    loaded = portable_json.load(portable_json.dump(pipeline.sealed(values=True)))
    _, one, loop = with_own_functions(loaded).nodes
    functions = [one.fn, *(node.fn for node in loop.body)]  # type: ignore[union-attr]
    assert len({id(fn.load()) for fn in functions}) == 3
    assert functions == functions[:1] * 3
