"""Grouping into tables: merging partial results equals combining at once, and panes are emitted in order."""

# ruff: noqa: E731
from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.support.random_pipelines.functions import COMBINERS
from tests.support.run_and_collect import collect
from tidegate.runners.direct import DirectRunner
from tidegate.runners.engine.factory import build
from tidegate.runners.engine.operator import Context, Operator
from tidegate.runners.plan import Phase
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.block import Block, Pairs
from tidegate.sdk.windowing.window import GLOBAL_WINDOW

IN_PARTS = [name for name in COMBINERS if name not in ("middle",)]


def operator_of(combine: Any, element: Any, phase: Phase) -> Operator:
    """The operator of a combine in the given phase."""
    pipeline = tg.Pipeline()
    _ = pipeline | "in" >> tg.Create([element]) | "combine" >> combine | tg.Map(str)
    found = plan(pipeline.portable(), Traits(parallel=False))
    step = next(step for step in found.steps if step.label == "combine")
    operator = build(replace(step, phase=phase), found, Context(1 << 30, lambda: pytest.fail("nothing is spilled")))
    operator.open()
    return operator


def run(operator: Operator, blocks: Iterable[Block]) -> list[Block]:
    output = [emitted for block in blocks for _, emitted in operator.process(block, "in")]
    output += [block for _, block in operator.finish()]
    operator.close()
    return output


def values(blocks: Iterable[Block]) -> list[Any]:
    return [value for block in blocks for value in block.values]


