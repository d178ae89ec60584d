"""Filter, Select and GroupBy(...).agg(...) with expressions over the fields of elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.engine.function_calls import function_calls
from tidegate.runners.planner import Traits, plan
from tidegate.sdk.data.schema import schema_of


@dataclass(frozen=True)
class Order:
    user: str
    price: float | None
    qty: int


NAN = float("nan")
ORDERS = [Order("a", 1.5, 20), Order("b", None, 11), Order("a", NAN, 2), Order("a", 2.0, 12)]


def orders(runner: str = "direct") -> tg.PCollection[Order]:
    return tg.Pipeline(runner) | tg.Create(ORDERS)


def test_a_filter_drops_elements_for_which_its_expression_is_false_or_null() -> None:
    assert (orders() | tg.Filter(tg.col("price") < 2)).collect() == [ORDERS[0]]


def test_a_selection_computes_columns_and_gives_the_rows_their_schema() -> None:
    rows = orders() | tg.Select("user", total=tg.col("price") * tg.col("qty"))
    assert str(schema_of(rows.element_type)) == "user string not null, total double"
    assert list(map(repr, rows.collect())) == [
        "Row(user='a', total=30.0)",
        "Row(user='b', total=None)",
        "Row(user='a', total=nan)",
        "Row(user='a', total=24.0)",
    ]


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_groups_are_aggregated_by_expressions_over_aggregates(runner: str) -> None:
    columns: dict[str, Any] = {"n": tg.fn.count("price"), "mean": tg.fn.sum("qty") / tg.fn.count()}
    found = (orders(runner) | tg.GroupBy("user").agg(**columns)).collect()
    assert sorted(found) == [("a", 3, 34 / 3), ("b", 0, 11.0)]


def test_booleans_are_aggregated_without_nulls() -> None:
    values: list[tuple[str, bool | None]] = [("a", True), ("a", None), ("b", False), ("b", True), ("c", None)]
    rows = tg.Pipeline() | tg.Create([tg.Row(k=key, b=value) for key, value in values])
    columns: dict[str, Any] = {"every": tg.fn.bool_and(tg.col("b", bool)), "some": tg.fn.bool_or(tg.col("b", bool))}
    found = (rows | tg.GroupBy(k=tg.col("k", str)).agg(**columns)).collect()
    assert sorted(found) == [("a", True, True), ("b", False, True), ("c", None, None)]


def test_null_and_nan_are_one_group_each_and_both_zeros_are_one() -> None:
    values = [Order("a", price, 1) for price in (NAN, float("inf") - float("inf"), None, None, 0.0, -0.0)]
    found = (tg.Pipeline() | tg.Create(values) | tg.GroupBy("price").agg(n=tg.fn.count())).collect()
    assert sorted(map(repr, found)) == ["Row(price=0.0, n=2)", "Row(price=None, n=2)", "Row(price=nan, n=2)"]


def test_an_unknown_column_is_refused_with_the_step_and_its_line() -> None:
    with pytest.raises(tg.BuildError, match=r"(?s)no column 'qtty'.*Did you mean 'qty'\?.*in step 'Filter\(qtty\)'"):
        orders() | tg.Filter(tg.col("qtty") > 10)


def test_operands_of_the_wrong_type_are_refused_with_what_the_operator_takes() -> None:
    with pytest.raises(tg.TypeCheckError, match=r"column 'x': in qty \+ user, \+ takes .*not \(bigint, string\)"):
        orders() | tg.Select(x=tg.col("qty") + tg.col("user"))


def test_an_overflow_fails_the_run_with_the_element() -> None:
    rows = tg.Pipeline() | tg.Create([Order("a", 1.5, 2**62)]) | tg.Select(x=tg.col("qty") * 4)
    with pytest.raises(tg.UserCodeError, match=r"(?s)ARITHMETIC_OVERFLOW.*out of range for bigint.*element: Order"):
        rows.collect()


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(tg.BuildError, match=r"neither true nor false"):
        bool(tg.col("a") == 1)


def test_loops_contain_expressions_instead_of_calling_them() -> None:
    big = orders() | tg.Filter(tg.col("qty") > 1) | tg.Select("user", total=tg.col("price") * tg.col("qty"))
    rows = big | tg.GroupBy("user").agg(n=tg.fn.count(), mean=tg.fn.avg("total"))
    portable = rows.pipeline.sealed()
    planned = plan(portable, Traits(parallel=False, drops_unread=False))
    calls = list(function_calls(planned, rows.pipeline.options))
    assert [(call.step, call.how) for call in calls] == [
        ("Filter(qty)", "inlined"),
        ("Select(user, total)", "inlined"),
        ("GroupBy(user)/Key", "inlined"),
        ("GroupBy(user)/Combine", "inlined"),
        ("GroupBy(user)", "inlined"),
    ]


@pytest.mark.parametrize("inline", ["always", "off"])
def test_values_are_checked_where_they_enter_columns_and_results_everywhere(inline: str) -> None:
    edges = [2**30, 2**63 - 1, -(2**63), -(2**30)]
    p = tg.Pipeline(options={"inline": inline})
    rows = p | tg.Create([Order("a", 1.5, n) for n in edges]) | tg.Select(n=tg.col("qty"))
    assert (rows | tg.Select(n=tg.col("n") - 0)).collect() == [(n,) for n in edges]
    with pytest.raises(tg.UserCodeError, match="ARITHMETIC_OVERFLOW"):
        (rows | tg.Select(n=tg.col("n") + 1)).collect()
    over = p | "over" >> tg.Create([Order("a", 1.5, 2**63)])
    with pytest.raises(tg.UserCodeError, match="more than 64 bits"):
        (over | "same" >> tg.Select(n=tg.col("qty"))).collect()


@pytest.mark.parametrize("step", [tg.Select, tg.GroupBy])
def test_a_column_given_as_the_label_says_how_to_name_a_column_so(step: Any) -> None:
    with pytest.raises(tg.BuildError, match=r'name= is the label of the step: .*\.alias\("name"\)'):
        step("amount", name=tg.col("shop"))
