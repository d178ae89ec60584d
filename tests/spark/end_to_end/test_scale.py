"""More data than a worker's memory budget, skewed keys and tasks, many files, many partitions.

`--spark-scale 100` multiplies the data by 100: ten million pairs.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
import tidegate.io
from tests.support.run_and_collect import Collected, collect

PAIRS = 100_000
PAIR_BYTES = 100
"""The approximate size of a pair of ints in memory."""

CHUNK = 10_000


@pytest.fixture
def scale(request: pytest.FixtureRequest) -> int:
    times: int = request.config.getoption("--spark-scale")
    return times


def peak(found: Collected) -> int:
    """The peak memory of the workers, in MB."""
    (seen,) = found.result.metrics().query("peak", namespace="scale")
    return int(seen.value.max) // 1024


class Check(tg.DoFn):
    """Counts the correct and the wrong groups, and reports the peak memory of the worker."""

    def __init__(self, is_right: Callable[[int, list[int]], bool]) -> None:
        self.is_right = is_right

    def process(self, pair: tuple[int, Iterable[int]]) -> Iterator[bool]:
        yield self.is_right(pair[0], sorted(pair[1]))

    def finish_bundle(self) -> None:
        tg.Metrics.distribution("scale", "peak").update(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def checked(
    pairs: Callable[[int], Iterable[tuple[int, int]]], chunks: int, is_right: Any, flags: list[str]
) -> Collected:
    """Group the pairs of all chunks; `it` has the numbers of correct and of wrong keys."""

    def build(p: tg.Pipeline) -> dict[str, Any]:
        elements = p | tg.Create(range(chunks)) | tg.FlatMap(pairs)
        return {"it": elements | tg.GroupByKey() | tg.ParDo(Check(is_right)) | tg.CombinePerElement(len)}

    return collect(build, options=flags)


def test_data_four_times_a_workers_memory_is_grouped(flags: list[str], scale: int) -> None:
    number = PAIRS * scale
    keys = number // 10
    budget = number * PAIR_BYTES // 3 // 4  # of each of three tasks
    found = checked(
        lambda chunk: ((n % keys, n) for n in range(chunk * CHUNK, (chunk + 1) * CHUNK)),
        number // CHUNK,
        lambda key, values: values == list(range(key, number, keys)),
        [*flags, "--memory_budget", str(budget)],
    )
    assert found.values("it") == [(True, keys)]
    assert found.result.metrics().counter("spills") > 0
    print(f"{number} pairs, {budget >> 20} MB of budget, at most {peak(found)} MB a worker")


def test_half_of_all_values_may_have_one_key_and_be_in_one_task(flags: list[str], scale: int) -> None:
    number = PAIRS * scale
    half, keys = number // 2, number // 20

    def pairs(chunk: int) -> Iterator[tuple[int, int]]:
        if chunk == 0:
            yield from ((-1, n) for n in range(half))
        else:
            yield from ((n % keys, n) for n in range((chunk - 1) * CHUNK, chunk * CHUNK))

    def is_right(key: int, values: list[int]) -> bool:
        return values == list(range(half) if key < 0 else range(key, half, keys))

    budget = number * PAIR_BYTES // 3 // 4
    found = checked(pairs, 1 + half // CHUNK, is_right, [*flags, "--memory_budget", str(budget)])
    assert found.values("it") == [(True, keys + 1)]
    print(f"{number} pairs, {budget >> 20} MB of budget, at most {peak(found)} MB a worker")


def test_two_thousand_files_are_read_once_each(flags: list[str], tmp_path: Path) -> None:
    for number in range(2000):
        (tmp_path / f"{number:04d}.txt").write_text(f"{number}\n" * (number % 3))
    (tmp_path / "out").mkdir()
    with tg.Pipeline(options=flags) as p:
        read = p | tg.io.ReadFromText(str(tmp_path / "*.txt")) | tg.CombinePerElement(len)
        _ = read | tg.MapTuple(lambda line, n: f"{line} {n}") | tg.io.WriteToText(str(tmp_path / "out" / "counts"))
    lines = [line for path in (tmp_path / "out").iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == sorted(f"{n} {n % 3}" for n in range(2000) if n % 3)


def test_most_of_many_partitions_may_be_empty(flags: list[str], scale: int, tmp_path: Path) -> None:
    partitions = min(200, 24 * scale)
    with tg.Pipeline(options=[*flags, "--spark_partitions", str(partitions)]) as p:
        sums = p | tg.Create(range(5)) | tg.Map(lambda x: (x % 2, x)) | tg.CombinePerKey(sum)
        _ = sums | tg.Map(repr) | tg.io.WriteToText(str(tmp_path / "out"))
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == ["(0, 6)", "(1, 4)"]
    assert len(list(tmp_path.iterdir())) <= 3  # only the first of the empty partitions writes a file


def test_there_may_be_two_hundred_full_partitions(flags: list[str], scale: int) -> None:
    partitions = min(200, 24 * scale)

    def build(p: tg.Pipeline) -> dict[str, Any]:
        pairs = p | tg.Create(range(PAIRS // 10 * scale)) | tg.Map(lambda x: (x % 1000, x))
        return {"it": pairs | tg.GroupByKey() | tg.Map(lambda pair: (pair[0], len(list(pair[1]))))}

    found = collect(build, options=[*flags, "--spark_partitions", str(partitions)])
    assert sorted(found.values("it")) == [(key, PAIRS // 10_000 * scale) for key in range(1000)]
