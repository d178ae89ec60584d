"""The queries of Nexmark in Tidegate's SQL, over the tables `person`, `auction` and `bid`.

Left out are 6, which needs a window function over rows, and 12 and 13, which need processing time in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import tidegate as tg


@dataclass(frozen=True)
class Query:
    """A query. `streams`: its results are final when they are emitted, so that it runs on streams too."""

    sql: str
    streams: bool = False
    functions: Mapping[str, tuple[Callable[..., Any], type]] = field(default_factory=dict)

    def step(self, label: str) -> tg.Sql:
        """The step that runs it."""
        functions = {name: tg.udf(function, returns=result) for name, (function, result) in self.functions.items()}
        return tg.Sql(self.sql, functions=functions, name=label)


def count_char(text: str, letter: str) -> int:
    """How often a letter is in a text: the benchmark's function of the user."""
    return text.count(letter)


_TUMBLE: Final = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(dateTime), INTERVAL '10' SECONDS))"
_HOP: Final = "TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECONDS, INTERVAL '10' SECONDS))"

_COUNTS: Final = """
        COUNT(*) AS total_bids,
        COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
        COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
        COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids"""
_DISTINCT: Final = """
        COUNT(DISTINCT {0}) AS total_{0}s,
        COUNT(DISTINCT {0}) FILTER (WHERE price < 10000) AS rank1_{0}s,
        COUNT(DISTINCT {0}) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_{0}s,
        COUNT(DISTINCT {0}) FILTER (WHERE price >= 1000000) AS rank3_{0}s"""

QUERIES: Final[dict[int, Query]] = {
    0: Query("SELECT auction, bidder, price, dateTime, extra FROM bid", streams=True),
    1: Query("SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid", streams=True),
    2: Query("SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0", streams=True),
    3: Query("""
        SELECT p.name, p.city, p.state, a.id
        FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')"""),
    4: Query("""
        SELECT category, AVG(final) AS price
        FROM (
            SELECT MAX(b.price) AS final, a.category
            FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires
            GROUP BY a.id, a.category)
        GROUP BY category"""),
    5: Query(
        f"""
        WITH counts AS (
            SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime
            FROM {_HOP} GROUP BY auction, window_start, window_end)
        SELECT c.auction, c.num
        FROM counts c
        JOIN (SELECT MAX(num) AS maxn, starttime, endtime FROM counts GROUP BY starttime, endtime) m
        ON c.starttime = m.starttime AND c.endtime = m.endtime AND c.num >= m.maxn""",
        streams=True,
    ),
    7: Query(
        f"""
        SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
        FROM {_TUMBLE.format("bid")} b JOIN (
            SELECT MAX(price) AS maxprice, window_start, window_end
            FROM {_TUMBLE.format("bid")} GROUP BY window_start, window_end) m
        ON b.price = m.maxprice AND b.window_start = m.window_start AND b.window_end = m.window_end""",
        streams=True,
    ),
    8: Query(
        f"""
        SELECT p.id, p.name, p.starttime
        FROM (
            SELECT id, name, window_start AS starttime, window_end AS endtime
            FROM {_TUMBLE.format("person")} GROUP BY id, name, window_start, window_end) p
        JOIN (
            SELECT seller, window_start AS starttime, window_end AS endtime
            FROM {_TUMBLE.format("auction")} GROUP BY seller, window_start, window_end) a
        ON p.id = a.seller AND p.starttime = a.starttime AND p.endtime = a.endtime""",
        streams=True,
    ),
    9: Query("""
        SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
            auction, bidder, price, bid_dateTime, bid_extra
        FROM (
            SELECT a.*, b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra,
                ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime ASC) AS rownum
            FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires)
        WHERE rownum <= 1"""),
    10: Query(
        """
        SELECT auction, bidder, price, dateTime, extra,
            DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS dt, DATE_FORMAT(dateTime, 'HH:mm') AS hm
        FROM bid""",
        streams=True,
    ),
    11: Query(
        """
        SELECT bidder, COUNT(*) AS bid_count, window_start AS starttime, window_end AS endtime
        FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '10' SECONDS))
        GROUP BY bidder, window_start, window_end""",
        streams=True,
    ),
    14: Query(
        """
        SELECT auction, bidder, 0.908 * price AS price,
            CASE
                WHEN HOUR(dateTime) >= 8 AND HOUR(dateTime) <= 18 THEN 'dayTime'
                WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 THEN 'nightTime'
                ELSE 'otherTime'
            END AS bidTimeType,
            dateTime, extra, count_char(extra, 'c') AS c_counts
        FROM bid
        WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
        streams=True,
        functions={"count_char": (count_char, int)},
    ),
    15: Query(f"""
        SELECT DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day, {_COUNTS}, {_DISTINCT.format("bidder")},
            {_DISTINCT.format("auction")}
        FROM bid GROUP BY DATE_FORMAT(dateTime, 'yyyy-MM-dd')"""),
    16: Query(f"""
        SELECT channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day, MAX(DATE_FORMAT(dateTime, 'HH:mm')) AS minute,
            {_COUNTS}, {_DISTINCT.format("bidder")}, {_DISTINCT.format("auction")}
        FROM bid GROUP BY channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd')"""),
    17: Query(f"""
        SELECT auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS day, {_COUNTS},
            MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
        FROM bid GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd')"""),
    18: Query("""
        SELECT auction, bidder, price, channel, url, dateTime, extra
        FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank_number FROM bid)
        WHERE rank_number <= 1"""),
    19: Query("""
        SELECT * FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number FROM bid)
        WHERE rank_number <= 10"""),
    20: Query("""
        SELECT auction, bidder, price, channel, url, b.dateTime AS bid_dateTime, b.extra AS bid_extra, itemName,
            description, initialBid, reserve, a.dateTime AS auction_dateTime, expires, seller, category,
            a.extra AS auction_extra
        FROM bid b JOIN auction a ON b.auction = a.id
        WHERE a.category = 10"""),
    21: Query(
        """
        SELECT auction, bidder, price, channel,
            CASE LOWER(channel)
                WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)
            END AS channel_id
        FROM bid
        WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) <> ''
            OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
        streams=True,
    ),
    22: Query(
        """
        SELECT auction, bidder, price, channel,
            SPLIT_PART(url, '/', 4) AS dir1, SPLIT_PART(url, '/', 5) AS dir2, SPLIT_PART(url, '/', 6) AS dir3
        FROM bid""",
        streams=True,
    ),
}
