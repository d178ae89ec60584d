"""Report a shop's sales: parse orders, write invalid lines to a file, join with the products, total per category.

    tidegate run examples/sales_report.py --output build/sales

reads `examples/data/orders.csv` and `products.csv` (or `--orders` and `--products`) and writes

- `build/sales/categories.csv`: orders, items and revenue per category,
- `build/sales/refunds.csv`: orders with a negative quantity,
- `build/sales/unknown.csv`: orders of unknown products,
- `build/sales/rejected.txt`: lines that are not valid orders, each with the reason.

It shows dead letters (`with_exception_handling`), several outputs of one step (`TaggedOutput`), a join
(`CoGroupByKey`), a custom combiner (`CombineFn`), dataclasses as elements, and a metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import Field

import tidegate as tg

DATA = Path(__file__).resolve().parent / "data"


class SalesOptions(tg.PipelineOptions):
    """The input, and the folder to write to."""

    orders: str = Field(str(DATA / "orders.csv"), description="order,date,product,quantity,unit_price with a header")
    products: str = Field(str(DATA / "products.csv"), description="product,name,category with a header")
    output: str = Field(description="the folder to write to")


@dataclass(frozen=True, slots=True)
class Order:
    """An order; that of a refund has a negative quantity."""

    id: int
    day: date
    product: str
    quantity: int
    price: Decimal

    @property
    def amount(self) -> Decimal:
        """The price of all items."""
        return self.quantity * self.price

    def __str__(self) -> str:
        return f"{self.id},{self.day},{self.product},{self.quantity},{self.price}"


@dataclass(frozen=True, slots=True)
class Total:
    """The sales of a category."""

    orders: int = 0
    items: int = 0
    revenue: Decimal = Decimal()


def parse_order(line: str) -> Order:
    """Parse an order. Raises ValueError or ArithmeticError for an invalid line."""
    id, day, product, quantity, price = line.split(",")
    if int(quantity) == 0:
        raise ValueError("the quantity is 0")
    return Order(int(id), date.fromisoformat(day), product, int(quantity), Decimal(price))


def with_reason(dead_letter: tuple[str, tuple[str, str, list[str]]]) -> str:
    """A rejected line with its error, from `(element, (exception type, repr, traceback lines))`."""
    line, (_, error, _) = dead_letter
    return f"{line}  # {error}"


def category_of(line: str) -> tuple[str, str]:
    """The `(product, category)` of a line of the products."""
    product, _, category = line.split(",")
    return product, category


class SplitRefunds(tg.DoFn):
    """Emits sales to the main output, and refunds to another."""

    def __init__(self) -> None:
        self.refunded = tg.Metrics.distribution("sales", "refunded")

    def process(self, order: Order) -> Iterator[Any]:
        if order.quantity < 0:
            self.refunded.update(float(-order.amount))
            yield tg.TaggedOutput("refunds", order)
        else:
            yield order


def with_category(joined: tuple[str, dict[str, list[Any]]]) -> Iterator[Any]:
    """`(category, order)` for each order of a product; orders without a category on the output `unknown`."""
    _, sides = joined
    for order in sides["orders"]:
        yield (sides["categories"][0], order) if sides["categories"] else tg.TaggedOutput("unknown", order)


class Totals(tg.CombineFn[Order, Total, Total]):
    """Totals orders. It can be applied in parts: each worker totals its own orders, and the totals are merged."""

    def create_accumulator(self) -> Total:
        return Total()

    def add_input(self, accumulator: Total, element: Order) -> Total:
        return self.merge_accumulators([accumulator, Total(1, element.quantity, element.amount)])

    def merge_accumulators(self, accumulators: Iterable[Total]) -> Total:
        parts = list(accumulators)
        return Total(
            sum(t.orders for t in parts), sum(t.items for t in parts), sum((t.revenue for t in parts), Decimal())
        )

    def extract_output(self, accumulator: Total) -> Total:
        return accumulator


def pipeline(options: SalesOptions) -> tg.Pipeline:
    """Report a shop's sales per category, and list refunds, orders of unknown products, and invalid lines."""
    p = tg.Pipeline(options=options, name="sales_report")
    lines = p | tg.io.ReadFromText(options.orders, skip_header_lines=1, name="orders")
    orders, rejected = lines | tg.Map(parse_order).with_exception_handling(exc_class=(ValueError, ArithmeticError))
    split = orders | tg.ParDo(SplitRefunds()).with_outputs("refunds", main="sales")

    by_product = split.sales | tg.Map(lambda order: (order.product, order), name="by product")
    categories = p | tg.io.ReadFromText(options.products, skip_header_lines=1, name="products") | tg.Map(category_of)
    joined = {"orders": by_product, "categories": categories} | tg.CoGroupByKey()
    sold = joined | tg.FlatMap(with_category).with_outputs("unknown", main="known")
    totals = sold.known | tg.CombinePerKey(Totals())

    rows = totals | tg.MapTuple(lambda category, t: f"{category},{t.orders},{t.items},{t.revenue}", name="row")
    for name, rows_of, header in (
        ("categories.csv", rows, "category,orders,items,revenue"),
        ("refunds.csv", split.refunds, "order,date,product,quantity,unit_price"),
        ("unknown.csv", sold.unknown, "order,date,product,quantity,unit_price"),
        ("rejected.txt", rejected | tg.Map(with_reason), None),
    ):
        path = str(Path(options.output) / name)
        rows_of | tg.io.WriteToText(path, shard_name_template="", header=header, name=f"write {name}")
    return p


if __name__ == "__main__":
    result = pipeline(SalesOptions.from_args()).run()
    result.wait_until_finish()
    for refunded in result.metrics().query("refunded"):
        print(f"{refunded.value.count} refunds of {refunded.value.mean:.2f} on average")
