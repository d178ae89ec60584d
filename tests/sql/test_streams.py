"""tg.Sql on streams: windows, late rows, joins of streams, and what is refused because it would update its results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import TestStream


@dataclass(frozen=True)
class Bid:
    item: str
    price: int
    at: tg.Timestamp


@dataclass(frozen=True)
class Item:
    name: str
    city: str | None


def bids(*events: tuple[str, int, int] | int) -> TestStream:
    """A stream of bids `(item, price, second)` and of watermarks (s)."""
    stream = TestStream()
    for event in events:
        match event:
            case int():
                stream = stream.advance_watermark_to(event)
            case item, price, second:
                stream = stream.add_elements([tg.TimestampedValue(Bid(item, price, tg.Timestamp(second)), second)])
    return stream.advance_watermark_to_infinity().with_output_types(Bid)


def items(pipeline: tg.Pipeline) -> Any:
    return pipeline | "items" >> tg.Create([Item("vase", "Bern"), Item("lamp", None)])


def answer(query: str, *events: tuple[str, int, int] | int, **tables: Any) -> list[tuple[Any, ...]]:
    pipeline = tg.Pipeline("direct")
    named = {"bids": pipeline | "bids" >> bids(*events), "items": items(pipeline)}
    named |= {name: pipeline | name >> stream for name, stream in tables.items()}
    return [tuple(row) for row in (named | tg.Sql(query)).collect(run_for=60)]


EVENTS = (("vase", 3, 1), ("lamp", 5, 4), ("vase", 8, 9), 10, ("vase", 4, 12), ("lamp", 1, 19))
TEN = "TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECONDS))"


def test_windows_are_aggregated_when_the_watermark_passes_their_ends() -> None:
    query = f"SELECT item, MAX(price) AS best, COUNT(*) AS n FROM {TEN} GROUP BY item, window_start, window_end"
    assert answer(query, *EVENTS) == [("vase", 8, 2), ("lamp", 5, 1), ("vase", 4, 1), ("lamp", 1, 1)]


def test_a_window_without_keys_has_one_row() -> None:
    query = f"SELECT window_start, window_end, SUM(price) AS s FROM {TEN} GROUP BY window_start, window_end"
    assert [(a.second, b.second, s) for a, b, s in answer(query, *EVENTS)] == [(0, 10, 16), (10, 20, 5)]


def test_results_of_windows_are_aggregated_again_in_them() -> None:
    query = f"""
        WITH best AS (
            SELECT window_start, window_end, item, MAX(price) AS price FROM {TEN}
            GROUP BY window_start, window_end, item)
        SELECT SUM(price) AS s FROM best GROUP BY window_start, window_end"""
    assert answer(query, *EVENTS) == [(13,), (5,)]


def test_results_of_windows_are_put_into_longer_ones() -> None:
    query = f"""
        WITH sums AS (SELECT window_time AS t, SUM(price) AS price FROM {TEN} GROUP BY window_start, window_time)
        SELECT MAX(price) AS most
        FROM TABLE(TUMBLE(TABLE sums, DESCRIPTOR(t), INTERVAL '1' MINUTE)) GROUP BY window_start"""
    assert answer(query, *EVENTS) == [(16,)]


def test_the_best_rows_of_each_window() -> None:
    query = f"""
        SELECT item, price FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS n FROM {TEN})
        WHERE n <= 1"""
    assert answer(query, *EVENTS) == [("vase", 8), ("vase", 4)]


def test_a_stream_looks_up_rows_of_a_bounded_table() -> None:
    query = "SELECT item, price, city FROM bids LEFT JOIN items ON item = name WHERE price > 3"
    assert answer(query, *EVENTS) == [("lamp", 5, None), ("vase", 8, "Bern"), ("vase", 4, "Bern")]


def test_rows_in_windows_look_up_rows_of_a_bounded_table() -> None:
    query = f"""
        SELECT city, COUNT(*) AS n FROM {TEN} b JOIN items ON b.item = name GROUP BY city, window_start, window_end"""
    assert answer(query, *EVENTS) == [("Bern", 2), (None, 1), ("Bern", 1), (None, 1)]


@pytest.mark.parametrize(
    "source",
    [
        "items JOIN bids ON item = name",
        "items, bids WHERE item = name",
        "items RIGHT JOIN bids ON item = name",
        "items i JOIN items j ON i.name = j.name JOIN bids ON item = i.name",
        f"items JOIN {TEN} b ON b.item = name",
        f"items RIGHT JOIN {TEN} b ON b.item = name",
    ],
)
def test_a_stream_looks_up_rows_of_the_bounded_tables_before_it(source: str) -> None:
    named = "i.city" if "items i" in source else "city"
    found = answer(f"SELECT {named}, item, price FROM {source}", *EVENTS)
    assert found == [
        ("Bern", "vase", 3),
        (None, "lamp", 5),
        ("Bern", "vase", 8),
        ("Bern", "vase", 4),
        (None, "lamp", 1),
    ]


def test_a_stream_that_a_right_join_keeps_has_rows_without_a_match() -> None:
    query = "SELECT name, item, price FROM items RIGHT JOIN bids ON item = name AND city = 'Bern' WHERE price > 3"
    assert answer(query, *EVENTS) == [(None, "lamp", 5), ("vase", "vase", 8), ("vase", "vase", 4)]


def test_streams_are_joined_in_their_windows() -> None:
    query = f"""
        SELECT a.price AS one, b.price AS two FROM {TEN} a
        JOIN TABLE(TUMBLE(TABLE others, DESCRIPTOR(at), INTERVAL '10' SECONDS)) b
        ON a.item = b.item AND a.window_start = b.window_start AND a.window_end = b.window_end"""
    assert answer(query, *EVENTS, others=bids(("vase", 70, 8), ("vase", 90, 15))) == [(3, 70), (8, 70), (4, 90)]


@pytest.mark.parametrize("kind", ["", "LEFT"])
def test_streams_are_joined_within_an_interval(kind: str) -> None:
    query = f"""
        SELECT a.price AS one, b.price AS two FROM bids a {kind} JOIN others b
        ON a.item = b.item AND b.at BETWEEN a.at - INTERVAL '2' SECONDS AND a.at + INTERVAL '1' SECONDS"""
    found = answer(query, *EVENTS, others=bids(("vase", 70, 8), ("vase", 90, 13)))
    unmatched = [(3, None), (5, None), (1, None)] if kind else []
    assert sorted(found, key=str) == sorted([(8, 70), (4, 90), *unmatched], key=str)


def test_groups_of_groups_are_joined_in_their_windows() -> None:
    query = f"""
        WITH counts AS (
            SELECT item, COUNT(*) AS n, window_start AS s, window_end AS e FROM {TEN}
            GROUP BY item, window_start, window_end)
        SELECT c.item, c.n FROM counts c
        JOIN (SELECT MAX(n) AS most, s, e FROM counts GROUP BY s, e) m ON c.s = m.s AND c.e = m.e AND c.n >= m.most"""
    assert sorted(answer(query, *EVENTS)) == [("lamp", 1), ("vase", 1), ("vase", 2)]


def test_windows_of_the_author_are_kept() -> None:
    pipeline = tg.Pipeline("direct")
    windowed = pipeline | bids(*EVENTS) | tg.WindowInto(tg.FixedWindows(10))
    rows = windowed | tg.Sql("SELECT window_end, COUNT(*) AS n FROM pcoll GROUP BY window_end")
    assert [(end.second, n) for end, n in rows.collect(run_for=60)] == [(10, 3), (20, 2)]


@pytest.mark.parametrize("time", ["at", "window_time"])
def test_a_table_function_takes_the_place_of_the_author_s_windows(time: str) -> None:
    pipeline = tg.Pipeline("direct")
    windowed = pipeline | bids(*EVENTS) | tg.WindowInto(tg.FixedWindows(10))
    rows = windowed | tg.Sql(
        f"SELECT window_start, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE pcoll, DESCRIPTOR({time}), "
        "INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"
    )
    assert [(start.second, end.minute, n) for start, end, n in rows.collect(run_for=60)] == [(0, 1, 5)]


def test_a_result_in_windows_is_put_into_others_by_another_query() -> None:
    pipeline = tg.Pipeline("direct")
    sums = f"SELECT window_time AS t, SUM(price) AS price FROM {TEN} GROUP BY window_start, window_time"
    longer = """
        SELECT window_end, MAX(price) AS most
        FROM TABLE(TUMBLE(TABLE pcoll, DESCRIPTOR(t), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"""
    rows = {"bids": pipeline | bids(*EVENTS)} | tg.Sql(sums) | "longer" >> tg.Sql(longer)
    assert [(end.minute, most) for end, most in rows.collect(run_for=60)] == [(1, 16)]


def test_a_table_whose_own_columns_are_named_as_those_of_windows_is_refused_by_what_to_write() -> None:
    query = f"""
        WITH sums AS (
            SELECT window_start, window_time AS t, SUM(price) AS s FROM {TEN} GROUP BY window_start, window_time)
        SELECT MAX(s) AS s FROM TABLE(TUMBLE(TABLE sums, DESCRIPTOR(t), INTERVAL '1' MINUTE)) GROUP BY window_start"""
    with pytest.raises(
        tg.SqlError, match="window_start is ambiguous: sums has two of that name: call one by another in"
    ):
        answer(query, *EVENTS)


UPDATING = {
    "SELECT item, COUNT(*) AS n FROM bids GROUP BY item": "an aggregate over an unbounded table",
    "SELECT DISTINCT item FROM bids": "DISTINCT over an unbounded table",
    "SELECT item FROM bids EXCEPT SELECT name FROM items": r"EXCEPT over .* Write WHERE NOT EXISTS \(SELECT",
    "SELECT name FROM items EXCEPT SELECT item FROM bids": (
        "EXCEPT over an unbounded table .* a LEFT JOIN of windows.* and keep the rows WHERE r.window_start IS NULL"
    ),
    f"SELECT item FROM {TEN} INTERSECT SELECT item FROM {TEN}": "SELECT DISTINCT over a JOIN of windows",
    "SELECT item FROM bids ORDER BY price": "ORDER BY over an unbounded table",
    "SELECT item FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '1' MINUTE)) ORDER BY price LIMIT 3": (
        r"For the first rows of each window, write ROW_NUMBER\(\) OVER \(PARTITION BY window_start, window_end"
    ),
    "SELECT item FROM bids LIMIT 3": "LIMIT over an unbounded table",
    "SELECT *, ROW_NUMBER() OVER (ORDER BY price) AS n FROM bids": r"ROW_NUMBER\(\) over an unbounded table",
    f"SELECT item, COUNT(*) AS n FROM {TEN} GROUP BY item": "add window_start and window_end to GROUP BY",
    f"SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price) AS n FROM {TEN}": "to PARTITION BY",
    "SELECT a.item FROM bids a JOIN bids b ON a.item = b.item": "a regular JOIN of unbounded tables",
    "SELECT a.item FROM bids a FULL JOIN bids b ON a.item = b.item": "a regular FULL JOIN of unbounded tables",
    "SELECT a.item FROM bids a FULL JOIN items b ON a.item = b.name": "Write JOIN, or stream LEFT JOIN table",
    "SELECT item FROM items i LEFT JOIN items j ON i.name = j.name JOIN bids ON item = i.name": "write t JOIN stream",
    "SELECT item FROM items i JOIN items j ON i.name = j.name RIGHT JOIN bids ON item = i.name": "t RIGHT JOIN stream",
    "SELECT a.item FROM items b LEFT JOIN bids a ON a.item = b.name": "this LEFT JOIN would have to keep rows of the",
    f"SELECT a.item FROM {TEN} a JOIN {TEN} b ON a.item = b.item": "add ON l.window_start = r.window_start",
    "SELECT name FROM items WHERE name IN (SELECT item FROM bids)": "this subquery reads an unbounded table",
    f"SELECT item FROM {TEN} WHERE item NOT IN (SELECT item FROM {TEN})": "this subquery reads an unbounded table",
}


@pytest.mark.parametrize("query", UPDATING)
def test_a_query_that_would_update_its_results_is_refused(query: str) -> None:
    with pytest.raises(tg.SqlError, match=UPDATING[query]):
        answer(query, *EVENTS)


def test_a_late_row_is_an_output_of_its_own() -> None:
    pipeline = tg.Pipeline("direct")
    stream = pipeline | bids(("vase", 3, 1), 15, ("lamp", 5, 4), 30, ("vase", 8, 9))
    query = (
        "SELECT COUNT(*) AS n FROM TABLE(TUMBLE(TABLE pcoll, DESCRIPTOR(at), INTERVAL '10' SECONDS)) GROUP BY item, "
    )
    late = tg.Sql(query + "window_start, window_end", allowed_lateness=10).with_late_data("late")
    out = stream | late
    assert [row.price for row in out.late.collect(run_for=60)] == [8]


def test_table_functions_are_read_without_copies_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlglot.tokens import Token

    def refuse(token: Any) -> Any:
        raise AssertionError("the tokens of the compiled sqlglot can't be copied")

    monkeypatch.setattr(Token, "__copy__", refuse, raising=False)
    assert answer(f"SELECT COUNT(*) AS n FROM {TEN} GROUP BY window_start", *EVENTS) == [(3,), (2,)]


def test_streams_in_the_same_windows_are_united() -> None:
    table = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(at), INTERVAL '{}' SECONDS))"
    query = f"""
        SELECT COUNT(*) AS n FROM (
            SELECT item, window_start, window_end FROM {table.format("bids", 10)} UNION ALL
            SELECT item, window_start, window_end FROM {table.format("others", "{}")})
        GROUP BY window_start, window_end"""
    others = ("vase", 70, 8), ("vase", 90, 13)
    assert answer(query.format(10), *EVENTS, others=bids(*others)) == [(4,), (3,)]
    with pytest.raises(tg.SqlError, match="both queries of a UNION have the same windows"):
        answer(query.format(5), *EVENTS, others=bids(*others))


HOP = "SELECT COUNT(*) AS n FROM HOP(DATA => TABLE bids, TIMECOL => DESCRIPTOR(at), {}) GROUP BY window_start"


def test_intervals_are_read_by_their_names() -> None:
    size, slide = "SIZE => INTERVAL '20' SECONDS", "SLIDE => INTERVAL '10' SECONDS"
    for given in (f"{size}, {slide}", f"{slide}, {size}", f"INTERVAL '10' SECONDS, {size}"):
        assert answer(HOP.format(given), *EVENTS) == [(3,), (5,), (2,)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("GAP => INTERVAL '1' SECOND", "HOP has no argument GAP: it takes SLIDE, SIZE, OFFSET"),
        ("SIZE => INTERVAL '1' SECOND, SIZE => INTERVAL '1' SECOND", "HOP has SIZE twice"),
        ("INTERVAL '1' SECOND, SLIDE => INTERVAL '1' SECOND", "HOP has SLIDE twice"),
        ("SIZE => INTERVAL '1' SECOND, INTERVAL '1' SECOND", "=> is missing in HOP"),
        ("SIZE => INTERVAL '1' SECOND", "HOP has 1 intervals: write HOP"),
    ],
)
def test_intervals_with_wrong_names_are_refused(given: str, message: str) -> None:
    with pytest.raises(tg.SqlError, match=message):
        answer(HOP.format(given), *EVENTS)


PAIRS = """
    WITH pairs AS (
        SELECT a.at AS one, b.at AS two, a.item FROM bids a JOIN others b
        ON a.item = b.item AND b.at BETWEEN a.at AND a.at + INTERVAL '9' SECONDS)"""
EARLIER = {
    f"{PAIRS} SELECT COUNT(*) AS n FROM TUMBLE(TABLE pairs, DESCRIPTOR(one), INTERVAL '5' SECONDS) GROUP BY "
    "window_start": r"DESCRIPTOR\(one\): rows of this stream may have later timestamps.*\n.*\n.*TUMBLE.*\n *\^",
    f"{PAIRS} SELECT COUNT(*) AS n FROM TUMBLE(TABLE pairs, DESCRIPTOR(two), INTERVAL '5' SECONDS) GROUP BY "
    "window_start": r"DESCRIPTOR\(two\): rows of this stream may have later timestamps",
    """SELECT a.item FROM bids a
    JOIN others b ON a.item = b.item AND b.at BETWEEN a.at AND a.at + INTERVAL '9' SECONDS
    JOIN bids c ON a.item = c.item AND c.at BETWEEN a.at AND a.at + INTERVAL '9' SECONDS""": (
        "a join within an interval: rows of this stream may have later timestamps"
    ),
    f"""WITH best AS (SELECT window_start AS t, MAX(price) AS p FROM {TEN} GROUP BY window_start, window_end)
    SELECT MAX(p) AS p FROM TUMBLE(TABLE best, DESCRIPTOR(t), INTERVAL '20' SECONDS) GROUP BY window_start""": (
        r"DESCRIPTOR\(t\): rows of this stream"
    ),
    f"""WITH best AS (SELECT MAX(at) AS t FROM {TEN} GROUP BY window_start, window_end)
    SELECT COUNT(*) AS n FROM TUMBLE(TABLE best, DESCRIPTOR(t), INTERVAL '20' SECONDS) GROUP BY window_start""": (
        r"DESCRIPTOR\(t\): rows of this stream"
    ),
}


@pytest.mark.parametrize("query", EARLIER)
def test_a_time_that_may_be_behind_the_watermark_is_refused(query: str) -> None:
    with pytest.raises(tg.SqlError, match=EARLIER[query]):
        answer(query, *EVENTS, others=bids(("vase", 70, 8), 10))


@pytest.mark.parametrize("time", ["at", "window_end", "window_time"])
def test_the_time_of_rows_and_the_ends_of_their_windows_are_times(time: str) -> None:
    query = f"""
        WITH some AS (SELECT price, item, {time} AS t FROM {TEN} b JOIN items ON item = name),
        both AS (SELECT price, t FROM some WHERE price > 3 UNION ALL SELECT price, t FROM some WHERE price <= 3)
        SELECT COUNT(*) AS n FROM TUMBLE(TABLE both, DESCRIPTOR(t), INTERVAL '1' MINUTE) GROUP BY window_start"""
    assert answer(query, *EVENTS) == [(5,)]


def test_a_bounded_table_is_put_into_windows_by_any_of_its_times() -> None:
    pipeline = tg.Pipeline("direct")
    rows = [Bid("vase", 3, tg.Timestamp(1)), Bid("vase", 4, tg.Timestamp(9))]
    tables = {"bids": pipeline | "a" >> tg.Create(rows), "others": pipeline | "b" >> tg.Create(rows[1:])}
    assert [tuple(row) for row in (tables | tg.Sql(next(iter(EARLIER)))).collect()] == [(1,), (1,)]


def test_a_chain_of_outer_joins_equates_windows_with_those_of_a_table_that_is_not_padded() -> None:
    query = f"""
        SELECT a.price AS one, c.price AS three FROM {TEN} a
        LEFT JOIN {TEN} b ON a.item = b.item AND a.window_start = b.window_start AND a.window_end = b.window_end
            AND b.price > 7
        LEFT JOIN {TEN} c ON b.item = c.item AND {{0}}.window_start = c.window_start AND {{0}}.window_end = c.window_end
            AND c.price < 4"""
    assert sorted(answer(query.format("a"), *EVENTS), key=str) == [(1, None), (3, 3), (4, None), (5, None), (8, 3)]
    with pytest.raises(tg.SqlError, match="l being one that no outer join pads with NULLs"):
        answer(query.format("b"), *EVENTS)
