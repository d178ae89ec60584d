from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sdk.errors import BuildError
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, Duration, Timestamp
from tidegate.sdk.windowing.assigners import (
    GLOBAL_BOUNDS,
    CumulativeWindows,
    CustomAssigner,
    FixedWindows,
    GlobalWindows,
    GlobalWindowsSince,
    Merged,
    Sessions,
    SlidingWindows,
    WindowAssigner,
    as_assigner,
    element_dependent,
    is_global_assigner,
    is_merging,
    merged,
)
from tidegate.sdk.windowing.assignment import assign, assign_bounds, assign_windows, single_window
from tidegate.sdk.windowing.calendar import CalendarWindows
from tidegate.sdk.windowing.window import (
    GLOBAL_WINDOW,
    BoundedWindow,
    GlobalWindow,
    IntervalWindow,
    decode_window,
    encode_window,
    window_end,
)
from tidegate.sdk.windowing.window_merging import merge_sessions, merge_windows

S = 1_000_000
settable = st.integers(MIN_MICROS, MAX_MICROS - 2)
near_ends = st.one_of(
    st.integers(-200, 200), st.integers(MIN_MICROS, MIN_MICROS + 200), st.integers(MAX_MICROS - 200, MAX_MICROS - 2)
)


def micros(n: int) -> Duration:
    return Duration(micros=n)


def window(start: float, end: float) -> IntervalWindow:
    return IntervalWindow(start, end)


@dataclass(frozen=True, order=True)
class Trip(BoundedWindow):
    end: Timestamp
    driver: str


class PerDriver(WindowAssigner):
    def assign(self, timestamp: Timestamp, element: Any) -> Iterable[BoundedWindow]:
        return [Trip(timestamp + 60, element)]


class Widen(WindowAssigner):
    """Merges windows that touch; sessions don't merge these."""

    def assign(self, timestamp: Timestamp, element: Any) -> Iterable[BoundedWindow]:
        return [IntervalWindow(timestamp, timestamp + 10)]

    def merge(self, windows: Sequence[Any]) -> Iterable[tuple[Any, Iterable[Any]]]:
        groups: list[list[Any]] = []
        for one in sorted(windows, key=lambda w: w.start):
            if groups and one.start <= max(w.end for w in groups[-1]):
                groups[-1].append(one)
            else:
                groups.append([one])
        return [(IntervalWindow(g[0].start, max(w.end for w in g)), g) for g in groups]


# ---- windows


def test_a_window_is_half_open() -> None:
    assert window(0, 10).max_timestamp() == Timestamp(micros=10 * S - 1)
    assert not window(0, 10).intersects(window(10, 20))
    assert window(0, 10).intersects(window(9, 20))


def test_windows_are_ordered_by_end_then_start() -> None:
    windows = [window(5, 10), window(0, 20), window(0, 10), window(-5, 0)]
    assert sorted(windows) == [window(-5, 0), window(0, 10), window(5, 10), window(0, 20)]
    assert window(0, 10) <= window(0, 10)
    with pytest.raises(TypeError):
        _ = window(0, 10) < GLOBAL_WINDOW


def test_equal_windows_are_one_dict_key_and_survive_pickling() -> None:
    assert len({window(0, 10), IntervalWindow.of_micros(0, 10 * S)}) == 1
    assert pickle.loads(pickle.dumps(window(1, 2))) == window(1, 2)
    assert pickle.loads(pickle.dumps(GLOBAL_WINDOW)) is GLOBAL_WINDOW


