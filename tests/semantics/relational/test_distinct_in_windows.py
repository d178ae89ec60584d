"""DISTINCT aggregates under windows mean the same on every runner, and in streams: also where sessions merge."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import tidegate as tg
from tidegate.testing import TestPipeline, TestStream, assert_that, equal_to


@dataclass(frozen=True)
class Bid:
    user: str
    price: Annotated[Decimal, "decimal(6,2)"] | None
    qty: int
    at: tg.Timestamp


def bid(user: str, price: str | None, qty: int, at: int) -> Bid:
    return Bid(user, None if price is None else Decimal(price), qty, tg.Timestamp(at))


BIDS = [
    bid("ada", "1.5", 1, 1),
    bid("ada", "1.50", 2, 3),
    bid("ada", None, 2, 8),
    bid("max", "7", 1, 11),
    bid("ada", "4", 3, 5),
    bid("ada", "4.00", 2, 12),
    bid("ada", "1.5", 3, 19),
    bid("max", "7", 3, 14),
]
WINDOWS = {
    "tumble": "TUMBLE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECONDS)",
    "hop": "HOP(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECONDS, INTERVAL '20' SECONDS)",
    "cumulate": "CUMULATE(TABLE bids, DESCRIPTOR(at), INTERVAL '10' SECONDS, INTERVAL '20' SECONDS)",
    "session": "SESSION(TABLE bids PARTITION BY user, DESCRIPTOR(at), INTERVAL '4' SECONDS)",
}
QUERY = """
    SELECT user, window_start, window_end, COUNT(DISTINCT price) AS prices, SUM(DISTINCT price) AS sum,
        AVG(DISTINCT price) FILTER (WHERE qty > 1) AS avg, COUNT(DISTINCT qty) AS qties, SUM(DISTINCT qty) AS qty
    FROM TABLE({}) GROUP BY user, window_start, window_end"""
EXPECTED = {
    "tumble": [
        ("ada", 0, 10, 2, "5.50", "2.750000", 3, 6),
        ("ada", 10, 20, 2, "5.50", "2.750000", 2, 5),
        ("max", 10, 20, 1, "7.00", "7.000000", 2, 4),
    ],
    "hop": [
        ("ada", -10, 10, 2, "5.50", "2.750000", 3, 6),
        ("ada", 0, 20, 2, "5.50", "2.750000", 3, 6),
        ("ada", 10, 30, 2, "5.50", "2.750000", 2, 5),
        ("max", 0, 20, 1, "7.00", "7.000000", 2, 4),
        ("max", 10, 30, 1, "7.00", "7.000000", 2, 4),
    ],
    "cumulate": [
        ("ada", 0, 10, 2, "5.50", "2.750000", 3, 6),
        ("ada", 0, 20, 2, "5.50", "2.750000", 3, 6),
        ("max", 0, 20, 1, "7.00", "7.000000", 2, 4),
    ],
    "session": [
        ("ada", 1, 12, 2, "5.50", "2.750000", 3, 6),
        ("ada", 12, 16, 1, "4.00", "4.000000", 1, 2),
        ("ada", 19, 23, 1, "1.50", "1.500000", 1, 3),
        ("max", 11, 18, 1, "7.00", "7.000000", 2, 4),
    ],
}


def check(bids: Any, *kinds: str) -> None:
    """Check the results in windows of these kinds."""
    for name in kinds:
        rows = {"bids": bids} | tg.Sql(QUERY.format(WINDOWS[name]), name=name) | f"{name} rows" >> tg.Map(shown)
        assert_that(rows, equal_to(EXPECTED[name]), label=f"check {name}")


def shown(row: Any) -> tuple[Any, ...]:
    bounds = (round(each.timestamp()) for each in (row.window_start, row.window_end))
    return (row.user, *bounds, row.prices, str(row.sum), str(row.avg), row.qties, row.qty)


def test_in_bounded_input(runner: str) -> None:
    with TestPipeline(runner) as p:
        check(p | tg.Create(BIDS), "hop", "session")


def test_in_streams_whose_elements_arrive_in_another_order(stream_runner: str) -> None:
    """The sessions of ada's bids at 1 and 8 are united by those between, which come last."""
    first, last = [BIDS[0], BIDS[2], BIDS[3]], [BIDS[1], BIDS[4]]
    stream = TestStream()
    for part, watermark in ((first, 1), (last, 11), (BIDS[5:], 40)):
        elements = [tg.TimestampedValue(each, each.at) for each in part]
        stream = stream.add_elements(elements).advance_watermark_to(watermark)
    with TestPipeline(stream_runner) as p:
        bids = p | stream.advance_watermark_to_infinity().with_output_types(Bid)
        check(bids, *WINDOWS)
