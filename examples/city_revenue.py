"""Revenue by city and window: orders from Parquet joined with users, in SQL or in expressions, written as JSON.

    tidegate run examples/city_revenue.py --shop 'examples/data/shop' --output revenue

`--expressions` computes the same without SQL.
"""

from __future__ import annotations

import tidegate as tg
from tidegate import col, fn

QUERY = """
    SELECT window_start, city, SUM(price * qty) AS revenue, COUNT(*) AS orders
    FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(at), INTERVAL '10' MINUTES)) o JOIN users u ON o.user = u.name
    GROUP BY window_start, window_end, city"""


class Options(tg.PipelineOptions):
    """The folder with orders and users, and where the revenue is written."""

    shop: str
    output: str
    expressions: bool = False


def in_sql(orders: tg.PCollection[tg.Row], users: tg.PCollection[tg.Row]) -> tg.PCollection[tg.Row]:
    """The revenue by a query."""
    revenue: tg.PCollection[tg.Row] = {"orders": orders, "users": users} | tg.Sql(QUERY)
    return revenue


def in_expressions(orders: tg.PCollection[tg.Row], users: tg.PCollection[tg.Row]) -> tg.PCollection[tg.Row]:
    """The same revenue by steps."""
    joined = orders | tg.Join.on(users, ("user", "name"))
    timed = joined | tg.Map(lambda row: tg.TimestampedValue(row, row.at)).with_output_types(joined.element_type)
    by_city = tg.GroupBy("city").agg(revenue=fn.sum(col("price") * col("qty")), orders=fn.count())
    totals = timed | tg.WindowInto(tg.FixedWindows(600)) | by_city
    return totals | tg.Select(fn.window_start(), "city", "revenue", "orders")


def pipeline(options: Options) -> tg.Pipeline:
    """Read, compute and write."""
    p = tg.Pipeline(options=options)
    orders = p | "Orders" >> tg.ReadFromParquet(f"{options.shop}/orders.parquet")
    users = p | "Users" >> tg.ReadFromParquet(f"{options.shop}/users.parquet")
    revenue = in_expressions(orders, users) if options.expressions else in_sql(orders, users)
    revenue | tg.WriteToJson(options.output)
    return p