def test_a_window_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="a window can't be changed"):
        window(0, 10).start_micros = 5


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must end after it starts, not \[1970-01-01T00:00:10Z, 1970-01-01T00:00:10Z"):
        window(10, 10)


def test_the_union_spans_both() -> None:
    assert window(0, 5).union(window(3, 9)) == window(0, 9)


def test_the_global_window_is_a_singleton_that_ends_at_the_maximum_timestamp() -> None:
    assert GlobalWindow() is GLOBAL_WINDOW
    assert GLOBAL_WINDOW.end.micros == MAX_MICROS
    assert GLOBAL_WINDOW.max_timestamp().micros == MAX_MICROS - 1
    assert sorted([GLOBAL_WINDOW, GLOBAL_WINDOW]) == [GLOBAL_WINDOW, GLOBAL_WINDOW]


def test_a_user_defined_window_needs_only_an_end() -> None:
    trip = Trip(Timestamp(60), "ann")
    assert trip.max_timestamp() == Timestamp(micros=60 * S - 1)
    assert window_end(trip) == 60 * S
    with pytest.raises(TypeError, match="'noon' is not a window: it needs an `end`"):
        window_end("noon")


@given(st.tuples(near_ends, near_ends).filter(lambda p: p[0] < p[1]), st.tuples(near_ends, near_ends))
def test_encoded_intervals_sort_like_the_windows_and_decode_to_them(a: tuple[int, int], b: tuple[int, int]) -> None:
    one, other = IntervalWindow.of_micros(*a), IntervalWindow.of_micros(*b)
    assert decode_window(encode_window(one)) == one
    assert (encode_window(one) < encode_window(other)) == (one < other)
    assert (encode_window(one) == encode_window(other)) == (one == other)


def test_equal_user_defined_windows_have_equal_encodings() -> None:
    shared = "".join(["a", "nn"])
    a, b = (Trip(Timestamp(5), shared), shared), (Trip(Timestamp(5), "ann"), "".join(["an", "n"]))
    assert encode_window(a[0]) == encode_window(b[0])
    assert decode_window(encode_window(a[0])) == a[0]
    assert decode_window(encode_window(GLOBAL_WINDOW)) is GLOBAL_WINDOW


@pytest.mark.parametrize("data", [b"", b"\x09", b"\x01abc", b"\x00\x00"])
def test_invalid_encodings_of_windows_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="is not an encoded window"):
        decode_window(data)


# ---- assignment


def test_an_element_at_the_end_belongs_to_the_next_window() -> None:
    assert assign_bounds(FixedWindows(10))(10 * S) == ((10 * S, 20 * S),)


def test_fixed_windows_use_floor_modulo_and_the_offset() -> None:
    one = single_window(FixedWindows(10, offset=3))
    assert one is not None
    assert one(0) == (-7 * S, 3 * S)
    assert one(-8 * S) == (-17 * S, -7 * S)
    backward = single_window(FixedWindows(10, offset=-3))
    assert backward is not None
    assert backward(0) == (-3 * S, 7 * S)


def test_bounds_saturate_at_the_minimum_and_maximum_timestamp() -> None:
    fixed = assign_bounds(FixedWindows(3600))
    assert fixed(MIN_MICROS)[0][0] == MIN_MICROS
    assert fixed(MAX_MICROS - 2)[0][1] == MAX_MICROS
    assert assign_bounds(Sessions(10))(MAX_MICROS - 2) == ((MAX_MICROS - 2, MAX_MICROS),)
    assert assign_bounds(CalendarWindows.days())(MIN_MICROS)[0][0] == MIN_MICROS
    assert assign_bounds(CalendarWindows.years(5, "Asia/Tokyo"))(MAX_MICROS - 2)[0][1] == MAX_MICROS


def test_a_sliding_period_longer_than_the_size_leaves_gaps() -> None:
    windows = assign_bounds(SlidingWindows(size=2, period=10))
    assert windows(11 * S) == ((10 * S, 12 * S),)
    assert windows(12 * S) == ()
    assert windows(19 * S) == ()
    assert windows(20 * S) == ((20 * S, 22 * S),)


def test_cumulative_windows_share_a_start_and_grow() -> None:
    windows = assign_bounds(CumulativeWindows(size=30, step=10))
    assert windows(5 * S) == ((0, 10 * S), (0, 20 * S), (0, 30 * S))
    assert windows(10 * S) == ((0, 20 * S), (0, 30 * S))
    assert windows(-1) == ((-30 * S, 0),)


@given(st.integers(1, 50), st.integers(-49, 49), st.lists(near_ends, min_size=1))
def test_fixed_windows_contain_their_timestamp_and_tile(size: int, offset: int, stamps: list[int]) -> None:
    offset %= size
    one = single_window(FixedWindows(micros(size), micros(offset)))
    assert one is not None
    for ts in stamps:
        start, end = one(ts)
        assert start <= ts < end
        if start > MIN_MICROS and end < MAX_MICROS:
            assert (end - start, (start - offset) % size) == (size, 0)
            assert one(end)[0] == end
            assert one(start - 1)[1] == start


