"""Pairs in two columns are the list of tuples that they stand for."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sdk.data.block import Block, as_pairs, keys_of

PAIRS = st.lists(st.tuples(st.integers(), st.text(max_size=3)), min_size=1, max_size=9)


@given(PAIRS, st.slices(9), st.data())
def test_pairs_read_as_the_list_does(some: list[tuple[int, str]], part: slice, data: st.DataObject) -> None:
    pairs = as_pairs(some)
    assert pairs is not None
    at = data.draw(st.integers(-len(some), len(some) - 1))
    assert (len(pairs), list(pairs), pairs[at]) == (len(some), some, some[at])
    assert list(pairs[part]) == some[part]
    assert dict(pairs) == dict(some)
    assert keys_of(pairs) == keys_of(some) == [k for k, _ in some]
    assert list(pickle.loads(pickle.dumps(pairs))) == some
    assert [list(block.values) for block in Block(pairs).split(4)] == [some[i : i + 4] for i in range(0, len(some), 4)]


@pytest.mark.parametrize("values", [[], [1], [(1, 2), (3,)], [(1, 2), [3, 4]], ["ab"]])
def test_what_is_not_pairs_alone_is_none(values: list[Any]) -> None:
    assert as_pairs(values) is None
