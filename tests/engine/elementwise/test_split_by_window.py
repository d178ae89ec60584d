"""A block in a few windows is split into one per window: no element is lost, and order within a window is kept."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.runners.engine.elementwise.split_by_window import split_by_window
from tidegate.sdk.data.block import Block, DerivedFrom, Each
from tidegate.sdk.data.panes import NO_PANE
from tidegate.sdk.time import MIN_MICROS
from tidegate.sdk.windowing.assignment import single_window
from tidegate.sdk.windowing.window import IntervalWindow

pytest.importorskip("numpy")

SECOND = 1_000_000
ASSIGNERS = [tg.FixedWindows(10), tg.FixedWindows(7, 3), tg.CalendarWindows.days(1)]


def block_of(times: list[int], **columns: Any) -> Block:
    return Block(list(range(len(times))), array("q", times), **columns)


@given(
    st.lists(st.integers(-20, 40), min_size=1, max_size=20),
    st.integers(1, 100),
    st.sampled_from(ASSIGNERS),
    st.sampled_from([1, 3600, 86400]),
)
def test_each_part_is_in_one_window_and_all_elements_of_a_window_stay_in_order(
    times: list[int], copies: int, assigner: Any, unit: int
) -> None:
    bounds = single_window(assigner)
    assert bounds is not None
    block = block_of([t * unit * SECOND for t in times] * copies, windows=DerivedFrom(assigner))
    parts = list(split_by_window(block, bounds))
    expected: dict[int, list[tuple[int, int]]] = {}
    for value, t in zip(block.values, block.timestamp_column(), strict=True):
        expected.setdefault(bounds(t)[0], []).append((value, t))
    if len(parts) == 1 and parts[0].span is None:  # splitting would not have paid off
        assert parts[0] is block
        assert len(expected) > 1
        return
    assert [bounds(part.timestamp_column()[0])[0] for part in parts] == sorted(expected)
    for part in parts:
        low, high = bounds(part.timestamp_column()[0])
        assert part.span is not None
        assert low <= part.span[0] <= min(part.timestamp_column())
        assert max(part.timestamp_column()) <= part.span[1] < high
        assert list(zip(part.values, part.timestamp_column(), strict=True)) == expected[low]
        assert part.windows == block.windows


def test_many_elements_of_two_windows_become_two_blocks() -> None:
    bounds = single_window(tg.FixedWindows(10))
    assert bounds is not None
    parts = list(split_by_window(block_of([9 * SECOND, 11 * SECOND] * 600), bounds))
    assert [list(part.values) for part in parts] == [list(range(0, 1200, 2)), list(range(1, 1200, 2))]


def test_elements_near_the_minimum_and_maximum_timestamp_are_split() -> None:
    bounds = single_window(tg.FixedWindows(10**13))
    assert bounds is not None
    last = 8_999_999_999_999 * SECOND
    parts = list(split_by_window(block_of([-last, MIN_MICROS, last, 0] * 400), bounds))
    assert sorted(value for part in parts for value in part.values) == list(range(1600))


@pytest.mark.parametrize(
    "block",
    [
        Block([1, 2] * 500, [0, 11 * SECOND] * 500),
        block_of([0, 11 * SECOND] * 500, windows=Each([(IntervalWindow.of_micros(0, 10),)] * 1000)),
        block_of([0, 11 * SECOND] * 500, panes=[NO_PANE] * 1000),
        block_of([0, 10**9 * SECOND] * 500),
        block_of([0, 11 * SECOND]),
    ],
    ids=["a list", "windows of their own", "panes of their own", "far apart", "few"],
)
def test_other_blocks_are_not_split(block: Block) -> None:
    bounds = single_window(tg.FixedWindows(10))
    assert bounds is not None
    assert list(split_by_window(block, bounds)) == [block]