@given(st.integers(1, 40), st.integers(1, 40), st.integers(-39, 39), st.lists(near_ends, min_size=1))
def test_sliding_windows_equal_those_of_a_brute_force_search(
    size: int, period: int, offset: int, stamps: list[int]
) -> None:
    offset = offset % period - (period if offset < 0 and offset % period else 0)
    windows = assign_bounds(SlidingWindows(micros(size), micros(period), micros(offset)))
    for ts in stamps:
        expected = tuple(
            (max(start, MIN_MICROS), min(start + size, MAX_MICROS))
            for start in range(ts - size + 1, ts + 1)
            if (start - offset) % period == 0
        )
        assert windows(ts) == expected


@pytest.mark.parametrize(
    "assigner",
    [
        SlidingWindows(micros(7), micros(3)),
        SlidingWindows(micros(2), micros(5)),
        SlidingWindows(micros(6), micros(3)),
        CumulativeWindows(micros(6), micros(2)),
        CalendarWindows.days(),
    ],
    ids=repr,
)
@given(stamps=st.lists(st.integers(-20, 20), min_size=2))
def test_the_windows_of_an_element_do_not_depend_on_the_previous_one(assigner: Any, stamps: list[int]) -> None:
    windows = assign_bounds(assigner)
    assert [windows(ts) for ts in stamps] == [assign_bounds(assigner)(ts) for ts in stamps]


@given(st.integers(1, 20), st.integers(1, 6), st.integers(0, 100), st.lists(near_ends, min_size=1))
def test_cumulative_windows_equal_those_of_a_brute_force_search(
    step: int, times: int, offset: int, stamps: list[int]
) -> None:
    size = step * times
    offset %= size
    windows = assign_bounds(CumulativeWindows(micros(size), micros(step), micros(offset)))
    for ts in stamps:
        (start,) = [s for s in range(ts - size + 1, ts + 1) if (s - offset) % size == 0]
        expected = [(start, start + k * step) for k in range(1, times + 1) if start + k * step > ts]
        # Ends that saturate to the same value are one window.
        saturated = [(max(s, MIN_MICROS), min(e, MAX_MICROS)) for s, e in expected]
        assert windows(ts) == tuple(dict.fromkeys(saturated))


@pytest.mark.parametrize(
    "assigner",
    [
        GlobalWindows(),
        FixedWindows(7, offset=-2),
        SlidingWindows(10, 3),
        CumulativeWindows(12, 4),
        Sessions(5),
        CalendarWindows.weeks(2, "Australia/Lord_Howe"),
        CalendarWindows.months(1, "America/New_York"),
    ],
    ids=lambda a: a.kind,
)
@given(ts=settable)
def test_each_timestamp_is_inside_each_of_its_windows(assigner: Any, ts: int) -> None:
    bounds = assign_bounds(assigner)(ts)
    assert bounds
    assert all(start <= ts < end for start, end in bounds)
    assert list(bounds) == sorted(bounds, key=lambda b: (b[1], b[0]))
    objects = assign(assigner)(ts, None)
    assert objects == assign_windows(assigner)(ts)
    assert [w.end.micros for w in objects] == [end for _, end in bounds]


def test_global_windows_assign_the_global_window() -> None:
    assert assign_bounds(GlobalWindows())(5) == (GLOBAL_BOUNDS,)
    assert assign(GlobalWindows())(5, None) == (GLOBAL_WINDOW,)


def test_timestamps_before_the_landmark_have_no_window() -> None:
    windows = assign_windows(GlobalWindowsSince(10))
    assert windows(10 * S - 1) == ()
    assert windows(10 * S) == (GLOBAL_WINDOW,)


def test_only_fixed_and_calendar_windows_assign_a_single_window() -> None:
    assert single_window(SlidingWindows(10, 10)) is None
    assert single_window(GlobalWindows()) is None
    assert single_window(CalendarWindows.days()) is not None


