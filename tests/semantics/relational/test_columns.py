"""Filter, Select and GroupBy(...).agg(...) with expressions mean the same on every runner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import PaneRecorder, TestPipeline, TestStream, assert_that, equal_to


@dataclass(frozen=True)
class Order:
    user: str
    price: float | None
    qty: int


ORDERS = [Order("ada", 1.5, 20), Order("max", None, 11), Order("ada", 2.0, 3), Order("eve", 0.5, 1)]


def test_filters_selections_and_aggregates_of_expressions(runner: str) -> None:
    with TestPipeline(runner) as pipeline:
        orders = pipeline | tg.Create(ORDERS)
        cheap = orders | tg.Filter((tg.col("price") < 2) | (tg.col("qty") > 15))
        totals = orders | tg.Select("user", total=tg.col("price") * tg.col("qty"))
        aggregates: dict[str, Any] = {"orders": tg.fn.count(), "mean": tg.fn.sum("price") / tg.fn.count("price")}
        qty = tg.col("qty") % 10
        distinct = {"units": tg.fn.sum_distinct(qty), "mean": tg.fn.avg_distinct("price").filter(qty < 3)}
        whole = orders | tg.GroupBy().agg(**distinct)
        users = orders | tg.GroupBy("user", many=tg.col("qty") > 10).agg(**aggregates)
        assert_that(cheap, equal_to([ORDERS[0], ORDERS[3]]), label="cheap")
        assert_that(totals, equal_to([("ada", 30.0), ("max", None), ("ada", 6.0), ("eve", 0.5)]), label="totals")
        expected = [("ada", True, 1, 1.5), ("max", True, 1, None), ("ada", False, 1, 2.0), ("eve", False, 1, 0.5)]
        assert_that(whole, equal_to([(4, 1.0)]), label="whole")
        assert_that(users, equal_to(expected), label="users")


@pytest.mark.parametrize("asked", ["first", "last"])
def test_late_elements_of_aggregated_columns_come_whole(stream_runner: str, asked: str) -> None:
    columns = {"units": tg.fn.sum("qty"), "dearest": tg.fn.max("price")}
    by = tg.GroupBy("user")
    step = by.with_late_data("late").agg(**columns) if asked == "first" else by.agg(**columns).with_late_data("late")

    def order(price: float | None, qty: int, at: int) -> Any:
        return tg.TimestampedValue(Order("ada", price, qty), at)

    stream = (
        TestStream()
        .add_elements([order(1.5, 2, 1), order(None, 3, 2)])
        .advance_watermark_to(20)
        .add_elements([order(9.0, 7, 3)])
        .advance_watermark_to_infinity()
    )
    main, late = PaneRecorder("main"), PaneRecorder("late")
    pipeline = TestPipeline(stream_runner)
    out = pipeline | stream.with_output_types(Order) | tg.WindowInto(tg.FixedWindows(10)) | step
    _ = out.main | main
    _ = out.late | late
    result = pipeline.run()
    assert main.values() == [("ada", 5, 1.5)]
    [record] = late.records()
    assert (record.value, record.timestamp) == (Order("ada", 9.0, 7), tg.Timestamp(3))
    assert result.metrics().counter("dropped_late") == 0


def test_an_expression_without_a_value_fails_the_run_with_its_element(runner: str) -> None:
    pipeline = TestPipeline(runner)
    doubled = pipeline | tg.Create([Order("ada", 1.5, 2**62)]) | tg.Select(twice=tg.col("qty") * 2)
    assert_that(doubled, equal_to([]))
    with pytest.raises(tg.UserCodeError, match=r"(?s)ARITHMETIC_OVERFLOW.*Select\(twice\).*element: Order\(user='ada'"):
        pipeline.run()


def test_fields_named_as_no_python_text_can_are_columns(runner: str, tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text("class,ﬁt,from\na,1,x\nb,2,x\na,3,x\n")
    with TestPipeline(runner) as pipeline:
        records = pipeline | tg.io.ReadFromCsv(tmp_path / "records.csv")
        kept = records | tg.Filter(tg.col("class") == "a") | tg.Select("class", more=tg.col("ﬁt") + 1)
        totals = records | tg.GroupBy("class").agg(**{"in": tg.fn.sum("ﬁt")})
        joined = {"r": records, "t": totals} | tg.Sql(
            'SELECT r.class, t."in" AS total FROM r JOIN t ON r.class = t.class WHERE r."from" = \'x\' AND r."ﬁt" < 3'
        )
        best = records | tg.Sql('SELECT * FROM pcoll ORDER BY "ﬁt" DESC LIMIT 1')
        assert_that(kept, equal_to([("a", 2), ("a", 4)]), label="kept")
        assert_that(totals, equal_to([("a", 4), ("b", 2)]), label="totals")
        assert_that(joined, equal_to([("a", 4), ("b", 2)]), label="joined")
        assert_that(best, equal_to([("a", 3, "x")]), label="best")
