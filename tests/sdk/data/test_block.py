"""Pairs stored in two columns behave like the list of tuples."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sdk.data.block import Block, as_pairs, keys_of

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
