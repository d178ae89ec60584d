"""SEMANTICS, Calls: the results of calls out of a pipeline are those of a Map, on every runner."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import TestPipeline, TestStream, assert_that, equal_to


async def doubled_later(n: int) -> int:
    """Later elements come back first."""
    await asyncio.sleep(0.001 * (20 - n % 20))
    return 2 * n


def doubled(n: int) -> int:
    return 2 * n


async def inverse(n: int) -> float:
    return 1 / n


@pytest.mark.parametrize("fn", [doubled_later, doubled])
@pytest.mark.parametrize("ordered", [True, False])
def test_the_results_are_those_of_a_map(runner: str, fn: Any, ordered: bool) -> None:
    pipeline = TestPipeline(runner)
    found = pipeline | tg.Create(range(100)) | tg.AsyncMap(fn, capacity=7, ordered=ordered)
    assert_that(found, equal_to([2 * n for n in range(100)]))
    pipeline.run()


def test_calls_after_calls(runner: str) -> None:
    pipeline = TestPipeline(runner)
    found = (
        pipeline
        | tg.Create(range(50))
        | "first" >> tg.AsyncMap(doubled_later, capacity=2)
        | "second" >> tg.AsyncMap(doubled, capacity=3)
        | tg.CombineGlobally(sum)
    )
    assert_that(found, equal_to([sum(4 * n for n in range(50))]))
    pipeline.run()


def test_results_keep_timestamps_and_windows(runner: str) -> None:
    pipeline = TestPipeline(runner)
    found = (
        pipeline
        | tg.Create([1, 12, 13, 25])
        | tg.Map(lambda n: tg.TimestampedValue(n, n))
        | tg.WindowInto(tg.FixedWindows(10))
        | tg.AsyncMap(doubled_later, ordered=False)
        | tg.CombineGlobally(sum).without_defaults()
        | tg.Reify.Window()
        | tg.MapTuple(lambda total, at, window, pane: (window.start.seconds(), total))
    )
    assert_that(found, equal_to([(0, 2), (10, 50), (20, 50)]))
    pipeline.run()


def test_failures_become_dead_letters(runner: str) -> None:
    pipeline = TestPipeline(runner)
    good, bad = pipeline | tg.Create([0, 1, 2]) | "call" >> tg.AsyncMap(inverse).with_exception_handling()
    assert_that(good, equal_to([1.0, 0.5]), label="good")
    assert_that(bad | tg.MapTuple(lambda n, error: (n, error[0])), equal_to([(0, "ZeroDivisionError")]), label="bad")
    pipeline.run()


def test_a_failure_names_step_line_and_element(runner: str) -> None:
    pipeline = tg.Pipeline(runner)
    _ = pipeline | tg.Create([1, 0]) | "the call" >> tg.AsyncMap(inverse)
    with pytest.raises(tg.UserCodeError, match=r"(?s)ZeroDivisionError.*'the call'.*test_calls\.py.*element: 0"):
        pipeline.run().wait_until_finish()


class Flaky(tg.AsyncFunction[int, int]):
    """Fails at the first call for each element."""

    def setup(self) -> None:
        self.seen: set[int] = set()

    async def __call__(self, argument: int, /) -> int:
        if argument not in self.seen:
            self.seen.add(argument)
            raise ConnectionError("away")
        return argument


def test_failed_calls_are_repeated_and_counted(runner: str) -> None:
    pipeline = TestPipeline(runner)
    found = pipeline | tg.Create([1, 2, 3]) | "call" >> tg.AsyncMap(Flaky(), retry=tg.Retry(attempts=2, backoff=0))
    assert_that(found, equal_to([1, 2, 3]))
    result = pipeline.run()
    metrics = result.metrics()
    counted = [metrics.counter(name, step="call") for name in ("calls", "calls_retried", "calls_failed")]
    assert counted == [6, 3, 0]
    assert metrics.counter("elements_out", step="call") == 3
    assert metrics.counter("calls_in_flight", step="call") == 0


def test_elements_are_joined_with_what_is_looked_up_for_their_keys(runner: str) -> None:
    names = {1: "one", 2: "two"}

    async def look_up(keys: list[int]) -> dict[int, str]:
        return {key: names[key] for key in keys if key in names}

    pipeline = TestPipeline(runner)
    found = (
        pipeline
        | tg.Create(["a", "bb", "ccc", "d"])
        | "join" >> tg.LookupJoin(look_up, key=len, batch=(3, 0.01), cache=tg.Cache(ttl=60))
    )
    assert_that(found, equal_to([("a", "one"), ("bb", "two"), ("ccc", None), ("d", "one")]))
    pipeline.run()


def test_a_result_may_be_tagged_or_stamped_as_that_of_any_step(runner: str) -> None:
    async def sorted_out(n: int) -> Any:
        return tg.TaggedOutput("odd", n) if n % 2 else tg.TimestampedValue(n, n)

    pipeline = TestPipeline(runner)
    out = pipeline | tg.Create([1, 2, 3, 4]) | tg.AsyncMap(sorted_out).with_outputs("odd")
    assert_that(out.odd, equal_to([1, 3]), label="odd")
    stamped = out.main | tg.Reify.Timestamp() | tg.MapTuple(lambda n, at: (n, at.seconds()))
    assert_that(stamped, equal_to([(2, 2), (4, 4)]), label="even")
    pipeline.run()


# ---- streams


def script() -> TestStream:
    return (
        TestStream()
        .add_elements([tg.TimestampedValue(1, 1), tg.TimestampedValue(2, 2)])
        .advance_watermark_to(10)
        .add_elements([tg.TimestampedValue(3, 3), tg.TimestampedValue(11, 11)])  # 3 is late
        .advance_watermark_to(20)
        .add_elements([tg.TimestampedValue(12, 12)])  # late
        .advance_watermark_to_infinity()
    )


@pytest.mark.parametrize("ordered", [True, False])
def test_watermarks_wait_for_calls_so_windows_are_complete_and_late_elements_stay_late(
    stream_runner: str, ordered: bool
) -> None:
    pipeline = TestPipeline(stream_runner)
    sums = (
        pipeline
        | script()
        | tg.WindowInto(tg.FixedWindows(10))
        | tg.AsyncMap(doubled_later, ordered=ordered)
        | tg.CombineGlobally(sum).without_defaults()
    )
    assert_that(sums, equal_to([6, 22]))
    pipeline.run()


class Counting(tg.AsyncFunction[str, tuple[str, int]]):
    """The number of calls so far."""

    def setup(self) -> None:
        self.calls = 0

    async def __call__(self, argument: str, /) -> tuple[str, int]:
        self.calls += 1
        return argument, self.calls


@pytest.mark.live(micro_batches=False)
def test_cached_results_expire_with_processing_time(stream_runner: str) -> None:
    pipeline = TestPipeline(stream_runner)
    stream = (
        TestStream()
        .add_elements(["a"])
        .advance_processing_time(59)
        .add_elements(["a"])
        .advance_processing_time(1)
        .add_elements(["a"])
        .advance_watermark_to_infinity()
    )
    found = pipeline | stream | tg.AsyncMap(Counting(), cache=tg.Cache(ttl=60))
    assert_that(found, equal_to([("a", 1), ("a", 1), ("a", 2)]))
    pipeline.run()
