"""ExactSum is the sum rounded once, whatever the order; `assert_that(near=…)` compares floats with a tolerance."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import inf, isnan, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tidegate.testing import TestPipeline, assert_that, equal_to, is_not_empty

SUM = tg.combiners.ExactSumFn()


def total(parts: list[list[float]]) -> float:
    """The sum of numbers that are combined in parts."""
    accumulators = []
    for part in parts:
        accumulator = SUM.create_accumulator()
        for number in part:
            accumulator = SUM.add_input(accumulator, number)
        accumulators.append(accumulator)
    return SUM.extract_output(SUM.merge_accumulators(accumulators))


@given(st.lists(st.lists(st.floats(-1e300, 1e300), max_size=4), min_size=1, max_size=4))
def test_the_sum_is_that_of_the_exact_numbers_rounded_once(parts: list[list[float]]) -> None:
    exact = sum((Fraction(number) for part in parts for number in part), Fraction(0))
    assert total(parts) == float(exact)


def test_tiny_huge_and_infinite_numbers() -> None:
    assert total([[1e308, 1e308, -1e308], [5e-324]]) == 1e308
    assert total([[1e308], [1e308]]) == inf
    assert total([[-1e308], [-1e308]]) == -inf
    assert total([[inf], [1.0]]) == inf
    assert isnan(total([[inf], [-inf]]))
    assert isnan(total([[nan, 1.0]]))
    assert total([[10**400, -(10**400), 3]]) == 3.0


@pytest.mark.parametrize("number", [Decimal("0.1"), Fraction(1, 3), Fraction(1, 2**1075)])
def test_a_number_that_no_float_can_be_is_refused(number: Any) -> None:
    with pytest.raises(TypeError, match=r"^ExactSum adds floats and whole numbers, and .* convert it, as in tg\.Map"):
        total([[0.5, number]])
    assert total([[Fraction(1, 4), 0.25]]) == 0.5  # type: ignore[list-item]


def test_sums_globally_and_per_key() -> None:
    with TestPipeline("direct") as p:
        numbers = p | tg.Create([0.1] * 10)
        assert_that(numbers | tg.combiners.ExactSum.Globally(), equal_to([1.0]))
        assert_that(numbers | tg.WithKeys(str) | tg.combiners.ExactSum.PerKey(), equal_to([("0.1", 1.0)]))


def test_near_compares_floats_with_a_tolerance() -> None:
    with TestPipeline("direct") as p:
        found = p | tg.Create([("a", [0.30000001, 2]), ("b", [nan])])
        assert_that(found, equal_to([("b", [nan]), ("a", [0.3, 2])]), near=1e-6)
    q = TestPipeline("direct")
    assert_that(q | tg.Create([0.3]), equal_to([0.31]), near=1e-3)
    with pytest.raises(AssertionError, match=r"0\.31 ± 0\.001"):
        q.run()
    with pytest.raises(tg.BuildError, match=r"^near goes with equal_to, contains and equal_to_per_window, which list"):
        assert_that(q | "other" >> tg.Create([1]), is_not_empty(), near=1)
    with pytest.raises(tg.BuildError, match=r"^near is a distance of at least 0, not -1$"):
        assert_that(q | "third" >> tg.Create([1]), equal_to([1]), near=-1)
