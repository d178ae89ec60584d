"""The solution of a loop: which values count as changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from tidegate.runners.engine.iteration.solution import Solution, differ, merging_function
from tidegate.sdk.authoring.combine import MaxFn, MinFn, SumFn
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError
from tidegate.sdk.user_code.user_fn import UserFn


@dataclass
class Holder:
    values: Any


NAN = float("nan")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, np.array([1, 2]), True),
        (np.array([1, 2]), [1, 2], True),
        (np.array([1.0, NAN]), np.array([1.0, NAN]), False),
        (np.array([1, 2]), np.array([1, 3]), True),
        (np.array([1, 2]), np.array([1.0, 2.0]), False),
        (np.array(["a"], dtype=object), np.array(["a"], dtype=object), False),
        (np.float64(1), 1.0, False),
        (np.float64(NAN), NAN, False),
    ],
    ids=repr,
)
def test_arrays_are_compared_by_their_elements(old: Any, new: Any, expected: bool) -> None:
    assert differ(old, new) is expected
    assert differ(new, old) is expected


def test_tables_of_pandas_are_compared_as_pandas_does() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1.0, NAN]})
    assert not differ(table, table.copy())
    assert not differ(table["a"], table["a"].copy())
    assert differ(table, table + 1)


def test_an_ambiguous_comparison_asks_for_changed() -> None:
    with pytest.raises(RunError, match="give changed="):
        differ(Holder(np.array([1, 2])), Holder(np.array([1, 3])))


def union(values: list[set[int]]) -> set[int]:
    values[0] |= values[1]
    return values[0]


def test_a_merge_may_change_the_value_before() -> None:
    solution = Solution(union)
    start = {1}
    solution.fill([Block([("a", start), ("b", {3})])])
    changed = [pair for block in solution.update(Block([("a", {2}), ("b", {3})])) for pair in block.values]
    assert changed == [("a", {1, 2})]
    assert [pair for block in solution for pair in block.values] == [("a", {1, 2}), ("b", {3})]
    assert start == {1}


@dataclass(frozen=True, slots=True)
class Slotted:
    values: Any


@pytest.mark.parametrize(
    ("start", "inner"),
    [
        ({"x": {1}}, lambda value: value["x"]),
        (defaultdict(set, x={1}), lambda value: value["x"]),
        ((0, {1}), lambda value: value[1]),
        ([[{1}]], lambda value: value[0][0]),
        (Holder({1}), lambda value: value.values),
        (Slotted(({1},)), lambda value: value.values[0]),
    ],
    ids=["dict", "subclass of dict", "tuple", "list of lists", "instance", "slots"],
)
def test_a_merge_may_change_what_the_value_before_holds(start: Any, inner: Callable[[Any], set[int]]) -> None:
    def merge(values: list[Any]) -> Any:
        inner(values[0]).add(values[1])
        return values[0]

    solution = Solution(merge)
    solution.fill([Block([("a", start)])])
    assert [block.values[0][0] for block in solution.update(Block([("a", 2)]))] == ["a"]
    assert list(solution.update(Block([("a", 2)]))) == []
    assert inner(solution.tables[next(iter(solution.tables))]["a"]) == {1, 2}
    assert inner(start) == {1}


def test_what_is_one_object_in_the_value_before_is_one_for_a_merge() -> None:
    shared = [1]
    seen: list[Any] = []
    solution = Solution(lambda values: seen.append(values[0]) or values[0])
    solution.fill([Block([("a", {"x": shared, "y": shared})])])
    assert list(solution.update(Block([("a", 0)]))) == []
    assert seen[0]["x"] is seen[0]["y"] is not shared


def test_what_cannot_be_copied_is_merged_as_it_is() -> None:
    solution = Solution(lambda values: values[0])
    solution.fill([Block([("a", {"x": MappingProxyType({"y": 1})})])])
    assert list(solution.update(Block([("a", 0)]))) == []


def test_a_value_without_equality_has_not_changed_if_a_merge_returns_it() -> None:
    class Plain:
        pass

    solution = Solution(lambda values: values[0])
    solution.fill([Block([("a", Plain())])])
    assert list(solution.update(Block([("a", Plain())]))) == []
    nested = Solution(lambda values: values[0])
    nested.fill([Block([("a", {"x": (Plain(), [Plain()])})])])
    assert list(nested.update(Block([("a", 0)]))) == []


def test_every_runner_merges_by_the_function_that_a_solution_knows() -> None:
    """Plain values are merged by `min` and `max` without a call for each."""
    assert merging_function(UserFn.of(MinFn())) is min
    assert merging_function(UserFn.of(MaxFn())) is max
    summed = merging_function(UserFn.of(SumFn()))
    assert summed is not None
    assert summed([1, 2]) == 3
    assert merging_function(None) is None
