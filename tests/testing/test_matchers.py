"""Matchers and their messages, without a pipeline."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import (
    ANY,
    Recorded,
    contains,
    each,
    equal_to,
    equal_to_per_window,
    fired,
    is_empty,
    is_not_empty,
    matches,
)
from tidegate.testing.matchers import as_matcher, pair_up


def mismatch_of(matcher: Any, actual: list[Any]) -> str:
    text = as_matcher(matcher).mismatch(actual)
    assert text is not None, "the matcher holds"
    return text


def holds(matcher: Any, actual: list[Any]) -> bool:
    return as_matcher(matcher).mismatch(actual) is None


def test_equal_to_says_what_is_missing_and_what_is_unexpected() -> None:
    assert mismatch_of(equal_to([("a", 3), ("b", 1)]), [("b", 1), ("a", 2)]) == "\n".join(
        [
            "expected 2 elements, found 2, 1 matching",
            "missing (expected, not found):",
            "  ('a', 3)",
            "unexpected (found, not expected):",
            "  ('a', 2)",
        ]
    )


def test_equal_to_ignores_order_but_not_counts() -> None:
    assert holds(equal_to([1, 2, 2]), [2, 1, 2])
    assert "  2   (2 times)" in mismatch_of(equal_to([1, 2, 2, 2]), [1, 2])
    assert "unexpected" in mismatch_of(equal_to([1]), [1, 1])
    assert "missing" not in mismatch_of(equal_to([1]), [1, 1])


def test_elements_that_look_alike_are_shown_with_their_types() -> None:
    class Word(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            return type(other) is Word and str.__eq__(self, other)

    text = mismatch_of(equal_to([("a", "x")]), [("a", Word("x"))])
    assert "  ('a', 'x')   tuple[str, str]\n" in text
    assert "Word]" in text


def test_unhashable_elements_are_compared() -> None:
    assert holds(equal_to([[1], {"a": [2]}]), [{"a": [2]}, [1]])
    assert "  [2]" in mismatch_of(equal_to([[1], [2]]), [[1], [3]])


def test_patterns_inside_elements_match_as_many_elements_as_possible() -> None:
    assert holds(equal_to([("a", ANY), ("a", 1)]), [("a", 1), ("a", 2)])
    assert holds(equal_to([ANY, ("a", ANY), ("a", 1)]), [("a", 1), ("a", 2), 7])
    assert holds(equal_to([("a", pytest.approx(0.3))]), [("a", 0.1 + 0.2)])


@given(st.lists(st.integers(0, 4)), st.lists(st.integers(0, 4)), st.booleans())
def test_pairing_of_plain_values_leaves_the_difference_of_multisets(
    expected: list[int], actual: list[int], boxed: bool
) -> None:
    box = (lambda n: [n]) if boxed else (lambda n: n)
    missing, unexpected = pair_up(map(box, expected), map(box, actual))
    unmatched = list(actual)
    unpaired = [n for n in expected if n not in unmatched or unmatched.remove(n)]  # type: ignore[func-returns-value]
    assert sorted(missing) == sorted(map(box, unpaired))
    assert sorted(unexpected) == sorted(map(box, unmatched))


@given(st.lists(st.sets(st.integers(0, 5)), max_size=6), st.lists(st.integers(0, 5), max_size=6))
def test_pairing_of_patterns_is_a_maximum_matching(patterns: list[set[int]], actual: list[int]) -> None:
    class OneOf:
        __hash__ = None  # type: ignore[assignment]

        def __init__(self, allowed: set[int]) -> None:
            self.allowed = allowed

        def __eq__(self, other: object) -> bool:
            return other in self.allowed

    def maximum_matching(unmatched: list[set[int]], free: tuple[int, ...]) -> int:
        if not unmatched:
            return 0
        taken = [
            maximum_matching(unmatched[1:], free[:i] + free[i + 1 :]) + 1
            for i, n in enumerate(free)
            if n in unmatched[0]
        ]
        return max([maximum_matching(unmatched[1:], free), *taken])

    missing, unexpected = pair_up([OneOf(allowed) for allowed in patterns], actual)
    assert len(patterns) - len(missing) == maximum_matching(patterns, tuple(actual)) == len(actual) - len(unexpected)


def test_long_differences_are_cut_short() -> None:
    text = mismatch_of(equal_to(range(100)), [])
    assert "… and 80 more" in text
    assert len(text.splitlines()) < 30


def test_long_elements_are_cut_short() -> None:
    assert len(mismatch_of(equal_to(["x" * 10_000]), [])) < 500


def test_hints_point_out_differences_that_are_easily_overlooked() -> None:
    assert "differ only by rounding" in mismatch_of(equal_to([("a", 0.3)]), [("a", 0.1 + 0.2)])
    assert "another order: sort both" in mismatch_of(equal_to([("a", [1, 2])]), [("a", [2, 1])])
    assert "a tuple is never equal to a list" in mismatch_of(equal_to([("a", [1])]), [("a", (1,))])
    assert "hint" not in mismatch_of(equal_to([("a", 1)]), [("a", 2)])


def test_elements_whose_comparison_or_repr_raises_do_not_hide_the_message() -> None:
    class Broken:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

        def __hash__(self) -> int:
            return 0

        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert "<Broken whose repr raised RuntimeError>" in mismatch_of(equal_to([Broken()]), [1])


def test_equal_to_accepts_the_pairs_of_a_dict_but_no_string() -> None:
    assert holds(equal_to({"a": 1}), [("a", 1)])
    with pytest.raises(tg.BuildError, match="put it in a list"):
        equal_to("abc")
    with pytest.raises(tg.BuildError, match="iterable"):
        equal_to(5)  # type: ignore[arg-type]


def recorded(value: Any, start: int, end: int) -> Recorded:
    pane = tg.PaneInfo(True, True, tg.Timing.ON_TIME, 0, 0)
    return Recorded(value, tg.Timestamp(start), tg.IntervalWindow(start, end), pane)


def test_per_window_names_the_windows_that_differ() -> None:
    actual = [recorded(1, 0, 10), recorded(2, 10, 20), recorded(3, 20, 30)]
    assert holds(equal_to_per_window({(0, 10): [1], (10, 20): [2], tg.IntervalWindow(20, 30): [3]}), actual)
    text = mismatch_of(equal_to_per_window({(0, 10): [1], (10, 20): [5], (40, 50): [9]}), actual)
    assert "in window (10, 20):\n" in text
    assert "in window (20, 30), which should be empty:" in text
    assert "in window (40, 50):" in text
    assert "(0, 10)" not in text
    with pytest.raises(tg.BuildError, match="dict"):
        equal_to_per_window([1])  # type: ignore[arg-type]


def test_contains() -> None:
    assert holds(contains(1, 2), [3, 2, 1])
    assert not holds(contains(1, 1), [1])
    text = mismatch_of(contains(1, 9), [1, 2])
    assert "missing (expected, not found):\n  9" in text
    assert "others (found):\n  2" in text
    with pytest.raises(tg.BuildError):
        contains()


def test_is_empty_and_is_not_empty() -> None:
    assert holds(is_empty(), [])
    assert mismatch_of(is_empty(), [1]) == "expected no element, found 1\nunexpected (found):\n  1"
    assert holds(is_not_empty(), [1])
    assert mismatch_of(is_not_empty(), []) == "expected at least one element, found none"


def test_matches_requires_a_distinct_element_for_each_condition() -> None:
    assert holds(matches(lambda n: n > 1, lambda n: n > 0, 7), [7, 1, 2])
    assert holds(matches(), [])
    text = mismatch_of(matches(lambda n: n > 5, 1), [1, 2])
    assert "unmet" in text
    assert "test_matchers.py:" in text
    assert "unmatched (found, and meets none of the remaining conditions):\n  2" in text


def test_a_condition_that_raises_does_not_hold() -> None:
    assert not holds(matches(lambda text: text.startswith("a")), [5])


def test_each() -> None:
    assert holds(each(lambda n: n > 0), [1, 2])
    assert "does not hold for 1 of 2 elements" in mismatch_of(each(lambda n: n > 1), [1, 2])


def test_a_function_of_all_elements_is_a_matcher() -> None:
    def unequal(values: list[int]) -> None:
        assert sum(values) == 7, f"the sum is {sum(values)}"

    assert holds(unequal, [3, 4])
    assert "the sum is 1" in mismatch_of(unequal, [1])
    assert "returned False" in mismatch_of(lambda values: False, [1])
    with pytest.raises(tg.BuildError, match="equal_to"):
        as_matcher([1, 2])


def test_an_object_that_matches_and_describes_itself_is_a_matcher() -> None:
    class HasLength:
        """Has the interface of PyHamcrest's matchers."""

        def matches(self, item: Any) -> bool:
            return len(item) == 2

        def describe_to(self, description: Any) -> None:
            description.append("two of them")

        def __str__(self) -> str:
            return "two of them"

    assert holds(HasLength(), [1, 2])
    assert "expected: two of them" in mismatch_of(HasLength(), [1])
    assert holds(matches(HasLength()), ["ab"])


