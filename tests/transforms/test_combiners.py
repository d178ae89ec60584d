"""The aggregates of `tg.combiners` compared with plain Python, and their combine functions with any partial results."""

from __future__ import annotations

import math
import pickle
import random
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.run_and_collect import collect
from tidegate import combiners
from tidegate.sdk.authoring.combine import CombineFn
from tidegate.transforms.combining.combiners import DictFn, LatestFn, MeanFn, TopFn
from tidegate.transforms.combining.sketches import (
    ApproximateQuantilesFn,
    ApproximateUniqueFn,
    QuantileSketch,
    SampleFn,
    quantile_capacity,
)

INTS = st.lists(st.integers(-20, 20), max_size=25)


def applied(elements: list[Any], step: Any) -> list[Any]:
    return collect(lambda p: {"out": p | tg.Create(elements) | step}).values("out")


def in_parts(fn: CombineFn[Any, Any, Any], parts: list[list[Any]]) -> Any:
    """Combine each part separately, compact and pickle the accumulators, and merge them, as a runner may."""
    accumulators = []
    for part in parts:
        accumulator = fn.create_accumulator()
        for element in part:
            accumulator = fn.add_input(accumulator, element)
        accumulators.append(pickle.loads(pickle.dumps(fn.compact(accumulator))))
    return fn.extract_output(fn.merge_accumulators(accumulators))


@settings(max_examples=25)
@given(INTS)
def test_counts_and_means_equal_those_of_plain_python(xs: list[int]) -> None:
    pairs = [(x % 3, x) for x in xs]
    assert applied(xs, combiners.Count.Globally()) == [len(xs)]
    assert dict(applied(xs, combiners.Count.PerElement())) == Counter(xs)
    assert dict(applied(pairs, combiners.Count.PerKey())) == Counter(x % 3 for x in xs)
    (mean,) = applied(xs, combiners.Mean.Globally())
    assert mean == sum(xs) / len(xs) if xs else math.isnan(mean)
    by_key = {k: [x for x in xs if x % 3 == k] for k, _ in pairs}
    assert dict(applied(pairs, combiners.Mean.PerKey())) == {k: sum(v) / len(v) for k, v in by_key.items()}


@settings(max_examples=25)
@given(INTS, st.integers(1, 5))
def test_the_largest_and_smallest_elements_equal_those_of_plain_python(xs: list[int], n: int) -> None:
    assert applied(xs, combiners.Top.Of(n)) == [sorted(xs, reverse=True)[:n]]
    assert applied(xs, combiners.Top.Largest(n)) == [sorted(xs, reverse=True)[:n]]
    assert applied(xs, combiners.Top.Smallest(n)) == [sorted(xs)[:n]]
    assert applied(xs, combiners.Top.Of(n, key=abs, reverse=True)) == [sorted(xs, key=abs)[:n]]
    pairs = [(x % 3, x) for x in xs]
    by_key = {k: [x for x in xs if x % 3 == k] for k, _ in pairs}
    expected = {k: sorted(v, reverse=True)[:n] for k, v in by_key.items()}
    assert (
        dict(applied(pairs, combiners.Top.PerKey(n)))
        == dict(applied(pairs, combiners.Top.LargestPerKey(n)))
        == expected
    )
    assert dict(applied(pairs, combiners.Top.SmallestPerKey(n))) == {k: sorted(v)[:n] for k, v in by_key.items()}


def test_the_largest_elements_are_kept_through_many_compactions() -> None:
    xs = random.Random(1).sample(range(10_000), 5_000)
    assert in_parts(TopFn(7), [xs[:100], xs[100:], []]) == sorted(xs, reverse=True)[:7]
    assert in_parts(TopFn(7, reverse=True), [xs]) == sorted(xs)[:7]


