"""The sales report is compared with a loop over the same files: totals, refunds, unknown products, rejected lines."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.example_scripts import DATA, lines_of, load_example

sales_report = load_example("sales_report")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder to which one run of the report has written."""
    folder: Path = tmp_path_factory.mktemp("sales")
    sales_report.pipeline(sales_report.SalesOptions(output=str(folder))).run().wait_until_finish()
    return folder


def valid(row: list[str]) -> bool:
    """True if a row is a valid order."""
    try:
        _, day, _, quantity, price = row
        date.fromisoformat(day)
        return int(quantity) != 0 and Decimal(price) >= 0
    except ValueError:
        return False


def orders() -> list[list[str]]:
    """The rows of the orders, without their header."""
    return list(csv.reader((DATA / "orders.csv").read_text().splitlines()))[1:]


def categories() -> dict[str, str]:
    """The category of each product."""
    return {row[0]: row[2] for row in list(csv.reader((DATA / "products.csv").read_text().splitlines()))[1:]}


def test_totals_equal_those_of_a_loop(folder: Path) -> None:
    known = categories()
    totals: dict[str, list[Decimal]] = defaultdict(lambda: [Decimal(), Decimal(), Decimal()])
    for row in orders():
        if valid(row) and int(row[3]) > 0 and row[2] in known:
            total = totals[known[row[2]]]
            total[0] += 1
            total[1] += int(row[3])
            total[2] += int(row[3]) * Decimal(row[4])
    header, *rows = lines_of(folder / "categories.csv")
    assert header == "category,orders,items,revenue"
    assert sorted(rows) == sorted(f"{name},{n},{items},{revenue}" for name, (n, items, revenue) in totals.items())


def test_refunds_and_unknown_products_are_written_separately(folder: Path) -> None:
    known = categories()
    refunds = [",".join(row) for row in orders() if valid(row) and int(row[3]) < 0]
    unknown = [",".join(row) for row in orders() if valid(row) and int(row[3]) > 0 and row[2] not in known]
    assert lines_of(folder / "refunds.csv")[1:] == refunds
    assert sorted(lines_of(folder / "unknown.csv")[1:]) == sorted(unknown)
    assert refunds
    assert unknown


def test_rejected_lines_are_written_with_the_reason(folder: Path) -> None:
    rejected = [line.split("  # ") for line in lines_of(folder / "rejected.txt")]
    assert [line for line, _ in rejected] == [",".join(row) for row in orders() if not valid(row)]
    assert {reason.split("(")[0] for _, reason in rejected} == {"ValueError"}
    assert any("the quantity is 0" in reason for _, reason in rejected)


def test_refunds_are_a_metric(tmp_path: Path) -> None:
    result = sales_report.pipeline(sales_report.SalesOptions(output=str(tmp_path))).run()
    (refunded,) = result.metrics().query("refunded")
    amounts = [-int(row[3]) * Decimal(row[4]) for row in orders() if valid(row) and int(row[3]) < 0]
    assert refunded.value.count == len(amounts)
    assert refunded.value.sum == pytest.approx(float(sum(amounts)))


def test_the_combiner_can_be_applied_in_parts() -> None:
    orders_ = [sales_report.parse_order(f"{n},2024-03-01,A,{n},1.50") for n in range(1, 6)]
    fn = sales_report.Totals()
    parts = [fn.create_accumulator(), fn.create_accumulator()]
    for n, order in enumerate(orders_):
        parts[n % 2] = fn.add_input(parts[n % 2], order)
    assert fn.extract_output(fn.merge_accumulators(parts)) == fn.apply(orders_)