def test_durations_are_accepted_in_all_forms() -> None:
    assert FixedWindows(60) == FixedWindows(timedelta(minutes=1)) == FixedWindows(Duration(60)) == FixedWindows(60.0)
    assert FixedWindows(60).size == Duration(60)
    assert FixedWindows(60) != FixedWindows(60, offset=1)
    assert hash(FixedWindows(60)) == hash(FixedWindows(60))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedWindows(0), r"FixedWindows: size must be longer than 0 \(at least one microsecond\), not 0"),
        (lambda: FixedWindows(1e-9), "size must be longer than 0"),
        (lambda: FixedWindows("1h"), "FixedWindows: size must be a duration .* not '1h'"),  # type: ignore[arg-type]
        (lambda: FixedWindows(True), "size must be a duration"),
        (lambda: FixedWindows(10, offset=10), r"FixedWindows: offset must be smaller than size \(Duration\(10s\)\)"),
        (lambda: FixedWindows(10, offset=-10), "offset must be smaller than size"),
        (lambda: SlidingWindows(0, 1), "SlidingWindows: size must be longer than 0"),
        (lambda: SlidingWindows(1, 0), "SlidingWindows: period must be longer than 0"),
        (lambda: SlidingWindows(100, 10, 10), "SlidingWindows: offset must be smaller than period"),
        (lambda: CumulativeWindows(10, 3), "size .* must be a multiple of step"),
        (lambda: CumulativeWindows(10, -5), "CumulativeWindows: step must be longer than 0"),
        (lambda: CumulativeWindows(10, 5, 10), "CumulativeWindows: offset must be smaller than size"),
        (lambda: Sessions(0), "Sessions: gap must be longer than 0"),
        (lambda: Sessions(-1), "Sessions: gap must be longer than 0"),
        (lambda: Sessions("x"), "Sessions: gap must be a duration"),  # type: ignore[arg-type]
    ],
)
def test_the_error_of_an_invalid_argument_names_the_class_and_the_argument(make: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        make()


# ---- sessions and merging


def test_touching_sessions_do_not_merge() -> None:
    assert merge_sessions([(0, 10), (10, 20)]) == [(0, 10), (10, 20)]
    assert merge_sessions([(9, 19), (0, 10)]) == [(0, 19)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda p: (p[0], p[0] + p[1])), max_size=12))
def test_merged_sessions_are_the_connected_groups_of_overlapping_sessions(bounds: list[tuple[int, int]]) -> None:
    groups: list[list[tuple[int, int]]] = []
    for one in bounds:
        near = [g for g in groups if any(one[0] < end and start < one[1] for start, end in g)]
        groups = [g for g in groups if g not in near] + [[one, *(b for g in near for b in g)]]
    expected = sorted({(min(b[0] for b in g), max(b[1] for b in g)) for g in groups})
    assert merge_sessions(bounds) == expected

    windows = [IntervalWindow.of_micros(*b) for b in bounds]
    pairs = merge_windows(Sessions(1))(windows)
    assert [whole for whole, _ in pairs] == sorted(whole for whole, _ in pairs)
    changed = {part for _, parts in pairs for part in parts}
    left = (set(windows) - changed) | {whole for whole, _ in pairs}
    assert left == {IntervalWindow.of_micros(*b) for b in expected}
    assert all(len(parts) > 1 for _, parts in pairs)


def test_a_session_gap_may_depend_on_the_element() -> None:
    sessions = Sessions(gap=lambda element: element["idle"])
    assert assign(sessions)(5 * S, {"idle": 3}) == (window(5, 8),)
    assert element_dependent(sessions)
    with pytest.raises(ValueError, match=r"must be longer than 0; .* returned -1 s"):
        assign(sessions)(0, {"idle": -1})
    with pytest.raises(ValueError, match="does not assign windows by timestamp alone"):
        assign_bounds(sessions)


def test_after_a_grouping_only_merging_assigners_are_marked() -> None:
    assert merged(Sessions(5)) == Merged(Sessions(5))
    assert merged(merged(Sessions(5))) == Merged(Sessions(5))
    assert merged(FixedWindows(5)) == FixedWindows(5)
    assert not is_merging(Merged(Sessions(5)))
    with pytest.raises(ValueError, match="can't be assigned again"):
        assign(Merged(Sessions(5)))