# ---- patterns


def test_a_pattern_compares_only_the_given_fields() -> None:
    record = recorded("a", 0, 10)
    assert record == fired()
    assert record == fired("a", (0, 10), "on_time", 0, timestamp=0, is_first=True, is_last=True, nonspeculative_index=0)
    assert record == fired(window=tg.IntervalWindow(0, 10), timing=tg.Timing.ON_TIME)
    for other in (fired("b"), fired(window=(0, 11)), fired(timing="late"), fired(index=1), fired(timestamp=1)):
        assert record != other
        assert other != record


def test_a_pattern_with_an_invalid_timing_or_window_is_refused() -> None:
    with pytest.raises(tg.BuildError, match="'early'"):
        fired("a", timing="soon")
    with pytest.raises(ValueError, match="must end after it starts"):
        fired("a", window=(10, 0))


@pytest.mark.parametrize(
    "window", [tg.IntervalWindow(0, 10), tg.IntervalWindow(0.5, tg.MAX_TIMESTAMP), tg.GlobalWindow()], ids=repr
)
def test_a_record_prints_as_the_pattern_it_equals(window: Any) -> None:
    names = {"fired": fired, **vars(tg)}
    for timing in tg.Timing:
        for micros in (3_000_000, 1, -(2**63), 9_999_999):
            pane = tg.PaneInfo(False, True, timing, 3, 1 if timing is tg.Timing.LATE else -1)
            record = Recorded(("k", [1]), tg.Timestamp(micros=micros), window, pane)
            assert record == eval(repr(record), names)
