"""Sessions by columns of numpy's are those that are cut key by key, wherever the columns can hold the times."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.engine.grouping.sessions.counts import SessionTimes, by_key
from tidegate.runners.engine.grouping.sessions.table import counted
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS

pytest.importorskip("numpy")

KEYS = st.sampled_from([0, 1, 1.0, "a", ("b", 2), None])
NEAR = st.integers(-40, 40)
FAR = st.one_of(NEAR, st.integers(MIN_MICROS, MAX_MICROS - 1), st.integers(2**61 - 3, 2**62 + 3))
GAPS = st.one_of(st.integers(1, 30), st.just(2**62))


def taken(blocks: list[list[tuple[Any, int]]]) -> tuple[SessionTimes, dict[Any, list[int]]]:
    times = SessionTimes.at_hand()
    assert times is not None
    alone: defaultdict[Any, list[int]] = defaultdict(list)
    for block in blocks:
        times.take([k for k, _ in block], [t for _, t in block])
        for k, t in block:
            alone[k].append(t)
    return times, alone


@given(st.lists(st.lists(st.tuples(KEYS, NEAR)), min_size=1).filter(any), st.integers(1, 30))
def test_sessions_are_cut_as_key_by_key(blocks: list[list[tuple[Any, int]]], gap: int) -> None:
    times, alone = taken(blocks)
    found = times.sessions(gap)
    assert found is not None
    assert found[1] == counted(alone, gap)
    assert not times.numbers
    ends, starts, keys, counts = map(list, found[1])
    assert list(by_key(*found)) == [
        (
            k,
            [start for start, of in zip(starts, keys, strict=True) if of == k],
            [end for end, of in zip(ends, keys, strict=True) if of == k],
            [n for n, of in zip(counts, keys, strict=True) if of == k],
        )
        for k in alone
    ]


@given(st.lists(st.lists(st.tuples(KEYS, FAR)), min_size=1).filter(any), GAPS)
def test_times_too_far_apart_are_given_back_as_they_came(blocks: list[list[tuple[Any, int]]], gap: int) -> None:
    times, alone = taken(blocks)
    found = times.sessions(gap)
    if found is None:
        every = [t for block in blocks for _, t in block]
        assert max(every) - min(every) >= 2**62 or max(every) + gap > MAX_MICROS or gap >= 2**62
        assert times.drain() == alone
        assert not times.numbers
    else:
        assert found[1] == counted(alone, gap)


def test_many_keys_over_a_long_time_are_sorted_in_two_columns() -> None:
    blocks = [[(k, t) for t in (2**61, 3, k, 0, k)] for k in range(8)]
    times, alone = taken(blocks)
    found = times.sessions(4)
    assert found is not None
    assert found[1] == counted(alone, 4)


def test_a_key_that_has_no_hash_is_refused_and_leaves_the_rest_alone() -> None:
    times, alone = taken([[("a", 1), ("b", 2)]])
    with pytest.raises(TypeError):
        times.take(["c", []], [3, 4])
    assert times.drain() == {**alone, "c": []}
