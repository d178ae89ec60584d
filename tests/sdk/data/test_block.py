"""Blocks of elements; pairs stored in two columns behave like the list of tuples."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.sdk.data.block import Block, as_pairs, keys_of
from tidegate.sdk.time import MIN_MICROS

PAIRS = st.lists(st.tuples(st.integers(), st.text(max_size=3)), min_size=1, max_size=9)


@given(PAIRS, st.slices(9), st.data())
def test_pairs_read_like_the_list_of_tuples(expected: list[tuple[int, str]], part: slice, data: st.DataObject) -> None:
    pairs = as_pairs(expected)
    assert pairs is not None
    index = data.draw(st.integers(-len(expected), len(expected) - 1))
    assert (len(pairs), list(pairs), pairs[index]) == (len(expected), expected, expected[index])
    assert list(pairs[part]) == expected[part]
    assert dict(pairs) == dict(expected)
    assert keys_of(pairs) == keys_of(expected) == [k for k, _ in expected]
    assert list(pickle.loads(pickle.dumps(pairs))) == expected
    assert [list(block.values) for block in Block(pairs).split(4)] == [
        expected[i : i + 4] for i in range(0, len(expected), 4)
    ]


@pytest.mark.parametrize("values", [[], [1], [(1, 2), (3,)], [(1, 2), [3, 4]], ["ab"]])
def test_values_that_are_not_all_pairs_have_no_columns(values: list[Any]) -> None:
    assert as_pairs(values) is None


def test_timestamps_of_elements_are_found_wherever_they_are() -> None:
    stamped = tg.TimestampedValue("b", 5)
    for elements in (["a", stamped], [stamped, "a"], ["a", 1, stamped], [1, 2, "a", stamped, stamped, 1]):
        block = Block.of_elements(elements)
        assert block.values == ["b" if each is stamped else each for each in elements]
        assert block.timestamps == [5_000_000 if each is stamped else MIN_MICROS for each in elements]
    assert Block.of_elements([stamped, stamped]).timestamps == [5_000_000, 5_000_000]
    assert Block.of_elements([1, "a", None]).timestamps == Block.of_elements([]).timestamps == MIN_MICROS