tasks = st.lists(
    st.lists(st.lists(st.tuples(st.integers(0, 4), st.integers(-5, 20)), min_size=1), max_size=3),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("name", IN_PARTS)
@settings(max_examples=12)
@given(tasks)
def test_parts_merged_per_key_equal_combining_at_once(name: str, inputs: list[list[list[Any]]]) -> None:
    combine = lambda: tg.CombinePerKey(COMBINERS[name].make())
    parts = [run(operator_of(combine(), (1, 1), "parts"), [Block(values) for values in blocks]) for blocks in inputs]
    merged = values(run(operator_of(combine(), (1, 1), "merge"), [block for part in parts for block in part]))
    at_once = values(
        run(operator_of(combine(), (1, 1), "whole"), [Block(values) for blocks in inputs for values in blocks])
    )
    assert dict(merged) == dict(at_once)
    assert len(merged) == len(at_once)


@pytest.mark.parametrize("name", IN_PARTS)
@settings(max_examples=12)
@given(tasks)
def test_parts_merged_globally_equal_combining_at_once(name: str, inputs: list[list[list[Any]]]) -> None:
    combine = lambda: tg.CombineGlobally(COMBINERS[name].make())
    tasks = [[Block([value for _, value in values]) for values in blocks] for blocks in inputs]
    parts = [run(operator_of(combine(), 1, "parts"), blocks) for blocks in tasks]
    merged = values(run(operator_of(combine(), 1, "merge"), [block for part in parts for block in part]))
    at_once = values(run(operator_of(combine(), 1, "whole"), [block for blocks in tasks for block in blocks]))
    assert merged == at_once


@pytest.mark.parametrize("name", IN_PARTS)
def test_parts_merged_per_element_equal_combining_at_once(name: str) -> None:
    combine = lambda: tg.CombinePerElement(COMBINERS[name].make())
    parts = [
        run(operator_of(combine(), 1, "parts"), [Block([1, 2, 1])]),
        run(operator_of(combine(), 1, "parts"), [Block([2, 3])]),
    ]
    merged = values(run(operator_of(combine(), 1, "merge"), [block for part in parts for block in part]))
    assert merged == values(run(operator_of(combine(), 1, "whole"), [Block([1, 2, 1, 2, 3])]))


@settings(max_examples=40)
@given(st.lists(st.floats(), min_size=1), st.integers(1, 9), st.sampled_from([sum, min, max]))
@example([1.0, math.nan, 0.0], 1, min)
@example([1.0, math.nan, 0.0, 5.0], 2, min)
@example([math.inf, 1.0, math.nan, 2.0, 1.5], 2, max)
@example([0.1] * 10, 3, sum)
def test_floats_are_combined_in_order_across_blocks(numbers: list[float], size: int, combiner: Any) -> None:
    blocks = [Block(numbers[start : start + size]) for start in range(0, len(numbers), size)]
    in_blocks = values(run(operator_of(tg.CombineGlobally(combiner), 1.0, "whole"), blocks))
    at_once = values(
        run(operator_of(tg.CombineGlobally(combiner), 1.0, "whole"), [Block([number]) for number in numbers])
    )
    assert str(in_blocks) == str(at_once)
    keyed = [Block([("a", number) for number in block.values]) for block in blocks]
    per_key = values(run(operator_of(tg.CombinePerKey(combiner), ("a", 1.0), "whole"), keyed))
    assert str([value for _, value in per_key]) == str(at_once)


def test_windows_are_emitted_by_their_ends_and_keys_by_first_arrival() -> None:
    stamped = [
        tg.TimestampedValue((key, second), second)
        for key, second in [("b", 25), ("a", 3), ("b", 4), ("c", 21), ("a", 22)]
    ]

    def write(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        return {"out": p | tg.Create(stamped) | tg.WindowInto(tg.FixedWindows(10)) | tg.GroupByKey()}

    found = collect(write, DirectRunner(block_size=1)).seen["out"]
    assert [(each.value, each.window.start.seconds()) for each in found] == [
        (("a", [3]), 0.0),
        (("b", [4]), 0.0),
        (("b", [25]), 20.0),
        (("c", [21]), 20.0),
        (("a", [22]), 20.0),
    ]
    assert {each.pane for each in found} == {tg.PaneInfo(True, True, tg.Timing.ON_TIME, 0, 0)}
    assert {each.micros for each in found} == {9_999_999, 29_999_999}


def test_empty_input_gives_no_groups_and_the_default_of_a_combine() -> None:
    def write(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        empty = p | tg.Create([])
        return {
            "group": empty | tg.GroupByKey(),
            "sum": empty | tg.CombineGlobally(sum),
            "min": empty | tg.CombineGlobally(min),
            "plain": empty | tg.CombineGlobally(math.fsum),
            "without": empty | "without" >> tg.CombineGlobally(len).without_defaults(),
        }

    found = collect(write)
    assert {name: found.values(name) for name in found.seen} == {
        "group": [],
        "sum": [0],
        "min": [],
        "plain": [],
        "without": [],
    }
    assert found.seen["sum"][0].window is GLOBAL_WINDOW


def test_extra_arguments_of_a_combine_reach_its_function() -> None:
    def weighted_sum(numbers: list[int], threshold: int, *, weight: int) -> int:
        return weight * sum(number for number in numbers if number > threshold)

    def write(p: tg.Pipeline) -> dict[str, tg.PCollection[Any]]:
        return {
            "per key": p
            | "a" >> tg.Create([("a", 1), ("a", 5), ("b", 7)])
            | tg.CombinePerKey(weighted_sum, 3, weight=2),
            "globally": p | "b" >> tg.Create([1, 5, 7]) | tg.CombineGlobally(weighted_sum, 3, weight=2),
        }

    found = collect(write)
    assert found.values("per key") == [("a", 10), ("b", 14)]
    assert found.values("globally") == [24]


@given(st.lists(st.dictionaries(st.integers(0, 5), st.integers(-5, 20), min_size=1), min_size=1, max_size=4))
def test_partial_results_merge_equally_as_columns_and_as_tuples(parts: list[dict[int, int]]) -> None:
    def merged(blocks: list[Any]) -> list[Any]:
        operator = operator_of(tg.CombinePerKey(sum), (1, 2), "merge")
        return values(run(operator, [Block(block) for block in blocks]))

    assert merged([Pairs(list(part), list(part.values())) for part in parts]) == merged(
        [list(part.items()) for part in parts]
    )


@pytest.mark.parametrize("keys", [[1, 1, 2], [True, 1, 2]])
def test_partial_results_of_one_key_in_one_block_are_merged(keys: list[Any]) -> None:
    operator = operator_of(tg.CombinePerKey(sum), (1, 2), "merge")
    assert values(run(operator, [Block(Pairs(keys, [5, 6, 7]))])) == [(1, 11), (2, 7)]


def test_partial_results_without_a_valid_key_are_refused_with_their_element() -> None:
    operator = operator_of(tg.CombinePerKey(sum), (1, 2), "merge")
    with pytest.raises(tg.KeyEncodingError, match="combine"):
        run(operator, [Block(Pairs([1, [2]], [5, 6]))])
