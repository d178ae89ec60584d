"""The combiner of numbered rows keeps the first entries in an order, however they are added."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tidegate.sdk.relational.steps.ranks import FirstEntriesFn

Adding = Callable[[FirstEntriesFn, list[Any]], list[Any]]


def one_by_one(fn: FirstEntriesFn, entries: list[Any]) -> list[Any]:
    made = fn.create_accumulator()
    for entry in entries:
        made = fn.add_input(made, entry)
    return made


def by_lines(fn: FirstEntriesFn, entries: list[Any]) -> list[Any]:
    """As a loop adds them, which has the combiner's lines among its own."""
    assert fn.adding is not None
    made = eval(fn.initial)
    lines = compile("\n".join(fn.adding), "lines", "exec")
    for entry in entries:
        exec(lines, {}, {"a": made, "x": entry})
    return list(made)


def in_two_parts(fn: FirstEntriesFn, entries: list[Any]) -> list[Any]:
    parts = [fn.compact(fn.add_all(fn.create_accumulator(), each)) for each in (entries[:200], entries[200:])]
    return fn.merge_accumulators(parts)


LIMITS = (None, 1, 30, 1000)
ORDERS = ((False,), (True,), (False, True), (True, True))


@pytest.mark.parametrize("add", [one_by_one, in_two_parts])
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("descending", ORDERS)
def test_the_first_entries_in_an_order_are_kept(add: Adding, limit: int | None, descending: tuple[bool, ...]) -> None:
    assert_kept(add, FirstEntriesFn(descending, len(descending), limit), descending, limit)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("descending", ORDERS)
def test_lines_add_what_is_kept_whole_or_sorted_at_once(limit: int | None, descending: tuple[bool, ...]) -> None:
    fn = FirstEntriesFn(descending, len(descending), limit)
    assert (fn.adding is None) == (limit is not None and descending == (False, True))
    if fn.adding is not None:
        assert_kept(by_lines, fn, descending, limit)


def assert_kept(add: Adding, fn: FirstEntriesFn, descending: tuple[bool, ...], limit: int | None) -> None:
    draw = random.Random(1)
    several = len(descending) > 1
    entries: list[Any] = [
        tuple(draw.randrange(40) for _ in descending) if several else draw.randrange(200) for _ in range(500)
    ]
    kept = add(fn, entries)
    assert limit is None or len(kept) <= 2 * limit + 64
    signs = [-1 if each else 1 for each in descending]

    def place(entry: Any) -> Any:
        values = entry if several else (entry,)
        return tuple(sign * value for sign, value in zip(signs, values, strict=True))

    before = list(kept)
    assert fn.extract_output(kept) == sorted(entries, key=place)[:limit]
    assert kept == before
