"""Sessions computed from arrays equal those computed by key, as long as 64 bits are enough for the times."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.engine.grouping.sessions.counts import SessionTimes, count_sessions, split_by_key
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS

pytest.importorskip("numpy")

KEYS = st.sampled_from([0, 1, 1.0, "a", ("b", 2), None])
NEAR = st.integers(-40, 40)
FAR = st.one_of(NEAR, st.integers(MIN_MICROS, MAX_MICROS - 1), st.integers(2**61 - 3, 2**62 + 3))
GAPS = st.one_of(st.integers(1, 30), st.just(2**62))


def added(blocks: list[list[tuple[Any, int]]]) -> tuple[SessionTimes, dict[Any, list[int]]]:
    times = SessionTimes.if_numpy()
    assert times is not None
    by_key: defaultdict[Any, list[int]] = defaultdict(list)
    for block in blocks:
        times.add([k for k, _ in block], [t for _, t in block])
        for k, t in block:
            by_key[k].append(t)
    return times, by_key


@given(st.lists(st.lists(st.tuples(KEYS, NEAR)), min_size=1).filter(any), st.integers(1, 30))
def test_sessions_from_arrays_equal_those_computed_by_key(blocks: list[list[tuple[Any, int]]], gap: int) -> None:
    times, by_key = added(blocks)
    found = times.drain_sessions(gap)
    assert found is not None
    assert found[1] == count_sessions(by_key, gap)
    assert not times.numbers
    assert list(split_by_key(*found)) == [(k, count_sessions({k: stamps}, gap)) for k, stamps in by_key.items()]


@given(st.lists(st.lists(st.tuples(KEYS, FAR)), min_size=1).filter(any), GAPS)
def test_times_too_far_apart_are_returned_in_the_order_of_their_arrival(
    blocks: list[list[tuple[Any, int]]], gap: int
) -> None:
    times, by_key = added(blocks)
    found = times.drain_sessions(gap)
    if found is None:
        all_times = [t for block in blocks for _, t in block]
        assert max(all_times) - min(all_times) >= 2**62 or max(all_times) + gap > MAX_MICROS or gap >= 2**62
        assert times.drain() == by_key
        assert not times.numbers
    else:
        assert found[1] == count_sessions(by_key, gap)


def test_many_keys_over_a_long_time_are_sorted_by_two_columns() -> None:
    blocks = [[(k, t) for t in (2**61, 3, k, 0, k)] for k in range(8)]
    times, by_key = added(blocks)
    found = times.drain_sessions(4)
    assert found is not None
    assert found[1] == count_sessions(by_key, 4)


def test_an_unhashable_key_is_refused_without_effect_on_the_times_of_other_keys() -> None:
    times, by_key = added([[("a", 1), ("b", 2)]])
    with pytest.raises(TypeError):
        times.add(["c", []], [3, 4])
    assert times.drain() == {**by_key, "c": []}
