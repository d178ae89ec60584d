"""Extra arguments that a step's function or combiner doesn't accept are refused when the step is created or applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

import tidegate as tg
from tests.support.failing_pipelines import error_message
from tidegate.testing import TestPipeline, assert_that, equal_to


def unannotated(x):  # type: ignore[no-untyped-def]
    return x


def scaled(x: Any, by: Any = 1) -> Any:
    return x


def named(*, name: str, **rest: Any) -> str:
    return name


def nothing() -> list[int]:
    return []


def total(values: Iterable[int]) -> int:
    return sum(values)


class Scale(tg.DoFn):
    def process(self, element: Any, by: int = 1) -> Any:
        yield element


class Weighted(tg.CombineFn[int, int, int]):
    """All methods have a parameter `weight`."""

    def create_accumulator(self, weight: int = 1) -> int:
        return 0

    def add_input(self, accumulator: int, element: int, weight: int = 1) -> int:
        return accumulator + weight * element

    def merge_accumulators(self, accumulators: Iterable[int], weight: int = 1) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int, weight: int = 1) -> int:
        return accumulator


class WeightMissingInMerge(Weighted):
    """The method that runs only if accumulators are merged has no parameter `weight`."""

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:  # type: ignore[override]
        return sum(accumulators)


def pairs(p: Any) -> Any:
    return p | tg.Create([("a", 1), ("a", 2), ("b", 3)])


STEPS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "Map": (
        lambda p: pairs(p) | tg.Map(scaled, of=2),
        "scaled(x, by=…) can't be called with the element and the extra arguments given (0 positional, ['of']): "
        "got an unexpected keyword argument 'of'",
    ),
    "Map by position": (lambda p: pairs(p) | tg.Map(scaled, 1, 2), "(2 positional, []): too many positional arguments"),
    "Map of what takes keywords alone": (
        lambda p: pairs(p) | tg.Map(named, name="x"),
        "named(*, name, **rest) can't be",
    ),
    "MapTuple of elements of any length": (
        lambda p: pairs(p) | tg.Map(unannotated) | tg.MapTuple(scaled, of=2),
        "scaled(x, by=…) can't be called with the items of the element and the extra arguments given",
    ),
    "FlatMap": (lambda p: pairs(p) | tg.FlatMap(scaled, of=2), "scaled(x, by=…) can't be called"),
    "Filter": (lambda p: pairs(p) | tg.Filter(scaled, of=2), "scaled(x, by=…) can't be called"),
    "MapValues": (lambda p: pairs(p) | tg.MapValues(scaled, of=2), "scaled(x, by=…) can't be called"),
    "ParDo": (lambda p: pairs(p) | tg.ParDo(Scale(), of=2), "Scale.process(element, by=…) can't be called"),
    "MapTuple": (
        lambda p: pairs(p) | tg.MapTuple(scaled, of=2),
        "scaled(x, by=…) can't be called with the 2 items of the element and the extra arguments given",
    ),
    "MapTuple by position": (
        lambda p: pairs(p) | tg.MapTuple(scaled, 1),
        "can't be called with the 2 items of the element and the extra arguments given (1 positional, [])",
    ),
    "MapTuple of a function of one": (
        lambda p: pairs(p) | tg.MapTuple(lambda x: x),
        "<lambda> can't be called with the 2 items of the element: it takes one argument",
    ),
    "FlatMapTuple of a function of none": (
        lambda p: pairs(p) | tg.FlatMapTuple(nothing),
        "nothing() can't be called with the 2 items of the element: too many positional arguments",
    ),
}


@pytest.mark.parametrize("case", STEPS)
def test_extra_arguments_that_a_function_does_not_accept_are_refused_with_its_signature(case: str) -> None:
    write, expected = STEPS[case]
    message = error_message(write)
    assert message.startswith("BuildError: ")
    assert expected in message
    assert "applied at HERE" in message


COMBINES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "max": (
        lambda p: pairs(p) | tg.CombinePerKey(max, key=len),
        "CombinePerKey(max) has extra arguments (0 positional, ['key']), but the combiner that max stands for takes "
        "none. Write a function of all values: CombinePerKey(lambda values: max(values, …))",
    ),
    "sum by position": (lambda p: pairs(p) | tg.CombinePerKey(sum, 3), "(1 positional, [])"),
    "globally": (lambda p: p | tg.Create([1]) | tg.CombineGlobally(min, key=abs), "CombineGlobally(min) has extra"),
    "per element": (lambda p: p | tg.Create([1]) | tg.CombinePerElement(len, key=abs), "CombinePerElement(len) has"),
    "a function": (
        lambda p: pairs(p) | tg.CombinePerKey(total, start=3),
        "which total can't take: it takes one argument",
    ),
    "a CombineFn": (
        lambda p: pairs(p) | tg.CombinePerKey(Weighted(), by=3),
        "which Weighted.create_accumulator(weight=…) can't take: got an unexpected keyword argument 'by'",
    ),
    "a method of it": (
        lambda p: pairs(p) | tg.CombinePerKey(WeightMissingInMerge(), weight=3),
        "which WeightMissingInMerge.merge_accumulators(accumulators) can't take: "
        "got an unexpected keyword argument 'weight'",
    ),
    "of the library": (lambda p: pairs(p) | tg.CombinePerKey(tg.combiners.MeanFn(), 3), "can't take: too many"),
    "associative": (lambda p: pairs(p) | tg.CombinePerKey(tg.associative(lambda a, b: a), 3), "can't take: too many"),
}


@pytest.mark.parametrize("case", COMBINES)
def test_extra_arguments_that_a_combiner_does_not_accept_are_refused_when_it_is_applied(case: str) -> None:
    write, expected = COMBINES[case]
    with pytest.raises(tg.BuildError) as caught:
        write(tg.Pipeline())
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "hint",
    [Any, tuple[int, int] | tuple[int], tuple, tuple[int, ...], tuple[int, Any], list[int]],
    ids=str,
)
def test_elements_of_unknown_length_are_not_refused(hint: Any) -> None:
    with TestPipeline() as p:
        elements = p | tg.Create([0]) | tg.Map(lambda n: (n, n + 1)).with_output_types(hint)
        assert_that(elements | tg.MapTuple(lambda a, b: b), equal_to([1]))


def test_extra_arguments_are_passed_to_functions_and_combiners() -> None:
    with TestPipeline() as p:
        keyed = pairs(p)
        mapped = keyed | "mapped" >> tg.MapTuple(lambda k, v, by: k * v * by, by=2)
        assert_that(mapped, equal_to(["aa", "aaaa", "bbbbbb"]))
        assert_that(keyed | tg.CombinePerKey(Weighted(), weight=3), equal_to([("a", 9), ("b", 9)]))
        sums = keyed | "of all" >> tg.CombinePerKey(lambda values, by: sum(values) * by, 2)
        assert_that(sums, equal_to([("a", 6), ("b", 6)]))
        lengths = keyed | "rest" >> tg.MapTuple(lambda *items, by: len(items) * by, by=2)
        assert_that(lengths, equal_to([4, 4, 4]))