def test_assigners_tell_whether_they_merge_windows_or_assign_the_global_window() -> None:
    assert is_merging(Sessions(5))
    assert not is_merging(FixedWindows(5))
    assert is_global_assigner(GlobalWindows())
    assert is_global_assigner(GlobalWindowsSince(5))
    assert not is_global_assigner(FixedWindows(5))
    assert not element_dependent(Sessions(5))
    with pytest.raises(ValueError, match="don't merge"):
        merge_windows(FixedWindows(5))


# ---- user-defined assigners


def test_an_authors_assigner_sees_timestamp_and_element() -> None:
    assigner = as_assigner(PerDriver())
    assert isinstance(assigner, CustomAssigner)
    assert assign(assigner)(5 * S, "ann") == (Trip(Timestamp(65), "ann"),)
    assert not is_merging(assigner)
    assert element_dependent(assigner)


def test_an_assigner_that_defines_merge_merges() -> None:
    assigner = as_assigner(Widen())
    assert is_merging(assigner)
    merge = merge_windows(assigner)
    assert merge([window(10, 20), window(0, 10), window(30, 40)]) == [(window(0, 20), (window(0, 10), window(10, 20)))]


def test_user_defined_assigners_are_equal_by_identity() -> None:
    assigner = PerDriver()
    assert as_assigner(assigner) == as_assigner(assigner)
    assert as_assigner(assigner) != as_assigner(PerDriver())


def test_windows_from_an_authors_assigner_are_sorted_and_unique() -> None:
    class Two(WindowAssigner):
        def assign(self, timestamp: Timestamp, element: Any) -> Iterable[BoundedWindow]:
            return (window(0, 20), window(0, 10), window(0, 20))

    assert assign(as_assigner(Two()))(0, None) == (window(0, 10), window(0, 20))


@pytest.mark.parametrize(
    ("gives", "message"),
    [("noon", "'noon' is not a window"), (None, "None is not a window")],
)
def test_a_value_that_is_no_window_is_refused(gives: Any, message: str) -> None:
    class Wrong(WindowAssigner):
        def assign(self, timestamp: Timestamp, element: Any) -> Iterable[BoundedWindow]:
            return [gives]

    with pytest.raises(TypeError, match=message):
        assign(as_assigner(Wrong()))(0, None)


def test_windows_that_cannot_be_ordered_are_refused() -> None:
    @dataclass(frozen=True)
    class Unordered(BoundedWindow):
        end: Timestamp

    class Wrong(WindowAssigner):
        def assign(self, timestamp: Timestamp, element: Any) -> Iterable[BoundedWindow]:
            return [Unordered(timestamp)]

    with pytest.raises(TypeError, match=r"Wrong gave .* must be hashable and ordered"):
        assign(as_assigner(Wrong()))(0, None)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(window(0, 30), [window(0, 10), window(20, 30)])], "which was not among the windows it was given"),
        ([(window(0, 20), [window(0, 10)]), (window(0, 30), [window(0, 10)])], "which is in two pairs"),
        ([(window(0, 20), [window(0, 10)]), (window(0, 20), [window(5, 15)])], "twice: give its parts in one pair"),
        ([(window(5, 15), [window(0, 10)])], "list that window among the parts it replaces"),
    ],
)
def test_an_inconsistent_merge_is_refused(pairs: Any, message: str) -> None:
    class Wrong(Widen):
        def merge(self, windows: Sequence[Any]) -> Iterable[tuple[Any, Iterable[Any]]]:
            return pairs  # type: ignore[no-any-return]

    with pytest.raises(ValueError, match=message):
        merge_windows(as_assigner(Wrong()))([window(0, 10), window(5, 15)])


def test_the_error_of_a_class_in_place_of_an_assigner_explains_it() -> None:
    with pytest.raises(BuildError, match=r"not by the class PerDriver: write PerDriver\(\.\.\.\)"):
        as_assigner(PerDriver)  # type: ignore[arg-type]
    with pytest.raises(BuildError, match="60 does not assign windows"):
        as_assigner(60)  # type: ignore[arg-type]
