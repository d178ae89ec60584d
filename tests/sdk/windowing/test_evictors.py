from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sdk.errors import BuildError
from tidegate.sdk.time import Duration, Timestamp
from tidegate.sdk.windowing.evictors import (
    CustomEvictor,
    Evictor,
    KeepLast,
    KeepRecent,
    KeepWithinDelta,
    as_evictor,
    keep,
)

S = 1_000_000


class KeepLarge(Evictor):
    when = "after"

    def keep(self, elements: Sequence[tuple[Any, Timestamp]]) -> Iterable[int]:
        return [i for i, (value, timestamp) in enumerate(elements) if value > 10 or timestamp > Timestamp(10)][::-1]


def test_keep_last_keeps_the_last_arrivals() -> None:
    assert keep(KeepLast(2))(["a", "b", "c"], [9, 5, 1]) == [1, 2]
    assert keep(KeepLast(5))(["a", "b"], [0, 0]) == [0, 1]


def test_keep_recent_is_strict_and_uses_timestamps_not_arrival() -> None:
    assert keep(KeepRecent(10))(["a", "b", "c"], [20 * S, 10 * S, 10 * S + 1]) == [0, 2]


def test_keep_within_delta_compares_with_the_last_arrival_strictly() -> None:
    assert keep(KeepWithinDelta(5, lambda a, b: abs(a - b)))([1, 5, 4, 9], [0, 0, 0, 0]) == [1, 3]


@pytest.mark.parametrize(
    "evictor",
    [KeepLast(1), KeepRecent(1), KeepWithinDelta(1, lambda a, b: 0), as_evictor(KeepLarge())],
    ids=lambda evictor: type(evictor).__name__,
)
def test_evictors_accept_empty_windows(evictor: Any) -> None:
    assert keep(evictor)([], []) == []


@given(st.lists(st.integers(-50, 50)), st.integers(1, 60))
def test_keep_recent_keeps_the_maximum_timestamp_and_those_near_it(stamps: list[int], length: int) -> None:
    kept = keep(KeepRecent(Duration(micros=length)))(stamps, stamps)
    assert kept == [i for i, ts in enumerate(stamps) if max(stamps) - ts < length]


def test_an_authors_evictor_returns_positions_and_arrival_order_is_kept() -> None:
    evictor = as_evictor(KeepLarge())
    assert isinstance(evictor, CustomEvictor)
    assert evictor.when == "after"
    assert keep(evictor)([5, 11, 1, 12], [0, 0, 11 * S, 0]) == [1, 2, 3]


@pytest.mark.parametrize("position", [2, -1, "a", True])
def test_a_nonexistent_position_is_refused(position: Any) -> None:
    class Wrong(Evictor):
        def keep(self, elements: Sequence[tuple[Any, Timestamp]]) -> Iterable[int]:
            return [position]

    with pytest.raises(ValueError, match=r"Wrong.keep must give positions from 0 to 1, not"):
        keep(as_evictor(Wrong()))(["a", "b"], [0, 0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KeepLast(0), "KeepLast: n must be a whole number of at least 1"),
        (lambda: KeepRecent(0), "KeepRecent: duration must be longer than 0"),
        (lambda: KeepWithinDelta(None, max), "KeepWithinDelta: threshold must be a number"),  # type: ignore[arg-type]
        (lambda: KeepWithinDelta(1, "f"), "KeepWithinDelta: delta_fn must be a function"),  # type: ignore[arg-type]
        (lambda: KeepLast(1, when="later"), "KeepLast: when must be 'before' or 'after', not 'later'"),  # type: ignore[arg-type]
        (lambda: as_evictor(KeepLarge), r"not the class KeepLarge: write KeepLarge\(\.\.\.\)"),  # type: ignore[arg-type]
        (lambda: as_evictor(100), "100 is not an evictor"),  # type: ignore[arg-type]
    ],
)
def test_invalid_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        make()
