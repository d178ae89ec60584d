"""Decimals: their types, values entering columns, and sums."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NewType

import pytest
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypeAliasType

import tidegate as tg
from tidegate.sdk.data.columns import UNKNOWN, ArrayType, ColumnType, DecimalType, type_named
from tidegate.sdk.data.schema import schema_of
from tidegate.sdk.relational.expressions import Column, Literal, from_json


@dataclass(frozen=True)
class Item:
    name: str
    price: Annotated[Decimal, "decimal(12,2)"]
    rate: Annotated[Decimal, "decimal(4,3)"] | None = None
    qty: int = 1


@dataclass(frozen=True)
class Offer:
    price: Annotated[Decimal | None, "decimal(12,2)"]
    old: Annotated[Annotated[Decimal, "decimal(4,3)"] | None, "of last year"]
    note: Any = None


Money = NewType("Money", Annotated[Decimal, "decimal(12,2)"])
Rate = TypeAliasType("Rate", Annotated[Decimal, "decimal(4,3)"] | None)
Endless = TypeAliasType("Endless", "Endless")


@dataclass(frozen=True)
class Bill:
    total: Money
    tip: Money | None
    rate: Rate
    plain: Decimal
    endless: Endless  # type: ignore[valid-type]


class Model(BaseModel):
    price: Annotated[Decimal, Field(max_digits=12, decimal_places=2)]
    old: Decimal | None = Field(None, max_digits=12, decimal_places=3)


ITEMS = [Item("a", Decimal("1.5"), Decimal("0.125"), 3), Item("b", Decimal("2.25")), Item("a", Decimal("-0.00"))]


def items() -> tg.PCollection[Item]:
    return tg.Pipeline() | tg.Create(ITEMS)


def test_annotations_say_how_many_digits_a_decimal_has() -> None:
    assert (
        str(schema_of(Item)) == "name string not null, price decimal(12,2) not null, rate decimal(4,3), "
        "qty bigint not null"
    )
    assert str(schema_of(Offer)) == "price decimal(12,2), old decimal(4,3), note unknown"
    assert str(schema_of(Model)) == "price decimal(12,2) not null, old decimal(12,3)"
    assert (
        str(schema_of(Bill)) == "total decimal(12,2) not null, tip decimal(12,2), rate decimal(4,3), "
        "plain decimal(38,18) not null, endless unknown"
    )


def test_operations_compute_with_the_digits_of_their_types() -> None:
    columns: dict[str, Any] = {
        "total": tg.col("price") * tg.col("qty"),
        "more": tg.col("price") + 1,
        "part": tg.col("price") / 3,
        "taxed": tg.col("price") * (1 + tg.col("rate")),
        "text": tg.col("price").cast(str),
        "double": tg.col("price") * 2.0,
        "rounded": tg.fn.round("price", 1),
    }
    rows = items() | tg.Select(**columns)
    assert str(schema_of(rows.element_type)) == (
        "total decimal(33,2) not null, more decimal(13,2) not null, part decimal(16,6) not null, "
        "taxed decimal(18,5), text string not null, double double not null, rounded decimal(12,1) not null"
    )
    assert list(map(repr, rows.collect())) == [
        "Row(total=Decimal('4.50'), more=Decimal('2.50'), part=Decimal('0.500000'), taxed=Decimal('1.68750'), "
        "text='1.50', double=3.0, rounded=Decimal('1.5'))",
        "Row(total=Decimal('2.25'), more=Decimal('3.25'), part=Decimal('0.750000'), taxed=None, text='2.25', "
        "double=4.5, rounded=Decimal('2.3'))",
        "Row(total=Decimal('0.00'), more=Decimal('1.00'), part=Decimal('0.000000'), taxed=None, text='0.00', "
        "double=0.0, rounded=Decimal('0.0'))",
    ]


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_sums_and_means_of_decimals_are_exact(runner: str) -> None:
    tenths = [Item("a", Decimal("0.10"))] * 1000 + [Item("a", Decimal("9999999999.99"))]
    columns = {"total": tg.fn.sum("price"), "mean": tg.fn.avg("price"), "kinds": tg.fn.count_distinct("price")}
    rows = tg.Pipeline(runner) | tg.Create(tenths) | tg.GroupBy("name").agg(**columns)
    assert list(map(repr, rows.collect())) == [
        "Row(name='a', total=Decimal('10000000099.99'), mean=Decimal('9990010.089900'), kinds=2)"
    ]


def test_a_key_is_the_same_number_with_any_digits() -> None:
    every = items()
    rows = every | tg.Select(price=tg.col("price").cast("decimal(20,4)"))
    joined = every | tg.Join.on(rows, ("price", "price"), suffix="_exact")
    assert len(joined.collect()) == 3


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Decimal("1.005"), "of type decimal\\(12,2\\), and Decimal\\('1.005'\\) is not: it has more digits"),
        (Decimal("1e12"), "it has more digits"),
        (Decimal("NaN"), "of type decimal\\(12,2\\), and Decimal\\('NaN'\\) is not"),
        (1.5, "of type decimal\\(12,2\\), and 1.5 is not"),
        (None, "is NULL, and its type says that it never is"),
    ],
)
def test_a_value_that_has_not_the_digits_of_its_column_fails_the_run(value: Any, told: str) -> None:
    rows = tg.Pipeline() | tg.Create([Item("a", value)]) | tg.Select(x=-tg.col("price"))
    with pytest.raises(tg.UserCodeError, match=f"(?s)INVALID_COLUMN_VALUE.*{told}"):
        rows.collect()


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        (tg.col("price").cast("decimal(3,2)") * 10, None),
        (tg.lit(Decimal("99.5")).cast("decimal(3,2)"), "NUMERIC_VALUE_OUT_OF_RANGE.*has too many digits for decimal"),
        (tg.col("price") / 0, "DIVIDE_BY_ZERO"),
        (tg.col("price") % 0, "REMAINDER_BY_ZERO"),
        (tg.col("name").cast("decimal(3,2)"), "CAST_INVALID_INPUT.*'a' can't be cast to decimal"),
    ],
)
def test_a_result_with_too_many_digits_is_an_error(expression: tg.Expression, told: str | None) -> None:
    rows = items() | tg.Select(x=expression)
    if told is None:
        rows.collect()
    else:
        with pytest.raises(tg.UserCodeError, match=f"(?s){told}"):
            rows.collect()


@pytest.mark.parametrize("name", ["decimal(39,2)", "decimal(2,3)", "decimal(0,0)", "decimal", "number"])
def test_a_type_that_no_decimal_has_is_refused(name: str) -> None:
    with pytest.raises(tg.BuildError, match=r"is not the type of a column: .* decimal\(p,s\) with up to 38 digits"):
        tg.col("price").cast(name)


def test_a_literal_of_too_many_digits_is_refused() -> None:
    with pytest.raises(tg.BuildError, match="no decimal of at most 38 digits"):
        tg.lit(Decimal("1e39"))


@pytest.mark.parametrize("of", [lambda a, b: a + b, lambda a, b: a == b, lambda a, b: a / b])
def test_a_column_of_unknown_type_beside_a_decimal_is_refused(of: Any) -> None:
    offers = tg.Pipeline() | tg.Create([Offer(None, None)])
    for one, two in (("note", "price"), ("price", "note")):
        with pytest.raises(tg.TypeCheckError, match="the type of note is not known"):
            offers | f"{one}" >> tg.Select(x=of(tg.col(one), tg.col(two)))


@pytest.mark.parametrize("value", [0.5, Decimal("0.5")])
def test_true_is_no_number(value: Any) -> None:
    with pytest.raises(tg.BuildError, match="takes"):
        items() | tg.Select(x=tg.fn.coalesce(tg.lit(value), True))
    with pytest.raises(tg.BuildError, match="takes"):
        items() | tg.Select(x=tg.lit(value) + tg.lit(True))


def test_a_whole_literal_among_decimals_has_the_digits_of_an_integer() -> None:
    columns = {
        "a": tg.fn.coalesce("rate", 0),
        "b": tg.fn.greatest("price", tg.lit(-(2**31))),
        "c": tg.fn.least(2**31, tg.col("price")),
        "d": tg.fn.when(tg.col("qty") > 1, tg.col("rate")).otherwise(1),
        "e": tg.fn.coalesce("rate", tg.col("qty")),
    }
    assert str(schema_of((items() | tg.Select(**columns)).element_type)) == (
        "a decimal(13,3) not null, b decimal(12,2) not null, c decimal(22,2) not null, d decimal(13,3), "
        "e decimal(23,3) not null"
    )


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1.5", "100.00", "1E+2", "-0.00", "x"])
def test_a_stored_literal_that_is_no_value_of_its_type_is_refused(value: str) -> None:
    assert from_json({"value": "-1.50", "type": "decimal(4,2)"}) == Literal(Decimal("-1.50"), DecimalType(4, 2))
    with pytest.raises(ValueError, match=r"is not a literal of type decimal\(4,2\)"):
        from_json({"value": value, "type": "decimal(4,2)"})


def test_stored_decimals_wider_than_those_of_sql_are_unknown() -> None:
    stored = {"name": "wide", "type": "array<decimal(76,10)>"}
    assert from_json(stored) == Column("wide", ArrayType(UNKNOWN))
    assert TypeAdapter(ColumnType).validate_python("struct<`decimal(76,10)`:decimal(38,0)>") == type_named(
        "struct<`decimal(76,10)`:decimal(38,0)>"
    )


def test_whole_quotients_of_decimals_are_refused() -> None:
    with pytest.raises(tg.TypeCheckError, match=r"div takes \(bigint, bigint\), not \(decimal\(12,2\), bigint\)"):
        items() | tg.Select(x=tg.fn.div("price", 2))
