"""Joins of three and more tables: which conditions are applied where, and in which windows they are joined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import tidegate as tg


@dataclass(frozen=True)
class Number:
    id: int


@dataclass(frozen=True)
class Bid:
    item: str
    at: tg.Timestamp


def answer(query: str, **tables: list[Any]) -> list[tuple[Any, ...]]:
    pipeline = tg.Pipeline("direct")
    named = {name: pipeline | name >> tg.Create(rows) for name, rows in tables.items()}
    return sorted((tuple(row) for row in (named | tg.Sql(query)).collect()), key=repr)


def numbers(query: str) -> list[tuple[Any, ...]]:
    ids = {"a": [1, 3], "b": [1, 3], "c": [1, 2], "d": [1, 2]}
    return answer(query, **{name: [Number(each) for each in given] for name, given in ids.items()})


JOINS = {
    "SELECT a.id x, c.id y FROM a JOIN b ON a.id = b.id RIGHT JOIN c ON b.id = c.id": [(1, 1), (None, 2)],
    "SELECT a.id x, c.id y FROM a JOIN b ON a.id = b.id FULL JOIN c ON b.id = c.id": [(1, 1), (3, None), (None, 2)],
    "SELECT a.id x, c.id y FROM a JOIN b ON a.id = b.id AND a.id > 1 RIGHT JOIN c ON b.id = c.id": [
        (None, 1),
        (None, 2),
    ],
    "SELECT a.id x, c.id y FROM a JOIN b ON a.id <= b.id AND b.id = 3 FULL JOIN c ON a.id = c.id": [
        (1, 1),
        (3, None),
        (None, 2),
    ],
    "SELECT a.id x, c.id y FROM a JOIN b USING (id) RIGHT JOIN c ON a.id = c.id WHERE c.id = 2": [(None, 2)],
    "SELECT a.id x, d.id y FROM a JOIN b ON a.id = b.id RIGHT JOIN c ON b.id = c.id JOIN d ON d.id = c.id": [
        (1, 1),
        (None, 2),
    ],
}


@pytest.mark.parametrize("query", JOINS)
def test_a_condition_of_an_inner_join_is_applied_before_a_later_join_pads_rows(query: str) -> None:
    assert numbers(query) == JOINS[query]


REFUSED = {
    "SELECT a.id FROM a, b RIGHT JOIN c ON b.id = c.id": r"a comma before a RIGHT or FULL JOIN .*: write CROSS JOIN",
    "SELECT a.id FROM a JOIN b ON a.id = c.id RIGHT JOIN c ON b.id = c.id": "ON takes columns of the tables up to its",
    "SELECT a.id FROM a LEFT JOIN b ON a.id = c.id JOIN c ON a.id = c.id": "ON takes columns of the tables up to its",
}


@pytest.mark.parametrize("query", REFUSED)
def test_a_join_whose_order_would_matter_is_refused(query: str) -> None:
    with pytest.raises(tg.SqlError, match=REFUSED[query]):
        numbers(query)


def windowed(query: str) -> list[tuple[Any, ...]]:
    at = {"a": [1], "b": [2], "c": [11], "d": [12]}
    tables = {name: [Bid("vase", tg.Timestamp(second)) for second in given] for name, given in at.items()}
    for name in tables:
        query = query.replace(f" {{{name}}}", f" TUMBLE(TABLE {name}, DESCRIPTOR(at), INTERVAL '10' SECONDS) {name}")
    return answer(query, **tables)


def test_tables_are_joined_in_their_windows_only_if_equations_connect_all_of_them() -> None:
    """Rows of one window in two tables, and of another in two others, whose windows nothing equates."""
    query = """
        SELECT a.item, c.item AS other FROM {a}
        JOIN {b} ON a.window_start = b.window_start AND a.window_end = b.window_end
        JOIN {c} ON a.item = c.item
        JOIN {d} ON c.window_start = d.window_start AND c.window_end = d.window_end"""
    assert windowed(query) == [("vase", "vase")]


def test_windows_are_not_equal_to_those_that_a_join_has_padded() -> None:
    same = "{0}.window_start = {1}.window_start AND {0}.window_end = {1}.window_end"
    query = f"SELECT a.item, c.item AS other FROM {{a}} LEFT JOIN {{c}} ON a.item = c.item AND {same.format('a', 'c')}"
    assert windowed(query) == [("vase", None)]
    assert windowed(f"{query} WHERE {same.format('a', 'c')}") == []
    assert windowed(f"SELECT a.item FROM {{a}} LEFT JOIN {{c}} ON a.item = c.item WHERE {same.format('a', 'c')}") == []
    assert windowed(f"{query} JOIN {{d}} ON c.item = d.item AND {same.format('c', 'd')}") == []


@pytest.mark.parametrize(("on", "count"), [("CROSS JOIN b", 16), ("LEFT JOIN b ON a.id < b.id", 7)])
def test_a_join_by_constants_has_all_pairs_of_a_session(on: str, count: int) -> None:
    pipeline = tg.Pipeline("direct")
    stamped = [tg.TimestampedValue(Number(at), at) for at in (0, 10, 20, 30)]
    tables: dict[str, Any] = {
        name: pipeline
        | name >> tg.Create(stamped).with_output_types(Number)
        | f"{name} sessions" >> tg.WindowInto(tg.Sessions(15))
        for name in "ab"
    }
    assert len((tables | tg.Sql(f"SELECT a.id x, b.id y FROM a {on}")).collect()) == count
