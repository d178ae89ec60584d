"""SEMANTICS, Lateness: elements that a task has combined before the exchange are late one by one, too."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.stream_scripts import INFINITY, Watermark, to_test_stream
from tidegate.sdk.time import SECOND
from tidegate.testing import TestPipeline, assert_that, equal_to


class Tens(tg.WindowAssigner):
    """Windows of ten seconds, assigned one by one."""

    def assign(self, timestamp: tg.Timestamp, element: Any) -> Iterable[tg.BoundedWindow]:
        start = timestamp.micros // (10 * SECOND) * 10
        return [tg.IntervalWindow(start, start + 10)]


FIXED, SLIDING = tg.FixedWindows(10), tg.SlidingWindows(10, 5)
LATE = 10
"""How many elements are late for all their windows; of SLIDING, one more is late for one of two."""
GROUPINGS: dict[str, tuple[Any, Any, Any]] = {
    "sum": (FIXED, tg.CombinePerKey(sum), ("k", 1)),
    "max": (FIXED, tg.CombinePerKey(max), ("k", 1)),
    "list": (FIXED, tg.CombinePerKey(list), ("k", [1])),
    "mean": (FIXED, tg.CombinePerKey(tg.combiners.MeanFn()), ("k", 1)),
    "callable": (FIXED, tg.CombinePerKey(lambda values: max(values)), ("k", 1)),
    "of two": (FIXED, tg.CombinePerKey(tg.associative(lambda a, b: a + b)), ("k", 1)),
    "by function": (Tens(), tg.CombinePerKey(sum), ("k", 1)),
    "listed": (SLIDING, tg.CombinePerKey(list), ("k", [1])),
    "counted": (FIXED, tg.CombinePerElement(len), (("k", 1), 1)),
    "globally": (FIXED, tg.CombineGlobally(len).without_defaults(), 1),
    "summed": (SLIDING, tg.CombineGlobally(len).without_defaults(), 1),
}
"""The windows, the grouping, and each of its results."""


@dataclass(frozen=True)
class AheadAndBehind(tg.io.Source[tuple[str, int]]):
    """One split is far ahead. The other one is idle until all files of `fired` exist, then has late elements."""

    fired: tuple[str, ...]
    bounded = False

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split("ahead"), tg.io.Split("behind")]

    def reader(self, split: tg.io.Split, position: tg.io.Position = None) -> tg.io.Reader[tuple[str, int]]:
        return Ahead(self.fired) if split.id == "ahead" else Behind(self.fired)


class Ahead(tg.io.Reader[tuple[str, int]]):
    def __init__(self, fired: tuple[str, ...]) -> None:
        self.fired = fired
        self.reads = 0

    def have_fired(self) -> bool:
        return all(Path(path).exists() for path in self.fired)

    def read(self, limit: int) -> tg.io.Batch:
        self.reads += 1
        if self.reads == 1:
            return tg.io.Batch(elements(1), watermark=100 * SECOND)
        return tg.io.Batch(elements(), end=self.have_fired(), wait=0.005)

    def position(self) -> int:
        return self.reads


class Behind(Ahead):
    def read(self, limit: int) -> tg.io.Batch:
        if not self.have_fired():
            return tg.io.Batch(elements(), idle=True, wait=0.005)
        return tg.io.Batch(elements(*[2] * LATE, 96, 105), end=True)


def elements(*seconds: int) -> Any:
    return tg.io.Block.of([("k", 1)] * len(seconds), [at * SECOND for at in seconds])


class Listed(tg.CombineFn[int, list[list[int]], list[int]]):
    """A combiner that merges in place, and keeps parts of the accumulators that it merges."""

    def create_accumulator(self) -> list[list[int]]:
        return []

    def add_input(self, accumulator: list[list[int]], element: int) -> list[list[int]]:
        if not accumulator:
            accumulator.append([])
        accumulator[0].append(element)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[list[int]]]) -> list[list[int]]:
        first, *others = accumulators
        for other in others:
            if first and other:
                first[0].extend(other[0])
            else:
                first.extend(other)
        return first

    def extract_output(self, accumulator: list[list[int]]) -> list[int]:
        return sorted(accumulator[0])


@pytest.mark.parametrize("keys", [True, False], ids=["by key", "globally"])
def test_windows_of_an_element_that_may_be_late_share_no_accumulator(stream_runner: str, keys: bool) -> None:
    script = [(1, 7), Watermark(10), (2, 9), (4, 21), (8, 22), (16, 23), INFINITY]
    with TestPipeline(stream_runner) as pipeline:
        read = pipeline | to_test_stream(script, together=True) | tg.WindowInto(tg.SlidingWindows(10, 5))
        if keys:
            lists = read | tg.CombinePerKey(Listed()) | "lists" >> tg.Values()
        else:
            lists = read | "values" >> tg.Values() | tg.CombineGlobally(Listed()).without_defaults()
        assert_that(lists, equal_to([[1], [1, 2], [4, 8, 16], [4, 8, 16]]))


@pytest.mark.live(micro_batches=False)
def test_elements_of_a_task_that_was_idle_are_late_one_by_one_however_they_are_combined(
    stream_runner: str, tmp_path: Path
) -> None:
    fired = {name: tmp_path / name for name in GROUPINGS}
    with TestPipeline(stream_runner) as pipeline:
        read = pipeline | tg.Read(AheadAndBehind(tuple(map(str, fired.values()))))
        for name, (windows, grouping, result) in GROUPINGS.items():
            out = read | f"windows {name}" >> tg.WindowInto(windows) | name >> grouping
            seen = out | f"saw {name}" >> tg.Map(lambda each, path=str(fired[name]): (Path(path).touch(), each)[1])
            assert_that(seen, equal_to([result] * (5 if windows is SLIDING else 2)), label=f"results of {name}")
    metrics = pipeline.result.metrics()
    late = {name: metrics.counter("dropped_late", step=name) for name in GROUPINGS}
    assert late == {name: LATE + (windows is not SLIDING) for name, (windows, _, _) in GROUPINGS.items()}