@settings(max_examples=25)
@given(INTS)
def test_all_elements_are_collected_in_a_list_a_set_or_a_dict(xs: list[int]) -> None:
    assert applied(xs, combiners.ToList()) == [xs]
    assert applied(xs, combiners.ToSet()) == [set(xs)]
    assert applied([(x % 4, x) for x in xs], combiners.ToDict()) == [{x % 4: x for x in xs}]


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=12))
def test_the_latest_is_the_last_element_with_the_maximum_timestamp(pairs: list[tuple[int, int]]) -> None:
    elements = [tg.TimestampedValue((key, i), time) for i, (key, time) in enumerate(pairs)]

    def build(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        pcoll = p | tg.Create(elements)
        return {"all": pcoll | combiners.Latest.Globally(), "keys": pcoll | combiners.Latest.PerKey()}

    found = collect(build)
    order = sorted(range(len(pairs)), key=lambda i: (pairs[i][1], i))
    assert found.values("all") == [(pairs[order[-1]][0], order[-1]) if pairs else None]
    assert dict(found.values("keys")) == {pairs[i][0]: i for i in order}


class InWindows(tg.PTransform[Any, Any]):
    def __init__(self, step: Any) -> None:
        self.step = step

    def expand(self, input: Any) -> Any:
        return input | tg.WindowInto(tg.FixedWindows(10)) | self.step


def test_an_aggregate_per_window_emits_nothing_for_empty_windows() -> None:
    elements = [tg.TimestampedValue(x, x) for x in (1, 2, 11)]
    for step, expected in (
        (combiners.Count.Globally(), [2, 1]),
        (combiners.Latest.Globally(), [2, 11]),
        (combiners.Top.Largest(1), [[2], [11]]),
    ):
        windowed = tg.WindowInto(tg.FixedWindows(10))
        found = collect(
            lambda p, step=step, windowed=windowed: {
                "out": p | tg.Create(elements) | windowed | step.without_defaults()
            }
        )
        assert found.values("out") == expected


@given(st.lists(st.lists(st.integers(-9, 9), max_size=6), min_size=1, max_size=4))
def test_exact_combiners_give_the_same_result_with_any_partial_results(parts: list[list[int]]) -> None:
    together = [x for part in parts for x in part]
    for fn in (MeanFn(), TopFn(3), TopFn(2, key=abs), combiners.SingleInputTupleCombineFn(sum, len, list)):
        assert repr(in_parts(fn, parts)) == repr(in_parts(fn, [together]))
    pairs = [[(x % 2, x) for x in part] for part in parts]
    for fn in (DictFn[int, int](), LatestFn[int](), combiners.TupleCombineFn(sum, list)):
        assert repr(in_parts(fn, pairs)) == repr(in_parts(fn, [[pair for part in pairs for pair in part]]))


def test_tuples_of_combiners_combine_each_field_or_the_same_input() -> None:
    assert applied([1, 2, 3], tg.CombineGlobally(combiners.SingleInputTupleCombineFn(sum, MeanFn(), max))) == [
        (6, 2.0, 3)
    ]
    pairs = [(1, "a"), (2, "b")]
    assert applied(pairs, tg.CombineGlobally(combiners.TupleCombineFn(sum, list))) == [(3, ["a", "b"])]
    common = combiners.TupleCombineFn(sum, len).with_common_input()
    assert (
        applied([4, 5], tg.CombineGlobally(common))
        == applied([4, 5], "same" >> tg.CombineGlobally((sum, len)))
        == [(9, 2)]
    )


@settings(max_examples=25)
@given(INTS, st.integers(1, 8), st.integers(0, 3))
def test_a_sample_contains_each_element_at_most_once(xs: list[int], n: int, seed: int) -> None:
    numbered = list(enumerate(xs))
    (sample,) = applied(numbered, combiners.Sample.FixedSizeGlobally(n, seed=seed))
    assert len(sample) == len(set(sample)) == min(n, len(xs))
    assert set(sample) <= set(numbered)
    pairs = [(x % 2, (at, x)) for at, x in numbered]
    for key, part in applied(pairs, combiners.Sample.FixedSizePerKey(n, seed=seed)):
        assert len(set(part)) == min(n, sum(x % 2 == key for x in xs))
        assert all(x % 2 == key for _, x in part)


def test_a_sample_is_the_same_in_each_run_and_differs_between_seeds() -> None:
    xs = list(range(1000))
    first = applied(xs, combiners.Sample.FixedSizeGlobally(10, seed=1))
    assert applied(xs, combiners.Sample.FixedSizeGlobally(10, seed=1)) == first
    assert applied(xs, combiners.Sample.FixedSizeGlobally(10, seed=2)) != first


@pytest.mark.parametrize("cuts", [[], [50], [20, 40, 60, 80]])
def test_each_element_is_equally_likely_to_be_sampled(cuts: list[int]) -> None:
    n, size, rounds = 100, 10, 1000
    xs = list(range(n))
    edges = [0, *cuts, n]
    parts = [xs[a:b] for a, b in pairwise(edges)]
    drawn = Counter(x for seed in range(rounds) for x in in_parts(SampleFn[int](size, seed), parts))
    expected = rounds * size / n
    chi_squared = sum((drawn[x] - expected) ** 2 / expected for x in xs)
    assert sum(drawn.values()) == rounds * size
    assert chi_squared < 160  # 99 degrees of freedom: exceeded with a probability of 1 in 10,000


@settings(max_examples=25)
@given(st.lists(st.one_of(st.integers(0, 30), st.text(max_size=1), st.sampled_from([1.0, True])), max_size=60))
def test_small_numbers_of_distinct_elements_are_counted_exactly(xs: list[Any]) -> None:
    distinct = len(dict.fromkeys(xs))
    if distinct < 64:
        assert applied(xs, combiners.ApproximateUnique.Globally(size=64)) == [distinct]


@pytest.mark.parametrize("parts", [1, 4])
def test_large_numbers_of_distinct_elements_are_counted_within_the_error(parts: int) -> None:
    n, size = 20_000, 400
    fn = ApproximateUniqueFn(size)
    xs = [f"user-{i}" for i in range(n)] * 2
    estimate = in_parts(fn, [xs[at::parts] for at in range(parts)])
    assert abs(estimate / n - 1) < 2 / math.sqrt(size)
    assert estimate == in_parts(fn, [xs])  # a sketch has the same hashes however its parts were merged
    assert len(fn.compact(_filled(fn, xs)).hashes) == size


def _filled(fn: CombineFn[Any, Any, Any], xs: list[Any]) -> Any:
    accumulator = fn.create_accumulator()
    for x in xs:
        accumulator = fn.add_input(accumulator, x)
    return accumulator


def test_distinct_values_are_counted_per_key() -> None:
    pairs = [(x % 2, x % 10) for x in range(100)]
    assert dict(applied(pairs, combiners.ApproximateUnique.PerKey(error=0.1))) == {0: 5, 1: 5}


@settings(max_examples=25)
@given(st.lists(st.integers(), min_size=1, max_size=40), st.integers(2, 6))
def test_quantiles_of_few_elements_are_exact(xs: list[int], n: int) -> None:
    ordered = sorted(xs)
    expected = [ordered[(at * (len(xs) - 1) + (n - 1) // 2) // (n - 1)] for at in range(n)]
    assert applied(xs, combiners.ApproximateQuantiles.Globally(n)) == [expected]
    assert applied(xs, combiners.ApproximateQuantiles.Globally(n, reverse=True)) == [expected[::-1]]
    negated = applied(xs, combiners.ApproximateQuantiles.Globally(n, key=lambda x: -x))[0]
    assert (negated[0], negated[-1]) == (ordered[-1], ordered[0])


def test_quantiles_of_no_elements_are_empty_and_quantiles_per_key_are_exact() -> None:
    assert applied([], combiners.ApproximateQuantiles.Globally(3)) == [[]]
    pairs = [(x % 2, x) for x in range(101)]
    assert dict(applied(pairs, combiners.ApproximateQuantiles.PerKey(3))) == {0: [0, 50, 100], 1: [1, 51, 99]}


@pytest.mark.parametrize("shape", ["random", "ascending", "descending", "few values"])
@pytest.mark.parametrize("parts", [1, 7])
def test_ranks_of_quantiles_are_within_the_error(shape: str, parts: int) -> None:
    n, error = 30_000, 0.05
    xs = list(range(n))
    match shape:
        case "random":
            random.Random(5).shuffle(xs)
        case "descending":
            xs.reverse()
        case "few values":
            xs = [x % 7 for x in xs]
    fn = ApproximateQuantilesFn[int](21, error, None, False)
    quantiles = in_parts(fn, [xs[at::parts] for at in range(parts)])
    ordered = sorted(xs)
    assert (quantiles[0], quantiles[-1]) == (ordered[0], ordered[-1])
    for at, value in enumerate(quantiles):
        expected_rank = at / 20 * n
        off = max(bisect_left(ordered, value) - expected_rank, expected_rank - bisect_right(ordered, value), 0)
        assert off <= error * n


@given(st.lists(st.lists(st.integers(0, 50), max_size=40), min_size=1, max_size=8))
def test_the_error_bound_of_a_quantile_sketch_holds_in_any_order_of_merges(parts: list[list[int]]) -> None:
    capacity = 8
    merged = QuantileSketch(capacity)
    for part in parts:
        sketch = QuantileSketch(capacity)
        for x in part:
            sketch.add(x)
        merged.merge(sketch)
    ordered = sorted(x for part in parts for x in part)
    n = len(ordered)
    assert merged.count == n == sum(len(level) << height for height, level in enumerate(merged.levels))
    bound = n * (len(merged.levels) - 1) / capacity + 1
    for at, value in enumerate(merged.quantiles(11)):
        expected_rank = at / 10 * (n - 1)
        off = max(bisect_left(ordered, value) - expected_rank, expected_rank - (bisect_right(ordered, value) - 1), 0)
        assert off <= bound


@pytest.mark.parametrize("error", [0.5, 0.1, 0.013, 0.001])
def test_the_capacity_of_a_quantile_sketch_keeps_its_error(error: float) -> None:
    capacity = quantile_capacity(error)
    assert capacity % 2 == 0
    assert math.ceil(math.log2((1 << 40) / capacity)) / capacity <= error


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: combiners.Top.Of(0), "Top: n must be a whole number of at least 1, not 0"),
        (lambda: combiners.Sample.FixedSizeGlobally(-1), "Sample: n must be a whole number of at least 1, not -1"),
        (lambda: combiners.ApproximateUnique.Globally(), "ApproximateUnique takes either size or error"),
        (lambda: combiners.ApproximateUnique.PerKey(16, 0.1), "ApproximateUnique takes either size or error"),
        (lambda: combiners.ApproximateUnique.PerKey(error=0.6), "error must be from 0.01 to 0.5, not 0.6"),
        (lambda: combiners.ApproximateUnique.PerKey(15), "size must be at least 16, not 15"),
        (lambda: combiners.ApproximateQuantiles.Globally(1), "num_quantiles must be at least 2"),
        (lambda: combiners.ApproximateQuantiles.Globally(3, error=0), "error must be above 0 and at most 0.5, not 0"),
        (lambda: combiners.TupleCombineFn(), "a tuple of combiners must not be empty"),
    ],
)
def test_invalid_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(tg.BuildError, match=re.escape(message)):
        make()


def test_distinct_elements_that_cannot_be_keys_are_refused() -> None:
    with pytest.raises(tg.TidegateError, match="no canonical encoding"):
        applied([[1]], combiners.ApproximateUnique.Globally(16))


def test_aggregates_have_element_types() -> None:
    pcoll = tg.Pipeline() | tg.Create([("a", 1)])
    assert (pcoll | combiners.Top.Of(2)).element_type == list[tuple[str, int]]
    assert (pcoll | combiners.Top.PerKey(2)).element_type == tuple[str, list[int]]
    assert (pcoll | combiners.Mean.PerKey()).element_type == tuple[str, float]
    assert (pcoll | combiners.ToDict()).element_type == dict[str, int]
    assert (pcoll | combiners.Latest.PerKey()).element_type == tuple[str, int]
    assert (pcoll | combiners.Count.PerElement()).element_type == tuple[tuple[str, int], int]
