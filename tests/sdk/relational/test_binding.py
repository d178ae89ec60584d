"""What binding refuses, and the types that it gives."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tests.support.expressions.cases import INPUT, tree_of
from tidegate.sdk.data.columns import STRING
from tidegate.sdk.relational.binding import bound, may_fail
from tidegate.sdk.relational.expressions import Call, Literal


@pytest.mark.parametrize("pattern", ["a\\b", "100\\", "%\\\\\\"])
def test_a_pattern_in_which_a_backslash_escapes_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(tg.BuildError, match="backslash of the pattern escapes neither %, _ nor a backslash"):
        tree_of(tg.col("s").like(pattern))


def test_a_literal_that_decides_what_is_computed_is_not_null() -> None:
    pattern: Any = None
    with pytest.raises(tg.BuildError, match=r"in like\(s, NULL\), the literal is NULL"):
        tree_of(tg.col("s").like(pattern))


@pytest.mark.parametrize("unit", ["hours", "yyyy", "DAY", "foo"])
def test_a_unit_of_a_document_that_is_none_is_refused(unit: str) -> None:
    with pytest.raises(tg.BuildError, match=f"the unit of date_trunc is one of year, .*, not '{unit}'"):
        bound(Call("date_trunc", (Literal(unit, STRING), tree_of(tg.col("at")))), INPUT)


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        (tg.col("a") + tg.col("s"), r"in a \+ s, \+ takes \(bigint, bigint; .*not \(bigint, string\)"),
        (tg.col("a").cast("date"), "a value of type bigint can't be cast to date; it can be cast to decimal, double"),
        (tg.fn.when(tg.col("a"), 1), "the condition a is of type bigint, not boolean"),
        (tg.fn.when(tg.col("p"), 1).otherwise("x"), "have no common type: they are bigint, string"),
        (tg.col("a", str), "the column 'a' is of type bigint, not string"),
        (tg.fn.sum("a") + 1, r"sum\(a\) is an aggregate, which has a value only for a group"),
        (tg.col("missing"), "the input has no column 'missing'; it has a, b,"),
    ],
)
def test_an_expression_that_has_no_type_is_refused(expression: tg.Expression, told: str) -> None:
    with pytest.raises(tg.BuildError, match=told):
        bound(expression.tree, INPUT)


@pytest.mark.parametrize(
    ("expression", "type"),
    [
        (tg.col("a") / tg.col("b"), "double"),
        (tg.col("a") + tg.col("x"), "double"),
        (tg.fn.when(tg.col("p"), 1).otherwise(2.5), "double"),
        (tg.fn.coalesce("d", tg.col("at")), "timestamp"),
        (tg.col("at") - tg.col("until"), "interval"),
        (tg.col("s").is_in(["a", None]), "boolean"),
    ],
)
def test_an_expression_has_the_type_that_its_operations_give(expression: tg.Expression, type: str) -> None:
    assert str(tree_of(expression).type) == type


def test_whether_an_expression_may_fail_is_found_by_looking_at_each_part_once() -> None:
    condition = tg.col("s") == "x"
    for _ in range(60):  # looking at all parts of each part would never end
        condition = condition & (tg.col("s") != "y")
    assert not may_fail(tree_of(condition))
    assert may_fail(tree_of(condition & (tg.col("a") % 2 == 0)))
