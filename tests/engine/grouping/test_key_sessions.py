"""The sessions of a key: overlapping intervals are merged in any order of arrival."""

from __future__ import annotations

from operator import add

from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.engine.grouping.sessions.key_sessions import KeySessions, Session

ELEMENTS = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 12)), min_size=1, max_size=40)


def merged(elements: list[tuple[int, int]]) -> list[Session]:
    """Merge intervals (start, length) into sessions with their numbers of elements."""
    sessions: list[Session] = []
    for start, length in sorted(elements):
        if sessions and start < sessions[-1][1]:
            first, end, n = sessions.pop()
            sessions.append((first, max(end, start + length), n + 1))
        else:
            sessions.append((start, start + length, 1))
    return sessions


def added(elements: list[tuple[int, int]]) -> tuple[KeySessions, int]:
    """Add the elements in order; return the sessions, and their number according to the results of `add`."""
    (start, length), *others = elements
    sessions, n = KeySessions(start, start + length, 1, number=0), 1
    for start, length in others:
        n += sessions.add(start, start + length, 1, add)
    return sessions, n


@given(ELEMENTS)
def test_sessions_are_the_merged_intervals_of_their_elements(elements: list[tuple[int, int]]) -> None:
    sessions, n = added(elements)
    assert sessions.to_list() == merged(elements)
    assert n == len(sessions.to_list())
    assert sessions.first_end == sessions.to_list()[0][1]


@given(ELEMENTS, st.integers(-5, 110), st.integers(1, 12))
def test_an_interval_overlaps_the_sessions_that_it_would_merge_with(
    elements: list[tuple[int, int]], start: int, length: int
) -> None:
    sessions, _ = added(elements)
    overlapping = [s for s in sessions.to_list() if s[0] < start + length and start < s[1]]
    assert sessions.overlaps(start, start + length) is bool(overlapping)


@given(ELEMENTS, st.integers(-5, 120))
def test_ended_sessions_are_removed_except_the_newest(elements: list[tuple[int, int]], watermark: int) -> None:
    sessions, _ = added(elements)
    *older, newest = sessions.to_list()
    assert sessions.pop_older(watermark) == [s for s in older if s[1] <= watermark]
    assert sessions.to_list() == [*(s for s in older if s[1] > watermark), newest]


@given(ELEMENTS)
def test_sessions_can_be_restored_from_their_list(elements: list[tuple[int, int]]) -> None:
    sessions, _ = added(elements)
    restored = KeySessions.of(sessions.to_list(), sessions.number)
    assert (restored.to_list(), restored.number) == (sessions.to_list(), sessions.number)
